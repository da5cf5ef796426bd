"""The simulation of a planner: runs of tuples of size 1."""

from __future__ import annotations

import numpy as np

from penstock.compiler.jit import jit
from penstock.queues.planning.decisions import before, on_demand, protected, reading

# What a simulation counts.
READS = 0
WRITES = 1
READ = 2
WRITTEN = 3
REWRITTEN = 4  # tuples written that had been read back before
PEAK = 5
TICKS = 6
CONSUMED = 7
COUNTS = 8

# The state of a queue.
FIRST = 0  # the first run, counted without end; its place in the ring is this modulo the length
COUNT = 1  # runs
ON_DISK = 2  # whether the first run is on disk
IN_MEMORY = 3
DISK = 4
SEEN = 5  # of the oldest in memory, how many have been on disk
FIELDS = 6


@jit
def _head(runs, state, q):
    if state[q, COUNT] == 0 or state[q, ON_DISK] == 1:
        return 0
    return runs[q, state[q, FIRST] & (runs.shape[1] - 1)]


@jit
def _tail(runs, state, q):
    count = state[q, COUNT]
    if state[q, DISK] == 0 or (count - 1 + state[q, ON_DISK]) % 2 == 1:
        return 0  # all in memory, or the newest run is on disk
    return runs[q, (state[q, FIRST] + count - 1) & (runs.shape[1] - 1)]


@jit
def _fullest(state):
    most, at = np.int64(-1), 0
    for q in range(state.shape[0]):
        if state[q, IN_MEMORY] > most:
            most, at = state[q, IN_MEMORY], q
    return at


@jit
def _write(runs, state, counts, q, amount, keep):
    """Move the newest of a queue to disk, never the oldest `keep`; what lies in two runs takes two writes."""
    mask = runs.shape[1] - 1
    # Runs behind the place where we are, newest last, are rebuilt from here on.
    position = state[q, COUNT] - 1
    left = amount
    while left > 0 and position >= 0:
        disk = (position + state[q, ON_DISK]) % 2 == 1
        if not disk:
            place = (state[q, FIRST] + position) & mask
            size = runs[q, place]
            stays = size - min(size, left)
            if position == 0:
                stays = max(stays, min(size, keep))
            moved = size - stays
            if moved == 0:
                break
            counts[WRITES] += 1
            counts[WRITTEN] += moved
            state[q, IN_MEMORY] -= moved
            state[q, DISK] += moved
            left -= moved
            if position == 0 and state[q, SEEN] > stays:
                counts[REWRITTEN] += state[q, SEEN] - stays
                state[q, SEEN] = stays
            if stays > 0:
                runs[q, place] = stays
                if position == state[q, COUNT] - 1:
                    runs[q, (place + 1) & mask] = moved
                    state[q, COUNT] += 1
                else:
                    runs[q, (place + 1) & mask] += moved
                break
            # The whole run is written: it joins the runs on disk before and behind it.
            behind = position + 1 < state[q, COUNT]
            if behind:
                moved += runs[q, (place + 1) & mask]
            if position > 0:
                runs[q, (place - 1) & mask] += moved
                merged = 2 if behind else 1
                for at in range(position + merged, state[q, COUNT]):
                    runs[q, (state[q, FIRST] + at - merged) & mask] = runs[q, (state[q, FIRST] + at) & mask]
                state[q, COUNT] -= merged
            else:
                if behind:
                    state[q, FIRST] += 1
                    state[q, COUNT] -= 1
                    place = (place + 1) & mask
                runs[q, place] = moved
                state[q, ON_DISK] = 1
        position -= 1


@jit
def _read(runs, state, counts, q, amount):
    """Move the oldest of a queue, which are on disk, into memory."""
    mask = runs.shape[1] - 1
    place = state[q, FIRST] & mask
    counts[READS] += 1
    counts[READ] += amount
    state[q, IN_MEMORY] += amount
    state[q, DISK] -= amount
    state[q, SEEN] = amount
    if amount < runs[q, place]:
        runs[q, place] -= amount
        state[q, FIRST] -= 1
        state[q, COUNT] += 1
        runs[q, state[q, FIRST] & mask] = amount
    elif state[q, COUNT] > 1:
        state[q, FIRST] += 1
        state[q, COUNT] -= 1
        runs[q, state[q, FIRST] & mask] += amount
    state[q, ON_DISK] = 0


@jit
def _whole(state):
    whole = np.int64(0)
    for q in range(state.shape[0]):
        whole += state[q, IN_MEMORY]
    return whole


@jit
def _make_room(plan, runs, state, counts, q, size, reads):
    keep = protected(plan)
    while True:
        fullest = _fullest(state)
        amount, of_fullest = before(
            plan,
            size,
            reads,
            _head(runs, state, q),
            _tail(runs, state, q),
            state[q, DISK],
            _whole(state),
            state[fullest, IN_MEMORY],
        )
        if amount == 0:
            return
        _write(runs, state, counts, fullest if of_fullest else q, amount, keep)


@jit
def _fetch(plan, runs, state, counts, q):
    """Read the front of a queue that is on disk."""
    size = min(reading(plan), runs[q, state[q, FIRST] & (runs.shape[1] - 1)])
    _make_room(plan, runs, state, counts, q, size, True)
    # Making room may have added to the run in front.
    size = min(reading(plan), runs[q, state[q, FIRST] & (runs.shape[1] - 1)])
    _read(runs, state, counts, q, size)


@jit
def _place(runs, state, q):
    mask = runs.shape[1] - 1
    count = state[q, COUNT]
    if count == 0:
        state[q, ON_DISK] = 0
    if count == 0 or (count - 1 + state[q, ON_DISK]) % 2 == 1:
        runs[q, (state[q, FIRST] + count) & mask] = 1
        state[q, COUNT] += 1
    else:
        runs[q, (state[q, FIRST] + count - 1) & mask] += 1
    state[q, IN_MEMORY] += 1


@jit
def simulate(plan, arrivals, order, counts, costs):
    """Run a planner over arrivals (ticks x queues), one tuple consumed per tick; the run ends drained.

    `order` names the queue to consume from at each tick, -1 for round robin, -2 for nobody. With `split` each
    queue has a memory of its own. `costs` gets the reads and writes after every tick if it is long enough.
    """
    ticks, queues = arrivals.shape
    size = 8
    while size < 2 * plan.memory + 8:
        size *= 2
    runs = np.zeros((queues, size), np.int64)
    state = np.zeros((queues, FIELDS), np.int64)
    turn = 0
    tick = 0
    waiting = np.int64(0)
    while tick < ticks or waiting > 0:
        if tick < ticks:
            for q in range(queues):
                mine = state[q : q + 1] if plan.split else state
                own = runs[q : q + 1] if plan.split else runs
                at = 0 if plan.split else q
                for _ in range(arrivals[tick, q]):
                    _make_room(plan, own, mine, counts, at, 1, False)
                    _place(own, mine, at)
                    waiting += 1
                    counts[PEAK] = max(counts[PEAK], _whole(state))
        wanted = order[tick] if tick < order.shape[0] else -1
        if wanted == -1:
            for step in range(queues):
                q = turn + step
                q -= queues if q >= queues else 0
                if state[q, COUNT] > 0:
                    wanted = q
                    turn = q + 1 if q + 1 < queues else 0
                    break
        if wanted >= 0 and state[wanted, COUNT] > 0:
            q = int(wanted)
            mine = state[q : q + 1] if plan.split else state
            own = runs[q : q + 1] if plan.split else runs
            at = 0 if plan.split else q
            if state[q, ON_DISK] == 1:
                _fetch(plan, own, mine, counts, at)
                counts[PEAK] = max(counts[PEAK], _whole(state))
            place = state[q, FIRST] & (runs.shape[1] - 1)
            runs[q, place] -= 1
            state[q, IN_MEMORY] -= 1
            state[q, SEEN] = max(state[q, SEEN] - 1, 0)
            waiting -= 1
            counts[CONSUMED] += 1
            if runs[q, place] == 0:
                state[q, FIRST] += 1
                state[q, COUNT] -= 1
                state[q, ON_DISK] = 1 if state[q, COUNT] > 0 else 0
                if state[q, ON_DISK] == 1 and not on_demand(plan):
                    _fetch(plan, own, mine, counts, at)
                    counts[PEAK] = max(counts[PEAK], _whole(state))
        if tick < costs.shape[0]:
            costs[tick] = counts[READS] + counts[WRITES]
        tick += 1
    counts[TICKS] = tick
