"""Random streams to test with: arrivals, tables and requests, the same for the same seed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

GAPS = (0, 0, 1, 1, 2, 5)  # between the times of two arrivals: ties are common
NULL_EVERY = 17  # rows of a table, of which one has no key


@dataclass(frozen=True)
class Feed:
    """Arrivals of two streams in processing order, as `JoinState.process` takes them.

    >>> import penstock as ps
    >>> from penstock.testing import random_feed
    >>> feed = random_feed(100, seed=1)
    >>> state = ps.WindowJoin(within=25, budget=ps.Tuples(10), policy="lru").start()
    >>> for start in range(0, len(feed), 20):
    ...     _ = state.process(*feed.cut(start, start + 20))
    >>> state.totals()["arrivals"]
    100
    """

    stream: np.ndarray
    key: np.ndarray
    time: np.ndarray
    row: np.ndarray
    size: np.ndarray

    def cut(self, start: int, stop: int) -> tuple[np.ndarray, ...]:
        """The arrays of the arrivals from `start` up to `stop`."""
        return tuple(getattr(self, field.name)[start:stop] for field in fields(self))

    def after(self, start: int) -> Feed:
        """The arrivals from `start` on."""
        return Feed(*self.cut(start, len(self)))

    def __len__(self) -> int:
        return len(self.key)


def random_feed(n: int, seed: int = 0, keys: int = 12, largest: int = 40) -> Feed:
    """`n` arrivals whose keys follow Zipf's law, with ties in time and rows of up to `largest` bytes.

    >>> from penstock.testing import random_feed
    >>> len(random_feed(50)), bool((random_feed(50).time == random_feed(50).time).all())
    (50, True)
    """
    random = np.random.default_rng(seed)
    time = np.cumsum(random.choice(GAPS, n))
    stream = random.integers(0, 2, n).astype(np.int8)
    order = np.lexsort((stream, time))
    popular = 1 / np.arange(1, keys + 1)
    return Feed(
        stream[order],
        random.choice(keys, n, p=popular / popular.sum()),
        time[order],
        np.arange(n),
        random.integers(0, largest + 1, n),
    )


def random_streams(n: int, seed: int = 0, keys: int = 12) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two tables with `n` rows together, columns `key` and `ts`; a few keys are null.

    >>> import penstock as ps
    >>> from penstock.testing import random_streams
    >>> left, right = random_streams(200, seed=3)
    >>> join = ps.WindowJoin(within=25, budget=ps.Tuples(500), policy="fifo")
    >>> join.run(left, right, on="key", time="ts").stats.recall
    1.0
    """
    feed = random_feed(n, seed, keys)
    left, right = (
        {
            "key": [
                None if row % NULL_EVERY == 0 else key for row, key in enumerate(feed.key[mine].tolist())
            ],
            "ts": feed.time[mine],
        }
        for mine in (feed.stream == 0, feed.stream == 1)
    )
    return left, right


def random_requests(n: int, seed: int = 0, keys: int = 50) -> np.ndarray:
    """`n` requests to a cache: popular keys, and keys that were asked for a moment ago.

    >>> from penstock import caching
    >>> from penstock.testing import random_requests
    >>> caching.replay(random_requests(300, seed=1), "lru", 50).misses <= 50
    True
    """
    random = np.random.default_rng(seed)
    popular = random.zipf(1.3, n) % keys
    recent = (np.arange(n) // 8 + random.integers(0, 4, n)) % keys
    return np.where(random.random(n) < 0.5, popular, recent).astype(np.int64)
