"""Arrival patterns for simulations: ordinary traffic, bursts, and the adversaries of the paper's proofs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.errors import PenstockError, hint


def steady(ticks: int, memory: int, seed: int = 0) -> np.ndarray:
    """One tuple a tick.

    >>> from penstock.queues.planning import arrivals
    >>> arrivals.steady(3, memory=4).tolist()
    [1, 1, 1]
    """
    return np.ones(ticks, np.int64)


def poisson(ticks: int, memory: int, seed: int = 0) -> np.ndarray:
    """Independent arrivals, as many as are consumed on average; the queue wanders.

    >>> from penstock.queues.planning import arrivals
    >>> int(arrivals.poisson(1_000, memory=4).sum()) in range(850, 1_150)
    True
    """
    return np.random.default_rng(seed).poisson(1.0, ticks).astype(np.int64)


def bursts(ticks: int, memory: int, seed: int = 0) -> np.ndarray:
    """Self-similar bursts: on and off periods with a heavy tail (Pareto 1.4); 0.9 per tick on average.

    >>> from penstock.queues.planning import arrivals
    >>> int(arrivals.bursts(1_000, memory=4).max()) > 1
    True
    """
    rng = np.random.default_rng(seed)
    found = np.zeros(ticks, np.int64)
    sources = 6
    for _ in range(sources):
        at, on = 0, bool(rng.integers(2))
        while at < ticks:
            length = int(np.ceil(rng.pareto(1.4) + 1) * (1 if on else 2))
            if on:
                found[at : at + length] += 1
            at, on = at + length, not on
    thinned = rng.binomial(found, min(1.0, 0.9 * ticks / max(1, found.sum())))
    return thinned.astype(np.int64)


def half_adversary(memory: int, rounds: int = 1) -> np.ndarray:
    """Theorem 2.2 against HALF: one tuple too many, and after the large read again one too many.

    HALF writes M/2 where one tuple would be enough. When it has read them back, memory is so full that the
    next burst costs HALF a second write and read, and an optimum that wrote one tuple nothing more.

    >>> from penstock.queues import optimum, simulate

    >>> from penstock.queues.planning import arrivals
    >>> arrivals = arrivals.half_adversary(memory=8)
    >>> simulate(arrivals, "half", memory=8).cost(), optimum(arrivals, memory=8)
    (4.0, 2.0)
    """
    half = memory // 2
    one = np.zeros(3 * memory + 4, np.int64)
    one[0] = memory + 1  # HEAD has M/2, SPILLED M/2, TAIL 1; one is consumed at once
    one[half] = half  # HALF read at the end of the tick before, and its memory holds M/2 + 1
    return np.tile(one, rounds)


def round_robin_adversary(memory: int, queues: int, rounds: int = 1) -> np.ndarray:
    """Theorem 4.3: one queue grows to 2M; when much of it has been read, all queues get M/n at once.

    >>> from penstock.queues.planning import arrivals
    >>> arrivals.round_robin_adversary(memory=16, queues=4).shape[1]
    4
    """
    share = max(1, memory // (2 * queues))
    fill = 2 * memory // share + 1
    one = np.zeros((fill + 6 * memory, queues), np.int64)
    one[:fill, 0] = share
    burst = fill + memory
    for tick in range(2 * queues):
        one[burst + tick, tick % queues] = share
    return np.tile(one, (rounds, 1))


def adversary(memory: int, ticks: int) -> tuple[np.ndarray, np.ndarray]:
    """Theorem 4.4: two queues and a consumer that defeat every acyclic online algorithm.

    Queue 1 grows to 2M and is consumed until it has been read from disk; then queue 2 keeps M - 1 tuples, and
    only it is consumed.

    >>> from penstock.queues import simulate

    >>> from penstock.queues.planning import arrivals
    >>> arrivals, order = arrivals.adversary(memory=40, ticks=500)
    >>> simulate(arrivals, "buffered-head", memory=40, consume=order).cost() > 50
    True
    """
    share = max(1, memory // 4)
    fill = 2 * memory // share
    read = fill + memory
    deluge = read + memory // share
    arrivals = np.zeros((deluge + ticks, 2), np.int64)
    arrivals[:fill, 0] = share
    arrivals[read:deluge, 1] = share
    arrivals[deluge:, 1] = 1
    order = np.zeros(len(arrivals), np.int64)
    order[read:deluge] = -2
    order[deluge:] = 1
    return arrivals, order


_NAMED: dict[str, Callable[[int, int, int], np.ndarray]] = {
    "steady": steady,
    "poisson": poisson,
    "bursts": bursts,
    "theorem-2.2": lambda ticks, memory, seed: half_adversary(memory, max(1, ticks // (3 * memory + 4))),
}


def names() -> list[str]:
    """Return the names of the patterns for one queue.

    >>> from penstock.queues.planning import arrivals
    >>> arrivals.names()
    ['steady', 'poisson', 'bursts', 'theorem-2.2']
    """
    return list(_NAMED)


def pattern(name: str, ticks: int, memory: int, seed: int = 0) -> np.ndarray:
    """Return the arrivals of a named pattern.

    >>> from penstock.queues.planning import arrivals
    >>> arrivals.pattern("steady", 4, memory=2).tolist()
    [1, 1, 1, 1]
    """
    if name not in _NAMED:
        raise PenstockError(f"There is no pattern {name!r}{hint(name, _NAMED)}")
    if ticks < 1 or memory < 2:
        raise PenstockError(
            f"A pattern needs at least 1 tick and a memory of at least 2; {ticks}, {memory} were given."
        )
    return _NAMED[name](ticks, memory, seed)
