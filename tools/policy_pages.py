"""A hook of mkdocs: a page for every policy of the registry, when it wins and loses, and its measured curve.

The curves are recall by budget on three streams: keys that come in bursts and not again, independent Zipf
draws, which have no memory, and values that follow a trend (TOWER of the HEEB paper). They are measured when
the pages are built; `PENSTOCK_DOCS=quick` leaves them out.
"""

from __future__ import annotations

import dataclasses
import io
import os
import textwrap
from typing import Any

import numpy as np
from mkdocs.structure.files import File

import penstock as ps
from penstock.workloads import tower, zipf_pair

BUDGETS = ("5 %", "10 %", "20 %", "40 %", "70 %")
STREAMS = {
    "keys that come in bursts": lambda: (bursts_of_keys(8_000), 800),
    "independent draws": lambda: (zipf_pair(4_000, keys=200, alpha=0.9, rate=100, seed=1), 1_500),
    "values on a trend": lambda: (tower(steps=1_500, seed=1), 60),
}


def bursts_of_keys(arrivals: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two streams whose keys are asked for again and again for a while, and then no more."""
    rng = np.random.default_rng(1)
    hot = np.repeat(rng.integers(0, 10**6, arrivals // 50 + 1), 50)
    back = rng.exponential(100, arrivals).astype(int)
    key = hot[np.maximum(0, np.arange(arrivals) - back)]
    left = rng.random(arrivals) < 0.5
    return tuple({"key": key[side], "ts": np.flatnonzero(side)} for side in (left, ~left))  # type: ignore[return-value]


def on_config(config: Any) -> Any:
    """Give the pages their place in the navigation."""
    pages = ["policies/index.md", *(f"policies/{kind.name}.md" for kind in ps.policies.registered())]
    config.nav = [{"Policies": pages} if "Policies" in entry else entry for entry in config.nav]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and pictures, which exist in memory only."""
    tables = measured()
    kinds = ps.policies.registered()
    made: dict[str, str | bytes] = {"policies/index.md": index(kinds, tables)}
    for kind in kinds:
        made[f"policies/{kind.name}.md"] = page(kind, tables)
        picture = curve(kind.name, tables)
        if picture is not None:
            made[f"policies/{kind.name}.png"] = picture
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def measured() -> dict[str, Any]:
    """Recall by policy and budget, on each stream."""
    tables: dict[str, Any] = {}
    if os.environ.get("PENSTOCK_DOCS") == "quick":
        return tables
    for name, make in STREAMS.items():
        (left, right), within = make()
        names = [kind.name for kind in ps.policies.registered() if not kind.needs_model]
        plan = ps.plan(left, right, on="key", time="ts", within=within, budgets=list(BUDGETS), policies=names)
        tables[name] = plan.table
    return tables


def index(kinds: Any, tables: dict[str, Any]) -> str:
    """The list of all policies."""
    lines = [
        "# Policies",
        "",
        "Recall is at 20 % of what the exact join keeps, on three streams. Each page says when its policy "
        "wins and when it loses, and shows the whole curve.",
        "",
    ]
    lines += ["| policy | what it does | " + " | ".join(tables) + " |", "|---|---|" + "---|" * len(tables)]
    for kind in kinds:
        recalls = [recall_of(table, kind.name) for table in tables.values()]
        lines.append(f"| [{kind.name}]({kind.name}.md) | {kind.summary} | " + " | ".join(recalls) + " |")
    return "\n".join(lines) + "\n"


def recall_of(table: Any, name: str, budget: str = "20 %") -> str:
    """The recall of a policy, or a dash."""
    if name not in table.index or table.loc[name, budget] != table.loc[name, budget]:
        return "–"
    return f"{table.loc[name, budget]:.2f}"


def page(kind: Any, tables: dict[str, Any]) -> str:
    """What there is to know of one policy."""
    text = textwrap.dedent(kind.__doc__ or "")
    first, _, rest = text.partition("\n")
    idea = (first + "\n" + textwrap.dedent(rest)).partition(">>>")[0].strip()
    lines = [f"# {kind.name}", "", f"*{kind.summary[0].upper()}{kind.summary[1:]}.*", "", idea, ""]
    fields = dataclasses.fields(kind)
    if fields:
        lines += ["## Options", "", "| option | default |", "|---|---|"]
        lines += [f"| `{each.name}` | `{each.default!r}` |" for each in fields]
        example = f"{kind.name}:{fields[0].name}=..."
        lines += ["", f'By name with options: `policy="{example}"`.', ""]
    yes = {True: "yes", False: "no"}
    lines += [
        "## What it can do", "", "| property | |", "|---|---|",
        f"| cost | {kind.cost} |",
        f"| may refuse the newcomer | {yes[kind.selective]} |",
        f"| one pool for all streams | {yes[kind.unified]} |",
        f"| joins of many streams | {yes[kind.many]} |",
        f"| lookups | {yes[kind.caches]} |",
        f"| budgets in bytes | {yes[kind.counts_bytes]} |",
        f"| candidate of `auto` by default | {tried_in(kind)} |",
        f"| paper | {kind.paper or '–'} |", "",
        "## When it wins, and when it loses", "",
        f"- **It wins** when {kind.wins}.", f"- **It loses** when {kind.loses}.", "",
    ]  # fmt: skip
    if tables:
        lines += ["Measured:", ""]
    lines += [standing(kind.name, name, table) for name, table in tables.items()]
    if any(kind.name in table.index for table in tables.values()):
        lines += ["", f"![recall of {kind.name} by budget, the other policies in grey]({kind.name}.png)"]
    return "\n".join(lines) + "\n"


def tried_in(kind: Any) -> str:
    """The operators in which `auto` tries a policy by default."""
    operators = {"join": "joins", "cache": "lookups", "query": "stream queries"}
    return ", ".join(text for name, text in operators.items() if name in kind.candidate_for) or "no"


def standing(policy: str, stream: str, table: Any, budget: str = "20 %") -> str:
    """One line: the place of a policy on a stream, and who is ahead."""
    bounds = [kind.name for kind in ps.policies.registered() if kind.bound]
    column = table[budget].dropna().drop(index=bounds, errors="ignore").sort_values(ascending=False)
    if policy in bounds and policy in table.index:
        best, most = column.iloc[0], table.loc[policy, budget]
        return f"- **{stream}**: the optimum has {most:.2f}, the best policy {best:.2f}."
    if policy not in column.index:
        return f"- **{stream}**: not measured; it cannot run, or takes too long, here."
    place = list(column.index).index(policy) + 1
    best = f"the best, {column.index[0]}, has {column.iloc[0]:.2f}" if place > 1 else "the best"
    return f"- **{stream}**: recall {column[policy]:.2f} at {budget}, place {place} of {len(column)}; {best}."


def curve(policy: str, tables: dict[str, Any]) -> bytes | None:
    """The recall of a policy by budget, the others behind it in grey."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not any(policy in table.index for table in tables.values()):
        return None
    figure = Figure(figsize=(10, 3), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, (name, table) in zip(figure.subplots(1, len(tables)), tables.items(), strict=True):
        for other, row in table.iterrows():
            mine = other == policy
            style = {"color": "#1f5fa8", "lw": 2.2, "marker": "o"} if mine else {"color": "0.8", "lw": 1}
            ax.plot(range(len(row)), row.to_numpy(float), zorder=2 if mine else 1, **style)
        ax.set_xticks(range(len(table.columns)), [str(each) for each in table.columns])
        ax.set(title=name, xlabel="budget", ylabel="recall", ylim=(0, 1.02))
        ax.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
