"""A sample of keys whose windows are counted in full, to estimate what a join of many streams missed.

For every key of the sample, what the exact join would have found for an arrival is computed from the times of
all earlier arrivals, also of those that memory has lost. While there is room, all keys are in the sample.
When room runs out, the share of the keys is halved, by a hash, and what an arrival of the sample missed
counts as often as there are keys like its own.

A hot key has many results, so it must not depend on a hash whether it is counted. An arrival of any key wins
its key a place by lot, and hot keys win soon. Such a key stands for itself alone as soon as a whole window of
it is known. When the sample has room to spare, the share of the keys is doubled again.

What is counted of a key is in `window_counts`: a hot key takes no more than some hundred nodes. Arrivals in
order of time cost O(participants), later ones O(nodes of the key).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.compiler.references import borrow
from penstock.engine.loss_sketch import GUESSED, MISSED, UNESTIMATED
from penstock.engine.many_index import Scheme
from penstock.engine.store import HIGH_KEY, KEY, META, add_key, drop_key, find_key, power_of_two
from penstock.engine.window_counts import (
    COUNT,
    FIRST,
    GRAIN,
    LIST_WIDTH,
    LISTS,
    NEWEST,
    NEXT,
    NODE_TIMES,
    NODE_WIDTH,
    NODES,
    WINDOW,
    combinations_around,
    combinations_before,
    combinations_now,
    count_from,
    enter,
    free_node,
)

# Columns of a key that are numbers.
CHANCE = 0  # of being in the sample, if that is not the present share of the keys; else 0
HELD = 1  # in the sample for certain since
OWN = 3  # results missed, as long as the key counts as often as now
WEIGHT = 4  # how often it counts
KEY_NUMBERS = 5

# In `meta`, beside what keys and nodes need.
KEYS, DRAWS = 11, 12  # draws: arrivals so far, by join

# In `level`.
SHARE = 0  # of the keys
KEPT = 3  # how long nodes are kept beyond what arrivals in time need
GROWN = 4  # when the share was doubled; it counts from a window later
LEVELS = 5

# In `missed`, beside MISSED, UNESTIMATED and GUESSED of a loss sketch.
VARIANCE = 3  # of what is missed, by the choice of the keys

KEEP = 1.5  # windows
HOT = 8.0  # times as many arrivals as a key must have to be one of the sample on average
LEAST_SHARE = 2.0**-30
NODE_BYTES = 8 * NODE_TIMES + 4 * NODE_WIDTH


class ResultSample(NamedTuple):
    """The keys of the sample, the nodes of their arrivals, and the estimate so far."""

    scheme: Scheme
    k64: np.ndarray
    k32: np.ndarray
    numbers: np.ndarray  # of keys
    buckets: np.ndarray
    times: np.ndarray  # of nodes
    nodes: np.ndarray
    progress: np.ndarray  # per stream: how far it has come
    behind: np.ndarray  # and how far that stays behind its largest time
    floor: np.ndarray  # per join: nodes before this time may go
    forgotten: np.ndarray  # per join: what came up to this time may not be known any more
    level: np.ndarray
    missed: np.ndarray
    meta: np.ndarray


def new_result_sample(
    scheme: Scheme, bytes_: int, window: float, behind: tuple[float, ...], whole: bool
) -> ResultSample:
    """An empty sample of about so many bytes. `whole` says that times are whole numbers."""
    widest = scheme.stream.shape[1]
    columns = LISTS // 2 + (LIST_WIDTH * widest + 1) // 2
    per_key = 8 * columns + 8 * KEY_NUMBERS + 16
    nodes = max(8 * widest, int(bytes_ / (NODE_BYTES + per_key / 3)))
    keys = max(8, nodes // 3)
    k64 = np.zeros((keys + 2, columns), np.int64)
    level = np.zeros(LEVELS)
    level[SHARE], level[WINDOW], level[GRAIN], level[KEPT] = 1.0, window, float(whole), KEEP * window
    level[GROWN] = -np.inf
    return ResultSample(
        scheme=scheme,
        k64=k64,
        k32=k64.view(np.int32),
        numbers=np.zeros((keys + 2, KEY_NUMBERS)),
        buckets=np.zeros(power_of_two(keys), np.int32),
        times=np.zeros((nodes + 2, NODE_TIMES)),
        nodes=np.zeros((nodes + 2, NODE_WIDTH), np.int32),
        progress=np.full(len(behind), -np.inf),
        behind=np.array(behind, np.float64),
        floor=np.full(len(scheme.size), -np.inf),
        forgotten=np.full(len(scheme.size), -np.inf),
        level=level,
        missed=np.zeros(4),
        meta=np.zeros(META, np.int64),
    )


def continued(fresh: ResultSample, old: ResultSample) -> ResultSample:
    """The old sample; a fresh one of another size that knows nothing of what came before."""
    if fresh.k64.shape == old.k64.shape and fresh.nodes.shape == old.nodes.shape:
        return old
    fresh.progress[:], fresh.missed[:] = old.progress, old.missed
    fresh.forgotten[:] = np.max(old.progress + old.behind)
    return fresh


@jit
def observe(sample, stream, key, time, found):
    """Count arrivals in, and what each has missed, given its results in each of the joins of its stream."""
    _observe(borrow(sample), stream, key, time, found)


@jit
def _observe(sample, stream, key, time, found):
    for i in range(stream.shape[0]):
        mine, at = np.int64(stream[i]), np.float64(time[i])
        follow(sample, mine, at - sample.behind[mine])
        for place in range(sample.scheme.degree[mine]):
            if key[i, place] >= 0:
                _observe_one(sample, mine, place, key[i, place], at, found[i, place])


@jit
def follow(sample, stream, to):
    """A stream has come so far; a join has come as far as the last of its streams."""
    if to <= sample.progress[stream]:
        return
    sample.progress[stream] = to
    scheme, level = sample.scheme, sample.level
    for place in range(scheme.degree[stream]):
        join, least = scheme.join[stream, place], np.inf
        for part in range(scheme.size[join]):
            least = min(least, sample.progress[scheme.stream[join, part]])
        sample.floor[join] = max(sample.floor[join], least - level[WINDOW] - level[KEPT])


@jit
def _observe_one(sample, stream, place, key, time, found):
    """Count an arrival in one of its joins."""
    meta, level, numbers, missed = sample.meta, sample.level, sample.numbers, sample.missed
    join, own = sample.scheme.join[stream, place], sample.scheme.part[stream, place]
    meta[DRAWS] += 1
    if level[SHARE] < 1.0 and meta[DRAWS] % sample.nodes.shape[0] == 0:
        grow(sample, time)
    known = time - level[WINDOW] > sample.forgotten[join]
    if not known:
        missed[UNESTIMATED] += 1.0
    won = share_of(meta[DRAWS] + (1 << 40)) * HOT < level[SHARE]
    if not (has_room(sample) or known_or_sampled(sample, key, won) == 0):
        make_room(sample)
    entry = known_or_sampled(sample, key, won)
    if entry == 0 or not has_room(sample):
        return
    if entry < 0:
        entry = np.int64(add_key(sample, key))
        meta[KEYS] += 1
        numbers[entry] = 0.0
        numbers[entry, HELD] = np.inf
        numbers[entry, NEWEST] = -np.inf
    if won and numbers[entry, HELD] == np.inf:
        numbers[entry, HELD] = time
    if time >= numbers[entry, NEWEST]:
        numbers[entry, NEWEST] = time
        exact = combinations_before(sample, entry, join, own, time)
    else:
        exact = combinations_around(sample, entry, join, own, time)
    weight = weight_of(sample, entry, time)
    missed[MISSED] += weight * (exact - found)
    if not known:
        # Before and after its time: at a steady rate, as many times as there are members.
        usual = sample.scheme.size[join] * combinations_now(sample, entry, join, own)
        missed[GUESSED] += weight * max(0.0, usual - max(exact, np.float64(found)))
    if weight != numbers[entry, WEIGHT]:
        numbers[entry, WEIGHT] = weight
        numbers[entry, OWN] = 0.0
    before = numbers[entry, OWN]
    after = before + exact - found
    numbers[entry, OWN] = after
    missed[VARIANCE] += weight * max(0.0, weight - 1.0) * (after * after - before * before)
    enter(sample, entry, join, own, time)


@jit
def known_or_sampled(sample, key, won):
    """The row of a key, -1 if it has none and is to get one, else 0."""
    entry = np.int64(find_key(sample, key))
    if entry == 0 and (won or share_of(key) < sample.level[SHARE]):
        return np.int64(-1)
    return entry


@jit
def weight_of(sample, entry, time):
    """How many keys a key stands for, at a time."""
    level, since = sample.level, time - sample.level[WINDOW]
    if since >= sample.numbers[entry, HELD]:
        return 1.0
    if sample.numbers[entry, CHANCE] > 0.0:
        return 1.0 / sample.numbers[entry, CHANCE]
    share = level[SHARE] if since >= level[GROWN] else 0.5 * level[SHARE]
    return 1.0 / share if share_of(sample.k64[entry, KEY]) < share else 0.0


@jit
def share_of(number):
    """A number from 0 to 1 that looks random."""
    mixed = np.uint64(number) ^ np.uint64(0x2545F4914F6CDD1D)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    mixed = mixed ^ (mixed >> np.uint64(33))
    return np.float64(mixed >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@jit
def has_room(sample):
    """Whether another key and another node fit in."""
    full = sample.meta[NODES] >= sample.nodes.shape[0] - 2
    return not full and sample.meta[KEYS] < sample.k64.shape[0] - 2


@jit
def clean(sample):
    """Free what is of no more use; whether half of the room is free."""
    keys = sample.scheme.size.shape[0]
    for entry in range(1, sample.meta[HIGH_KEY] + 1):
        if sample.k64[entry, KEY] < 0:
            continue
        join, left = sample.k64[entry, KEY] % keys, 0
        low = max(sample.numbers[entry, NEWEST] - sample.level[WINDOW], sample.floor[join])
        for part in range(sample.scheme.size[join]):
            count_from(sample, entry, join, part, low)
            left |= sample.k32[entry, LISTS + LIST_WIDTH * part + FIRST]
        if left == 0:
            forget_key(sample, entry)
    meta = sample.meta
    return 2 * meta[NODES] < sample.nodes.shape[0] and 2 * meta[KEYS] < sample.k64.shape[0]


@jit
def make_room(sample):
    """Free half of the room: first what has left the window, then what late arrivals need, then keys."""
    level = sample.level
    while not clean(sample) and level[SHARE] > LEAST_SHARE:
        if level[KEPT] > 0.0:
            sample.floor[:] += level[KEPT]
            level[KEPT] = 0.0
            continue
        before = level[SHARE]
        level[SHARE] = 0.5 * before
        level[GROWN] = -np.inf
        for entry in range(1, sample.meta[HIGH_KEY] + 1):
            if sample.k64[entry, KEY] >= 0:
                thin(sample, entry, before)


@jit
def grow(sample, time):
    """Double the share of the keys if there is room for four times as many."""
    level, meta = sample.level, sample.meta
    if clean(sample) and time - level[WINDOW] >= level[GROWN]:
        if 4 * meta[NODES] < sample.nodes.shape[0] and 4 * meta[KEYS] < sample.k64.shape[0]:
            level[SHARE] = min(1.0, 2.0 * level[SHARE])
            level[GROWN] = time


@jit
def thin(sample, entry, before):
    """The share of the keys has been halved: a key stays if it is hot, or if its hash says so."""
    arrived, numbers, mine = 0, sample.numbers, share_of(sample.k64[entry, KEY])
    for part in range(sample.scheme.stream.shape[1]):
        arrived += sample.k32[entry, LISTS + LIST_WIDTH * part + COUNT]
    if arrived * sample.level[SHARE] >= HOT:
        if numbers[entry, CHANCE] == 0.0 and mine < before:
            numbers[entry, CHANCE] = before
        return
    numbers[entry, CHANCE] = 0.0
    numbers[entry, HELD] = np.inf
    if mine < sample.level[SHARE]:
        return
    for part in range(sample.scheme.stream.shape[1]):
        node = np.int64(sample.k32[entry, LISTS + LIST_WIDTH * part + FIRST])
        while node != 0:
            after = np.int64(sample.nodes[node, NEXT])
            free_node(sample, node)
            node = after
    forget_key(sample, entry)


@jit
def forget_key(sample, entry):
    drop_key(sample, entry)
    sample.k64[entry, KEY] = -1
    for column in range(LISTS, sample.k32.shape[1]):
        sample.k32[entry, column] = 0
    sample.meta[KEYS] -= 1
