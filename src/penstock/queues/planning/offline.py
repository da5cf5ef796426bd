"""The offline optimum: the minimum cost of any algorithm that knows the arrivals, found by search.

The search covers what is on disk at each event, cheapest first, so it ends at the optimum. Two facts keep it
small without losing the optimum. A write can wait until memory is full, and a read until its first tuple is
consumed: waiting can only make them smaller. And a read always returns a run at the front of its queue. It
is meant for small cases, tens of tuples and a memory of a few; beyond a limit it raises an error. For longer
runs, `least_accesses` is a lower bound.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.errors import PenstockError
from penstock.queues.planning.costs import Cost, UnitCost
from penstock.queues.planning.simulation import arrivals_of, order_of

ARRIVE, CONSUME = 0, 1


def optimum(
    arrivals: Any,
    *,
    memory: int,
    model: Cost | None = None,
    consume: Any = "round-robin",
    limit: int = 500_000,
) -> float:
    """Return the minimum cost of queueing the arrivals without exceeding memory until all are consumed.

    >>> from penstock.queues import optimum
    >>> optimum([3, 0, 3, 3, 0, 0, 3, 3, 1, 1], memory=6)
    2.0
    """
    counted = arrivals_of(arrivals)
    events = list(_events(counted, order_of(consume, counted.shape[1])))
    price = model or UnitCost()
    queues = counted.shape[1]
    # A state is the next event and, for each queue, a bit per unconsumed tuple (the oldest is the lowest)
    # that says whether it is on disk, and how many there are.
    start = (0, (0,) * queues, (0,) * queues)
    best: dict[Any, float] = {start: 0.0}
    heap: list[tuple[float, int, int, Any]] = [(0.0, 0, 0, start)]
    pushed = 0
    while heap:
        cost, _, _, state = heapq.heappop(heap)
        if cost > best[state]:
            continue
        at, disks, sizes = state
        if at == len(events):
            return cost
        if len(best) > limit:
            raise PenstockError(
                f"The optimum of {int(counted.sum())} tuples in a memory of {memory} needs more than "
                f"{limit:,} states. Use a shorter run or a smaller memory, or least_accesses()."
            )
        for extra, following in _moves(events[at], at, disks, sizes, memory, price):
            total = cost + extra
            if total < best.get(following, float("inf")):
                best[following] = total
                pushed += 1
                heapq.heappush(heap, (total, -following[0], pushed, following))
    raise PenstockError(f"No algorithm can keep these arrivals in a memory of {memory}.")


def _events(arrivals: np.ndarray, order: np.ndarray) -> Iterator[tuple[int, int]]:
    """Arrivals one by one and the consumption of each tick, as the simulation has them."""
    waiting = [0] * arrivals.shape[1]
    turn = tick = 0
    while tick < len(arrivals) or any(waiting):
        if tick < len(arrivals):
            for q, count in enumerate(arrivals[tick]):
                for _ in range(count):
                    yield ARRIVE, q
                waiting[q] += int(count)
        wanted = int(order[tick]) if tick < len(order) else -1
        if wanted == -1:
            for step in range(len(waiting)):
                q = (turn + step) % len(waiting)
                if waiting[q]:
                    wanted, turn = q, (q + 1) % len(waiting)
                    break
        if wanted >= 0 and waiting[wanted]:
            waiting[wanted] -= 1
            yield CONSUME, wanted
        tick += 1


def _moves(
    event: tuple[int, int], at: int, disks: tuple[int, ...], sizes: tuple[int, ...], memory: int, price: Cost
) -> Iterator[tuple[float, Any]]:
    """The states to which an event leads, or to which a write or read before it leads."""
    kind, q = event
    in_memory = sum(sizes) - sum(disk.bit_count() for disk in disks)
    if kind == ARRIVE:
        if in_memory < memory:
            yield 0.0, (at + 1, disks, _with(sizes, q, sizes[q] + 1))
        else:
            yield from _writes(at, disks, sizes, price)
        return
    disk = disks[q]
    if not disk & 1:
        yield 0.0, (at + 1, _with(disks, q, disk >> 1), _with(sizes, q, sizes[q] - 1))
        return
    together = ((disk + 1) & ~disk).bit_length() - 1
    for length in range(1, min(together, memory - in_memory) + 1):
        yield price.of(1, length), (at, _with(disks, q, disk & ~((1 << length) - 1)), sizes)
    if together > memory - in_memory:
        yield from _writes(at, disks, sizes, price)


def _writes(
    at: int, disks: tuple[int, ...], sizes: tuple[int, ...], price: Cost
) -> Iterator[tuple[float, Any]]:
    """Every write of tuples that lie together in memory."""
    for q, (disk, size) in enumerate(zip(disks, sizes, strict=True)):
        for first in range(size):
            run = 0
            for last in range(first, size):
                if disk >> last & 1:
                    break
                run |= 1 << last
                yield price.of(1, last - first + 1), (at, _with(disks, q, disk | run), sizes)


def _with(values: tuple[int, ...], q: int, value: int) -> tuple[int, ...]:
    return (*values[:q], value, *values[q + 1 :])


def least_accesses(arrivals: Any, *, memory: int) -> int:
    """Return a lower bound on the accesses of any algorithm for one queue (proof of Theorem 2.1).

    Whenever more than M tuples wait, one of the M before the newest must have been written. If such stretches
    do not overlap, the writes differ; and everything on disk comes back in at least one read.

    >>> from penstock.queues import least_accesses
    >>> least_accesses([9, 0, 0], memory=4), least_accesses([1, 1, 1], memory=4)
    (3, 0)
    """
    counted = arrivals_of(arrivals)
    if counted.shape[1] != 1:
        raise PenstockError(f"least_accesses() is for one queue; arrivals of {counted.shape[1]} were given.")
    number = waiting = writes = 0
    free_after = 0  # the last tuple of the stretch before
    for count in counted[:, 0].tolist():
        # Of the tuples that arrive in this tick, those from `least` on find more than M waiting.
        number, waiting = number + count, waiting + count
        least = number - waiting + memory + 1
        at = max(least, free_after + memory, number - count + 1)
        while at <= number and waiting:
            writes += 1
            free_after = at
            at += memory
        waiting -= waiting > 0
    return writes + (writes > 0)
