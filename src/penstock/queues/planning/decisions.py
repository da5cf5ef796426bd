"""The decisions of the planners: what queues in bounded memory write and read; and their simulation.

A queue is a sequence of runs, oldest first, alternately in memory and on disk. `before` decides how much of
the newest items in memory to write before an item enters, `reading` how much to read once the front is on
disk. They see sizes only: the simulation calls them with tuples of size 1, and a queue of real items with
bytes, cutting at the next item. So both share one implementation.
"""

from __future__ import annotations

import numpy as np

from penstock.compiler.jit import jit

# The planners.
HALF = 0
HALF_LATE = 1  # footnote 2: a write waits until memory is full
GREEDY = 2  # blocks of `block` tuples; 1 is the greedy algorithm
HEADS = 3  # BUFFEREDHEAD
HEADS_REST = 4  # footnote 4: all but the protected head
HEADS_HALVES = 5  # footnote 4: the newest half
HEADS_WIDE = 6  # two shares a write

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


@jit
def before(kind, memory, share, block, size, reads, head, tail, disk, whole, most):
    """Return how much of the newest to write before `size` enters, and whether from the fullest queue.

    `head` is in memory at the front of the queue, `tail` in memory behind everything on disk, `whole` all of
    the memory in use, `most` the part of the fullest queue. `reads`: the entering items come from disk.
    """
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
        return (over + block - 1) // block * block, True
    if kind == HEADS:
        return share, True
    if kind == HEADS_WIDE:
        return 2 * share, True
    if kind == HEADS_HALVES:
        return (most + 1) // 2, True
    return most, True  # the protected head stays


@jit
def protected(kind, memory, share, block):
    """Return how much of the oldest items of a queue is never written."""
    if kind == HALF or kind == HALF_LATE:
        return memory // 2
    return block if kind == GREEDY else share


@jit
def reading(kind, memory, share, block):
    """Return how much is read at once, if that much is adjacent."""
    if kind == HALF or kind == HALF_LATE:
        return memory // 2
    return block if kind == GREEDY else share


@jit
def on_demand(kind):
    """Whether a read waits until the item is requested; others read as soon as a head is empty."""
    return kind == GREEDY


# --- the simulation: runs of tuples of size 1 ---------------------------------------------------------

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
            # The whole run goes: it joins the runs on disk before and behind it.
            behind = position + 1 < state[q, COUNT]
            if behind:
                moved += runs[q, (place + 1) & mask]
            if position > 0:
                runs[q, (place - 1) & mask] += moved
                gone = 2 if behind else 1
                for at in range(position + gone, state[q, COUNT]):
                    runs[q, (state[q, FIRST] + at - gone) & mask] = runs[q, (state[q, FIRST] + at) & mask]
                state[q, COUNT] -= gone
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
def _make_room(kind, memory, share, block, runs, state, counts, q, size, reads):
    keep = protected(kind, memory, share, block)
    while True:
        fullest = _fullest(state)
        amount, of_fullest = before(
            kind,
            memory,
            share,
            block,
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
def _fetch(kind, memory, share, block, runs, state, counts, q):
    """Read the front of a queue that is on disk."""
    size = min(reading(kind, memory, share, block), runs[q, state[q, FIRST] & (runs.shape[1] - 1)])
    _make_room(kind, memory, share, block, runs, state, counts, q, size, True)
    # Making room may have added to the run in front.
    size = min(reading(kind, memory, share, block), runs[q, state[q, FIRST] & (runs.shape[1] - 1)])
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
def simulate(kind, memory, share, block, split, arrivals, order, counts, costs):
    """Run a planner over arrivals (ticks x queues), one tuple consumed per tick; the run ends drained.

    `order` names the queue to consume from at each tick, -1 for round robin, -2 for nobody. With `split` each
    queue has a memory of its own. `costs` gets the reads and writes after every tick if it is long enough.
    """
    ticks, queues = arrivals.shape
    size = 8
    while size < 2 * memory + 8:
        size *= 2
    runs = np.zeros((queues, size), np.int64)
    state = np.zeros((queues, FIELDS), np.int64)
    turn = 0
    tick = 0
    waiting = np.int64(0)
    while tick < ticks or waiting > 0:
        if tick < ticks:
            for q in range(queues):
                mine = state[q : q + 1] if split else state
                own = runs[q : q + 1] if split else runs
                at = 0 if split else q
                for _ in range(arrivals[tick, q]):
                    _make_room(kind, memory, share, block, own, mine, counts, at, 1, False)
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
            mine = state[q : q + 1] if split else state
            own = runs[q : q + 1] if split else runs
            at = 0 if split else q
            if state[q, ON_DISK] == 1:
                _fetch(kind, memory, share, block, own, mine, counts, at)
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
                if state[q, ON_DISK] == 1 and not on_demand(kind):
                    _fetch(kind, memory, share, block, own, mine, counts, at)
                    counts[PEAK] = max(counts[PEAK], _whole(state))
        if tick < costs.shape[0]:
            costs[tick] = counts[READS] + counts[WRITES]
        tick += 1
    counts[TICKS] = tick


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
