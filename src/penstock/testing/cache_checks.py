"""What holds for every policy in a cache."""

from __future__ import annotations

import copy

import numpy as np

from penstock.caching import Cache, replay
from penstock.policies import Policy
from penstock.testing.expectation import expect
from penstock.testing.sources import random_requests

CAPACITY = 7


def check_cache_batches(
    policy: Policy, requests: np.ndarray | None = None, cut: int = 70, capacity: int = CAPACITY
) -> None:
    """Requests that come in two batches have the hits, and keys the slots, of one batch."""
    keys = random_requests(200, 1) if requests is None else requests
    whole = replay(keys, policy, capacity, seed=3)
    cache = Cache(policy, capacity, requests=keys, seed=3)
    parts = [cache.request(part) for part in (keys[:cut], keys[cut:])]
    cache.check()
    for what in ("hit", "slot"):
        found = np.concatenate([getattr(part, what) for part in parts])
        same = found.tolist() == getattr(whole, what).tolist()
        expect(same, f"cutting the requests into two batches changes the {what}s of the cache")


def check_cache_accounts(
    policy: Policy, requests: np.ndarray | None = None, capacity: int = CAPACITY
) -> None:
    """The cache never holds more than its budget, and every miss is an entry, an eviction or a refusal."""
    keys = random_requests(300, 2) if requests is None else requests
    run = replay(keys, policy, capacity)
    distinct = len(np.unique(keys))
    sums = f"{run.evicted} evicted + {run.refused} refused"
    expect(
        run.misses - run.evicted - run.refused <= min(capacity, distinct),
        f"{run.misses} misses and {sums} leave more than {capacity} entries",
    )
    best = replay(keys, "lfd:bypass=true", capacity).hits
    expect(run.hits <= best, f"{run.hits} hits, but the clairvoyant optimum has {best}")
    roomy = replay(keys, policy, distinct + 1)
    expect(
        roomy.misses == distinct,
        f"{roomy.misses} misses of {distinct} keys although there is room for all of them",
    )


def check_cache_operations(policy: Policy, seed: int = 2, operations: int = 800) -> None:
    """Requests and keys that are forgotten, at random: invariants hold, and slots say where keys are."""
    random = np.random.default_rng(seed)
    cache = Cache(policy, CAPACITY)
    where: dict[int, int] = {}
    for _ in range(operations):
        key = int(random.zipf(1.3) % 50)
        if random.random() < 0.2:
            expect(cache.forget(key) == (key in where), f"forget({key}) tells wrongly whether it was there")
            where.pop(key, None)
        else:
            found = cache.request([key])
            expect(bool(found.hit[0]) == (key in where), f"a request for {key} is wrongly a hit or a miss")
            slot = int(found.slot[0])
            expect(not found.hit[0] or where[key] == slot, f"the key {key} has changed its slot")
            if slot:
                where = {k: s for k, s in where.items() if s != slot} | {key: slot}
        cache.check()
        expect(set(cache.keys) == set(where), "the cache holds other keys than were admitted")
        expect(len(cache) == len(where) <= CAPACITY, "the cache holds more entries than its budget")
        expect((key in cache) == (key in where), f"the cache tells wrongly whether it has the key {key}")


def check_cache_copy(policy: Policy, seed: int = 4) -> None:
    """A cache with the stored parts of another continues exactly as that one."""
    keys = random_requests(200, seed)
    first, second = (Cache(policy, CAPACITY, seed=3) for _ in range(2))
    first.request(keys[:90])
    second.parts = copy.deepcopy(first.parts)
    same = first.request(keys[90:]).slot.tolist() == second.request(keys[90:]).slot.tolist()
    expect(same, "a cache that is restored from its stored parts continues differently")
    second.check()


CACHE_CHECKS = (check_cache_batches, check_cache_accounts)
ONLINE_CACHE_CHECKS = (check_cache_operations, check_cache_copy)
