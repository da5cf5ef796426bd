"""Experiments that give a whole table at once, as figures: one trial, a plain drawing, claims if any.

Such an experiment has `name`, `title` and `run(options)`, and says which columns of its table go down
(`index`), across (`columns`) and into the cells (`value`). Its module may have `CLAIMS`, a dict of name to a
function that judges the table.
"""

from __future__ import annotations

import hashlib
import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from penstock.experiments.base import Options
from penstock.experiments.figure import Figure, Row, Scope, Trial
from penstock.experiments.plots import COLOURS, SPARE, finish, lines, panels


def whole_table(module: str, name: str, quick: bool, data: str | None) -> list[Row]:
    """Run an experiment of a module."""
    found = next(each for each in import_module(module).EXPERIMENTS if each.name == name)
    options = Options(quick=quick, data=None if data is None else Path(data))
    rows: list[Row] = found.run(options).reset_index(drop=True).to_dict("records")
    return rows


def figure_of_table(module: Any, experiment: Any, scope: Scope) -> Figure:
    """An experiment as a figure."""
    given = {
        "module": module.__name__, "name": experiment.name, "quick": scope.quick, "data": scope.folder
    }  # fmt: skip
    code = hashlib.sha256(inspect.getsource(module).encode()).hexdigest()
    name = experiment.name.replace(" ", "-").lower()
    return Figure(
        name,
        experiment.title,
        experiment.name,
        [Trial(whole_table, given, shown=False, code=code)],
        lambda table: draw(table, experiment.title, experiment.index, experiment.columns, experiment.value),
        getattr(module, "CLAIMS", {}).get(experiment.name, lambda table: []),
        layout=(experiment.index, experiment.columns, experiment.value),
    )


def wide(table: pd.DataFrame, down: str, across: str, value: str) -> pd.DataFrame:
    """A tidy table with one column across; several go down as "a,b". The order is that of the rows.

    >>> import pandas as pd
    >>> from penstock.experiments.tables import wide
    >>> table = pd.DataFrame({"stream": ["A", "A"], "policy": ["lru", "gdj"], "results": [3, 4]})
    >>> wide(table, "stream", "policy", "results").to_dict("records")
    [{'lru': 3.0, 'gdj': 4.0}]
    """
    index = down.split(",")
    if not across:
        return table.set_index(index)[[value]]
    means = table.groupby([*index, across], sort=False)[value].mean().unstack(across)
    keys = list(dict.fromkeys(table[index].itertuples(index=False, name=None)))
    means = means.loc[keys if len(index) > 1 else [key[0] for key in keys]]
    return means[list(dict.fromkeys(table[across]))]


def draw(table: pd.DataFrame, title: str, down: str, across: str, value: str) -> Any:
    """Lines over numbers, and bars over names; the mean where a cell has several values.

    >>> import pandas as pd
    >>> from penstock.experiments.tables import draw
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
        ax.set_xticks(range(len(by)), labels, rotation=90 if many else 20, fontsize=6 if many else 9)
    finish(ax, title, "" if "," in down else down, value)
    if ax.get_legend() is not None:
        ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawing
