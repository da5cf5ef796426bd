"""`join_many`: bounded joins of many streams, optionally several joins in one memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arguments import flags, one_of, probability, shown, whole
from penstock.arrays import check_reach
from penstock.budget import Budget, Bytes, Fraction, Tuples, budget_of
from penstock.columns import Table
from penstock.compiler.tiers import expecting
from penstock.engine.apportion import apportion
from penstock.engine.many_index import exact_many, new_scheme
from penstock.engine.store import LANDMARK
from penstock.errors import (
    BudgetError,
    PenstockError,
    UnitWarning,
    UnknownPolicyError,
    warn_user,
)
from penstock.joins.config import with_byte_budget
from penstock.joins.growth import MOST_TUPLES
from penstock.joins.many_arrivals import Chain, Joins, ManyArrivals, joins_of, many_arrivals_of
from penstock.joins.many_config import ManyConfig
from penstock.joins.many_state import ManyOutput, ManyState, countable
from penstock.joins.many_stats import ManyRun, ManyStats
from penstock.joins.many_window import ManyWindow, ManyWithin, many_window_of
from penstock.payload import mean_row_bytes
from penstock.policies import Policy, get, registered

ALLOCATIONS = ("unified", "equal", "proportional", "credit")
EVENTS = ("evicted", "expired", "dropped")


def join_many(
    streams: Mapping[str, Table],
    *,
    on: Any,
    time: Any,
    within: Any,
    budget: Budget,
    policy: Any = "gdj",
    how: str = "inner",
    allocation: str | None = None,
    drop_rate: float = 0.0,
    warmup: int = 0,
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
        attributes of the same streams, joins of different streams, or both. Or a `Chain` of links: one join
        over different columns, whose results have a tuple of every stream.
    time
        The time column of all streams, or a dict of stream to column.
    within
        One window for all streams: a number in the unit of the time column or a duration, or
        `Landmark(every)`. Or a dict with a window per stream, `{"a": "1 hour", "b": Rows(100)}`: a member of
        a result is at most that much older than the newest, or among the last rows of its stream. Or a dict
        with pairs of streams, `{("a", "b"): (before, after)}`: b is at most `after` later or `before` earlier
        than a, and streams without a pair are held together by the pairs between them.
    budget
        `Tuples(n)`, `Bytes("64 MiB")` or `Fraction(0.2)`, for all streams together.
    policy
        The eviction policy. `"auto"` follows the candidate (`gdj`, `prob` and `lru` by default) that does
        best on a sample. `life`, `age` and `learned` are not defined for many streams. A policy in plain
        Python sees the key of the first join in which the tuple has one.
    how
        `"inner"`; left joins of many streams are not supported yet.
    allocation
        `"unified"` (the default): one pool, in which any tuple may displace any other. `"equal"` and
        `"proportional"` (to the arrivals): a pool per stream. `"credit"` (with `gdj`): a pool per stream,
        resized in proportion to the average credit of its tuples, each time as many arrivals have come as
        the budget has tuples. It is coarse: a pool whose tuples earn nothing shrinks to one tuple and then
        hardly recovers.
    drop_rate
        The probability that an arrival is not admitted. It still probes.
    warmup
        Results of this many first arrivals are not counted.
    seed
        Seed for `rand` and drops.
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

    One join over different columns, with a window per stream:

    >>> customers = {"id": [1, 2], "ts": [0, 0]}
    >>> items = {"id": [7, 8], "ts": [3, 4]}
    >>> run = ps.join_many(
    ...     {"orders": orders, "customers": customers, "items": items},
    ...     on=ps.Chain(("orders.customer", "customers.id"), ("orders.item", "items.id")),
    ...     time="ts",
    ...     within={"orders": 10, "customers": ps.Rows(1_000), "items": 5},
    ...     budget=ps.Tuples(6),
    ...     collect=True,
    ... )
    >>> run.results[0].to_pylist()
    [{'orders_row': 0, 'customers_row': 0, 'items_row': 0},
     {'orders_row': 1, 'customers_row': 1, 'items_row': 1}]
    """
    flags(collect=collect, log=log)
    budget, policy, chain = budget_of(budget), get(policy), isinstance(on, Chain)
    joins = joins_of(streams, on)
    window = many_window_of(within, list(streams), joined_streams(joins, list(streams), chain))
    allocation = check_options(budget, policy, allocation, seed, rates_known=True)
    check_sampling(drop_rate, warmup)
    check_how(how)
    if isinstance(budget, Tuples):
        enough(budget.n, len(streams), f"{budget!r} was given")
    arrivals = many_arrivals_of(streams, joins, time, unit, linked=chain, sized=isinstance(budget, Bytes))
    for doubt in window.doubts(arrivals.unit, arrivals.numbers, arrivals.stamped):
        warn_user(doubt, UnitWarning)
    mean_row = float(np.mean([mean_row_bytes(table) for table in streams.values()]))
    config = _configure(arrivals, window, budget, policy, allocation, seed, mean_row, chain)
    config = replace(config, warmup=int(warmup), chance=float(drop_rate))
    state = ManyState(config)
    with expecting(len(arrivals.stream)):
        state.warm()
        out = state.process(
            arrivals.stream,
            arrivals.key,
            arrivals.time,
            arrivals.row,
            arrivals.size,
            collect=collect,
            log=log,
        )
    exact = exact_results(arrivals, config)
    stats = ManyStats(
        **state.totals(),
        exact=sum(exact),
        per_join=state.per_join,
        exact_per_join=exact,
        null_keys=arrivals.nulls,
        limits=state.limits,
        peak_bytes=state.peak_bytes,
        seconds=state.seconds,
        choice=state.choice,
    )
    names = list(streams)
    members = [[names[s] for s in join] for join in config.results]
    return ManyRun(stats, _tables(members, out) if collect else None, _events(names, out) if log else None)


