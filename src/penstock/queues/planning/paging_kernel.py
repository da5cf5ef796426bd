"""The simulation of queues in memory that is paged, as a buffer manager does it."""

from __future__ import annotations

import numpy as np

from penstock.compiler.jit import jit
from penstock.queues.planning.simulation_kernel import (
    CONSUMED,
    PEAK,
    READ,
    READS,
    REWRITTEN,
    TICKS,
    WRITES,
    WRITTEN,
)


@jit
def simulate_paging(memory, page, arrivals, order, counts):
    """Simulate LRU paging of the same queues: the least recently used page is evicted, and read when needed.

    This is the paper's reason why buffer managers fail here: that page of a queue is consumed next.
    """
    ticks, queues = arrivals.shape
    longest = np.int64(0)
    for q in range(queues):
        longest = max(longest, np.int64(arrivals[:, q].sum()))
    pages = longest // page + 2
    held = np.zeros((queues, pages), np.int64)  # tuples of the page in memory
    away = np.zeros((queues, pages), np.int64)  # and on disk
    been = np.zeros((queues, pages), np.bool_)  # whether it has been on disk
    used = np.zeros((queues, pages), np.int64)
    front = np.zeros(queues, np.int64)
    back = np.zeros(queues, np.int64)
    whole = np.int64(0)
    clock = np.int64(0)
    turn = 0
    tick = 0
    waiting = np.int64(0)
    while tick < ticks or waiting > 0:
        for q in range(queues):
            for _ in range(arrivals[tick, q] if tick < ticks else 0):
                p = back[q] // page
                clock += 1
                if whole + 1 > memory:
                    whole -= _page_out(held, away, been, used, front, back, page, q, p, counts)
                held[q, p] += 1
                used[q, p] = clock
                back[q] += 1
                whole += 1
                waiting += 1
                counts[PEAK] = max(counts[PEAK], whole)
        wanted = order[tick] if tick < order.shape[0] else -1
        if wanted == -1:
            for step in range(queues):
                q = turn + step
                q -= queues if q >= queues else 0
                if back[q] > front[q]:
                    wanted = q
                    turn = q + 1 if q + 1 < queues else 0
                    break
        if wanted >= 0 and back[wanted] > front[wanted]:
            q = int(wanted)
            p = front[q] // page
            clock += 1
            used[q, p] = clock
            if away[q, p] > 0:
                while whole + away[q, p] > memory:
                    whole -= _page_out(held, away, been, used, front, back, page, q, p, counts)
                counts[READS] += 1
                counts[READ] += away[q, p]
                whole += away[q, p]
                held[q, p] += away[q, p]
                away[q, p] = 0
                been[q, p] = True
                counts[PEAK] = max(counts[PEAK], whole)
            held[q, p] -= 1
            front[q] += 1
            whole -= 1
            waiting -= 1
            counts[CONSUMED] += 1
        tick += 1
    counts[TICKS] = tick


@jit
def _page_out(held, away, been, used, front, back, page, own, spared, counts):
    """Write the least recently used page, not the one that is wanted; its tuples."""
    best_q, best_p = -1, -1
    for q in range(held.shape[0]):
        for p in range(front[q] // page, back[q] // page + 1):
            if held[q, p] > 0 and not (q == own and p == spared):
                if best_q < 0 or used[q, p] < used[best_q, best_p]:
                    best_q, best_p = q, p
    if best_q < 0:
        best_q, best_p = own, spared
    moved = held[best_q, best_p]
    counts[WRITES] += 1
    counts[WRITTEN] += moved
    if been[best_q, best_p]:
        counts[REWRITTEN] += moved
    away[best_q, best_p] += moved
    held[best_q, best_p] = 0
    return moved
