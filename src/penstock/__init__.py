"""Penstock: stream processing in a fixed amount of memory.

>>> import penstock as ps
>>> left = {"key": [1, 2], "ts": [0, 1]}
>>> right = {"key": [2, 1], "ts": [2, 3]}
>>> ps.WindowJoin(within=10, budget=ps.Tuples(4), policy="lru").run(
...     left, right, on="key", time="ts"
... ).stats.results
2
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock import models, patterns, policies
    from penstock.budget import Bytes, Fraction, Tuples
    from penstock.errors import PenstockError
    from penstock.joins import (
        AsofJoin,
        AsofRun,
        AsofState,
        AsofStats,
        Chain,
        Distortion,
        JoinRun,
        JoinState,
        JoinStats,
        ManyRun,
        ManyState,
        ManyStats,
        Optimum,
        Plan,
        PlanRow,
        WindowJoin,
        asof_join,
        join_many,
        optimal_join,
        plan,
    )
    from penstock.linked import LinkedRun, LinkedStats, StreamQuery
    from penstock.lookup import LookupCache, LookupRun, LookupStats, plan_lookup
    from penstock.patterns import Pattern, PatternSet
    from penstock.queues import SpillQueue, SpillQueues
    from penstock.window import Landmark, Rows, Within

__version__ = "0.1.0"  # the only place: pyproject.toml reads it here

__all__ = [
    "AsofJoin",
    "AsofRun",
    "AsofState",
    "AsofStats",
    "Bytes",
    "Chain",
    "Distortion",
    "Fraction",
    "JoinRun",
    "JoinState",
    "JoinStats",
    "Landmark",
    "LinkedRun",
    "LinkedStats",
    "LookupCache",
    "LookupRun",
    "LookupStats",
    "ManyRun",
    "ManyState",
    "ManyStats",
    "Optimum",
    "Pattern",
    "PatternSet",
    "PenstockError",
    "Plan",
    "PlanRow",
    "Rows",
    "SpillQueue",
    "SpillQueues",
    "StreamQuery",
    "Tuples",
    "WindowJoin",
    "Within",
    "asof_join",
    "join_many",
    "models",
    "optimal_join",
    "patterns",
    "plan",
    "plan_lookup",
    "policies",
]

# Names are imported on first use: Numba and pandas take most of a second to import, which `penstock --help`
# should not pay for. This table lists the names that live in a module of their own; the rest are in `joins`.
_HOMES = {
    "budget": ("Bytes", "Fraction", "Tuples"),
    "errors": ("PenstockError",),
    "joins.plan": (
        "Plan",
        "PlanRow",
        "plan",
    ),  # via the module: `joins.plan` names both a module and a function
    "linked": ("LinkedRun", "LinkedStats", "StreamQuery"),
    "lookup": ("LookupCache", "LookupRun", "LookupStats", "plan_lookup"),
    "patterns": ("Pattern", "PatternSet"),
    "queues": ("SpillQueue", "SpillQueues"),
    "window": ("Landmark", "Rows", "Within"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("models", "patterns", "policies"):
        return import_module(f"penstock.{name}")
    value = getattr(import_module(f"penstock.{_HOME.get(name, 'joins')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
