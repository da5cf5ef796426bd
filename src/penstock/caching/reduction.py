"""Reduce caching to joining: a trace of requests as two streams whose bounded join has a result per hit.

Section 3.1 of Xie, Yang and Chen 2005: the requests are one stream; the other supplies at each request the
tuple that answers it, which the cache may keep. The i-th request for v is (v, i - 1) and the i-th supply
(v, i), so that a supplied tuple joins with the next request for its key and with no other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from penstock.caching.run import CacheRun, request_codes
from penstock.engine.cache_loop import next_requests


def as_join(requests: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The two streams, references and supplies, with the columns `value`, `occurrence` and `ts`.

    Join them on `["value", "occurrence"]` in steps of ticks, with a window that covers all and one pool.

    >>> import penstock as ps
    >>> from penstock import caching
    >>> trace = ["a", "b", "c", "a", "b", "d", "a", "b"]
    >>> references, supplies = caching.as_join(trace)
    >>> supplies.occurrence.tolist()
    [1, 1, 1, 2, 2, 1, 3, 3]
    >>> best = ps.optimal_join(
    ...     references,
    ...     supplies,
    ...     on=["value", "occurrence"],
    ...     time="ts",
    ...     within=len(trace),
    ...     budget=ps.Tuples(2),
    ...     step="tick",
    ... )
    >>> best.results, caching.replay(trace, "lfd:bypass=true", budget=2).hits
    (4, 4)
    """
    keys, _ = request_codes(requests)
    before = pd.Series(keys).groupby(keys).cumcount().to_numpy()
    ts = np.arange(len(keys))
    references = pd.DataFrame({"value": keys, "occurrence": before, "ts": ts})
    return references, references.assign(occurrence=before + 1)


def as_decisions(run: CacheRun) -> pa.Table:
    """What a cache did, as decisions for the join of `as_join`: which supplies are kept, and to which step.

    A supply is kept until its slot is used again: by the next request for its key, a hit and a result of
    the join, or by the key that displaced it.

    >>> from penstock import caching
    >>> run = caching.replay(["a", "b", "a", "c", "b"], "lru", budget=2)
    >>> caching.as_decisions(run).to_pydict()["until"]
    [2, 3, 4, 5, 5]
    """
    kept = np.flatnonzero(run.slot > 0)
    until = next_requests(run.slot.astype(np.int64), int(run.slot.max(initial=0)) + 1)
    return pa.table({"stream": ["right"] * len(kept), "row": kept, "arrives": kept, "until": until[kept]})
