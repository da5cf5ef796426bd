"""Choose the policy of a query by small caches on a sample of the triples, one per candidate."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from penstock.engine.key_sample import COUNTS, SHARE, halvings_for, sampled
from penstock.engine.policy_race import Follower, PolicyRace
from penstock.engine.triple_join import LinkedBatch
from penstock.joins.follower import least_of
from penstock.linked.plan.plan import QueryPlan
from penstock.linked.run.caches import Findings, LinkedConfig, QueryCaches, bytes_of
from penstock.linked.run.policy_switch import switched
from penstock.linked.triples import Triples
from penstock.policies import Policy
from penstock.policies.candidates import checked_candidates


class QueryFollower(Follower[Policy]):
    """The small caches and their results lately.

    Every triple asks the small caches, but only those of a sample are let in, and the room there is scaled
    alike: tuples compete with each other as they do in the real caches, however few values they have in
    common. (Samples of values are of no use where these are few: wind speeds, or the channels of a guide.)
    """

    def __init__(self, config: LinkedConfig, plan: QueryPlan) -> None:
        self.config, self.plan = config, plan
        policies = checked_candidates(config.policy, "query")
        self.allowance = allowance(config, plan, policies)
        self.halvings: float | None = None
        if plan.patterns > 1:
            self.halvings = halvings_for(len(policies), self.allowance, self._sized)
        margin = config.policy.margin  # type: ignore[attr-defined]
        alike = len({type(policy) for policy in policies}) == 1
        super().__init__(policies, sum(config.limits), margin, self.halvings, fresh=True, alike=alike)
        self.small: list[QueryCaches] | None = None  # until the background is known

    def _sized(self, halvings: float) -> tuple[int, float]:
        small = self._small_configs(checked_candidates(self.config.policy, "query"), halvings)
        rows = sum(small[0].limits) * row_bytes(self.plan)
        taken = sum(bytes_of(*each.build(self.plan)) for each in small)
        return sum(small[0].limits), taken + len(small) * rows

    def _small_configs(self, policies: list[Policy], halvings: float, still: int = 0) -> list[LinkedConfig]:
        """The query over the sample under each policy: a budget scaled alike, key counts in a sketch."""
        return [
            dataclasses.replace(
                self.config,
                policy=policy,
                limits=tuple(max(1, round(limit * 0.5**halvings)) for limit in self.config.limits),
                still=still,
                warmup=0,
                count_bytes=max(1024, int(COUNTS * self.allowance / len(policies))),
            )
            for policy in policies
        ]

    def open(self, triples: Triples, batch: LinkedBatch) -> list[LinkedBatch]:
        """A batch as each of the small caches sees it; none if there are none."""
        if self.halvings is None:
            return []
        inside = sampled(triples.row * 64 + triples.stream, self.halvings)
        if self.small is None:
            still = int(np.count_nonzero(inside & (triples.stream < 0)))
            configs = self._small_configs(self.policies, self.halvings, still)
            self.small = [QueryCaches(config, self.plan) for config in configs]
        part = batch._replace(kept=inside[batch.arrivals])
        if not len(batch.closes):
            return [part] * len(self.small)
        # Facts are closed as the arrivals come, in each of the caches at its own time.
        ends = [batch.columns._replace(end=batch.columns.end.copy()) for _ in self.small]
        return [part._replace(columns=columns) for columns in ends]

    def attend(self, batches: list[LinkedBatch], start: int, stop: int, total: int) -> Policy | None:
        """Arrivals have been processed, with so many results in all: the small caches hear of them.

        Once an epoch is over: the policy to change to, if one is ahead for certain.
        """
        if start == stop:
            return None
        for i, (caches, batch) in enumerate(zip(self.small or (), batches, strict=True)):
            part = cut(batch, slice(start, stop))
            if self.race.pausing:  # facts end all the same
                part = cut(part, np.flatnonzero(part.closes >= 0))
            arrivals = len(part.arrivals)
            if arrivals:
                findings = Findings(self.plan.patterns, arrivals)
                caches.run(part, findings, 0, arrivals)
                self.race.tally(i, findings.out.counts.sum())
        return self.led(stop - start, total)

    def warm(self, batch: LinkedBatch) -> None:
        """Load or compile all that may be needed later, on nothing."""
        for policy in self.policies if self.halvings is not None else ():
            fresh = switched(QueryCaches(self.config, self.plan, self.policy), policy, batch.columns)
            fresh.run(batch, Findings(self.plan.patterns, 0), 0, 0)

    @property
    def bytes(self) -> int:
        """What the small caches take, with the triples they refer to."""
        tuples = sum(sum(caches.config.limits) for caches in self.small or ())
        tables = sum(caches.bytes for caches in self.small or ())
        return tables + int(tuples * row_bytes(self.plan))

    @property
    def parts(self) -> tuple[Any, ...]:
        """What makes it up, to be stored."""
        small = None if self.small is None else tuple((each.config, each.parts) for each in self.small)
        return self.race.pack(), small

    @parts.setter
    def parts(self, stored: tuple[Any, ...]) -> None:
        race, small = stored
        self.race, self.small = PolicyRace.unpack(race), None
        if small is not None:
            self.small = [QueryCaches(config, self.plan) for config, _ in small]
            for caches, (_, parts) in zip(self.small, small, strict=True):
                caches.parts = parts


def cut(batch: LinkedBatch, which: slice | np.ndarray) -> LinkedBatch:
    """Some of the arrivals of a batch."""
    closes = batch.closes[which] if len(batch.closes) else batch.closes
    return batch._replace(arrivals=batch.arrivals[which], closes=closes, kept=batch.kept[which])


def allowance(config: LinkedConfig, plan: QueryPlan, policies: list[Policy]) -> float:
    """Bytes for all small caches together."""
    if config.choosing_bytes is not None:
        return config.choosing_bytes
    least = min(bytes_of(*config.build(plan, policy)) for policy in policies)
    return max(SHARE * least, least_of(config.policy))


def row_bytes(plan: QueryPlan) -> float:
    """Bytes of a triple that is held, its terms apart, about."""
    return 64 + 8 * len(plan.ports) + 17 * len(plan.operands)
