"""The report: one self-contained HTML page, and a summary of its claims in Markdown."""

from __future__ import annotations

import base64
import platform
import struct
from collections import Counter
from collections.abc import Iterable
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.reproduction.figure import Claim, Outcome, Scope
from penstock.reproduction.papers import TITLES

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 200  # rows of a table on the page; the CSV has all
TOLD = ("penstock", "numpy", "numba", "pandas", "scipy", "ortools", "matplotlib", "pyspark")


def write_report(outcomes: list[Outcome], out: Path, scope: Scope, *, seconds: float = 0.0) -> Path:
    """Write `report.html` and `summary.md` into a folder; the path of the page.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.reproduction import Scope, write_report
    >>> page = write_report([], Path(tempfile.mkdtemp()), Scope())
    >>> page.name, page.read_text(encoding="utf-8").startswith("<!doctype html>")
    ('report.html', True)
    """
    style = files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    papers = list(dict.fromkeys(outcome.paper for outcome in outcomes))
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Penstock: the experiments, rerun</title><style>{style}</style></head><body>",
        _head(outcomes, papers, scope, seconds),
    ]
    for paper in papers:
        mine = [outcome for outcome in outcomes if outcome.paper == paper]
        parts.append(f'<h2 id="{escape(paper)}">{escape(TITLES[paper])}</h2>')
        parts += [_contents(mine), *(_figure(outcome) for outcome in mine)]
    parts += [_surroundings(outcomes, scope), "</body></html>"]
    page = out / "report.html"
    page.write_text("\n".join(parts) + "\n", encoding="utf-8")
    (out / "summary.md").write_text(summary(outcomes), encoding="utf-8")
    return page


