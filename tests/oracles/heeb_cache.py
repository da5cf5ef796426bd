"""A cache under a policy, request by request: who went, and who stayed when it did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.caching import Cache


def decisions(policy: Any, keys: Any, capacity: int) -> Iterator[tuple[int, int, list[int]]]:
    """For every request that finds a full cache and is no hit: its number, the key that went or was refused,
    and those that stayed.
    """
    cache = Cache(policy, capacity)
    for now, key in enumerate(keys.tolist()):
        before = set(cache.keys)
        hit = cache.request([key]).hit[0]
        assert bool(hit) == (key in before)
        if not hit and len(before) == capacity:
            after = set(cache.keys)
            (went,) = (before | {key}) - after
            yield now, went, sorted(after)
        cache.check()