def joined_streams(joins: Joins, names: list[str], chain: bool) -> list[tuple[int, ...]]:
    """Return the streams of the results of each join, by their numbers."""
    if chain:
        return [tuple(range(len(names)))]
    return [tuple(names.index(name) for name, _ in join) for join in joins]


def exact_results(arrivals: ManyArrivals, config: ManyConfig) -> tuple[int, ...]:
    """Return the results of each join with unlimited memory."""
    if config.searches:  # they are no products of counts, so the join runs with room for everything
        everything = (max(1, len(arrivals)),)
        whole = replace(
            config, policy=get("fifo"), capacities=everything, every=0, chance=0.0, payload=None, costs=()
        )
        state = ManyState(whole)
        state.process(arrivals.stream, arrivals.key, arrivals.time, arrivals.row)
        return state.per_join
    windows = config.windows
    sizes = [keys * len(join) for keys, join in zip(arrivals.keys, arrivals.joins, strict=True)]
    found = exact_many(
        new_scheme(arrivals.joins, len(arrivals.nulls)),
        arrivals.stream,
        arrivals.key,
        arrivals.time,
        np.cumsum([0, *sizes]),
        windows.kind == LANDMARK,
        np.array(windows.horizons, arrivals.time.dtype),
        np.array(windows.by_rows, np.int64),
        np.argsort(arrivals.stream, kind="stable"),
        config.warmup,
    )
    return tuple(countable(found))


def check_how(how: Any) -> None:
    """Reject joins that are not inner joins.

    >>> from penstock.joins.many import check_how
    >>> check_how("inner")
    """
    if not isinstance(how, str) or how != "inner":
        raise PenstockError(
            f"how={shown(how)} is not supported for joins of many streams, only 'inner'. Whether a row of "
            "the first stream has no complete result takes more than its own key to know. Join two streams "
            "with WindowJoin, or find such rows with a batch join."
        )


def check_sampling(drop_rate: Any, warmup: Any) -> None:
    """Reject a drop rate or a warm-up that cannot be.

    >>> from penstock.joins.many import check_sampling
    >>> check_sampling(0.5, 100)
    """
    if isinstance(drop_rate, str) and drop_rate == "unbiased":
        raise PenstockError(
            "drop_rate='unbiased' is for joins of two streams, where a result has one older member, kept "
            "with one probability. A result of more streams needs all of its older members, so joins of "
            "different sizes would be sampled differently. Give a probability, and divide counts by "
            "(1 - drop_rate) to the power of the members but one."
        )
    probability("drop_rate", drop_rate)
    whole("warmup", warmup)


