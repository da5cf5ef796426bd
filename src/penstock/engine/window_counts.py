"""Count the arrivals of a key by time: a list of nodes per participant of a join, and what they combine to.

A node counts the arrivals of at most a 32nd of a window, in order of time. What is at the edge of a window is
interpolated. The lists are those of a `ResultSample`. How many arrivals are in the last window of a key is
kept, so that an arrival in order of time costs O(participants).
"""

from __future__ import annotations

import numpy as np

from penstock.compiler.jit import jit

# Columns of a key, 32 bits wide.
LISTS = 8  # + 4 * participant: first node, first node in the window, last node, arrivals in the window
FIRST, INSIDE, LAST, COUNT, LIST_WIDTH = 0, 1, 2, 3, 4

NEWEST = 2  # of the columns of a key that are numbers: the last time

# Columns of a node.
BEGIN, END, NODE_TIMES = 0, 1, 2
ARRIVED, NEXT, NODE_WIDTH = 0, 1, 2

FREE_NODE, HIGH_NODE, NODES = 8, 9, 10  # in `meta`, beside what the rows of keys need
WINDOW, GRAIN = 1, 2  # in `level`: how long tuples can match; the least difference of two times, or 0

PER_WINDOW = 32
SLICES = 16  # of a window, for arrivals out of order


@jit
def combinations_before(sample, entry, join, own, time):
    """The results of an arrival that is the latest of its key."""
    product, low = 1.0, time - sample.level[WINDOW]
    for part in range(sample.scheme.size[join]):
        if part != own:
            product *= count_from(sample, entry, join, part, low)
    return product


@jit
def count_from(sample, entry, join, part, low):
    """The arrivals of a participant from a time on that only grows; what is before leaves the window."""
    k32, at = sample.k32, LISTS + LIST_WIDTH * part
    node = np.int64(k32[entry, at + INSIDE])
    while node != 0 and sample.times[node, END] < low:
        k32[entry, at + COUNT] -= sample.nodes[node, ARRIVED]
        node = np.int64(sample.nodes[node, NEXT])
    k32[entry, at + INSIDE] = node
    first = np.int64(k32[entry, at + FIRST])
    while first != node and sample.times[first, END] < sample.floor[join]:
        k32[entry, at + FIRST] = sample.nodes[first, NEXT]
        sample.forgotten[join] = max(sample.forgotten[join], sample.times[first, END])
        free_node(sample, first)
        first = np.int64(k32[entry, at + FIRST])
    if first == 0:
        k32[entry, at + LAST] = 0
    if node == 0:
        return 0.0
    return k32[entry, at + COUNT] - (1.0 - covered(sample, node, low, np.inf)) * sample.nodes[node, ARRIVED]


@jit
def covered(sample, node, low, high):
    """The share of a node's arrivals that is from `low` to `high`."""
    begin, end, grain = sample.times[node, BEGIN], sample.times[node, END], sample.level[GRAIN]
    if low <= begin and end <= high:
        return 1.0
    if end < low or begin > high:
        return 0.0
    inside = min(end, high) - max(begin, low) + grain
    return inside / (end - begin + grain)


@jit
def count_within(sample, entry, part, low, high):
    """The arrivals of a participant from `low` to `high`. O(nodes)."""
    found = 0.0
    node = np.int64(sample.k32[entry, LISTS + LIST_WIDTH * part + FIRST])
    while node != 0 and sample.times[node, BEGIN] <= high:
        found += covered(sample, node, low, high) * sample.nodes[node, ARRIVED]
        node = np.int64(sample.nodes[node, NEXT])
    return found


@jit
def combinations_within(sample, entry, join, own, low, high):
    """The combinations with an arrival whose other members are from `low` to `high`."""
    product = 1.0
    for part in range(sample.scheme.size[join]):
        if part != own and product != 0.0:
            product *= count_within(sample, entry, part, low, high)
    return product


