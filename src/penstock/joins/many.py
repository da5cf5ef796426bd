"""`join_many`: bounded joins of many streams, optionally several joins in one memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arguments import flags
from penstock.arrays import check_reach
from penstock.budget import Budget, Bytes, Fraction, Tuples, budget_of
from penstock.columns import Table
from penstock.compiler.tiers import expecting
from penstock.engine.apportion import apportion
from penstock.engine.many_index import exact_many, new_scheme
from penstock.engine.store import LANDMARK
from penstock.errors import (
    BudgetError,
    UnitWarning,
    warn_user,
)
from penstock.joins.budgets import lost_bytes_of, lost_share_of, with_byte_budget
from penstock.joins.growth import MOST_TUPLES
from penstock.joins.kinds import JoinKind
from penstock.joins.many_arrivals import Chain, Joins, ManyArrivals, joins_of, many_arrivals_of
from penstock.joins.many_config import ManyConfig
from penstock.joins.many_options import check_how, check_options, check_sampling, enough
from penstock.joins.many_output import ManyOutput, countable
from penstock.joins.many_state import ManyState
from penstock.joins.many_stats import ManyRun, ManyStats
from penstock.joins.many_window import ManyWindow, ManyWithin, many_window_of
from penstock.payload import mean_row_bytes
from penstock.policies import Policy, get

EVENTS = ("evicted", "expired", "dropped", "late", "released", "undecided")


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
        `"inner"`, or `"left"`: rows of the first stream that are in no result come out too, with nulls for
        all others. Only one join or a chain can be a left join. Precision stays 1: a row of which it is not
        known whether it is in a result of the exact join does not come out (`stats.undecided`).
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
    how = check_how(how, len(joins), chain)
    if isinstance(budget, Tuples):
        enough(budget.n, len(streams), f"{budget!r} was given")
    arrivals = many_arrivals_of(streams, joins, time, unit, linked=chain, sized=isinstance(budget, Bytes))
    for doubt in window.doubts(arrivals.unit, arrivals.numbers, arrivals.stamped):
        warn_user(doubt, UnitWarning)
    mean_row = float(np.mean([mean_row_bytes(table) for table in streams.values()]))
    config = _configure(arrivals, window, budget, policy, allocation, seed, mean_row, chain, how)
    config = replace(config, warmup=int(warmup), chance=float(drop_rate))
    state = ManyState(config)
    with expecting(len(arrivals.stream)):
        state.warm()
        columns = arrivals.stream, arrivals.key, arrivals.time, arrivals.row, arrivals.size
        outs = [state.process(*columns, collect=collect, log=log), state.finish(collect=collect, log=log)]
    exact, alone = exact_results(arrivals, config), np.empty(0, np.int64)
    if config.left and arrivals.null_rows is not None:
        alone = arrivals.null_rows
        exact = (exact[0] + len(alone),)
    stats = ManyStats(
        **state.totals() | {"unmatched": state.unmatched + len(alone)},
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
    return ManyRun(
        stats,
        _tables(members, outs, names[0], alone) if collect else None,
        _events(names, outs) if log else None,
    )


def joined_streams(joins: Joins, names: list[str], chain: bool) -> list[tuple[int, ...]]:
    """Return the streams of the results of each join, by their numbers."""
    if chain:
        return [tuple(range(len(names)))]
    return [tuple(names.index(name) for name, _ in join) for join in joins]


def exact_results(arrivals: ManyArrivals, config: ManyConfig) -> tuple[int, ...]:
    """Return the rows of each join with unlimited memory, but for rows without a key."""
    if config.searches:  # they are no products of counts, so the join runs with room for everything
        everything = (max(1, len(arrivals)),)
        whole = replace(
            config,
            policy=get("fifo"),
            capacities=everything,
            every=0,
            chance=0.0,
            payload=None,
            costs=(),
            lost_bytes=0,
        )
        state = ManyState(whole)
        state.process(arrivals.stream, arrivals.key, arrivals.time, arrivals.row)
        state.finish()
        return (state.per_join[0] + state.unmatched, *state.per_join[1:])
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


def _configure(
    arrivals: ManyArrivals,
    window: ManyWithin,
    budget: Budget,
    policy: Policy,
    allocation: str,
    seed: int,
    mean_row: float,
    chain: bool,
    how: str,
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
        how=how,
        mean_row=mean_row if arrivals.size is None else float(arrivals.size.mean() if len(arrivals) else 0),
    )
    return with_budget(config, budget, allocation, per_stream)


def with_budget(
    config: ManyConfig, budget: Tuples | Bytes, allocation: str, weights: tuple[float, ...]
) -> ManyConfig:
    """Return the config with its limits; `weights` are the arrivals of each stream, or their rates."""
    kind = JoinKind(config.how)
    if isinstance(budget, Bytes):
        config = replace(config, lost_bytes=lost_share_of(kind, budget))
        return with_byte_budget(config, budget, allocation, weights)
    if budget.n > MOST_TUPLES:
        raise BudgetError(f"A join keeps at most {MOST_TUPLES:,} tuples; {budget!r} was given.")
    limits = [budget.n]
    if allocation != "unified":
        parts = np.array(weights, np.float64) if allocation == "proportional" else np.ones(len(weights))
        limits = apportion(budget.n, parts)
    return replace(
        config,
        capacities=tuple(int(limit) for limit in limits),
        lost_bytes=lost_bytes_of(kind, budget.n),
    )


def _in_tuples(budget: Fraction, arrivals: ManyArrivals, window: ManyWindow) -> int:
    """Return a share of what the exact joins keep at the average rate, in tuples."""
    need, span = 0.0, arrivals.span
    windows = zip(arrivals.per_stream.tolist(), window.horizons, window.by_rows, strict=True)
    for came, horizon, rows in windows:
        need += min(came, horizon + 1) if rows else came * horizon / span if span > 0 else came
    return math.floor(budget.share * need)


def _tables(
    members: list[list[str]], outs: list[ManyOutput], first: str, alone: np.ndarray
) -> list[pa.Table]:
    """Return the results of each join as a table with a column per stream; `alone` have no key."""
    tables = []
    for j, join in enumerate(members):
        rows = np.concatenate([out.rows[j] for out in outs])
        if len(alone):
            single = np.full((len(alone), len(join)), -1, np.int64)
            single[:, join.index(first)] = alone
            rows = np.concatenate([rows, single])
        columns = {f"{name}_row": pa.array(rows[:, p], mask=rows[:, p] < 0) for p, name in enumerate(join)}
        tables.append(pa.table(columns))
    return tables


def _events(names: list[str], outs: list[ManyOutput]) -> pa.Table:
    log = np.concatenate([out.log for out in outs])
    return pa.table(
        {
            "event": pa.array(np.array(EVENTS)[log[:, 0]]),
            "stream": pa.array(np.array(names)[log[:, 1]]),
            "row": log[:, 2],
            "step": log[:, 3],
        }
    )
