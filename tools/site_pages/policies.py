"""A page for every policy of the registry: when to use it, what it does and costs, and its measured curve.

The curves are recall by budget on three streams: keys that come in bursts and not again, independent Zipf
draws, which have no memory, and values that follow a trend (TOWER of the HEEB paper). They are measured when
the pages are built.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
from typing import Any

import numpy as np

import penstock as ps
from penstock.workloads import tower, zipf_pair
from site_pages.pictures import STYLE, png

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


def navigation() -> list[Any]:
    """The list of all policies, a page each, and how to write one."""
    pages = [f"policies/{kind.name}.md" for kind in ps.policies.registered("any")]
    return ["policies/index.md", *pages, {"Writing a policy": "writing-a-policy.md"}]


def pages(quick: bool = False) -> dict[str, str | bytes]:
    """Pages and pictures by their paths; `quick` measures nothing."""
    tables = {} if quick else measured()
    kinds = ps.policies.registered("any")
    made: dict[str, str | bytes] = {"policies/index.md": index(kinds, tables)}
    for kind in kinds:
        made[f"policies/{kind.name}.md"] = page(kind, tables)
        picture = curve(kind.name, tables)
        if picture is not None:
            made[f"policies/{kind.name}.png"] = picture
    return made


def measured() -> dict[str, Any]:
    """Recall by policy and budget, on each stream."""
    tables: dict[str, Any] = {}
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
        "A policy decides which tuple is evicted when memory is full. `auto` is the default. "
        "[Choosing](../choosing.md) starts from what you know of your stream.",
        "",
        "| policy | what it does | use it when |",
        "|---|---|---|",
        *(f"| [{kind.name}]({kind.name}.md) | {kind.summary} | {kind.wins} |" for kind in kinds),
    ]
    if tables:
        lines += [
            "",
            "## Measured",
            "",
            "Recall at 20 % of what the exact join keeps, on three streams. Each page shows the whole curve.",
            "",
            "| policy | " + " | ".join(tables) + " |",
            "|---|" + "---|" * len(tables),
        ]
        for kind in (each for each in kinds if each.joins):
            recalls = [recall_of(table, kind.name) for table in tables.values()]
            lines.append(f"| [{kind.name}]({kind.name}.md) | " + " | ".join(recalls) + " |")
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
    idea = (first + "\n" + textwrap.dedent(rest)).partition(">>>")[0]
    idea = re.sub(r"\n(Parameters|Examples)\n-+\n.*", "", idea, flags=re.DOTALL).strip()
    lines = [
        f"# {kind.name}", "", f"*{sentence(kind.summary)}*", "",
        '!!! tip "Use it when"', "", f"    {sentence(kind.wins)}", "",
        '!!! warning "Not when"', "", f"    {sentence(kind.loses)}", "",
        "## How it works", "", idea, "",
        f"The class is [`{kind.__name__}`][penstock.policies.{kind.__name__}].", "",
    ]  # fmt: skip
    fields = dataclasses.fields(kind)
    if fields:
        lines += ["## Options", "", "| option | default |", "|---|---|"]
        lines += [f"| `{each.name}` | `{each.default!r}` |" for each in fields]
        plain = next((each for each in fields if isinstance(each.default, int | float | str)), None)
        if plain is not None:
            lines += ["", f'By name with options: `policy="{kind.name}:{plain.name}={plain.default}"`.', ""]
    yes = {True: "yes", False: "no"}
    lines += [
        "## What it can do", "", "| property | |", "|---|---|",
        f"| cost | {kind.cost} |",
        f"| joins of two streams | {yes[kind.joins]} |",
        f"| joins of many streams | {yes[kind.joins and kind.many]} |",
        f"| lookups | {yes[kind.caches]} |",
        f"| may refuse the newcomer | {yes[kind.selective]} |",
        f"| one pool for all streams | {yes[kind.unified]} |",
        f"| budgets in bytes | {yes[kind.counts_bytes]} |",
        f"| candidate of `auto` by default | {tried_in(kind)} |",
        f"| paper | {kind.paper or '–'} |", "",
    ]  # fmt: skip
    if tables and kind.joins:
        lines += ["## Measured", ""]
        lines += [standing(kind.name, name, table) for name, table in tables.items()]
        if any(kind.name in table.index for table in tables.values()):
            lines += ["", f"![recall of {kind.name} by budget, the other policies in grey]({kind.name}.png)"]
    return "\n".join(lines) + "\n"


def sentence(text: str) -> str:
    """The text with a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


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
    if not any(policy in table.index for table in tables.values()):
        return None
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 2.8))
        FigureCanvasAgg(figure)
        for ax, (name, table) in zip(figure.subplots(1, len(tables)), tables.items(), strict=True):
            for other, row in table.iterrows():
                mine = other == policy
                style = {"color": "#3f87d9", "lw": 2.2, "marker": "o"} if mine else {"color": "#80848860"}
                ax.plot(range(len(row)), row.to_numpy(float), zorder=2 if mine else 1, **style)
            ax.set_xticks(range(len(table.columns)), [str(each) for each in table.columns])
            ax.set(title=name, xlabel="budget", ylabel="recall", ylim=(0, 1.02))
        return png(figure)
