"""The decisions of the planners: what queues in bounded memory write and read.

A queue is a sequence of runs, oldest first, alternately in memory and on disk. `before` decides how much of
the newest items in memory to write before an item enters, `reading` how much to read once the front is on
disk. They see sizes only: the simulation calls them with tuples of size 1, and a queue of real items with
bytes, cutting at the next item. So both share one implementation.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.compiler.jit import jit

# The planners.
HALF = 0
HALF_LATE = 1  # footnote 2: a write waits until memory is full
GREEDY = 2  # blocks of `block` tuples; 1 is the greedy algorithm
HEADS = 3  # BUFFEREDHEAD
HEADS_REST = 4  # footnote 4: all but the protected head
HEADS_HALVES = 5  # footnote 4: the newest half
HEADS_WIDE = 6  # two shares a write


class SizedPlanner(NamedTuple):
    """A planner with its memory."""

    kind: int
    memory: int
    share: int
    block: int
    split: bool  # every queue has its own part of the memory
    largest: int  # the largest item that may enter


@jit
def before(plan, size, reads, head, tail, disk, whole, most):
    """Return how much of the newest to write before `size` enters, and whether from the fullest queue.

    `head` is in memory at the front of the queue, `tail` in memory behind everything on disk, `whole` all of
    the memory in use, `most` the part of the fullest queue. `reads`: the entering items come from disk.
    """
    kind, memory = plan.kind, plan.memory
    if kind == HALF:
        if reads:
            return 0, False  # a tail is at most half, so half can always be read
        if disk == 0:
            return (head - memory // 2, False) if head + size > memory else (0, False)
        return (tail, False) if tail + size > memory // 2 else (0, False)
    over = whole + size - memory
    if over <= 0:
        return 0, False
    if kind == HALF_LATE:
        return (head - memory // 2, False) if disk == 0 else (tail, False)
    if kind == GREEDY:
        return (over + plan.block - 1) // plan.block * plan.block, True
    if kind == HEADS:
        return plan.share, True
    if kind == HEADS_WIDE:
        return 2 * plan.share, True
    if kind == HEADS_HALVES:
        return (most + 1) // 2, True
    return most, True  # the protected head stays


@jit
def protected(plan):
    """Return how much of the oldest items of a queue is never written."""
    if plan.kind == HALF or plan.kind == HALF_LATE:
        return plan.memory // 2
    return plan.block if plan.kind == GREEDY else plan.share


@jit
def reading(plan):
    """Return how much is read at once, if that much is adjacent."""
    if plan.kind == HALF or plan.kind == HALF_LATE:
        return plan.memory // 2
    return plan.block if plan.kind == GREEDY else plan.share


@jit
def on_demand(plan):
    """Whether a read waits until the item is requested; others read as soon as a head is empty."""
    return plan.kind == GREEDY
