"""`Cache`: which keys are in memory. It takes requests batch by batch and says which were hits."""

from __future__ import annotations

import time as clock
from typing import Any

import numpy as np

from penstock.budget import Tuples, budget_of
from penstock.errors import BudgetError, PenstockError, UnknownPolicyError, hint
from penstock.kernels.cache import (
    CAPACITY,
    EVICTED,
    HIGH,
    HITS,
    KEY,
    LIVE,
    REFUSED,
    REQUESTS,
    Answers,
    answer,
    find,
    forget,
    new_cache,
)
from penstock.policies import Policy, caching_names, get
from penstock.policies.base import CacheSetting

CHUNK = 1 << 16  # requests per call of the driver, so that counts do not grow far ahead of need


class Cache:
    """A cache of a fixed number of entries, driven by one policy. Keys are whole numbers.

    It knows keys, not values: the answer to a request says whether it was a hit and in which slot the key is
    now (from 1 up; 0: it was not admitted), and whoever has the values keeps them by slot. A key that is
    admitted where another was takes over its slot.

    `policy` is a name, a name with options, or a policy object, and must be one of
    `penstock.policies.caching_names()`. `requests` is the whole trace for policies that need it (`lfd`).

    >>> from penstock.caching import Cache
    >>> cache = Cache("lru", budget=2)
    >>> found = cache.request([7, 8, 7, 9, 8])
    >>> found.hit.tolist(), found.slot.tolist()
    ([0, 0, 1, 0, 0], [1, 2, 1, 2, 1])
    >>> cache.hits, cache.misses, cache.evicted
    (1, 4, 2)
    """

    def __init__(self, policy: str | Policy, budget: Any, *, requests: Any = None, seed: int = 0) -> None:
        self.policy = caching_policy(policy)
        self.capacity = entries_of(budget)
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**62:
            raise PenstockError(f"seed={seed!r} is not allowed; it must be a whole number from 0 up.")
        trace = None if requests is None else whole_keys(requests)
        self._state = self.policy.build_cache(CacheSetting(self.capacity, trace))
        self._trace = len(trace) if self.policy.needs_future and trace is not None else None
        self._cache = new_cache(self.capacity, int(seed))
        self.seconds = 0.0

    def request(self, keys: Any) -> Answers:
        """Answer a batch of requests in their order."""
        keys = whole_keys(keys)
        if self._trace is not None and self.requests + len(keys) > self._trace:
            raise PenstockError(
                f"{self.policy.spell()} was told of {self._trace:,} requests; more have come than that."
            )
        out = Answers(np.zeros(len(keys), np.uint8), np.zeros(len(keys), np.int32))
        for start in range(0, len(keys), CHUNK):
            part = keys[start : start + CHUNK]
            self._state = self.policy.reserve(self._state, len(part))
            began = clock.perf_counter()
            answer(self._state, self._cache, part, Answers(*(array[start : start + CHUNK] for array in out)))
            self.seconds += clock.perf_counter() - began
        return out

    def warm(self) -> Cache:
        """Load or compile the kernel by answering nothing."""
        answer(
            self._state,
            self._cache,
            np.empty(0, np.int64),
            Answers(np.zeros(0, np.uint8), np.zeros(0, np.int32)),
        )
        return self

    def forget(self, key: int) -> bool:
        """Take a key out, since what it stands for has changed; whether it was there.

        >>> from penstock.caching import Cache
        >>> cache = Cache("lfu", budget=2)
        >>> _ = cache.request([7, 8])
        >>> cache.forget(7), 7 in cache, 8 in cache
        (True, False, True)
        """
        return bool(forget(self._state, self._cache, int(key)))

    def __contains__(self, key: int) -> bool:
        return bool(find(self._cache, int(key)))

    def __len__(self) -> int:
        return int(self._cache.meta[LIVE])

    @property
    def keys(self) -> list[int]:
        """The keys in memory.

        >>> from penstock.caching import Cache
        >>> cache = Cache("fifo", budget=2)
        >>> _ = cache.request([7, 8, 9])
        >>> sorted(cache.keys)
        [8, 9]
        """
        held = self._cache.e64[1 : int(self._cache.meta[HIGH]) + 1, KEY].tolist()
        return [key for slot, key in enumerate(held, start=1) if find(self._cache, key) == slot]

    @property
    def requests(self) -> int:
        """Requests answered so far."""
        return int(self._cache.meta[REQUESTS])

    @property
    def hits(self) -> int:
        """Those whose key was there."""
        return int(self._cache.meta[HITS])

    @property
    def misses(self) -> int:
        """Those whose key was not."""
        return self.requests - self.hits

    @property
    def evicted(self) -> int:
        """Entries that had to go for others."""
        return int(self._cache.meta[EVICTED])

    @property
    def refused(self) -> int:
        """Keys that were not admitted."""
        return int(self._cache.meta[REFUSED])

    def check(self) -> None:
        """Assert the invariants: every entry is found under its key, and the accounts agree."""
        meta = self._cache.meta
        keys = self.keys
        assert len(keys) == len(set(keys)) == meta[LIVE] <= meta[CAPACITY], "entries are lost or double"
        heap = getattr(self._state, "heap", None)
        if heap is not None:
            assert heap.length[0] == meta[LIVE], "the heap has other entries than the cache"
            order = list(zip(heap.score.tolist(), heap.used.tolist(), strict=True))
            for at in range(1, int(heap.length[0])):
                assert order[(at - 1) // 4] < order[at], "the heap is out of order"


def caching_policy(policy: str | Policy) -> Policy:
    """A policy that can run a cache, or an error that names those that can.

    >>> from penstock.caching.cache import caching_policy
    >>> caching_policy("lfd:bypass=true")
    Lfd(bypass=True)
    """
    try:
        found = get(policy)
    except UnknownPolicyError as error:
        raise UnknownPolicyError(f"There is no policy {policy!r}{hint(policy, caching_names())}") from error
    if not found.caches:
        raise UnknownPolicyError(f"{found.name} cannot run a cache{hint(found.name, caching_names())}")
    return found


def entries_of(budget: Any) -> int:
    """A budget as a number of entries.

    >>> import penstock as ps
    >>> from penstock.caching.cache import entries_of
    >>> entries_of(200), entries_of(ps.Tuples(200))
    (200, 200)
    """
    whole = isinstance(budget, int | np.integer) and not isinstance(budget, bool)
    found = Tuples(int(budget)) if whole and budget > 0 else budget
    if whole and budget <= 0:
        raise BudgetError(f"A cache needs room for one entry at least; {budget!r} was given.")
    found = budget_of(found)
    if not isinstance(found, Tuples):
        raise BudgetError(f"A cache reckons in entries; {budget!r} was given. Give a number, or Tuples.")
    return found.n


def whole_keys(keys: Any) -> np.ndarray:
    """Keys as an array of 64-bit whole numbers.

    >>> from penstock.caching.cache import whole_keys
    >>> whole_keys([3, 1]).dtype.name
    'int64'
    """
    found = np.asarray(keys)
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        raise PenstockError(
            f"Keys are a sequence of whole numbers; one of type {found.dtype} and shape {found.shape} was "
            "given. replay() takes keys of any type."
        )
    return np.ascontiguousarray(found, np.int64)
