"""`Cache`: which keys are in memory. It takes batches of requests and says which were hits."""

from __future__ import annotations

import time as clock
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.arrays import table_bytes
from penstock.caching.arguments import caching_policy, entries_of, one_each, weighing_names, whole_keys
from penstock.caching.follower import CacheFollower
from penstock.compiler.tiers import Pace, expecting
from penstock.engine.byte_cache_loop import LIMIT, TAKEN, answer_sized, new_room, update_sized
from penstock.engine.cache_loop import (
    CAPACITY,
    EVICTED,
    HITS,
    KEY,
    LIVE,
    REFUSED,
    REQUESTS,
    USED,
    Answers,
    answer,
    find,
    find_all,
    forget,
    live_slots,
    new_cache,
    restore_uses,
)
from penstock.engine.policy_race import Choice
from penstock.errors import (
    PenstockError,
    PolicyOptionError,
    SnapshotError,
    UnknownPolicyError,
    hint,
)
from penstock.policies import Policy
from penstock.policies.base import CacheSetting
from penstock.states.checks import check_cache, looked_over

MOST_USES = 64  # maximum uses of an entry that are replayed to a new policy
CHUNK = 1 << 16  # requests per call of the driver, so that counts do not grow far ahead of need


class Cache:
    """A cache of a fixed number of entries, driven by one policy. Keys are whole numbers.

    It knows keys, not values: the answer to a request says whether it was a hit and in which slot the key is
    now (from 1; 0: not admitted), and the owner of the values stores them by slot. A key that displaces
    another one takes over its slot.

    `policy` is a name, a name with options, or a policy object, and must be one of
    `penstock.policies.caching_names()`. `requests` is the whole trace for policies that need it (`lfd`).
    With `limit`, all entries together take at most that many bytes, and each request comes with the size of
    its entry; key counts may take `count_bytes`, and the choice of a policy (`auto`) `choosing_bytes`. With
    `costs`, each request comes with the cost of its miss. If keys stand for other values, `number` returns
    the key of a model's value (`heeb`).

    >>> from penstock.caching import Cache
    >>> cache = Cache("lru", budget=2)
    >>> found = cache.request([7, 8, 7, 9, 8])
    >>> found.hit.tolist(), found.slot.tolist()
    ([0, 0, 1, 0, 0], [1, 2, 1, 2, 1])
    >>> cache.hits, cache.misses, cache.evicted
    (1, 4, 2)
    """

    def __init__(
        self,
        policy: str | Policy,
        budget: Any,
        *,
        requests: Any = None,
        seed: int = 0,
        limit: int | None = None,
        count_bytes: int | None = None,
        choosing_bytes: int | None = None,
        costs: bool = False,
        number: Callable[[Any], int | None] | None = None,
    ) -> None:
        self.policy = caching_policy(policy)
        self.capacity = entries_of(budget)
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**62:
            raise PenstockError(f"seed={seed!r} is not allowed; it must be a whole number from 0 up.")
        trace = None if requests is None else whole_keys(requests)
        if costs and not self.policy.weighs_costs:
            raise UnknownPolicyError(
                f"{self.policy.name} does not support costs{hint(self.policy.name, weighing_names())}"
            )
        self._setting = CacheSetting(self.capacity, trace, count_bytes, costs, number)
        self.follower: CacheFollower | None = None
        if self.policy.chooses:
            self.follower = CacheFollower(self.policy, self.capacity, limit, int(seed), choosing_bytes)
        self._state = self.running.build_cache(self._setting)
        self._trace = len(trace) if self.policy.needs_future and trace is not None else None
        self._cache = new_cache(self.capacity, int(seed))
        self._room = None if limit is None else new_room(self.capacity, limit)
        self._costs = costs
        self._pace = Pace()
        self.seconds = 0.0

    @property
    def running(self) -> Policy:
        """The policy that currently decides: the given one, or the one that it follows."""
        return self.policy if self.follower is None else self.follower.policy

    @property
    def choice(self) -> Choice | None:
        """The running policy and the estimated performance of the others, if the policy chooses.

        >>> from penstock.caching import Cache
        >>> Cache("auto", budget=2).choice.policy
        'lru'
        """
        return None if self.follower is None else self.follower.choice()

    def request(self, keys: Any, sizes: Any = None, costs: Any = None, values: Any = None) -> Answers:
        """Answer a batch of requests in their order.

        `values` are the numbers that keys stand for, NaN if they are not numbers; default: the keys
        themselves. Only `heeb` uses them.

        >>> from penstock.caching import Cache
        >>> cache = Cache("fifo", budget=9, limit=100)
        >>> cache.request([7, 8, 7, 9, 7], sizes=[60, 40, 60, 10, 60]).hit.tolist()
        [0, 0, 1, 0, 0]
        """
        keys = whole_keys(keys)
        if self._trace is not None and self.requests + len(keys) > self._trace:
            raise PenstockError(
                f"{self.policy.spell()} was given a trace of {self._trace:,} requests; more have come."
            )
        out = Answers(np.zeros(len(keys), np.uint8), np.zeros(len(keys), np.int32))
        weights = np.zeros(len(keys), np.int64) if self._room is None else one_each("sizes", sizes, keys)
        prices = one_each("costs", costs, keys, np.float64) if self._costs else None
        numbers = self._numbers(keys, values) if self.policy.reads_values else None
        with expecting(len(keys)):
            self._request(keys, weights, prices, numbers, out)
        return out

    def _request(
        self,
        keys: np.ndarray,
        weights: np.ndarray,
        prices: np.ndarray | None,
        numbers: np.ndarray | None,
        out: Answers,
    ) -> None:
        """Answer requests in chunks; the policy may switch between two chunks."""
        stop = 0
        while stop < len(keys):
            part = slice(stop, min(len(keys), stop + self._chunk))
            stop = part.stop
            self._state = self.running.reserve(self._state, len(keys[part]))
            began, done = clock.perf_counter(), part.start
            while done < stop:
                few = slice(done, self._pace.cut(done, stop))
                if numbers is not None:
                    self._state = self._state.valued(numbers[few])
                if prices is not None:
                    self._state = self._state.priced(prices[few])
                before = clock.perf_counter()
                self._answer(keys[few], weights[few], Answers(*(array[few] for array in out)))
                self._pace.took(few.stop - done, clock.perf_counter() - before)
                done = few.stop
            if self.follower is not None:
                leader = self.follower.attend(keys[part], weights[part], *(array[part] for array in out))
                if leader is not None:
                    self._follow(leader)
            self.seconds += clock.perf_counter() - began
        if numbers is not None:
            self._state = self._state.valued(numbers[:0])

    @property
    def _chunk(self) -> int:
        """How many requests are answered together."""
        return CHUNK if self.follower is None else min(CHUNK, self.follower.race.left)

    def _follow(self, policy: Policy) -> None:
        """Switch to another policy; the entries stay where they are."""
        assert self.follower is not None
        self.follower.change(policy)
        live, uses = self.live, self.follower.uses
        live = live[np.argsort(self._cache.e64[live, USED], kind="stable")]
        replayed = int(np.minimum(uses[live], MOST_USES).sum())
        self._state = policy.reserve(policy.build_cache(self._setting), replayed)
        restore_uses(self._state, self._cache, live, uses, MOST_USES)

    def _numbers(self, keys: np.ndarray, values: Any) -> np.ndarray:
        """What the keys stand for."""
        found = keys.astype(np.float64) if values is None else np.ascontiguousarray(values, np.float64)
        if found.shape != keys.shape:
            raise PenstockError(f"values must be {len(keys):,} numbers, one per request.")
        if self.policy.needs_whole_stream and len(found) and np.isnan(found).any():
            raise PolicyOptionError(
                f"{self.policy.name}: the model is for numbers, but some keys are not numbers. "
                "Use Stationary, or no model."
            )
        return found

    def _answer(self, keys: np.ndarray, sizes: np.ndarray, out: Answers) -> None:
        if self._room is None:
            answer(self._state, self._cache, keys, out)
        else:
            answer_sized(self._state, self._cache, self._room, keys, sizes, out)

    def update(self, keys: list[int], sizes: list[int]) -> list[int]:
        """Apply a log of an owner that computes entries itself; return the keys of evicted entries.

        For each key `sizes` has the bytes that its entry takes now, `USED_ENTRY` if the entry was used, or
        `FORGOTTEN` if the owner has dropped it. Entries that were refused count as evicted. It needs a
        `limit`, and a policy that does not choose among others.

        >>> from penstock.caching import Cache
        >>> from penstock.engine.byte_cache_loop import USED_ENTRY
        >>> cache = Cache("lru", budget=9, limit=100)
        >>> cache.update([7, 8, 7], [30, 30, USED_ENTRY])
        []
        >>> cache.update([7], [80])
        [8]
        """
        assert self._room is not None, "entries without a limit have no sizes"
        assert self.follower is None, "candidates do not know sizes"
        evicted = np.zeros(len(self) + len(keys) + 1, np.int64)
        self._state = self.running.reserve(self._state, len(keys))
        with expecting(len(keys)):
            update_sized(
                self._state,
                self._cache,
                self._room,
                np.array(keys, np.int64),
                np.array(sizes, np.int64),
                evicted,
            )
        return [int(key) for key in evicted[1 : 1 + evicted[0]]]

    def warm(self) -> Cache:
        """Load or compile the kernel by answering an empty batch."""
        none = np.empty(0, np.int64)
        answers = Answers(np.zeros(0, np.uint8), np.zeros(0, np.int32))
        self._answer(none, none, answers)
        if self.follower is not None:
            for each in self.follower.small:
                each.warm()
                restore_uses(each._state, each._cache, none, self.follower.uses, 0)
        return self

    def slots(self, keys: Any) -> np.ndarray:
        """Return the slots of keys, 0 for keys that are not cached, without counting requests.

        >>> from penstock.caching import Cache
        >>> cache = Cache("lru", budget=2)
        >>> _ = cache.request([7, 8])
        >>> cache.slots([8, 9]).tolist()
        [2, 0]
        """
        return np.asarray(find_all(self._cache, whole_keys(keys)))

    @property
    def live(self) -> np.ndarray:
        """The slots that hold a key."""
        return np.asarray(live_slots(self._cache))

    @property
    def taken(self) -> int:
        """Bytes of the entries; 0 without a limit."""
        return 0 if self._room is None else int(self._room.bytes[TAKEN])

    @property
    def limit(self) -> int:
        """The bytes that entries may take; 0 without a limit."""
        return 0 if self._room is None else int(self._room.bytes[LIMIT])

    @property
    def parts(self) -> tuple[Any, ...]:
        """Return the parts of the state, for a snapshot."""
        if self.follower is None:
            return self._cache, self._state, self._room
        return self._cache, (self._state, self.follower.parts), self._room

    @parts.setter
    def parts(self, stored: tuple[Any, ...]) -> None:
        with looked_over():
            cache, state, room = stored
            if self.follower is not None:
                state, choosing = state
                self.follower.parts = choosing
                self._state = self.running.build_cache(self._setting)
        if type(state) is not type(self._state) or cache.meta[CAPACITY] != self.capacity:
            raise SnapshotError(
                f"The snapshot is of a cache with {cache.meta[CAPACITY]:,} entries and the state of another "
                f"policy or size; this one has {self.capacity:,} under {self.policy.spell()}."
            )
        with looked_over():
            fresh = (self._cache, self.running.build_cache(self._setting), self._room)
            check_cache(cache, state, room, fresh)
        self._cache, self._state, self._room = cache, state, room

    @property
    def table_bytes(self) -> int:
        """Bytes of the tables: the index, the ranking of entries, and the choice of a policy."""
        own = table_bytes(self._cache, self._state, self._room)
        return own + (0 if self.follower is None else self.follower.bytes)

    def forget(self, key: int) -> bool:
        """Remove a key whose value has changed; return whether it was cached.

        >>> from penstock.caching import Cache
        >>> cache = Cache("lfu", budget=2)
        >>> _ = cache.request([7, 8])
        >>> cache.forget(7), 7 in cache, 8 in cache
        (True, False, True)
        """
        slot = forget(self._state, self._cache, int(key))
        if slot and self._room is not None:
            self._room.bytes[TAKEN] -= self._room.size[slot]
        return bool(slot)

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
        return [int(key) for key in self._cache.e64[self.live, KEY]]

    @property
    def requests(self) -> int:
        """Requests answered so far."""
        return int(self._cache.meta[REQUESTS])

    @property
    def hits(self) -> int:
        """Requests whose key was cached."""
        return int(self._cache.meta[HITS])

    @property
    def misses(self) -> int:
        """Requests whose key was not cached."""
        return self.requests - self.hits

    @property
    def evicted(self) -> int:
        """Entries evicted for others."""
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
        if self._room is not None:
            assert self._room.size[self.live].sum() == self.taken <= self._room.bytes[LIMIT], "wrong bytes"
        heap = getattr(self._state, "heap", None)
        if heap is not None:
            assert heap.length[0] == meta[LIVE], "the heap has other entries than the cache"
            order = list(zip(heap.score.tolist(), heap.used.tolist(), strict=True))
            for at in range(1, int(heap.length[0])):
                assert order[(at - 1) // 4] < order[at], "the heap is out of order"
