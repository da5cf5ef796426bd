"""Which policy a join follows: beside the real one, small joins of a sample of keys, one per candidate."""

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
from penstock.joins.config import CHOOSING_SHARE, Config
from penstock.joins.policy_switch import carried_tuples, switch_policy
from penstock.policies import Policy
from penstock.structures.key_positions import Places

if TYPE_CHECKING:
    from penstock.joins.state import JoinState


class JoinFollower(Follower[Policy]):
    """The small joins, their results lately, and the history that tells a new policy what has been."""

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
        kind = type_of(self.config)
        most = self.allowance
        return [kind(small_config(self.config, policy, self.halvings, most)) for policy in self.policies]

    def warm(self, store: Store) -> None:
        """Load all that may be needed later, on nothing; what a change of policy needs is compiled then."""
        nothing = carried_tuples(self.config.build(policy=self.policy)[0])
        for policy, state in zip(self.policies, self.small, strict=False):
            state.warm()
            switch_policy(self.config, policy, nothing, store, self.predictor)

    def attend(self, batch: Batch, start: int, stop: int, total: int) -> Policy | None:
        """Arrivals have been processed: the history and the small joins hear of them.

        `total` is how many matches the real join has had so far.

        Once an epoch is over: the policy to change to, if one is ahead for certain. Then too the small join
        of `learned` gets the weights that fit all keys: its sample has too few examples to find them.
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
        """What the small joins take."""
        return sum(state.table_bytes for state in self.small)

    def pack(self) -> dict[str, Any]:
        """All but the history, for a snapshot."""
        small = [state.snapshot() for state in self.small]
        return {"race": self.race.pack(), "peak": self.peak, "small": small}

    @classmethod
    def unpack(cls, config: Config, packed: dict[str, Any], predictor: MatchPredictor) -> JoinFollower:
        """The counterpart."""
        kind = type_of(config)
        follower = cls(config, [kind.restore(data) for data in packed["small"]])
        follower.race, follower.peak = PolicyRace.unpack(packed["race"]), packed["peak"]
        follower.predictor = predictor
        return follower


def type_of(config: Config) -> type[JoinState]:
    """The class of the state of a config."""
    if config.lateness is not None:
        from penstock.joins.stream import StreamState

        return StreamState
    from penstock.joins.state import JoinState

    return JoinState


def new_predictor_for(config: Config, places: Places | None = None) -> MatchPredictor:
    """The history that a join keeps whichever policy it follows."""
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
    """The join of the sample: a budget scaled alike, and a window too where that counts rows."""
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
        count_bytes=counts,
        warmup=0,
        rates=None,
        unbiased=False,  # the real join warns
        sketch_bytes=min(config.sketch_bytes, 1024),
        numeric=False,  # told where the streams are now by all arrivals, it chooses no better
    )


def allowance(config: Config) -> float:
    """Bytes for all small joins together."""
    if config.choosing_bytes is not None:
        return config.choosing_bytes
    return max(SHARE * min(_tables(config)), least_of(config.policy))


def allowance_of(policy: Policy, budget: int) -> int:
    """Bytes for all small joins together, of a budget of so many."""
    return int(min(max(SHARE * budget, least_of(policy)), CHOOSING_SHARE * budget))


def least_of(policy: Policy) -> int:
    """Bytes that the small joins may take however small the real one is."""
    return policy.trial_bytes  # type: ignore[attr-defined]


def _tables(config: Config) -> list[int]:
    """What the tables and the history take under each candidate, or the first where it runs alone."""
    predictor, found = new_predictor_for(config), []
    policies = config.policy.among()  # type: ignore[attr-defined]
    for policy in policies[:1] if config.choosing_bytes == 0 else policies:
        store, state = config.build(policy=policy)
        found.append(table_bytes(store, policy.inform(state, predictor), predictor))
    return found


def tables_of(config: Config) -> int:
    """What a join that chooses takes in all, whichever candidate runs; for budgets of bytes."""
    return max(_tables(config)) + table_bytes(config.build_flow()) + (config.choosing_bytes or 0)


def sampling(config: Config, most: float) -> float | None:
    """How often the keys are halved until the small joins fit into what they may take; None if never."""
    policies = config.policy.among()  # type: ignore[attr-defined]

    def sized(halvings: float) -> tuple[int, float]:
        small = [small_config(config, policy, halvings, most) for policy in policies]
        taken = sum(table_bytes(each.build(), each.build_flow()) for each in small)
        return sum(small[0].capacities), taken

    return halvings_for(len(policies), most, sized)
