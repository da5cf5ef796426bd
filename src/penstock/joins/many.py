"""`join_many`: bounded joins of many streams, optionally several joins in one memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import check_reach
from penstock.budget import Budget, Bytes, Fraction, Tuples, budget_of
from penstock.columns import Table
from penstock.compiler.tiers import expecting
from penstock.engine.many_index import exact_many, new_scheme
from penstock.engine.many_join import apportion
from penstock.engine.store import LANDMARK
from penstock.errors import (
    BudgetError,
    PenstockError,
    UnknownPolicyError,
    WindowError,
    hint,
)
from penstock.joins.config import fitting
from penstock.joins.many_arrivals import Joins, ManyArrivals, joins_of, many_arrivals_of
from penstock.joins.many_state import ManyConfig, ManyOutput, ManyState, countable
from penstock.policies import Policy, get, registered
from penstock.window import Resolved, Rows, Window, Within, warn_unit, window_of

ALLOCATIONS = ("unified", "equal", "proportional", "credit")
EVENTS = ("evicted", "expired", "dropped")


@dataclass(frozen=True)
class ManyStats:
    """Counts of a run; arrivals = buffered + expired + evicted."""

    results: int
    exact: int
    per_join: tuple[int, ...]  # results of each join
    exact_per_join: tuple[int, ...]
    arrivals: int
    buffered: int
    expired: int
    evicted: int
    refused: int  # evicted tuples that never entered
    dropped: int
    null_keys: tuple[int, ...]  # per stream, rows without a key in any of their joins
    limits: tuple[int, ...]  # limits of the pools at the end, in tuples
    peak_tuples: int
    seconds: float

    @property
    def recall(self) -> float:
        """The share of the exact joins' results that were found; 1 if there are none.

        >>> import penstock as ps
        >>> data = {"key": [1, 2], "ts": [0, 1]}
        >>> run = ps.join_many({"a": data, "b": data}, on="key", time="ts", within=5, budget=ps.Tuples(4))
        >>> run.stats.recall
        1.0
        """
        return self.results / self.exact if self.exact else 1.0

    def as_dict(self) -> dict[str, Any]:
        """Return the counts by name, including recall.

        >>> import penstock as ps
        >>> data = {"key": [1, 2], "ts": [0, 1]}
        >>> run = ps.join_many({"a": data, "b": data}, on="key", time="ts", within=5, budget=ps.Tuples(4))
        >>> run.stats.as_dict()["results"]
        2
        """
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"recall": self.recall}


@dataclass(frozen=True)
class ManyRun:
    """The outcome of `join_many`: its stats, and the results of each join if collected."""

    stats: ManyStats
    results: list[pa.Table] | None  # per join, a column of row numbers per stream
    events: pa.Table | None = None  # when tuples entered and left, with log=True


def join_many(
    streams: Mapping[str, Table],
    *,
    on: Any,
    time: Any,
    within: Any,
    budget: Budget,
    policy: Any = "gdj",
    allocation: str | None = None,
    seed: int = 0,
    unit: str = "ms",
    collect: bool = False,
    log: bool = False,
) -> ManyRun:
    """Join many streams in a fixed amount of memory: one join over all, or several joins side by side.

    A result has one tuple of each stream of the join, all with the same key and within the window of the
    newest. A buffered tuple counts as matched once per arrival and join in whose results it appears, so a
    tuple that serves several joins earns credit in all of them (sections 4.3 and 5.3.4 of the GreedyDual-Join
    paper).

    Parameters
    ----------
    streams
        A dict of name to table: pandas, Arrow, or dicts of arrays. Its order breaks ties of time.
    on
        A column (or several columns, a composite key) that all streams share: one join over all of them.
        Or a list of joins, each a tuple of two or more `(stream, column)` members: joins on different
        attributes of the same streams, joins of different streams, or both.
    time
        The time column of all streams, or a dict of stream to column.
    within
        A number in the unit of the time column or a duration, or `Landmark(every)`.
    budget
        `Tuples(n)` or `Fraction(0.2)`, for all streams together.
    policy
        The eviction policy. `life` and `age` are not defined for many streams. A policy in plain Python sees
        the key of the first join in which the tuple has one.
    allocation
        `"unified"` (the default): one pool, in which any tuple may displace any other. `"equal"` and
        `"proportional"` (to the arrivals): a pool per stream. `"credit"` (with `gdj`): a pool per stream,
        resized in proportion to the average credit of its tuples, each time as many arrivals have come as
        the budget has tuples. It is coarse: a pool whose tuples earn nothing shrinks to one tuple and then
        hardly recovers.
    seed
        Seed for `rand`.
    unit
        The unit of numeric time columns.
    collect, log
        Whether to return the results as row numbers of the inputs, and when tuples entered and left.

    Examples
    --------
    Three streams on one key:

    >>> import penstock as ps
    >>> seen = {"ad": ["a", "b", "a"], "ts": [0, 1, 2]}
    >>> clicked = {"ad": ["a", "b"], "ts": [3, 4]}
    >>> bought = {"ad": ["a"], "ts": [5]}
    >>> run = ps.join_many(
    ...     {"seen": seen, "clicked": clicked, "bought": bought},
    ...     on="ad",
    ...     time="ts",
    ...     within=10,
    ...     budget=ps.Tuples(100),
    ...     collect=True,
    ... )
    >>> run.stats.results, run.stats.recall
    (2, 1.0)
    >>> run.results[0].to_pydict()
    {'seen_row': [0, 2], 'clicked_row': [0, 0], 'bought_row': [0, 0]}

    Two joins of the same streams on different attributes, in one memory:

    >>> orders = {"customer": [1, 2], "item": [7, 8], "ts": [0, 1]}
    >>> visits = {"customer": [1, 1], "item": [8, 7], "ts": [2, 3]}
    >>> run = ps.join_many(
    ...     {"orders": orders, "visits": visits},
    ...     on=[
    ...         (("orders", "customer"), ("visits", "customer")),
    ...         (("orders", "item"), ("visits", "item")),
    ...     ],
    ...     time="ts",
    ...     within=10,
    ...     budget=ps.Tuples(3),
    ... )
    >>> run.stats.per_join
    (2, 2)
    """
    window, budget, policy = window_of(within), budget_of(budget), get(policy)
    allocation = check_options(window, budget, policy, allocation, seed, rates_known=True)
    joins = joins_of(streams, on)
    if isinstance(budget, Tuples):
        enough(budget.n, len(streams), f"{budget!r} was given")
    arrivals = many_arrivals_of(streams, joins, time, unit)
    warn_unit(window, arrivals.unit, arrivals.numbers, arrivals.stamped)
    config = _configure(arrivals, window, budget, policy, allocation, seed)
    state = ManyState(config)
    with expecting(len(arrivals.stream)):
        state.warm()
        out = state.process(
            arrivals.stream, arrivals.key, arrivals.time, arrivals.row, collect=collect, log=log
        )
    exact = exact_results(arrivals, config.window)
    stats = ManyStats(
        **state.totals(),
        exact=sum(exact),
        per_join=state.per_join,
        exact_per_join=exact,
        null_keys=arrivals.nulls,
        limits=state.limits,
        seconds=state.seconds,
    )
    names = list(streams)
    return ManyRun(stats, _tables(joins, out) if collect else None, _events(names, out) if log else None)


def exact_results(arrivals: ManyArrivals, window: Resolved) -> tuple[int, ...]:
    """Return the results of each join with unlimited memory."""
    sizes = [keys * len(join) for keys, join in zip(arrivals.keys, arrivals.joins, strict=True)]
    found = exact_many(
        new_scheme(arrivals.joins, len(arrivals.nulls)),
        arrivals.stream,
        arrivals.key,
        arrivals.time,
        np.cumsum([0, *sizes]),
        window.kind == LANDMARK,
        arrivals.time.dtype.type(window.horizons[0]),
    )
    return tuple(countable(found))


def check_options(
    window: Window, budget: Budget, policy: Policy, allocation: str | None, seed: int, rates_known: bool
) -> str:
    """Reject options that joins of many streams do not support; return the allocation or its default."""
    if isinstance(window, Rows):
        raise WindowError(
            f"Joins of many streams need a window of time; {window!r} was given. Give a duration, or join "
            "two streams with WindowJoin."
        )
    if isinstance(window, Within) and window.resolve("ns").horizons[0] != window.resolve("ns").horizons[1]:
        raise WindowError(
            "Joins of many streams have no left and right, so their window must be symmetric; "
            f"{(window.before, window.after)!r} was given. Give one span, or join two with WindowJoin."
        )
    if isinstance(budget, Bytes):
        raise BudgetError(
            f"Joins of many streams need a budget in tuples; {budget!r} was given. Give Tuples(n), or "
            "Fraction(0.2) for a fifth of what the exact join needs."
        )
    if not policy.many or policy.needs_future:
        works = ", ".join(known.name for known in registered() if known.many)
        raise UnknownPolicyError(
            f"{policy.spell()} is not defined for joins of many streams. Use one of: {works}"
        )
    policy.check_many()
    if allocation is None:
        allocation = policy.default_allocation(rates_known)
    if allocation not in ALLOCATIONS:
        raise PenstockError(f"allocation={allocation!r} is not known{hint(allocation, ALLOCATIONS)}")
    if allocation == "credit" and not policy.has_credits:
        raise PenstockError(
            f"allocation='credit' needs the credits of gdj, but {policy.name} has none; use 'unified', "
            "'equal' or 'proportional'."
        )
    if allocation == "unified" and not policy.unified:
        raise UnknownPolicyError(
            f"{policy.name} cannot manage one pool for all streams; use allocation='equal' or 'proportional'."
        )
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise PenstockError(f"seed={seed!r} is not allowed; it must be a whole number from 0 up.")
    return allocation


def enough(tuples: int, streams: int, given: str) -> None:
    """Reject a budget without room for one tuple per stream."""
    if tuples < streams:
        raise BudgetError(f"A join needs room for at least one tuple per stream, {streams} in all; {given}.")


def _configure(
    arrivals: ManyArrivals, window: Window, budget: Budget, policy: Policy, allocation: str, seed: int
) -> ManyConfig:
    """Resolve window and budget for an input."""
    dtype = arrivals.time.dtype
    resolved = fitting(window.resolve(arrivals.unit), dtype)
    if len(arrivals):
        check_reach(arrivals.time[0].item(), arrivals.time[-1].item(), resolved.horizons)
    streams = len(arrivals.nulls)
    if isinstance(budget, Tuples):
        tuples = budget.n
    else:
        assert isinstance(budget, Fraction)
        horizon = window.resolve(arrivals.unit).horizons[0]
        tuples = budget.tuples(arrivals.per_stream.tolist(), horizon, arrivals.span)
        enough(tuples, streams, f"{budget!r} of this input is {tuples:,} tuples")
    per_stream = arrivals.per_stream.astype(np.float64)
    limits = [tuples]
    if allocation != "unified":
        limits = apportion(tuples, per_stream if allocation == "proportional" else np.ones(streams))
    return ManyConfig(
        streams=streams,
        joins=arrivals.joins,
        window=resolved,
        policy=policy,
        limits=tuple(int(limit) for limit in limits),
        time_dtype=dtype,
        every=tuples if allocation == "credit" else 0,
        seed=int(seed),
        rates=tuple((per_stream / (arrivals.span or 1)).tolist()),
    )


def _tables(joins: Joins, out: ManyOutput) -> list[pa.Table]:
    """Return the results of each join as a table with a column per stream."""
    return [
        pa.table({f"{name}_row": rows[:, p] for p, (name, _) in enumerate(join)})
        for join, rows in zip(joins, out.rows, strict=True)
    ]


def _events(names: list[str], out: ManyOutput) -> pa.Table:
    log = out.log
    return pa.table(
        {
            "event": pa.array(np.array(EVENTS)[log[:, 0]]),
            "stream": pa.array(np.array(names)[log[:, 1]]),
            "row": log[:, 2],
            "step": log[:, 3],
        }
    )