def check_options(
    budget: Budget, policy: Policy, allocation: str | None, seed: int, rates_known: bool
) -> str:
    """Reject options that joins of many streams do not support; return the allocation or its default."""
    if policy.predictor_options() is not None:
        raise UnknownPolicyError(
            f"{policy.spell()} predicts the matches of a tuple with one other stream on one key, and a "
            "result of a join of many streams needs several at once. Use 'auto', 'gdj', 'prob' or 'lru'."
        )
    if policy.needs_future or not (policy.many or policy.chooses):
        works = ", ".join(known.name for known in registered() if known.many)
        raise UnknownPolicyError(
            f"{policy.spell()} is not defined for joins of many streams. Use one of: {works}"
        )
    policy.check_many()
    if allocation is None:
        allocation = policy.default_allocation(rates_known)
    allocation = one_of("allocation", allocation, ALLOCATIONS)
    if allocation == "credit" and not policy.has_credits:
        raise PenstockError(
            f"allocation='credit' needs the credits of gdj, but {policy.name} has none; use 'unified', "
            "'equal' or 'proportional'."
        )
    if allocation == "credit" and isinstance(budget, Bytes):
        raise PenstockError(
            "allocation='credit' divides a budget in tuples; use another allocation for Bytes, or Tuples(n)."
        )
    if allocation == "unified" and not policy.unified:
        raise UnknownPolicyError(
            f"{policy.name} cannot manage one pool for all streams; use allocation='equal' or 'proportional'."
        )
    whole("seed", seed)
    return allocation


def enough(tuples: int, streams: int, given: str) -> None:
    """Reject a budget without room for one tuple per stream."""
    if tuples < streams:
        raise BudgetError(f"A join needs room for at least one tuple per stream, {streams} in all; {given}.")


def _configure(
    arrivals: ManyArrivals,
    window: ManyWithin,
    budget: Budget,
    policy: Policy,
    allocation: str,
    seed: int,
    mean_row: float,
    chain: bool,
) -> ManyConfig:
    """Resolve window and budget for an input."""
    dtype = arrivals.time.dtype
    resolved = window.resolve(arrivals.unit, dtype)
    if len(arrivals):
        check_reach(arrivals.time[0].item(), arrivals.time[-1].item(), resolved.timed)
    streams = len(arrivals.nulls)
    if isinstance(budget, Fraction):
        tuples = _in_tuples(budget, arrivals, window.resolve(arrivals.unit))
        enough(tuples, streams, f"{budget!r} of this input is {tuples:,} tuples")
        budget = Tuples(tuples)
    per_stream = tuple(arrivals.per_stream.tolist())
    config = ManyConfig(
        streams=streams,
        joins=arrivals.joins,
        window=resolved,
        policy=policy,
        capacities=(streams,),
        time_dtype=dtype,
        every=budget.n if allocation == "credit" else 0,
        seed=int(seed),
        rates=tuple(came / (arrivals.span or 1) for came in per_stream),
        chain=chain,
        mean_row=mean_row if arrivals.size is None else float(arrivals.size.mean() if len(arrivals) else 0),
    )
    return with_budget(config, budget, allocation, per_stream)


def with_budget(
    config: ManyConfig, budget: Tuples | Bytes, allocation: str, weights: tuple[float, ...]
) -> ManyConfig:
    """Return the config with its limits; `weights` are the arrivals of each stream, or their rates."""
    if isinstance(budget, Bytes):
        return with_byte_budget(config, budget, allocation, weights)
    if budget.n > MOST_TUPLES:
        raise BudgetError(f"A join keeps at most {MOST_TUPLES:,} tuples; {budget!r} was given.")
    limits = [budget.n]
    if allocation != "unified":
        parts = np.array(weights, np.float64) if allocation == "proportional" else np.ones(len(weights))
        limits = apportion(budget.n, parts)
    return replace(config, capacities=tuple(int(limit) for limit in limits))


def _in_tuples(budget: Fraction, arrivals: ManyArrivals, window: ManyWindow) -> int:
    """Return a share of what the exact joins keep at the average rate, in tuples."""
    need, span = 0.0, arrivals.span
    windows = zip(arrivals.per_stream.tolist(), window.horizons, window.by_rows, strict=True)
    for came, horizon, rows in windows:
        need += min(came, horizon + 1) if rows else came * horizon / span if span > 0 else came
    return math.floor(budget.share * need)


def _tables(members: list[list[str]], out: ManyOutput) -> list[pa.Table]:
    """Return the results of each join as a table with a column per stream."""
    return [
        pa.table({f"{name}_row": rows[:, p] for p, name in enumerate(join)})
        for join, rows in zip(members, out.rows, strict=True)
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
