"""A query over whole streams: the budget in tuples, the bounded run, and the exact one beside it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.budget import Budget, Bytes, Fraction, Tuples, budget_of
from penstock.errors import BudgetError, PenstockError, UnknownPolicyError, hint
from penstock.kernels.linked_life import lives
from penstock.kernels.many import apportion
from penstock.linked.binding import columns_of, masks_of
from penstock.linked.files import read_background, read_triples
from penstock.linked.plan import Plan, plan_of
from penstock.linked.query import StreamQuery, warn_unbounded
from penstock.linked.state import LinkedConfig, LinkedState, bytes_of
from penstock.linked.stats import LinkedRun, LinkedStats
from penstock.linked.terms import Terms
from penstock.linked.triples import Triples, triples_of
from penstock.policies import Policy, get, registered

if TYPE_CHECKING:
    from penstock.columns import Table

ALLOCATIONS = ("unified", "equal", "proportional")
EVENTS = ("evicted", "expired", "dropped")
MOST = 50_000_000  # tuples of a run without a limit
PROBE = 4_097


@dataclass(frozen=True)
class Options:
    """How to run, as given to `StreamQuery.run`."""

    budget: Any = None
    policy: Any = "clock"
    allocation: str = "unified"
    objects: str = "literal"
    unit: str = "ms"
    collect: bool = True
    exact: bool = True
    warmup: int = 0
    gain: tuple[float, float] = (1.0, 0.5)
    seed: int = 0
    log: bool = False


def check_options(options: Options) -> tuple[Budget | None, Policy]:
    """The budget and the policy, or an error that says what is not possible."""
    budget = None if options.budget is None else budget_of(options.budget)
    policy = get(options.policy)
    if not policy.many or policy.needs_future or not policy.joins:
        works = ", ".join(known.name for known in registered() if known.many and known.joins)
        raise UnknownPolicyError(
            f"{policy.spell()} is not defined for stream queries. Those that are: {works}"
        )
    if getattr(policy, "method", 1) == 2:
        raise UnknownPolicyError(f"{policy.name}: method=2 is not defined for stream queries; give 1 or 3.")
    if options.allocation not in ALLOCATIONS:
        raise PenstockError(
            f"allocation={options.allocation!r} is not known{hint(options.allocation, ALLOCATIONS)}"
        )
    for name in ("warmup", "seed"):
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise PenstockError(f"{name}={value!r} is not allowed; it must be a whole number from 0 up.")
    gain = options.gain
    if (
        not isinstance(gain, tuple)
        or len(gain) != 2
        or not all(isinstance(g, int | float) and 0 <= g <= 1000 for g in gain)
    ):
        raise PenstockError(f"gain={gain!r} is not allowed; it is a pair of numbers from 0 to 1000.")
    return budget, policy


def run_query(query: StreamQuery, streams: Mapping[str, Table | str | Path], options: Options) -> LinkedRun:
    """Run a query over whole streams."""
    budget, policy = check_options(options)
    terms = Terms()
    triples = triples_of(
        _opened(streams),
        query.streams,
        terms,
        unit=options.unit,
        objects=options.objects,
        background=read_background(query.query.background),
    )
    first = plan_of(query.query, triples.scale)
    warn_unbounded(first, budget)
    mask = masks_of(first, triples, terms)
    keep = np.flatnonzero((mask != 0) | triples.closes)
    total = len(triples)
    if len(keep) < total:
        triples, mask = triples.take(keep), mask[keep]
    rates = [int(np.count_nonzero((mask >> i) & 1)) for i in range(len(query.query.patterns))]
    config = LinkedConfig(
        text=query.text,
        scale=triples.scale,
        policy=policy,
        limits=(1,),
        still=int(np.count_nonzero(triples.stream < 0)),
        rates=tuple(float(rate) for rate in rates),
        gain=(float(options.gain[0]), float(options.gain[1])),
        warmup=int(options.warmup),
        seed=int(options.seed),
    )
    plan = config.plan()
    need = _Need(plan, triples, mask, terms)
    if budget is None:
        config, state, out = _unlimited(config, need, triples, terms, mask, options.collect, options.log)
    else:
        config = dataclasses.replace(config, limits=_limits(budget, options.allocation, config, need))
        state = LinkedState(config, terms)
        out = state.process(triples, collect=options.collect, log=options.log, mask=mask)
    exact: int | None = state.results
    if state.totals()["evicted"] and not options.exact:
        exact = None
    elif state.totals()["evicted"]:
        bare = dataclasses.replace(config, policy=get("fifo"), limits=(1,))
        exact = _unlimited(bare, need, triples, terms, mask, False, False)[1].results
    totals = state.totals() | {"triples": total}
    stats = LinkedStats(
        **totals,
        exact=exact,
        budget=None if budget is None else sum(config.limits),
        peak_bytes=state.table_bytes + int(need.row_bytes * totals["peak_tuples"]),
        seconds=state.seconds,
    )
    rows = out.rows
    if rows is not None and query.query.distinct:
        rows = rows.group_by(rows.column_names, use_threads=False).aggregate([])
    events = _events(out.log) if options.log else None
    return LinkedRun(rows, stats, out.solutions, out.times, out.counts, events)


def _opened(streams: Any) -> Any:
    """Streams whose files have been read."""
    if not isinstance(streams, Mapping):
        raise PenstockError(f"streams takes a dict of name to table; {type(streams).__name__} was given.")
    return {
        name: read_triples(Path(table)) if isinstance(table, str | Path) else table
        for name, table in streams.items()
    }


class _Need:
    """What the exact answer would keep."""

    def __init__(self, plan: Plan, triples: Triples, mask: np.ndarray, terms: Terms) -> None:
        self.plan = plan
        self.timed = np.flatnonzero((triples.stream >= 0) & ~triples.closes)
        columns, _ = columns_of(plan, triples, mask, terms)
        life = lives(plan.scheme, columns)[self.timed]
        start = triples.start[self.timed]
        self.last = float(start[-1]) if len(start) else 0.0
        self.span = self.last - float(start[0]) if len(start) else 0.0
        self.per_row = max(
            1,
            max(
                (int(np.count_nonzero(plan.scheme.cache_roles & bits)) for bits in np.unique(mask)), default=1
            ),
        )
        expiry = np.sort(start + np.maximum(life, 0.0))
        alive = np.arange(1, len(start) + 1) - np.searchsorted(expiry, start, side="left")
        self.peak = self.per_row * int(alive.max(initial=1))
        self.total_life = float(np.where(np.isfinite(life), life, self.last - start).sum())
        widths = np.array([len(terms.term(i).text) for i in range(min(len(terms), 10_000))] or [0])
        self.row_bytes = 64 + 8 * len(plan.ports) + 17 * len(plan.operands) + 3 * float(widths.mean())
        self.rates = [int(np.count_nonzero(mask & bits)) for bits in plan.scheme.cache_roles]


def _limits(budget: Budget, allocation: str, config: LinkedConfig, need: _Need) -> tuple[int, ...]:
    """The budget as tuples of each pool."""
    caches = len(need.plan.scheme.degree)
    if isinstance(budget, Tuples):
        tuples = budget.n
    elif isinstance(budget, Fraction):
        count = len(need.timed)
        tuples = budget.tuples(count, need.total_life / count if count else 0.0, need.span)
    else:
        tuples = in_bytes(budget, config, need.plan, need.row_bytes)
    least = 1 if allocation == "unified" else caches
    if tuples < max(least, 1):
        raise BudgetError(
            f"A query needs room for {least} tuple{'s' * (least > 1)} at least; {budget!r} is {tuples:,}."
        )
    if allocation == "unified" or caches == 1:
        return (tuples,)
    weights = np.ones(caches)
    if allocation == "proportional":
        weights[: len(need.rates)] = np.maximum(need.rates, 1)
        weights[len(need.rates) :] = max(need.rates)
    return tuple(int(share) for share in apportion(tuples, weights))


def in_bytes(budget: Bytes, config: LinkedConfig, plan: Plan, row_bytes: float) -> int:
    """The most tuples whose tables, scores and rows a budget in bytes holds."""

    if config.policy.counts_keys:
        raise BudgetError(
            f"{config.policy.name} counts keys exactly in stream queries, which no bytes bound; give "
            "Tuples or Fraction."
        )

    def size(tuples: int) -> float:
        built = dataclasses.replace(config, limits=(tuples,)).build(plan)
        return bytes_of(*built) + tuples * row_bytes

    least = size(1)
    per_tuple = (size(PROBE) - least) / PROBE
    tuples = max(1, int(1.2 * (budget.n - least) / per_tuple))
    while tuples >= 1:
        if size(tuples) <= budget.n:
            return tuples
        tuples = min(tuples - 1, int(tuples * 0.97))
    raise BudgetError(
        f"{budget} is too little for {config.policy.name}; give at least {math.ceil(least)} bytes."
    )


def _unlimited(
    config: LinkedConfig,
    need: _Need,
    triples: Triples,
    terms: Terms,
    mask: np.ndarray,
    collect: bool,
    log: bool,
) -> tuple[LinkedConfig, LinkedState, Any]:
    """A run in which nothing is evicted: with as much room as it takes."""
    room = need.peak + 16
    while True:
        whole = dataclasses.replace(config, limits=(room,))
        state = LinkedState(whole, terms)
        out = state.process(triples, collect=collect, log=log, mask=mask)
        if not state.totals()["evicted"]:
            return whole, state, out
        room *= 4
        if room > MOST:
            raise PenstockError(
                f"Unlimited memory would keep more than {MOST:,} tuples; bound the context, give a budget, "
                "and run with exact=False."
            )


def _events(log: np.ndarray) -> pa.Table:
    return pa.table(
        {
            "event": pa.array(np.array(EVENTS)[log[:, 0]]),
            "cache": log[:, 1] + 1,
            "row": log[:, 2],
            "step": log[:, 3],
        }
    )
