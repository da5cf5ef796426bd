"""The caching problem: a stream of requests, a relation that answers them, and memory for a part of it.

>>> from penstock import caching
>>> caching.replay(["a", "b", "a", "c", "a"], "lru", budget=2).hits
2
"""

from penstock.caching.cache import Cache
from penstock.caching.reduction import as_decisions, as_join
from penstock.caching.run import CacheRun, replay

__all__ = ["Cache", "CacheRun", "as_decisions", "as_join", "replay"]
