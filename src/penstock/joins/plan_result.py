"""The result of `plan`: a row per policy and budget, as a table, as JSON and as a plot."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.extras import require
from penstock.lazy import Lazy

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    pd = Lazy("pandas")

_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#8c6d1f",
    "#56b4e9",
    "#5b3fa0",
    "#e0a100",
    "#333333",
    "#a8324a",
)
_MARKERS = "osD^vPX<>*"


@dataclass(frozen=True)
class PlanRow:
    """One run of a policy under a budget. `tuples` or `bytes` is the budget.

    >>> import penstock as ps
    >>> data = {"key": [1, 2], "ts": [0, 9]}
    >>> ps.plan(data, data, on="key", time="ts", within=5, budgets=["4 tuples"], policies=["lru"]).rows[
    ...     0
    ... ].recall
    1.0
    """

    policy: str
    budget: str
    tuples: int | None
    bytes: int | None
    results: int
    exact: int
    recall: float
    peak_tuples: int
    peak_bytes: int
    seconds: float
    unit: str  # of the times, as assumed or as their timestamps have it
    need: int = 0  # tuples that the exact join keeps at the average rate
    peak_need: int = 0  # maximum tuples that it keeps at once
    bound: bool = False  # the optimum, which no policy can exceed

    @property
    def _size(self) -> int:
        return self.bytes if self.tuples is None else self.tuples  # type: ignore[return-value]


@dataclass(frozen=True)
class Plan:
    """Recall for every policy and budget, and the smallest budget that reaches the target.

    `rows` has the runs, by policy and rising budget (`pandas.DataFrame(plan.rows)` is the long table).
    `skipped` says which policies could not run, and why. `need` is `Fraction(1)` in tuples (the average need)
    and `peak_need` the maximum number of tuples in the windows at once. `unit` is the unit in which times
    were read. `warnings` says why the plan may mislead, and `notes` how to read it: for example that 100 % of
    the need is not enough, or that a policy is low because of its allocation. `answer` is the run with the
    smallest budget that reached `target`, or None if there is none.

    >>> import penstock as ps
    >>> left = {"key": [1, 2, 3, 1], "ts": [0, 1, 2, 3]}
    >>> right = {"key": [1, 2, 3, 1], "ts": [4, 5, 6, 7]}
    >>> plan = ps.plan(
    ...     left,
    ...     right,
    ...     on="key",
    ...     time="ts",
    ...     within=6,
    ...     budgets=["2 tuples", "8 tuples"],
    ...     policies=["fifo", "prob"],
    ...     target=0.9,
    ... )
    >>> plan.table.loc["fifo", "8 tuples"].item()
    1.0
    >>> plan.answer.policy, plan.answer.budget
    ('fifo', '4 tuples')
    """

    rows: list[PlanRow]
    skipped: dict[str, str]
    target: float | None = None
    answer: PlanRow | None = None
    need: int = 0
    unit: str = "ms"
    warnings: tuple[str, ...] = ()
    peak_need: int = 0
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> pd.DataFrame:
        """Recall by policy (index) and budget (columns); NaN if a policy could not run in a budget.

        >>> import penstock as ps
        >>> data = {"key": [1, 2], "ts": [0, 9]}
        >>> plan = ps.plan(data, data, on="key", time="ts", within=5, budgets=["4 tuples"], policies=["lru"])
        >>> plan.table.to_dict()
        {'4 tuples': {'lru': 1.0}}
        """
        recall: dict[str, dict[str, float]] = {}
        for row in sorted(self.rows, key=lambda row: (row.tuples is None, row._size)):
            recall.setdefault(row.budget, {})[row.policy] = row.recall
        order = list(dict.fromkeys(row.policy for row in self.rows))
        return pd.DataFrame(recall).reindex(order).rename_axis(index="policy", columns="budget")

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the rows as a JSON list, and write it to `path` if given.

        >>> import json, penstock as ps
        >>> data = {"key": [1, 2], "ts": [0, 9]}
        >>> plan = ps.plan(data, data, on="key", time="ts", within=5, budgets=["4 tuples"], policies=["lru"])
        >>> json.loads(plan.to_json())[0]["policy"]
        'lru'
        """
        text = json.dumps([dataclasses.asdict(row) for row in self.rows], indent=2) + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def plot(self, path: str | Path | None = None) -> Figure:
        """Plot recall against budget, a line per policy, and write it to `path` if given.

        >>> import penstock as ps
        >>> data = {"key": [1, 2], "ts": [0, 9]}
        >>> plan = ps.plan(data, data, on="key", time="ts", within=5, budgets=["4 tuples"], policies=["lru"])
        >>> plan.plot().axes[0].get_ylabel()
        'recall'
        """
        require("matplotlib", "Plan.plot()")
        from matplotlib.figure import Figure

        kinds = [
            kind for kind in ("tuples", "bytes") if any(getattr(row, kind) is not None for row in self.rows)
        ]
        figure = Figure(figsize=(8.4 * len(kinds), 4.8), layout="constrained")
        for number, kind in enumerate(kinds, start=1):
            self._draw(figure.add_subplot(1, len(kinds), number), kind)
        if path is not None:
            try:
                figure.savefig(path, dpi=150)
            except ValueError as error:  # an extension that matplotlib does not know
                raise PenstockError(f"The plot cannot be written to {str(path)!r}: {error}") from error
        return figure

    def _draw(self, ax: Axes, kind: str) -> None:
        rows = [row for row in self.rows if getattr(row, kind) is not None]
        names = list(dict.fromkeys(row.policy for row in self.rows))
        ticks = {row._size: row.budget for row in rows}
        for name in names:
            line = sorted((row._size, row.recall) for row in rows if row.policy == name)
            number = names.index(name)
            style: dict[str, Any] = {
                "color": _COLOURS[number % len(_COLOURS)],
                "marker": _MARKERS[number % len(_MARKERS)],
            }
            dash = "-" if number < len(_COLOURS) else "--"
            if any(row.bound for row in rows if row.policy == name):
                style, dash = {"color": "#737373"}, "-."
            ax.plot(*zip(*line, strict=True), label=name, lw=1.7, ms=5.5, ls=dash, **style) if line else None
        if max(ticks) > 8 * min(ticks):
            ax.set_xscale("log")
        ax.set_xticks(list(ticks), list(ticks.values()), rotation=30 if len(ticks) > 8 else 0)
        ax.set_xticks([], minor=True)
        shares = all(row.budget.endswith("%") for row in rows)
        ax.set_xlabel("budget, share of what the exact join needs" if shares else "budget")
        ax.set_ylabel("recall")
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        ax.set_ylim(0, 1.03)
        ax.grid(True, alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
        if self.target is not None:
            ax.axhline(
                self.target,
                color="#777777",
                lw=1.2,
                ls=":",
                label=f"target {100 * self.target:g} %",
                zorder=1,
            )
        found = self.answer
        if found is not None and getattr(found, kind) is not None:
            ax.plot(found._size, found.recall, "*", color="#c00000", ms=15, mec="white", zorder=5,
                    label=f"{found.policy}, {found.budget}")  # fmt: skip
        # List the lines in their vertical order, so that they are easy to find.
        middle = sorted(ticks)[len(ticks) // 2]
        at = {row.policy: row.recall for row in rows if row._size == middle}
        handles, labels = ax.get_legend_handles_labels()
        pairs = sorted(zip(handles, labels, strict=True), key=lambda pair: -at.get(pair[1], -1.0))
        ax.legend(*zip(*pairs, strict=True), loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
