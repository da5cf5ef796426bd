"""A query over whole streams: the budget in tuples, the bounded run, and the exact one beside it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.arguments import flags, is_number, one_of, shown, whole
from penstock.budget import Budget, Bytes, Fraction, Tuples, budget_of
from penstock.engine.apportion import apportion
from penstock.engine.triple_lifetime import lives
from penstock.errors import BudgetError, ColumnError, PenstockError, UnknownPolicyError
from penstock.joins.budgets import COUNT_SHARE
from penstock.joins.follower import allowance_of
from penstock.linked.plan.plan import QueryPlan
from penstock.linked.plan.show import explain
from penstock.linked.query import StreamQuery, warn_unbounded
from penstock.linked.run.caches import LinkedConfig, bytes_of
from penstock.linked.run.follower import row_bytes
from penstock.linked.run.operands import columns_of
from penstock.linked.run.prepare import prepared
from penstock.linked.run.state import LinkedState
from penstock.linked.run.stats import LinkedRun, LinkedStats
from penstock.linked.terms import Terms
from penstock.linked.triples import OBJECTS, Triples
from penstock.policies import Policy, get, names
from penstock.policies.candidates import checked_candidates
from penstock.units import time_unit

if TYPE_CHECKING:
    from penstock.columns import Table

ALLOCATIONS = ("unified", "equal", "proportional")
EVENTS = ("evicted", "expired", "dropped")
MOST = 50_000_000  # tuples of a run without a limit
PROBE = 4_097
FEW = 256
FEWEST_SAMPLED = 16  # tuples; a smaller sample says nothing


@dataclass(frozen=True)
class QueryOptions:
    """How to run, as given to `StreamQuery.run`."""

    budget: Any = None
    policy: Any = "auto"
    allocation: str | None = None
    objects: str = "literal"
    unit: str = "ms"
    collect: bool = True
    exact: bool = True
    warmup: int = 0
    gain: tuple[float, float] = (1.0, 0.5)
    joins: Any = None
    seed: int = 0
    log: bool = False


def check_options(options: QueryOptions) -> tuple[Budget | None, Policy]:
    """The budget and the policy, or an error that says what is not possible."""
    budget = None if options.budget is None else budget_of(options.budget)
    policy = get(options.policy)
    _check_policy(policy)
    if options.allocation is not None:
        one_of("allocation", options.allocation, ALLOCATIONS)
    one_of("object", options.objects, OBJECTS, ColumnError)
    time_unit(options.unit)
    flags(collect=options.collect, exact=options.exact, log=options.log)
    for name in ("warmup", "seed"):
        whole(name, getattr(options, name))
    gain = options.gain
    if (
        not isinstance(gain, tuple)
        or len(gain) != 2
        or not all(is_number(g) and 0 <= g <= 1000 for g in gain)
    ):
        raise PenstockError(f"gain={shown(gain)} is not allowed; it is a pair of numbers from 0 to 1000.")
    return budget, policy


def _check_policy(policy: Policy) -> None:
    """Refuse what cannot run a query, with the reason and the names of those that can."""
    if policy.chooses:
        checked_candidates(policy, "query")
        return
    if policy.needs_future:
        reason = "it must know the whole stream before it starts"
    elif not policy.joins:
        reason = "it runs caches only"
    elif policy.needs_model or policy.reads_values:
        reason = "it needs a model of each of two streams, and a query has patterns"
    elif not policy.queries:
        reason = "it is defined for two streams that are joined with each other"
    elif getattr(policy, "method", 1) == 2:
        reason = "it needs ranks before any match of an arrival, but queries match one by one; use 1 or 3"
    else:
        return
    known = [get(name) for name in names()]
    works = ", ".join(each.name for each in known if each.chooses or each.queries)
    raise UnknownPolicyError(
        f"{policy.spell()} is not defined for stream queries: {reason}. Those that are: {works}"
    )


def run_query(
    query: StreamQuery, streams: Mapping[str, Table | str | Path], options: QueryOptions
) -> LinkedRun:
    """Run a query over whole streams."""
    budget, policy = check_options(options)
    ready = prepared(query.query, streams, unit=options.unit, objects=options.objects, joins=options.joins)
    triples, mask, terms = ready.triples, ready.mask, ready.terms
    warn_unbounded(ready.plan, budget)
    config = LinkedConfig(
        text=query.text,
        scale=triples.scale,
        policy=policy,
        limits=(1,),
        still=int(np.count_nonzero(triples.stream < 0)),
        joins=ready.plan.tree,
        gain=(float(options.gain[0]), float(options.gain[1])),
        warmup=int(options.warmup),
        seed=int(options.seed),
    )
    if budget is None and policy.chooses:  # nothing will be evicted
        config = dataclasses.replace(config, policy=checked_candidates(policy, "query")[0])
    plan = config.plan()
    need = _Need(plan, triples, mask, terms)
    if budget is None:
        config, state, out = _unlimited(config, need, triples, terms, mask, options.collect, options.log)
    else:
        allocation = options.allocation or policy.default_allocation(rates_known=True)
        config = _limited(budget, allocation, config, need)
        state = LinkedState(config, terms)
        out = state.process(triples, collect=options.collect, log=options.log, mask=mask)
    exact: int | None = state.results
    if state.totals()["evicted"] and not options.exact:
        exact = None
    elif state.totals()["evicted"]:
        bare = dataclasses.replace(config, policy=get("fifo"), limits=(1,))
        exact = _unlimited(bare, need, triples, terms, mask, False, False)[1].results
    totals = state.totals() | {"triples": ready.total}
    stats = LinkedStats(
        **totals,
        exact=exact,
        budget=None if budget is None else sum(config.limits),
        peak_bytes=state.table_bytes + state.count_bytes + int(need.row_bytes * totals["peak_tuples"]),
        seconds=state.seconds,
        choice=state.choice,
    )
    events = _events(out.log) if options.log else None
    return LinkedRun(out.rows, stats, out.solutions, out.times, out.counts, events, explain(plan))


@dataclass(frozen=True)
class _Need:
    """What the exact answer would keep, found out where it is asked for."""

    plan: QueryPlan
    triples: Triples
    mask: np.ndarray
    terms: Terms

    @cached_property
    def _lives(self) -> tuple[np.ndarray, np.ndarray]:
        """When triples with a time start, and how long they are of use."""
        timed = np.flatnonzero((self.triples.stream >= 0) & ~self.triples.closes)
        columns, _ = columns_of(self.plan, self.triples, self.mask, self.terms)
        return self.triples.start[timed], lives(self.plan.scheme, columns)[timed]

    @property
    def at_average(self) -> tuple[int, float, float]:
        """How many triples there are, how long they are of use on average, and how long the stream is."""
        start, life = self._lives
        if not len(start):
            return 0, 0.0, 0.0
        whole = np.where(np.isfinite(life), life, start[-1] - start).sum()
        return len(start), float(whole) / len(start), float(start[-1] - start[0])

    @property
    def peak(self) -> int:
        """About the most tuples at any time, those of partial solutions apart."""
        start, life = self._lives
        expiry = np.sort(start + np.maximum(life, 0.0))
        alive = np.arange(1, len(start) + 1) - np.searchsorted(expiry, start, side="left")
        roles = self.plan.scheme.cache_roles
        per_row = max((int(np.count_nonzero(roles & bits)) for bits in np.unique(self.mask)), default=1)
        return max(1, per_row) * int(alive.max(initial=1))

    @cached_property
    def row_bytes(self) -> float:
        """Bytes of a triple that is held, its terms included."""
        some = range(0, len(self.terms), max(1, len(self.terms) // 1_000))
        widths = np.array([len(self.terms.term(i).text) for i in some] or [0])
        return row_bytes(self.plan) + 3 * float(widths.mean())

    @property
    def rates(self) -> list[int]:
        """How many triples go into each cache of single ones."""
        return [int(np.count_nonzero(self.mask & bits)) for bits in self.plan.scheme.cache_roles]


def _limited(budget: Budget, allocation: str, config: LinkedConfig, need: _Need) -> LinkedConfig:
    """The config with the budget as tuples of each pool."""
    caches = len(need.plan.scheme.degree)
    if isinstance(budget, Tuples):
        tuples = budget.n
    elif isinstance(budget, Fraction):
        tuples = budget.tuples(*need.at_average)
    else:
        config = in_bytes(budget, config, need.plan, need.row_bytes)
        tuples = config.limits[0]
    least = 1 if allocation == "unified" else caches
    if tuples < max(least, 1):
        raise BudgetError(
            f"A query needs room for {least} tuple{'s' * (least > 1)} at least; {budget!r} is {tuples:,}."
        )
    if allocation == "unified" or caches == 1:
        return dataclasses.replace(config, limits=(tuples,))
    weights = np.ones(caches)
    if allocation == "proportional":
        weights[: len(need.rates)] = np.maximum(need.rates, 1)
        weights[len(need.rates) :] = max(need.rates)
    return dataclasses.replace(config, limits=tuple(int(share) for share in apportion(tuples, weights)))


def in_bytes(
    budget: Bytes, config: LinkedConfig, plan: QueryPlan, row: float, sample: float = 0.0
) -> LinkedConfig:
    """The config with the most tuples whose tables, scores, counts and rows a budget in bytes holds.

    The sample from which recall is estimated may take a share of it.
    """
    policy, reserved = config.policy, int(sample * budget.n)
    if sample:
        bare = dataclasses.replace(config, policy=get("fifo"), limits=(1,))
        per_tuple = [
            bytes_of(*dataclasses.replace(bare, limits=(n,)).build(plan, bare.policy)) for n in (1, 257)
        ]
        kept = int((reserved - per_tuple[0]) / ((per_tuple[1] - per_tuple[0]) / 256 + row))
        config = dataclasses.replace(config, sample_tuples=kept if kept >= FEWEST_SAMPLED else 0)
        reserved = reserved if config.sample_tuples else 0
    policies: list[Policy | None] = [None]
    if policy.counts_keys:
        share = COUNT_SHARE / 2 if policy.chooses else COUNT_SHARE
        config = dataclasses.replace(config, count_bytes=int(share * budget.n))
    if policy.chooses:
        config = dataclasses.replace(config, choosing_bytes=allowance_of(policy, budget.n))
        policies = [*checked_candidates(policy, "query")]

    def size(config: LinkedConfig, tuples: int, policies: list[Policy | None]) -> float:
        limited = dataclasses.replace(config, limits=(tuples,))
        built = max(bytes_of(*limited.build(plan, policy)) for policy in policies)
        return built + (config.choosing_bytes or 0) + tuples * row + reserved

    def most(config: LinkedConfig, policies: list[Policy | None]) -> int:
        least = size(config, 1, policies)
        per_tuple = (size(config, PROBE, policies) - least) / PROBE
        tuples = max(1, int(1.2 * (budget.n - least) / per_tuple))
        while tuples >= 1 and size(config, tuples, policies) > budget.n:
            tuples = min(tuples - 1, int(tuples * 0.97))
        return max(tuples, 0)

    tuples = most(config, policies)
    if tuples == 0 and policy.chooses:  # the first candidate may still fit in, alone
        config, policies = dataclasses.replace(config, choosing_bytes=0), policies[:1]
        tuples = most(config, policies)
    if tuples == 0:
        least = math.ceil(size(config, 1, policies))
        raise BudgetError(f"{budget} is too little for {policy.name}; give at least {least} bytes.")
    return dataclasses.replace(config, limits=(tuples,))


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
