"""For tests of pipelines and policies: random sources, a clock that can be set, and the contract of a policy.

>>> import penstock as ps
>>> from penstock.testing import random_streams
>>> left, right = random_streams(100, seed=1)
>>> join = ps.WindowJoin(within=25, budget=ps.Tuples(10), policy="lru")
>>> join.run(left, right, on="key", time="ts").stats.peak_tuples
10
"""

from penstock.testing.contract import check_policy
from penstock.testing.join_checks import trajectory
from penstock.testing.manual_clock import ManualClock
from penstock.testing.sources import Feed, random_feed, random_requests, random_streams

__all__ = [
    "Feed",
    "ManualClock",
    "check_policy",
    "random_feed",
    "random_requests",
    "random_streams",
    "trajectory",
]
