"""Choose the policy of a join by small joins on a sample of the keys, one per candidate."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import table_bytes
from penstock.engine.join_loop import Batch
from penstock.engine.key_sample import COUNTS, SHARE, halvings_for, sampled
from penstock.engine.match_predictor import (
    DEFAULT_MEMORY,
    DEFAULT_SPAN,
    MatchPredictor,
    attend_batch,
    new_predictor,
    teach,
)
from penstock.engine.policy_race import Follower, PolicyRace
from penstock.engine.store import ROWS, Store
from penstock.joins.budgets import CHOOSING_SHARE
from penstock.joins.config import Config
from penstock.joins.policy_switch import carried_tuples, switch_policy
from penstock.policies import Policy
from penstock.structures.key_positions import Places

if TYPE_CHECKING:
    from penstock.joins.state import JoinState


class JoinFollower(Follower[Policy]):
    """The small joins, their recent results, and the history from which a new policy takes its scores."""

    def __init__(
        self, config: Config, small: list[JoinState] | None = None, places: Places | None = None
    ) -> None:
        self.config = config
        self.allowance = allowance(config)
        self.halvings = sampling(config, self.allowance)
        policies, margin = config.policy.among(), config.policy.margin  # type: ignore[attr-defined]
        super().__init__(policies, sum(config.capacities), margin, self.halvings)
        self.small = self._small() if small is None else small
        self.predictor = new_predictor_for(config, places)
        self.peak = 0

    def _small(self) -> list[JoinState]:
        if self.halvings is None:
            return []
        kind = self.config.state_class
        most = self.allowance
        return [kind(small_config(self.config, policy, self.halvings, most)) for policy in self.policies]

    def warm(self, store: Store) -> None:
        """Load everything that may be needed later; the kernels for a switch are compiled at the switch."""
        nothing = carried_tuples(self.config.build(policy=self.policy)[0])
        for policy, state in zip(self.policies, self.small, strict=False):
            state.warm()
            switch_policy(self.config, policy, nothing, store, self.predictor)

    def attend(self, batch: Batch, start: int, stop: int, total: int, arriving: np.ndarray) -> Policy | None:
        """Pass processed arrivals to the history and the small joins.

        `total` is the number of matches of the real join so far, and `arriving` what a condition needs of the
        arrivals.

        At the end of an epoch, return the policy to switch to if one is clearly ahead. The small join of
        `learned` then also gets the weights fitted to all keys, because its sample has too few examples.
        """
        if start == stop:
            return None
        if self.policy.predictor_options() is None:
            attend_batch(self.predictor, batch.stream, batch.key, batch.time, start, stop)
        if self.small:
            mine = np.flatnonzero(sampled(batch.key[start:stop], self.halvings or 0)) + start
            if len(mine):
                part = Batch(*(array[mine] if len(array) else array for array in batch))
                for i, state in enumerate(self.small):
                    state.hear(arriving[mine] if len(arriving) else arriving)
                    self.race.add(i, part.key, state._run(part, False, False).counts)
        due = self.race.due
        leader = self.led(stop - start, total)
        if self.race.due != due:
            for state in self.small:
                small = state.running.predictor_of(state.policy)
                if small is not None:
                    teach(small, self.predictor)
        return leader

    @property
    def bytes(self) -> int:
        """Bytes of the small joins."""
        return sum(state.table_bytes for state in self.small)

    def pack(self) -> dict[str, Any]:
        """Pack everything except the history for a snapshot."""
        small = [state.snapshot() for state in self.small]
        return {"race": self.race.pack(), "peak": self.peak, "small": small}

    @classmethod
    def unpack(cls, config: Config, packed: dict[str, Any], predictor: MatchPredictor) -> JoinFollower:
        """The counterpart."""
        kind = config.state_class
        follower = cls(config, [kind.restore(data) for data in packed["small"]])
        follower.race, follower.peak = PolicyRace.unpack(packed["race"]), packed["peak"]
        follower.predictor = predictor
        return follower


def new_predictor_for(config: Config, places: Places | None = None) -> MatchPredictor:
    """Return the history that a join keeps whichever policy it follows."""
    candidates = (policy.predictor_options() for policy in config.policy.among())  # type: ignore[attr-defined]
    span, memory = next(filter(None, candidates), (DEFAULT_SPAN, DEFAULT_MEMORY))
    return new_predictor(
        sum(config.capacities),
        span,
        memory,
        config.time_dtype,
        config.window.horizons,
        config.window.kind,
        config.count_bytes,
        places or config.places,
    )


def small_config(config: Config, policy: Policy, halvings: float, most: float) -> Config:
    """Return the join of the sample: a scaled budget, and a scaled window if it counts rows."""
    scale = 0.5**halvings
    window = config.window
    if window.kind == ROWS:
        left, right = (max(0, round((horizon + 1) * scale) - 1) for horizon in window.horizons)
        window = dataclasses.replace(window, horizons=(left, right))
    capacities = tuple(max(1, round(capacity * scale)) for capacity in config.capacities)
    counts = None
    if policy.counts_keys:
        counts = max(1024, int(COUNTS * most / len(config.policy.among())))  # type: ignore[attr-defined]
    return dataclasses.replace(
        config,
        policy=policy,
        window=window,
        capacities=capacities,
        payload=None,
        costs=(),
        count_bytes=counts,
        warmup=0,
        rates=None,
        unbiased=False,  # the real join warns
        sketch_bytes=min(config.sketch_bytes, 1024),
        kind=config.kind.for_samples,
        lost_bytes=0,
        numeric=False,  # knowing the streams' current positions did not improve the choice
    )


def allowance(config: Config) -> float:
    """Return the bytes for all small joins together."""
    if config.choosing_bytes is not None:
        return config.choosing_bytes
    return max(SHARE * min(_tables(config, config.capacities)), least_of(config.policy))


def allowance_of(policy: Policy, budget: int) -> int:
    """Return the bytes for all small joins together, given the budget in bytes."""
    return int(min(max(SHARE * budget, least_of(policy)), CHOOSING_SHARE * budget))


def least_of(policy: Policy) -> int:
    """Return the bytes that the small joins may take however small the real one is."""
    return policy.trial_bytes  # type: ignore[attr-defined]


def _tables(config: Config, rooms: tuple[int, ...]) -> list[int]:
    """Return the bytes of tables and history under each candidate, or under the first if it runs alone."""
    predictor, found = new_predictor_for(config), []
    policies = config.policy.among()  # type: ignore[attr-defined]
    for policy in policies[:1] if config.choosing_bytes == 0 else policies:
        store, state = config.build(policy=policy, rooms=rooms)
        found.append(table_bytes(store, policy.inform(state, predictor), predictor))
    return found


def tables_of(config: Config, rooms: tuple[int, ...]) -> list[int]:
    """Return the total bytes of a join that chooses, under each candidate that may run; for byte budgets."""
    others = table_bytes(config.build_flow(rooms)) + (config.choosing_bytes or 0)
    return [tables + others for tables in _tables(config, rooms)]


def sampling(config: Config, most: float) -> float | None:
    """Return how often to halve the keys until the small joins fit into their memory; None if never."""
    policies = config.policy.among()  # type: ignore[attr-defined]

    def sized(halvings: float) -> tuple[int, float]:
        small = [small_config(config, policy, halvings, most) for policy in policies]
        taken = 0
        for each in small:
            rooms = each.capacities
            taken += table_bytes(each.build(rooms=rooms), each.build_flow(rooms))
        return sum(small[0].capacities), taken

    return halvings_for(len(policies), most, sized)
