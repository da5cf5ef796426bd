"""Simulate a planner on counts of arrivals: cost and disk traffic without a disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import PenstockError
from penstock.queues.planning import paging_kernel, simulation_kernel
from penstock.queues.planning.costs import Cost, UnitCost
from penstock.queues.planning.planners import PAGING, Planner, planner

NOBODY = -2


@dataclass(frozen=True)
class Simulation:
    """The outcome of a simulation: accesses, tuples moved, and how many of them more than once."""

    planner: str
    memory: int
    queues: int
    ticks: int
    reads: int
    writes: int
    read: int
    written: int
    rewritten: int
    peak: int

    def cost(self, model: Cost | None = None) -> float:
        """Return the cost in a model; default: the unit-cost model.

        >>> from penstock.queues import ExtendedCost, simulate
        >>> run = simulate([8] + [0] * 8, "half", memory=4)
        >>> run.cost(), run.cost(ExtendedCost(c0=2, c1=1))
        (4.0, 16.0)
        """
        return (model or UnitCost()).of(self.reads + self.writes, self.read + self.written)


def arrivals_of(given: Any) -> np.ndarray:
    """Return arrivals as an array of ticks by queues, or raise an error.

    >>> from penstock.queues.planning.simulation import arrivals_of
    >>> arrivals_of([3, 0, 1]).shape
    (3, 1)
    """
    array = np.asarray(given)
    if array.ndim == 1:
        array = array.reshape(-1, 1)
    if array.ndim != 2 or array.shape[1] == 0 or not np.issubdtype(array.dtype, np.integer):
        if array.size:
            raise PenstockError(
                "Arrivals are whole numbers, one per tick, or one per tick and queue; "
                f"an array of {array.dtype} with shape {np.asarray(given).shape} was given."
            )
        array = np.zeros((0, 1), np.int64)
    if array.size and array.min() < 0:
        raise PenstockError(f"Arrivals are counts of at least 0; {int(array.min())} was given.")
    return np.ascontiguousarray(array, np.int64)


def order_of(given: Any, queues: int) -> np.ndarray:
    """Return the queue to consume from at each tick: "round-robin", or numbers (-1 next in turn, -2 none).

    >>> from penstock.queues.planning.simulation import order_of
    >>> order_of([0, 1, -1], 2).tolist()
    [0, 1, -1]
    """
    if isinstance(given, str):
        if given != "round-robin":
            raise PenstockError(
                f"Consumption is 'round-robin' or the number of a queue for each tick; {given!r} was given."
            )
        return np.zeros(0, np.int64)
    order = np.asarray(given, np.int64).reshape(-1)
    if order.size and (order.min() < NOBODY or order.max() >= queues):
        raise PenstockError(
            f"Consumption names queues from 0 to {queues - 1}, -1 for the next in turn or -2 for none; "
            f"{int(order.min())} to {int(order.max())} were given."
        )
    return order


def simulate(
    arrivals: Any, policy: str | Planner = "half", *, memory: int, consume: Any = "round-robin"
) -> Simulation:
    """Simulate a planner on counts of arrivals; each tick consumes one tuple, until the queue is empty.

    Parameters
    ----------
    arrivals
        Tuples that arrive at each tick, or an array of ticks by queues. They enter before the tick consumes.
    policy
        A planner, or its name.
    memory
        M, the number of tuples that fit into memory.
    consume
        "round-robin", or the queue from which each tick consumes (-1: next in turn, -2: none).

    Takes O(1) per tuple for one queue, O(queues) for several.

    >>> from penstock.queues import simulate
    >>> simulate([3, 0, 3, 3, 0, 0, 3, 3, 1, 1], "half-late", memory=6).cost()
    5.0
    """
    counted = arrivals_of(arrivals)
    queues = counted.shape[1]
    if isinstance(memory, bool) or not isinstance(memory, int | np.integer):
        raise PenstockError(f"memory is a whole number of tuples; {memory!r} was given.")
    spec = planner(policy)
    order = order_of(consume, queues)
    counts = np.zeros(simulation_kernel.COUNTS, np.int64)
    sized = spec.sized(int(memory), queues)
    if spec.kind == PAGING:
        page = min(spec.block or sized.share, int(memory) // 2)
        paging_kernel.simulate_paging(int(memory), page, counted, order, counts)
    else:
        simulation_kernel.simulate(sized, counted, order, counts, np.zeros(0, np.int64))
    return Simulation(
        planner=spec.name,
        memory=int(memory),
        queues=queues,
        ticks=int(counts[simulation_kernel.TICKS]),
        reads=int(counts[simulation_kernel.READS]),
        writes=int(counts[simulation_kernel.WRITES]),
        read=int(counts[simulation_kernel.READ]),
        written=int(counts[simulation_kernel.WRITTEN]),
        rewritten=int(counts[simulation_kernel.REWRITTEN]),
        peak=int(counts[simulation_kernel.PEAK]),
    )
