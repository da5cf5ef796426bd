"""As-of joins: for every left row the nearest right row in time, in a fixed amount of memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arguments import MOST_BYTES, flag, flags, number, one_of, whole
from penstock.arrays import time_dtype
from penstock.budget import Budget, Bytes, budget_of
from penstock.columns import Table, row_count
from penstock.compiler.tiers import expecting
from penstock.engine.asof_index import ANY_ORDER, LEFT_FIRST, RIGHT_FIRST, tie_order
from penstock.engine.store import TIMED
from penstock.joins.arrivals import Arrivals, arrivals_of
from penstock.joins.asof_config import (
    DIRECTIONS,
    AsofConfig,
    asof_policy,
    check_budget_of_stream,
    check_tolerance,
    need_of,
    tolerance_of,
    within_budget,
)
from penstock.joins.asof_state import AsofState
from penstock.joins.asof_stats import AsofRun, AsofStats
from penstock.joins.config import behind_of, check_times
from penstock.joins.late import LateWatch
from penstock.payload import mean_row_bytes
from penstock.units import time_unit
from penstock.window import Resolved, UnitWatch, Within, warn_unit

_TIES = {None: ANY_ORDER, False: LEFT_FIRST, True: RIGHT_FIRST}


@dataclass(frozen=True)
class AsofJoin:
    """Finds for every left row the nearest right row of its key in time, in a fixed amount of memory.

    A left row whose answer may have been evicted is *undecided*: it is counted, and no answer is given. All
    other answers are those of the exact join. Memory holds the newest right row of each key, and rows that
    wait: right rows ahead of the left stream, left rows whose right row may still come. When it is full, the
    policy evicts one of them. A right row takes the place, and the score, of the one that it supersedes.

    Parameters
    ----------
    budget
        `Tuples(n)`, `Bytes("64 MiB")` or `Fraction(0.2)`, for both streams together.
    tolerance
        How far apart in time an answer may be, inclusive: a number in the unit of the time column, or a
        duration. Default: no limit.
    direction
        `"backward"`: the latest right row at or before the left row's time, of several the last.
        `"forward"`: the earliest one at or after it, of several the first. `"nearest"`: whichever of these is
        closer, the one before if both are.
    allow_exact_matches
        Whether a right row of the same time is an answer. Default: yes.
    policy
        The eviction policy: a name, a name with options, or a policy object. Default: `"auto"`.
    seed
        Seed for `rand`.

    Examples
    --------
    >>> import penstock as ps
    >>> trades = {"sym": ["A", "B", "A"], "ts": [3, 4, 9]}
    >>> quotes = {"sym": ["A", "A", "B"], "ts": [1, 8, 9]}
    >>> join = ps.AsofJoin(tolerance=5, budget=ps.Tuples(100), policy="lru")
    >>> join.run(trades, quotes, on="sym", time="ts").pairs.to_pydict()
    {'left_row': [0, 1, 2], 'right_row': [0, None, 1]}
    """

    budget: Budget
    tolerance: Any = None
    direction: str = "backward"
    allow_exact_matches: bool = True
    policy: Any = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", budget_of(self.budget))
        object.__setattr__(self, "policy", asof_policy(self.policy))
        check_tolerance(self.tolerance)
        one_of("direction", self.direction, DIRECTIONS)
        flag("allow_exact_matches", self.allow_exact_matches)
        whole("seed", self.seed)

    def run(
        self, left: Table, right: Table, *, on: Any, time: Any, unit: str = "ms", collect: bool = True
    ) -> AsofRun:
        """Join two whole streams, which need not be in order of time.

        `on` is a column name, several names, pairs `(left name, right name)`, or `()` for no key; `time` is a
        name or a pair. `unit` is the unit of numeric time columns. `collect=False` only counts.

        >>> import penstock as ps
        >>> trades, quotes = {"ts": [9, 3]}, {"at": [5, 8]}
        >>> join = ps.AsofJoin(direction="nearest", budget=ps.Tuples(100), policy="lru")
        >>> join.run(trades, quotes, on=(), time=("ts", "at")).pairs["right_row"].to_pylist()
        [1, 0]
        """
        flags(collect=collect)
        order = tie_order(DIRECTIONS[self.direction], bool(self.allow_exact_matches))
        arrivals = arrivals_of(
            left,
            right,
            on,
            time,
            unit,
            sized=isinstance(self.budget, Bytes),
            right_first=order == RIGHT_FIRST,
            keyless=True,
        )
        if self.tolerance is not None:
            warn_unit(Within(self.tolerance, self.tolerance), arrivals.unit, arrivals.numbers)
        check_times(arrivals.time)
        state = self._state_for(arrivals, order, (mean_row_bytes(left) + mean_row_bytes(right)) / 2)
        size = arrivals.size if len(arrivals.size) else None
        with expecting(len(arrivals)):
            state.warm()
            parts = [
                state.process(
                    arrivals.stream, arrivals.key, arrivals.time, arrivals.row, size, collect=collect
                ),
                state.finish(collect=collect),
            ]
        rows = row_count(left)
        totals = state.totals()
        totals["unmatched"] += arrivals.nulls[0]
        stats = AsofStats(
            **{name: totals[name] for name in totals if name != "same_tick"},
            exact=rows,
            null_keys=arrivals.nulls,
            peak_bytes=state.peak_bytes,
            seconds=state.seconds,
            choice=state.choice,
        )
        if not collect:
            return AsofRun(stats, None)
        found = np.concatenate([part.pairs for part in parts])
        return AsofRun(stats, _pairs(rows, found, _null_keys(arrivals, rows)))

    def _state_for(self, arrivals: Arrivals, order: int, mean_row: float) -> AsofState:
        """Return a state for a whole input."""
        dtype = arrivals.time.dtype
        tolerance = tolerance_of(self.tolerance, arrivals.unit, dtype)
        span = arrivals.span
        left, right = arrivals.per_stream
        keys = len(np.unique(arrivals.key[arrivals.stream == 1])) if hasattr(self.budget, "share") else 0
        config = self._config(
            tolerance,
            dtype,
            ties=order,
            rates=(left / span, right / span) if span > 0 else (float(left), float(right)),
            mean_row=float(arrivals.size.mean()) if len(arrivals.size) else mean_row,
        )
        need = need_of((left, right), keys, float(span), tolerance, self.direction)
        return AsofState(within_budget(config, self.budget, need, most=len(arrivals)))

    def _config(self, tolerance: Any, dtype: np.dtype, **settings: Any) -> AsofConfig:
        """Return a config without its budget."""
        return AsofConfig(
            window=Resolved(TIMED, (tolerance, tolerance), float(tolerance)),
            policy=self.policy,
            step="arrival",
            time_dtype=dtype,
            input_dtype=dtype,
            capacities=(1,),
            seed=int(self.seed),
            direction=DIRECTIONS[self.direction],
            exact=bool(self.allow_exact_matches),
            tolerance=tolerance,
            **settings,
        )

    def start(
        self,
        *,
        unit: str = "ms",
        dtype: Any = np.int64,
        row_bytes: float = 64.0,
        lateness: Any = None,
        filter_bytes: int | None = None,
    ) -> AsofState:
        """Return a state that takes arrivals in batches, for unbounded streams.

        Arrivals must be in order of time, those of one time in any order, unless `lateness` is given, as a
        span or one per stream. Then each stream has its own progress, which stays that far behind its largest
        time, and a left row waits until the progress of the right stream is past it. Rows behind the progress
        of their own stream are late: they are counted and left out.

        `row_bytes` is a hint at the average payload in bytes, and `filter_bytes` the size of the filter of
        evicted keys; by default it follows the budget. A `Fraction` cannot be used, because the exact need is
        not known in advance.

        >>> import penstock as ps
        >>> state = ps.AsofJoin(budget=ps.Tuples(100), policy="lru").start(lateness=0)
        >>> state.process([1, 1, 0], [7, 7, 7], [5, 9, 6], [0, 1, 0], collect=True).pairs.tolist()
        [[0, 0]]
        """
        state = self.new_state(
            unit=unit, dtype=dtype, row_bytes=row_bytes, lateness=lateness, filter_bytes=filter_bytes
        )
        if self.tolerance is not None:
            state.unit_watch = UnitWatch(Within(self.tolerance, self.tolerance), unit)
        if lateness is not None:
            state.late_watch = LateWatch()
        return state

    def new_state(
        self,
        *,
        unit: str,
        dtype: Any,
        row_bytes: float,
        lateness: Any,
        filter_bytes: int | None = None,
        right_first: bool | None = None,
    ) -> AsofState:
        """Return what `start` returns, without warnings: the driver warns, not every worker.

        `right_first` says which of the rows of one time come first, if that is known.
        """
        check_budget_of_stream(self.budget)
        if filter_bytes is not None:
            whole("filter_bytes", filter_bytes, most=MOST_BYTES, what="a number of bytes")
        number("row_bytes", row_bytes, 0, MOST_BYTES, what="a number of bytes from 0 up")
        dtype = time_dtype(dtype)
        tolerance = tolerance_of(self.tolerance, time_unit(unit), dtype)
        window = Within(0, 0).resolve(time_unit(unit))
        config = self._config(
            tolerance,
            dtype,
            ties=_TIES[right_first],
            mean_row=row_bytes,
            lateness=None if lateness is None else behind_of(lateness, unit, window),
        )
        return AsofState(within_budget(config, self.budget, 0.0, filter_bytes))


def asof_join(
    left: Table,
    right: Table,
    *,
    on: Any,
    time: Any,
    budget: Any,
    tolerance: Any = None,
    policy: Any = "auto",
    direction: str = "backward",
    allow_exact_matches: bool = True,
    unit: str = "ms",
    seed: int = 0,
) -> AsofRun:
    """Find for every left row the nearest right row of its key in time, in a fixed amount of memory.

    With enough memory the answers are those of `pandas.merge_asof`. With less, left rows whose answer may
    have been evicted are counted as `undecided` and have no pair; all others keep their exact answer. See
    `AsofJoin` for the parameters.

    >>> import penstock as ps
    >>> trades = {"sym": ["A", "B", "A"], "ts": [3, 4, 9]}
    >>> quotes = {"sym": ["A", "A", "B"], "ts": [1, 8, 9]}
    >>> run = ps.asof_join(trades, quotes, on="sym", time="ts", tolerance=60, budget=ps.Tuples(1000))
    >>> run.pairs.to_pydict()
    {'left_row': [0, 1, 2], 'right_row': [0, None, 1]}
    >>> run.stats.results, run.stats.unmatched, run.stats.undecided
    (2, 1, 0)
    """
    join = AsofJoin(
        budget=budget,
        tolerance=tolerance,
        policy=policy,
        direction=direction,
        allow_exact_matches=allow_exact_matches,
        seed=seed,
    )
    return join.run(left, right, on=on, time=time, unit=unit)


def _null_keys(arrivals: Arrivals, rows: int) -> np.ndarray:
    """Return the left rows that have no key, and so no answer."""
    if arrivals.nulls[0] == 0:
        return np.empty(0, np.int64)
    keyed = np.zeros(rows, bool)
    keyed[arrivals.row[arrivals.stream == 0]] = True
    return np.flatnonzero(~keyed)


def _pairs(rows: int, found: np.ndarray, null_keys: np.ndarray) -> pa.Table:
    """Return the answers in order of the left rows; those of rows without a key are null."""
    undecided = -2
    answer = np.full(rows, undecided, np.int64)
    answer[found[:, 0]] = found[:, 1]
    answer[null_keys] = -1
    left_row = np.flatnonzero(answer != undecided)
    right_row = answer[left_row]
    return pa.table({"left_row": left_row, "right_row": pa.array(right_row, mask=right_row < 0)})
