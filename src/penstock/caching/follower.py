"""Choose the policy of a cache by small caches on a sample of the keys, one per candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.engine.cache_loop import tally
from penstock.engine.key_sample import COUNTS, SHARE, halvings_for, sampled
from penstock.engine.policy_race import Follower, PolicyRace
from penstock.policies import Policy
from penstock.policies.candidates import checked_candidates
from penstock.states.checks import check_shapes

if TYPE_CHECKING:
    from penstock.caching.cache import Cache

LEAST_BYTES = 64 << 10  # unless the real one is so small that this is more
ENTRY_BYTES = 44  # what an entry takes under the candidate that needs least, its index and ranking included


class CacheFollower(Follower[Policy]):
    """The small caches, their recent hits, and how often each entry of the real cache was used."""

    def __init__(
        self, policy: Policy, capacity: int, limit: int | None, seed: int, most_bytes: int | None
    ) -> None:
        policies = checked_candidates(policy, "cache")
        self.allowance = max(SHARE * ENTRY_BYTES * capacity, LEAST_BYTES)
        if most_bytes is not None:
            self.allowance = min(self.allowance, max(0, most_bytes - 4 * (capacity + 1)))

        def scaled(halvings: float) -> list[Cache]:
            return self._small(policies, capacity, limit, seed, halvings)

        def sized(halvings: float) -> tuple[int, float]:
            small = scaled(halvings)
            return small[0].capacity, sum(each.table_bytes for each in small)

        self.halvings = halvings_for(len(policies), self.allowance, sized)
        self.small: list[Cache] = [] if self.halvings is None else scaled(self.halvings)
        super().__init__(policies, capacity, policy.margin, self.halvings)  # type: ignore[attr-defined]
        self.uses = np.zeros(capacity + 1, np.int32)

    def _small(
        self, policies: list[Policy], capacity: int, limit: int | None, seed: int, halvings: float
    ) -> list[Cache]:
        from penstock.caching.cache import Cache

        scale = 0.5**halvings
        counts = int(COUNTS * self.allowance / len(policies))
        room = None if limit is None else max(1, round(limit * scale))
        entries = max(1, round(capacity * scale))
        return [
            Cache(
                each,
                entries,
                seed=seed,
                limit=room,
                count_bytes=max(1024, counts) if each.counts_keys else None,
            )
            for each in policies
        ]

    @property
    def bytes(self) -> int:
        """What it takes in all."""
        return sum(each.table_bytes for each in self.small) + self.uses.nbytes

    def attend(self, keys: np.ndarray, sizes: np.ndarray, hit: np.ndarray, slot: np.ndarray) -> Policy | None:
        """Pass answered requests on; at the end of an epoch, return the policy to switch to, if any."""
        tally(self.uses, hit, slot)
        mine = np.flatnonzero(sampled(keys, self.halvings or 0)) if self.small else ()
        if len(mine):
            part = keys[mine]
            for i, cache in enumerate(self.small):
                self.race.add(i, part, cache.request(part, sizes[mine]).hit)
        return self.led(len(keys), self.race.total + int(np.count_nonzero(hit)))

    @property
    def parts(self) -> tuple[Any, ...]:
        """What makes it up, to be stored."""
        return self.race.pack(), self.uses, tuple(each.parts for each in self.small)

    @parts.setter
    def parts(self, stored: tuple[Any, ...]) -> None:
        race, uses, small = stored
        check_shapes(uses, self.uses, "the uses of the entries")
        self.uses, self.race = uses, PolicyRace.unpack(race)
        for each, mine in zip(self.small, small, strict=True):
            each.parts = mine