@jit
def combinations_around(sample, entry, join, own, time):
    """The results of an arrival that is not the latest of its key: all members are within one window.

    Their earliest member is in one slice of the window before the arrival; those of a slice are the
    combinations from it on, without those from the next slice on.
    """
    window, newest = sample.level[WINDOW], sample.numbers[entry, NEWEST]
    if sample.scheme.size[join] == 2:
        return combinations_within(sample, entry, join, own, time - window, time + window)
    step, grain, found = window / SLICES, sample.level[GRAIN], 0.0
    for each in range(SLICES):
        low = time - window + each * step
        if low + window >= newest:
            return found + combinations_within(sample, entry, join, own, low, newest)
        high = low + window + 0.5 * (step - grain)
        found += combinations_within(sample, entry, join, own, low, high)
        found -= combinations_within(sample, entry, join, own, low + step, high)
    return found + combinations_within(sample, entry, join, own, time, time + window)


@jit
def combinations_now(sample, entry, join, own):
    """What an arrival finds that is as late as the latest of its key."""
    return combinations_before(sample, entry, join, own, sample.numbers[entry, NEWEST])


@jit
def enter(sample, entry, join, part, time):
    """Count an arrival in the node of its time, or in one of its own."""
    k32, times, nodes, at = sample.k32, sample.times, sample.nodes, LISTS + LIST_WIDTH * part
    before = np.int64(k32[entry, at + LAST])
    if before != 0 and time < times[before, BEGIN]:
        before = np.int64(0)
        after = np.int64(k32[entry, at + FIRST])
        while after != 0 and times[after, BEGIN] <= time:
            before, after = after, np.int64(nodes[after, NEXT])
    if before != 0 and time - times[before, BEGIN] <= sample.level[WINDOW] / PER_WINDOW:
        nodes[before, ARRIVED] += 1
        times[before, END] = max(times[before, END], time)
    else:
        insert(sample, entry, at, before, time)
    count_anew(sample, entry, at, time)


@jit
def insert(sample, entry, at, before, time):
    """Put a new node after another, or first."""
    meta, nodes = sample.meta, sample.nodes
    node = meta[FREE_NODE]
    if node != 0:
        meta[FREE_NODE] = nodes[node, NEXT]
    else:
        meta[HIGH_NODE] += 1
        node = meta[HIGH_NODE]
    meta[NODES] += 1
    sample.times[node, BEGIN] = time
    sample.times[node, END] = time
    nodes[node, ARRIVED] = 1
    if before == 0:
        nodes[node, NEXT] = sample.k32[entry, at + FIRST]
        sample.k32[entry, at + FIRST] = node
    else:
        nodes[node, NEXT] = nodes[before, NEXT]
        nodes[before, NEXT] = node
    if nodes[node, NEXT] == 0:
        sample.k32[entry, at + LAST] = node


@jit
def count_anew(sample, entry, at, time):
    """An arrival has entered a list: one more in the window; if it is not the last, all are counted again."""
    k32, last = sample.k32, np.int64(sample.k32[entry, at + LAST])
    if sample.times[last, END] == time and k32[entry, at + INSIDE] != 0:
        k32[entry, at + COUNT] += 1
        return
    low = sample.numbers[entry, NEWEST] - sample.level[WINDOW]
    node, count = np.int64(k32[entry, at + FIRST]), 0
    while node != 0 and sample.times[node, END] < low:
        node = np.int64(sample.nodes[node, NEXT])
    k32[entry, at + INSIDE] = node
    while node != 0:
        count += sample.nodes[node, ARRIVED]
        node = np.int64(sample.nodes[node, NEXT])
    k32[entry, at + COUNT] = count


@jit
def free_node(sample, node):
    sample.nodes[node, NEXT] = sample.meta[FREE_NODE]
    sample.meta[FREE_NODE] = node
    sample.meta[NODES] -= 1
