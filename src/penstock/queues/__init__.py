"""Queues that spill: lossless FIFO buffers in bounded memory, and the algorithms that move their items.

The algorithms (`planners`, `simulate`, `optimum`) know counts and sizes only; `SpillQueue` and `SpillQueues`
run them on real items and files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.queues import patterns, planners
    from penstock.queues.client import QueueClient, QueueProducer
    from penstock.queues.comparison import Comparison, compare
    from penstock.queues.costs import ExtendedCost, UnitCost
    from penstock.queues.inspection import FolderReport, verify
    from penstock.queues.offline import least_accesses, optimum
    from penstock.queues.planners import Planner, planner
    from penstock.queues.queue import SpillQueue, SpillQueues
    from penstock.queues.server import QueueServer
    from penstock.queues.simulation import Simulation, simulate

# Names are loaded when they are first used: a queue of items need not wait for what only simulations use.
_HOMES = {
    "client": ("QueueClient", "QueueProducer"),
    "comparison": ("Comparison", "compare"),
    "costs": ("ExtendedCost", "UnitCost"),
    "inspection": ("FolderReport", "verify"),
    "offline": ("least_accesses", "optimum"),
    "planners": ("Planner", "planner"),
    "queue": ("SpillQueue", "SpillQueues"),
    "server": ("QueueServer",),
    "simulation": ("Simulation", "simulate"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Comparison",
    "ExtendedCost",
    "FolderReport",
    "Planner",
    "QueueClient",
    "QueueProducer",
    "QueueServer",
    "Simulation",
    "SpillQueue",
    "SpillQueues",
    "UnitCost",
    "compare",
    "least_accesses",
    "optimum",
    "patterns",
    "planner",
    "planners",
    "simulate",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name in ("patterns", "planners"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
