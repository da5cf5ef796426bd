"""`replay`: simulate a cache on a trace of requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from penstock.caching.cache import Cache
from penstock.columns import codes_of, labels_of
from penstock.compiler.tiers import expecting
from penstock.errors import ColumnError
from penstock.policies import Policy


@dataclass(frozen=True)
class CacheRun:
    """The outcome of `replay`. Requests with a null key are not answered and counted separately.

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
    """Replay a trace of requests through a cache with a number of entries.

    `requests` is a sequence of keys of any type: an array, a list, a pandas or Arrow column. A request is a
    hit if its key is cached; a missed key enters, and displaces another if the cache is full. Ties are broken
    by evicting the least recently used entry. `lfu` counts hits while an entry is cached; `prob` counts all
    requests and may refuse a newcomer, as may `heeb`, which uses a model of the requests; `lfd` looks ahead
    and always admits; `lfd:bypass=true` may refuse and is the optimum.

    >>> from penstock.caching import replay
    >>> trace = [1, 2, 3, 1, 2, 3, 1, 2, 3]
    >>> {policy: replay(trace, policy, budget=2).hits for policy in ("lru", "lfd", "lfd:bypass=true")}
    {'lru': 0, 'lfd': 3, 'lfd:bypass=true': 4}
    """
    given = requests_of(requests)
    cache = Cache(policy, budget, requests=given.codes, seed=seed, number=given.number)
    with expecting(len(given.codes)):
        found = cache.warm().request(given.codes, values=given.values)
    return CacheRun(
        requests=len(given.codes),
        hits=cache.hits,
        evicted=cache.evicted,
        refused=cache.refused,
        nulls=given.nulls,
        seconds=cache.seconds,
        hit=found.hit.astype(bool),
        slot=found.slot,
    )


@dataclass(frozen=True)
class Requests:
    """Requests as codes of their keys, with the numbers that the keys stand for.

    >>> from penstock.caching.run import requests_of
    >>> given = requests_of([2.5, None, 0.5, 2.5])
    >>> given.codes.tolist(), given.values.tolist(), given.nulls, given.number(0.5)
    ([0, 1, 0], [2.5, 0.5, 2.5], 1, 1)
    """

    codes: np.ndarray
    nulls: int  # requests with a null key, which are left out
    values: np.ndarray | None = None  # NaN for keys that are not numbers; `None`: a code is its value
    known: dict[Any, int] | None = None  # the code of each key

    def number(self, value: Any) -> int | None:
        """Return the code of a key, `None` if it is never requested."""
        if self.known is None:
            whole = isinstance(value, int | float) and float(value).is_integer()
            return int(value) if whole else None
        return self.known.get(value)


def requests_of(requests: Any) -> Requests:
    """Convert requests to codes: from an array, a list, a column, or a table of several key columns.

    >>> from penstock.caching.run import requests_of
    >>> requests_of(["b", "a", "b"]).codes.tolist()
    [0, 1, 0]
    """
    if isinstance(requests, np.ndarray) and requests.ndim == 1 and requests.dtype.kind == "i":
        return Requests(np.ascontiguousarray(requests, np.int64), 0)
    try:
        given = requests.to_pandas() if hasattr(requests, "to_pandas") else requests
        columns = (
            [given[name].reset_index(drop=True) for name in given.columns]
            if isinstance(given, pd.DataFrame)
            else [pd.Series(given).reset_index(drop=True).rename("requests")]
        )
    except (TypeError, ValueError) as error:
        raise ColumnError(f"Requests are a sequence of keys; {type(requests).__name__} was given.") from error
    if not columns:
        raise ColumnError("Requests are a sequence of keys; a table without columns was given.")
    (codes,), count = codes_of([columns], ["request"])
    labels = labels_of([columns], [codes], count)
    kept = codes[codes >= 0]
    numeric = labels.dtype.kind in "if"
    values = labels.astype(np.float64)[kept] if numeric else np.full(len(kept), np.nan)
    known = {label: code for code, label in enumerate(labels.tolist())} if len(columns) == 1 else {}
    return Requests(kept, int(np.count_nonzero(codes < 0)), values, known)


def request_codes(requests: Any) -> tuple[np.ndarray, int]:
    """Return whole numbers for the keys of requests without null keys, and the number of null keys.

    >>> from penstock.caching.run import request_codes
    >>> codes, nulls = request_codes(["b", None, "a", "b"])
    >>> codes.tolist(), nulls
    ([0, 1, 0], 1)
    """
    given = requests_of(requests)
    return given.codes, given.nulls
