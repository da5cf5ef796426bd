"""Queues that spill: lossless FIFO buffers in bounded memory, and the algorithms that move their items.

The algorithms (`planners`, `simulate`, `optimum`) use counts and sizes only; `SpillQueue` and `SpillQueues`
run them on real items and files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.queues.client import QueueClient, QueueProducer
    from penstock.queues.planning import arrivals, planners
    from penstock.queues.planning.comparison import Comparison, compare
    from penstock.queues.planning.costs import ExtendedCost, UnitCost
    from penstock.queues.planning.offline import least_accesses, optimum
    from penstock.queues.planning.planners import Planner, planner
    from penstock.queues.planning.simulation import Simulation, simulate
    from penstock.queues.queue import SpillQueue, SpillQueues
    from penstock.queues.server import QueueServer
    from penstock.queues.store.inspection import FolderReport, verify

# Names are imported on first use: a queue of items does not need the modules of simulations.
_HOMES = {
    "client": ("QueueClient", "QueueProducer"),
    "planning.comparison": ("Comparison", "compare"),
    "planning.costs": ("ExtendedCost", "UnitCost"),
    "store.inspection": ("FolderReport", "verify"),
    "planning.offline": ("least_accesses", "optimum"),
    "planning.planners": ("Planner", "planner"),
    "queue": ("SpillQueue", "SpillQueues"),
    "server": ("QueueServer",),
    "planning.simulation": ("Simulation", "simulate"),
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
    "arrivals",
    "compare",
    "least_accesses",
    "optimum",
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
    if name in ("arrivals", "planners"):
        return import_module(f"{__name__}.planning.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
