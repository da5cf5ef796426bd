"""Lookups: a bounded cache between a stream and a database.

>>> import penstock as ps
>>> prices = {"tea": 3, "milk": 1}
>>> lookup = ps.LookupCache(
...     lambda keys: [{"price": prices[key]} if key in prices else None for key in keys],
...     key="item",
...     budget=ps.Tuples(2),
...     policy="lru",
... )
>>> run = lookup.run({"item": ["tea", "milk", "tea", "rum"]}, on="item")
>>> run.table["price"].to_pylist(), run.stats.hits, run.stats.misses
([3, 1, 3, None], 1, 3)
"""

from penstock.lookup.cache import LookupCache
from penstock.lookup.plan import LookupPlan, plan_lookup
from penstock.lookup.state import LookupState
from penstock.lookup.stats import LookupRun, LookupStats

__all__ = ["LookupCache", "LookupPlan", "LookupRun", "LookupState", "LookupStats", "plan_lookup"]
