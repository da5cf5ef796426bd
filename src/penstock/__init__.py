"""Penstock: stream processing in a fixed amount of memory.

>>> import penstock as ps
>>> left = {"key": [1, 2], "ts": [0, 1]}
>>> right = {"key": [2, 1], "ts": [2, 3]}
>>> ps.WindowJoin(within=10, budget=ps.Tuples(4), policy="lru").run(left, right, on="key", time="ts").stats.results
2
"""

from penstock import policies
from penstock.budget import Bytes, Fraction, Tuples
from penstock.errors import PenstockError
from penstock.joins import Distortion, JoinRun, JoinState, JoinStats, WindowJoin
from penstock.window import Landmark, Rows, Within

__version__ = "0.1.0"

__all__ = [
    "Bytes",
    "Distortion",
    "Fraction",
    "JoinRun",
    "JoinState",
    "JoinStats",
    "Landmark",
    "PenstockError",
    "Rows",
    "Tuples",
    "WindowJoin",
    "Within",
    "policies",
]
