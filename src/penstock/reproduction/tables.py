"""Show and plot a tidy table: one column down, one across, one in the cells."""

from __future__ import annotations

import textwrap
from typing import Any

import pandas as pd

from penstock.reproduction.plots import COLOURS, SPARE, finish, lines, panels


def wide(table: pd.DataFrame, down: str, across: str, value: str) -> pd.DataFrame:
    """A tidy table with one column across; several go down as "a,b". The order is that of the rows.

    >>> import pandas as pd
    >>> from penstock.reproduction.tables import wide
    >>> table = pd.DataFrame({"stream": ["A", "A"], "policy": ["lru", "gdj"], "results": [3, 4]})
    >>> wide(table, "stream", "policy", "results").to_dict("records")
    [{'lru': 3.0, 'gdj': 4.0}]
    """
    index = down.split(",")
    if not across:
        return table.groupby(index, sort=False)[[value]].mean()
    means = table.groupby([*index, across], sort=False)[value].mean().unstack(across)
    keys = list(dict.fromkeys(table[index].itertuples(index=False, name=None)))
    means = means.loc[keys if len(index) > 1 else [key[0] for key in keys]]
    return means[list(dict.fromkeys(table[across]))]


def draw(table: pd.DataFrame, title: str, down: str, across: str, value: str, **units: str) -> Any:
    """Lines over numbers, and bars over names; the mean where a cell has several values.

    `units` are labels of axes by column, where its name alone does not say the unit.

    >>> import pandas as pd
    >>> from penstock.reproduction.tables import draw
    >>> table = pd.DataFrame({"stream": ["A", "A"], "policy": ["lru", "gdj"], "results": [3, 4]})
    >>> len(draw(table, "Results", "stream", "policy", "results").axes)
    1
    """
    names = down.split(",")
    if len(names) > 1:
        table = table.assign(**{down: table[names].astype(str).agg(" ".join, axis=1)})
    if not across:
        across, table = "shown", table.assign(shown=value)
    if table[across].dtype.kind in "if" and table[down].dtype.kind not in "if":
        down, across = across, down
    drawing, (ax,) = panels(1, width=8)
    if table[down].dtype.kind in "if":
        mean = table.groupby([down, across], sort=False)[value].mean().reset_index()
        lines(ax, mean, down, value, across)
    else:
        by = wide(table.rename(columns={down: "down"}), "down", across, value)
        step = 0.8 / max(1, by.shape[1])
        for number, name in enumerate(by.columns):
            colour = COLOURS.get(str(name).lower(), SPARE[number % len(SPARE)])
            at = [i - 0.4 + (number + 0.5) * step for i in range(len(by))]
            ax.bar(at, by[name], step, color=colour, label=str(name))
        many = len(by) > 8
        labels = [str(name) for name in by.index]
        if not many:  # long ones in several lines, rather than aslant
            labels = [textwrap.fill(label, 14) for label in labels]
        ax.set_xticks(range(len(by)), labels, rotation=90 if many else 0, fontsize=6 if many else 8)
    finish(ax, title, "" if "," in down else units.get(down, down), units.get(value, value), legend=None)
    if len(ax.get_legend_handles_labels()[0]) > 1:
        ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawing
