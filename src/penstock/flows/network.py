"""The network of OPT-offline: which tuples can be kept for which results, as arcs for a flow solver.

A chain of nodes stands for memory that is free, and what flows is room for one tuple. The textbook gives
every tuple a path of its own parallel to the chain: it leaves the chain at its arrival, earns at each match,
and may return after any of them. That has as many arcs as the join has results.

Here tuples of one key and stream share a lane. They match the same arrivals, and when a younger one comes it
can take the place of an older one at no cost, so that only their number matters: it rises by at most one per
arrival, and at an event (arrivals of the other stream with the key) it is at most the number of those that
have not expired. The network then has a few arcs per arrival, however many results there are (at ten matches
per tuple a quarter of the arcs, and the flow in a fifth of the time).

The chain needs nodes only where a tuple may leave it: who returns between two of them returns at the later.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine.store import LANDMARK, ROWS


class Lanes(NamedTuple):
    """Arrivals sorted by lane, that is by (key, stream), and the first step at which each has expired."""

    order: np.ndarray
    start: np.ndarray  # per lane 2 * key + stream, where it begins in `order`
    step: np.ndarray  # per arrival
    dies: np.ndarray  # per arrival


class Network(NamedTuple):
    """Arcs, those of the chain first.

    An arc that earns has in `top` the place in `order` behind the youngest tuple that its event can find, and
    in `event` the step of it; others have -1.
    """

    tail: np.ndarray
    head: np.ndarray
    room: np.ndarray
    gain: np.ndarray
    top: np.ndarray
    event: np.ndarray
    chain: np.ndarray  # arcs of the chain


@jit
def last_steps(stream, clock, step, window, horizon):
    """Per arrival the first step at which it has expired, by the rule of the join's drivers. O(n)."""
    n = stream.shape[0]
    dies = np.empty(n, np.int64)
    end = step[n - 1] + 1 if n > 0 else 0
    for s in range(2):
        j = 0
        for i in range(n):
            if stream[i] != s:
                continue
            j = max(j, i + 1)
            while j < n:
                if window == ROWS:
                    expired = stream[j] == s and clock[j] - clock[i] > horizon[s]
                elif window == LANDMARK:
                    expired = clock[j] // horizon[s] > clock[i] // horizon[s]
                else:
                    expired = clock[j] - clock[i] > horizon[s]
                if expired:
                    break
                j += 1
            dies[i] = step[j] if j < n else end
    return dies


@jit
def sort_lanes(stream, key, step, dies, keys):
    """The arrivals by lane; keys are codes below `keys`. O(n)."""
    n = key.shape[0]
    start = np.zeros(2 * keys + 1, np.int64)
    for i in range(n):
        start[2 * key[i] + stream[i] + 1] += 1
    for lane in range(2 * keys):
        start[lane + 1] += start[lane]
    order = np.empty(n, np.int64)
    filled = start[: 2 * keys].copy()
    for i in range(n):
        lane = 2 * key[i] + stream[i]
        order[filled[lane]] = i
        filled[lane] += 1
    return Lanes(order, start, step, dies)


@jit
def future_counts(lanes, warmup):
    """Per arrival the results it would have if kept as long as it can match, and the last's step. O(n)."""
    n = lanes.order.shape[0]
    step, order = lanes.step, lanes.order
    counts = np.zeros(n, np.int64)
    last = np.full(n, -1, np.int64)
    for lane in range(lanes.start.shape[0] - 1):
        first, end = lanes.start[lane ^ 1], lanes.start[(lane ^ 1) + 1]
        after = first
        for at in range(lanes.start[lane], lanes.start[lane + 1]):
            i = order[at]
            while first < end and (step[order[first]] <= step[i] or step[order[first]] < warmup):
                first += 1
            after = max(after, first)
            while after < end and step[order[after]] < lanes.dies[i]:
                after += 1
            counts[i] = after - first
            if after > first:
                last[i] = step[order[after - 1]]
    return counts, last


@jit
def most_wanted(step, last, mine):
    """How many of these arrivals would be in memory at once if each stayed to its last match. O(n)."""
    n = step.shape[0]
    change = np.zeros((step[n - 1] if n > 0 else 0) + 2, np.int64)
    for i in range(n):
        if mine[i] and last[i] >= 0:
            change[step[i]] += 1
            change[last[i]] -= 1
    most = 0
    now = 0
    for s in range(change.shape[0]):
        now += change[s]
        most = max(most, now)
    return most


@jit
def build_network(lanes, wanted, capacity, warmup):
    """The network for the lanes of the streams that `wanted` marks. O(n)."""
    n = lanes.order.shape[0]
    step, order = lanes.step, lanes.order
    steps = step[n - 1] + 1 if n > 0 else 0
    size = 4 * n
    tail = np.empty(size, np.int64)  # below 0: the chain at step -1 - tail; else a node of a lane
    head = np.empty(size, np.int64)
    room = np.empty(size, np.int64)
    gain = np.zeros(size, np.int64)
    top = np.full(size, -1, np.int64)
    event = np.full(size, -1, np.int64)
    arc = 0
    node = 0
    for lane in range(lanes.start.shape[0] - 1):
        if not wanted[lane & 1]:
            continue
        oldest = lanes.start[lane]  # the first that has not expired
        young = oldest  # the first that comes later
        end = lanes.start[lane + 1]
        before = -1  # the node behind the last event, if anything can be there
        at = lanes.start[lane ^ 1]
        while at < lanes.start[(lane ^ 1) + 1]:
            m = step[order[at]]
            worth = 0
            while at < lanes.start[(lane ^ 1) + 1] and step[order[at]] == m:
                worth += 1
                at += 1
            if m < warmup:
                continue
            known = young
            while young < end and step[order[young]] < m:
                young += 1
            while oldest < young and lanes.dies[order[oldest]] <= m:
                oldest += 1
            if oldest == young:
                before = -1
                continue
            here = before
            if max(known, oldest) < young:  # somebody has come since
                here = node
                node += 1
                if before >= 0:
                    tail[arc], head[arc], room[arc] = before, here, capacity
                    arc += 1
                for place in range(max(known, oldest), young):
                    tail[arc], head[arc], room[arc] = -1 - step[order[place]], here, 1
                    arc += 1
            before = node
            node += 1
            tail[arc], head[arc], room[arc] = here, before, min(capacity, young - oldest)
            gain[arc], top[arc], event[arc] = worth, young, m
            tail[arc + 1], head[arc + 1], room[arc + 1] = before, -1 - m, capacity
            arc += 2
    # The chain: a node per step at which somebody may leave it, and the end.
    lands = np.zeros(steps + 1, np.int64)
    for a in range(arc):
        if tail[a] < 0:
            lands[-1 - tail[a]] = 1
    chain = lands.sum()
    lands[steps] = chain
    following = chain
    for s in range(steps - 1, -1, -1):
        if lands[s] == 1:
            following -= 1
        lands[s] = following
    tails = np.empty(chain + arc, np.int32)
    heads = np.empty(chain + arc, np.int32)
    for d in range(chain):
        tails[d] = d
        heads[d] = d + 1
    for a in range(arc):
        tails[chain + a] = lands[-1 - tail[a]] if tail[a] < 0 else chain + 1 + tail[a]
        heads[chain + a] = lands[-1 - head[a]] if head[a] < 0 else chain + 1 + head[a]
    return Network(
        tails,
        heads,
        np.concatenate((np.full(chain, capacity), room[:arc])),
        np.concatenate((np.zeros(chain, np.int64), gain[:arc])),
        np.concatenate((np.full(chain, -1), top[:arc])),
        np.concatenate((np.full(chain, -1), event[:arc])),
        np.array([chain]),
    )


@jit
def kept_until(lanes, network, flow, until):
    """Write for each arrival that is kept the step of the last match it is kept for; what they earn together.

    Of the tuples of a lane those that came last are kept, as many as flow through its event. O(results).
    """
    earned = 0
    for arc in range(network.top.shape[0]):
        if network.top[arc] >= 0:
            earned += flow[arc] * network.gain[arc]
            for place in range(network.top[arc] - flow[arc], network.top[arc]):
                i = lanes.order[place]
                until[i] = max(until[i], network.event[arc])
    return earned
