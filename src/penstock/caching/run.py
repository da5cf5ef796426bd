"""`replay`: what a cache would have done with a trace of requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from penstock.caching.cache import Cache
from penstock.columns import codes_of
from penstock.errors import ColumnError
from penstock.policies import Policy


@dataclass(frozen=True)
class CacheRun:
    """The outcome of `replay`. Requests without a key (null) are answered by nobody and counted apart.

    >>> from penstock.caching import replay
    >>> run = replay(["a", "b", None, "a"], "lru", budget=2)
    >>> run.hits, run.misses, run.nulls, run.hit_ratio
    (1, 2, 1, 0.3333333333333333)
    """

    requests: int
    hits: int
    evicted: int
    refused: int
    nulls: int
    seconds: float  # of the cache itself, without the conversion of the keys
    hit: np.ndarray = field(repr=False, compare=False)  # per request that has a key
    slot: np.ndarray = field(repr=False, compare=False)  # where its key is afterwards; 0: not admitted

    @property
    def misses(self) -> int:
        """Requests whose key was not in memory."""
        return self.requests - self.hits

    @property
    def hit_ratio(self) -> float:
        """The share of hits; 0 without requests."""
        return self.hits / self.requests if self.requests else 0.0


def replay(requests: Any, policy: str | Policy, budget: Any, *, seed: int = 0) -> CacheRun:
    """Replay a trace of requests through a cache of so many entries.

    `requests` is a sequence of keys of any type: an array, a list, a pandas or Arrow column. A request is a
    hit if its key is in memory; a missed key enters, in a full cache at the expense of another. Among equals
    the least recently used goes. `lfu` counts hits while an entry is cached; `prob` counts requests for ever
    and may refuse a newcomer; `lfd` looks ahead and always admits, `lfd:bypass=true` may refuse and is the
    optimum.

    >>> from penstock.caching import replay
    >>> trace = [1, 2, 3, 1, 2, 3, 1, 2, 3]
    >>> {policy: replay(trace, policy, budget=2).hits for policy in ("lru", "lfd", "lfd:bypass=true")}
    {'lru': 0, 'lfd': 3, 'lfd:bypass=true': 4}
    """
    keys, nulls = request_codes(requests)
    cache = Cache(policy, budget, requests=keys, seed=seed).warm()
    found = cache.request(keys)
    return CacheRun(
        requests=len(keys),
        hits=cache.hits,
        evicted=cache.evicted,
        refused=cache.refused,
        nulls=nulls,
        seconds=cache.seconds,
        hit=found.hit.astype(bool),
        slot=found.slot,
    )


def request_codes(requests: Any) -> tuple[np.ndarray, int]:
    """Whole numbers for the keys of requests, those without one left out, and how many those are.

    >>> from penstock.caching.run import request_codes
    >>> codes, nulls = request_codes(["b", None, "a", "b"])
    >>> codes.tolist(), nulls
    ([0, 1, 0], 1)
    """
    if isinstance(requests, np.ndarray) and requests.ndim == 1 and requests.dtype.kind == "i":
        return np.ascontiguousarray(requests, np.int64), 0
    try:
        column = pd.Series(requests.to_pandas() if hasattr(requests, "to_pandas") else requests)
    except (TypeError, ValueError) as error:
        raise ColumnError(f"Requests are a sequence of keys; {type(requests).__name__} was given.") from error
    (codes,), _ = codes_of([[column.reset_index(drop=True).rename("requests")]], ["request"])
    return codes[codes >= 0], int(np.count_nonzero(codes < 0))
