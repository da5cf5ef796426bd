"""Which policy a cache follows: beside the real one, small caches of a sample of keys, one per candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.contest import Choice, Contest, sampled
from penstock.errors import PolicyOptionError
from penstock.kernels.cache import tally
from penstock.policies import Policy

if TYPE_CHECKING:
    from penstock.caching.cache import Cache

CANDIDATES = ("lru", "lfu", "prob", "gdj", "clock-exp")
SHARE = 0.05  # of the memory, for the small caches together
LEAST_BYTES = 64 << 10  # unless the real one is so small that this is more
LEAST_ENTRIES = 16  # of a small cache, unless the real one has fewer
COUNTS = 0.3  # of a small cache's memory, for its key counts
MOST_HALVINGS = 20
ENTRY_BYTES = 60  # about what an entry of a cache takes, its index and ranking included


def candidates_of(policy: Policy) -> list[Policy]:
    """The candidates of a policy that chooses, for a cache.

    >>> from penstock import policies
    >>> from penstock.caching.chooser import candidates_of
    >>> [each.name for each in candidates_of(policies.get("auto"))]
    ['lru', 'lfu', 'prob', 'gdj', 'clock-exp']
    """
    from penstock.policies import get
    from penstock.policies.auto import CANDIDATES as FOR_JOINS

    names = policy.candidates  # type: ignore[attr-defined]
    found = [get(name) for name in (CANDIDATES if names == FOR_JOINS else names)]
    for each in found:
        if not each.caches or each.chooses or each.needs_future or each.reads_values:
            raise PolicyOptionError(
                f"{policy.name}: {each.name} cannot be a candidate for a cache; take some of "
                f"{', '.join(CANDIDATES)}, fifo, rand and clock."
            )
    return found


class CacheChooser:
    """The small caches, their hits lately, and how often each entry of the real one was used."""

    def __init__(
        self, policy: Policy, capacity: int, limit: int | None, seed: int, most_bytes: int | None
    ) -> None:
        self.policies = candidates_of(policy)
        self.allowance = max(SHARE * ENTRY_BYTES * capacity, LEAST_BYTES)
        if most_bytes is not None:
            self.allowance = min(self.allowance, max(0, most_bytes - 4 * (capacity + 1)))
        self.halvings: int | None = None
        self.small: list[Cache] = []
        for halvings in range(MOST_HALVINGS if len(self.policies) > 1 else 0):
            small = self._small(capacity, limit, seed, halvings)
            if halvings > 0 and small[0].capacity < min(LEAST_ENTRIES, capacity):
                break
            if sum(each.table_bytes for each in small) <= self.allowance:
                self.halvings, self.small = halvings, small
                break
        margin = policy.margin  # type: ignore[attr-defined]
        self.contest = Contest(len(self.policies), capacity, margin, self.halvings)
        self.uses = np.zeros(capacity + 1, np.int32)

    def _small(self, capacity: int, limit: int | None, seed: int, halvings: int) -> list[Cache]:
        from penstock.caching.cache import Cache

        scale = 0.5**halvings
        counts = int(COUNTS * self.allowance / len(self.policies))
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
            for each in self.policies
        ]

    @property
    def policy(self) -> Policy:
        """The one that is followed."""
        return self.policies[self.contest.running]

    @property
    def bytes(self) -> int:
        """What it takes in all."""
        return sum(each.table_bytes for each in self.small) + self.uses.nbytes

    def attend(self, keys: np.ndarray, sizes: np.ndarray, hit: np.ndarray, slot: np.ndarray) -> Policy | None:
        """Requests have been answered; once an epoch is over, the policy to change to, if one is ahead."""
        tally(self.uses, hit, slot)
        mine = np.flatnonzero(sampled(keys, self.halvings or 0)) if self.small else ()
        if len(mine):
            part = keys[mine]
            for i, cache in enumerate(self.small):
                self.contest.add(i, part, cache.request(part, sizes[mine]).hit)
        leader = self.contest.after(len(keys))
        return None if leader is None else self.policies[leader]

    def change(self, policy: Policy) -> None:
        """The cache follows this policy from now on."""
        self.contest.change(self.policies.index(policy))

    def choice(self) -> Choice:
        """What a caller is told."""
        return self.contest.choice([policy.spell() for policy in self.policies])

    @property
    def parts(self) -> tuple[Any, ...]:
        """What makes it up, to be stored."""
        return self.contest.pack(), self.uses, tuple(each.parts for each in self.small)

    @parts.setter
    def parts(self, stored: tuple[Any, ...]) -> None:
        contest, self.uses, small = stored
        self.contest = Contest.unpack(contest)
        for each, mine in zip(self.small, small, strict=True):
            each.parts = mine