def claims_of(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """All claims as plain data.

    >>> from penstock.reproduction.report import claims_of
    >>> claims_of([])
    []
    """
    return [
        {
            "paper": outcome.paper,
            "figure": outcome.figure.name,
            "title": outcome.figure.title,
            "claim": claim.paper,
            "measured": claim.measured,
            "holds": claim.holds,
            "sources": outcome.sources,
        }
        for outcome in outcomes
        for claim in outcome.claims
    ]


def summary(outcomes: Iterable[Outcome]) -> str:
    """The claims as a table in Markdown.

    >>> from penstock.reproduction.report import summary
    >>> print(summary([]))
    | figure | claimed | measured | verdict |
    |---|---|---|---|
    <BLANKLINE>
    """
    lines = ["| figure | claimed | measured | verdict |", "|---|---|---|---|"]
    for outcome in outcomes:
        for number, claim in enumerate(outcome.claims):
            name = "" if number else f"{outcome.paper} {outcome.figure.name}"
            cells = (name, claim.paper, claim.measured, claim.verdict)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _head(outcomes: list[Outcome], papers: list[str], scope: Scope, seconds: float) -> str:
    verdicts = Counter(claim.holds for outcome in outcomes for claim in outcome.claims)
    cells = "".join(
        f'<li class="{kind}"><b>{verdicts[holds]}</b>{text}</li>'
        for kind, holds, text in (
            ("true", True, "claims hold"),
            ("false", False, "claims do not hold"),
            ("none", None, "undecided here"),
        )
    )
    rows = []
    for paper in papers:
        mine = [claim for outcome in outcomes if outcome.paper == paper for claim in outcome.claims]
        count = Counter(claim.holds for claim in mine)
        figures = sum(outcome.paper == paper for outcome in outcomes)
        numbers = "".join(
            f'<td class="n">{n}</td>' for n in (figures, count[True], count[False], count[None])
        )
        name = escape(TITLES[paper])
        rows.append(f'<tr><td><a href="#{escape(paper)}">{name}</a></td>{numbers}</tr>')
    kind = "A quick run: fewer and smaller inputs than the full one." if scope.quick else "The full run."
    return (
        "<header><h1>The experiments, rerun</h1>"
        f'<p class="quiet">{kind} {len(outcomes)} figures in {seconds:,.0f} seconds of this run.</p>'
        f'<ul class="tally">{cells}</ul>'
        '<table><thead><tr><th>paper</th><th class="n">figures</th><th class="n">hold</th>'
        '<th class="n">do not</th><th class="n">open</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>{_failing(outcomes)}</header>"
    )


def _failing(outcomes: list[Outcome]) -> str:
    """The claims that do not hold, before all else: they are what a reader wants to know."""
    rows = "".join(
        f'<tr><td><a href="#{_place(outcome)}">{escape(outcome.paper)} {escape(outcome.figure.name)}</a></td>'
        f"<td>{escape(claim.paper)}</td><td>{escape(claim.measured)}</td></tr>"
        for outcome in outcomes
        for claim in outcome.claims
        if claim.holds is False
    )
    heads = "<tr><th>figure</th><th>claimed</th><th>measured</th></tr>"
    if not rows:
        return ""
    table = f'<table class="claims"><thead>{heads}</thead><tbody>{rows}</tbody></table>'
    return f"<h3>What does not hold</h3>{table}"


def _place(outcome: Outcome) -> str:
    return escape(f"{outcome.paper}-{outcome.figure.name}")


def _contents(outcomes: list[Outcome]) -> str:
    """The figures of a paper, with how many of their claims hold."""
    items = []
    for outcome in outcomes:
        held = sum(claim.holds is True for claim in outcome.claims)
        title, where = escape(outcome.figure.title), escape(outcome.figure.where)
        items.append(
            f'<li><a href="#{_place(outcome)}">{title}</a> <span class="quiet">{where}; '
            f"{held} of {len(outcome.claims)} hold</span></li>"
        )
    return f'<ul class="contents">{"".join(items)}</ul>' if len(items) > 1 else ""


def _figure(outcome: Outcome) -> str:
    figure = outcome.figure
    picture = base64.b64encode(outcome.png.read_bytes()).decode()
    sources = "; ".join(outcome.sources) or "none"
    note = f'<p class="quiet">{escape(figure.note)}</p>' if figure.note else ""
    tall = _is_tall(outcome.png)
    return (
        f'<section class="figure" id="{_place(outcome)}"><h3>{escape(figure.title)} '
        f'<span class="quiet">({escape(figure.where)})</span></h3>'
        f'<figure{tall}><img alt="{escape(figure.title)}" src="data:image/png;base64,{picture}"></figure>'
        f"{_claims(outcome.claims)}{note}"
        f'<p class="quiet">Streams: {escape(sources)}. {_runs(len(figure.trials))}.</p>'
        f"{_rows(outcome.table)}</section>"
    )


def _is_tall(png: Path) -> str:
    """A class for pictures that are high on paper; width and height stand in a PNG's header."""
    width, height = struct.unpack(">II", png.read_bytes()[16:24])
    return ' class="tall"' if height > 0.8 * width else ""


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs"


def _claims(claims: list[Claim]) -> str:
    rows = "".join(
        f"<tr><td>{escape(claim.paper)}</td><td>{escape(claim.measured)}</td>"
        f'<td class="verdict {str(claim.holds).lower()}">{claim.verdict}</td></tr>'
        for claim in claims
    )
    heads = "<tr><th>claimed</th><th>measured</th><th>verdict</th></tr>"
    return f'<table class="claims"><thead>{heads}</thead><tbody>{rows}</tbody></table>'


def _rows(table: pd.DataFrame) -> str:
    shown = table.head(SHOWN).drop(columns=["source"], errors="ignore").dropna(axis=1, how="all")
    text = shown.to_html(index=False, border=0, na_rep="", float_format="{:.4g}".format)
    more = f", the first {SHOWN} shown" if len(table) > SHOWN else ""
    return f'<details><summary>{len(table)} rows{more}</summary><div class="scroll">{text}</div></details>'


def _surroundings(outcomes: list[Outcome], scope: Scope) -> str:
    facts = {
        "seed": str(scope.seed),
        "data": "real streams where present" if scope.data is not None else "all streams generated",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
    }
    for package in TOLD:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    facts["streams"] = "; ".join(sorted({source for outcome in outcomes for source in outcome.sources}))
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in facts.items())
    return f'<h2 id="surroundings">Surroundings</h2><table class="facts"><tbody>{rows}</tbody></table>'
