"""`optimal_join`: the maximum number of results of a bounded join, and decisions that reach it."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arguments import flags, shown
from penstock.columns import Table
from penstock.errors import ColumnError, PenstockError, hint
from penstock.joins.arrivals import Arrivals, arrivals_of
from penstock.joins.state import JoinState
from penstock.joins.stats import JoinRun, JoinStats
from penstock.joins.window import WindowJoin
from penstock.payload import mean_row_bytes
from penstock.policies import Opt
from penstock.window import warn_unit

SIDES = ("left", "right")


@dataclass(frozen=True)
class Optimum:
    """The outcome of `optimal_join`.

    `stats` are the counts of a join that followed the decisions. `decisions` has a row per tuple that is
    kept: its stream and row, the step at which it arrives, and the step of the last match it is kept for;
    memory holds it in between. `seconds` is the time it took to find the decisions.

    >>> import penstock as ps
    >>> left, right = {"key": [1, 2, 3], "ts": [0, 1, 2]}, {"key": [2, 3, 3], "ts": [3, 4, 5]}
    >>> best = ps.optimal_join(left, right, on="key", time="ts", within=10, budget=ps.Tuples(2))
    >>> best.results, best.recall
    (3, 1.0)
    >>> best.decisions.to_pylist()[0]
    {'stream': 'left', 'row': 1, 'arrives': 1, 'until': 3}
    """

    stats: JoinStats
    decisions: pa.Table
    seconds: float
    _join: WindowJoin = field(repr=False, compare=False)
    _arrivals: Arrivals = field(repr=False, compare=False)

    @property
    def results(self) -> int:
        """The maximum number of results, including those between arrivals of one tick."""
        return self.stats.results

    @property
    def same_tick(self) -> int:
        """Results between arrivals of one tick, which need no memory."""
        return self.stats.same_tick

    @property
    def exact(self) -> int:
        """Results with unlimited memory."""
        assert self.stats.exact is not None, "there is no condition"
        return self.stats.exact

    @property
    def recall(self) -> float:
        """The share of the exact results that the budget allows."""
        return self.results / self.exact if self.exact else 1.0

    def replay(
        self, decisions: pa.Table | None = None, *, collect: bool = False, log: bool = False
    ) -> JoinRun:
        """Run the join with these decisions, or with others on the same input (see `follow_decisions`).

        >>> import penstock as ps
        >>> left, right = {"key": [1, 2, 3], "ts": [0, 1, 2]}, {"key": [2, 3, 3], "ts": [3, 4, 5]}
        >>> best = ps.optimal_join(left, right, on="key", time="ts", within=10, budget=ps.Tuples(2))
        >>> best.replay(collect=True).pairs.to_pydict()
        {'left_row': [1, 2, 2], 'right_row': [0, 1, 2]}
        """
        keep = _keep(self.decisions if decisions is None else decisions, self._arrivals)
        return self._join.run_arrivals(self._arrivals, collect=collect, log=log, keep=keep)


def optimal_join(
    left: Table,
    right: Table,
    *,
    on: Any,
    time: Any,
    within: Any,
    budget: Any,
    allocation: str | None = "unified",
    step: str = "arrival",
    warmup: int = 0,
    unit: str = "ms",
) -> Optimum:
    """Compute the offline optimum of a bounded join: the most a policy that knows the future could reach.

    The parameters are those of `WindowJoin` and its `run`; the budget is `Tuples` or `Fraction`. No policy
    gets more results with the same parameters. A min-cost flow finds the optimum; its size is the number of
    results of the exact join.

    >>> import penstock as ps
    >>> from penstock.workloads import gdj_pair
    >>> left, right = gdj_pair(keys=20, rate=1)
    >>> ask = {"on": "key", "time": "ts"}
    >>> best = ps.optimal_join(left, right, **ask, within=60, budget=ps.Tuples(20))
    >>> lru = ps.WindowJoin(within=60, budget=ps.Tuples(20), policy="lru").run(left, right, **ask)
    >>> lru.stats.results < best.results < best.exact
    True
    """
    join = WindowJoin(
        within=within, budget=budget, policy="opt", allocation=allocation, step=step, warmup=warmup
    )
    arrivals = join.suited(arrivals_of(left, right, on, time, unit))
    warn_unit(join.within, arrivals.unit, arrivals.numbers, arrivals.stamped)
    config = join.configure(arrivals)
    began = clock.perf_counter()
    keep = JoinState(config, arrivals.trace(config.window.kind, step)).policy.until
    seconds = clock.perf_counter() - began
    mean_row = (mean_row_bytes(left) + mean_row_bytes(right)) / 2
    stats = join.run_arrivals(arrivals, mean_row=mean_row, keep=keep).stats
    return Optimum(stats, _decisions(keep, arrivals, step), seconds, join, arrivals)


def follow_decisions(
    left: Table,
    right: Table,
    decisions: pa.Table,
    *,
    on: Any,
    time: Any,
    within: Any,
    budget: Any,
    allocation: str | None = "unified",
    step: str = "arrival",
    warmup: int = 0,
    unit: str = "ms",
    collect: bool = False,
    log: bool = False,
) -> JoinRun:
    """Run a bounded join with given decisions, which need not be optimal.

    `decisions` has a row per tuple to keep, with the columns `stream` ("left" or "right"), `row`, and
    `until`, the step it is kept to. If they need more room than the budget has, the tuples with the earliest
    `until` are evicted first.

    >>> import pyarrow as pa, penstock as ps
    >>> from penstock.joins import follow_decisions
    >>> left, right = {"key": [1, 2, 3], "ts": [0, 1, 2]}, {"key": [2, 3, 3], "ts": [3, 4, 5]}
    >>> decisions = pa.table({"stream": ["left"], "row": [2], "until": [5]})
    >>> follow_decisions(
    ...     left, right, decisions, on="key", time="ts", within=9, budget=ps.Tuples(2), allocation="equal"
    ... ).stats.results
    2
    """
    flags(collect=collect, log=log)
    join = WindowJoin(
        within=within, budget=budget, policy=_Decided(), allocation=allocation, step=step, warmup=warmup
    )
    arrivals = join.suited(arrivals_of(left, right, on, time, unit))
    warn_unit(join.within, arrivals.unit, arrivals.numbers, arrivals.stamped)
    return join.run_arrivals(arrivals, collect=collect, log=log, keep=_keep(decisions, arrivals))


@dataclass(frozen=True)
class _Decided(Opt):
    """Follows decisions that are there already, so that no flow has to be solved."""

    def check_joins(self) -> None:
        """Nothing is needed."""


def _decisions(keep: np.ndarray, arrivals: Arrivals, step: str) -> pa.Table:
    """Return the kept tuples, and the step each is kept to."""
    kept = np.flatnonzero(keep >= 0)
    return pa.table(
        {
            "stream": pa.array(np.array(SIDES)[arrivals.stream[kept]], pa.string()),
            "row": arrivals.row[kept],
            "arrives": arrivals.steps(step)[kept],
            "until": keep[kept],
        }
    )


def _keep(decisions: pa.Table, arrivals: Arrivals) -> np.ndarray:
    """Return, per arrival, the step it is kept to; the inverse of `_decisions`."""
    if not isinstance(decisions, pa.Table):
        raise ColumnError(
            "decisions takes an Arrow table such as the decisions of an Optimum, with the columns stream, "
            f"row and until; {shown(decisions)} was given."
        )
    for name in ("stream", "row", "until"):
        if name not in decisions.column_names:
            raise ColumnError(f"The decisions have no column {name!r}{hint(name, decisions.column_names)}")
    names = decisions.column("stream").to_pylist()
    for name in set(names) - set(SIDES):
        raise PenstockError(f"A decision names the stream {name!r}{hint(name, SIDES)}")
    side = np.array([SIDES.index(name) for name in names], np.int64)
    rows = decisions.column("row").to_numpy().astype(np.int64)
    number = np.full((2, int(arrivals.row.max(initial=-1)) + 1), -1, np.int64)
    number[arrivals.stream, arrivals.row] = np.arange(len(arrivals))
    fine = (rows >= 0) & (rows < number.shape[1])
    if not fine.all() or (number[side, rows] < 0).any():
        raise PenstockError("The decisions name rows that are not in the input, or whose key is null.")
    keep = np.full(len(arrivals), -1, np.int64)
    keep[number[side, rows]] = decisions.column("until").to_numpy()
    return keep
