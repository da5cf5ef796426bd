"""Check what joins keep besides a store in a snapshot: progress, loss sketch, index of many joins."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.engine import result_sample as sampling
from penstock.engine import window_counts as counting
from penstock.engine.join_loop import Batch
from penstock.engine.loss_sketch import Sketch
from penstock.engine.lost_keys import LostKeys
from penstock.engine.many_fates import EVENTS, ManyFates
from penstock.engine.many_index import (
    CHAIN,
    COUNTING,
    HEEDING,
    HELD,
    LENGTH,
    NEWEST,
    OLDER,
    OLDEST,
    TUPLES,
    YOUNGER,
    Index,
    Scheme,
)
from penstock.engine.many_join_late import ManyFlow
from penstock.engine.pair_condition import PairCondition
from penstock.engine.pair_join_decided import TOGETHER, AnyPair, Decided
from penstock.engine.pair_join_late import Expiry, Flow
from penstock.engine.store import ARRIVAL, FREE_KEY, HIGH_KEY, KEY, LINK, STREAM, Store
from penstock.snapshots.array_checks import (
    FAR,
    check_hash,
    check_lists,
    check_numbers,
    check_same,
    check_shapes,
    check_within,
    followed,
    sound,
)
from penstock.states.checks.orders import check_queue
from penstock.states.checks.parts import CHECKS, anything, check_parts, checks
from penstock.states.checks.store import check_ends, check_links, live_tuples

for _kind in (Expiry, Scheme, Batch, AnyPair):
    CHECKS[_kind] = anything  # looked at with what they belong to


def check_flow(flow: Any, store: Store, fresh: Any) -> None:
    """Whether the progress of streams is sound; its queue has the tuples of each stream."""
    check_shapes(flow, fresh, "the progress of the streams")
    streams = np.clip(store.t32[:, STREAM], 0, len(store.clock) - 1)
    check_queue(flow.expiry.queue, store, owner=streams)
    check_same(flow.behind, fresh.behind, "the lateness")
    check_numbers(flow.progress, "a time")
    check_within(flow.meta, 0, FAR, "a counter")
    if isinstance(flow, ManyFlow):
        check_same(flow.near, fresh.near, "who meets whom")


CHECKS[Flow] = CHECKS[ManyFlow] = check_flow


@checks(LostKeys)
def check_lost_keys(lost: LostKeys, store: Store, fresh: LostKeys) -> None:
    """Whether a filter of keys that left early is one of the same window."""
    check_shapes(lost, fresh, "the filter of lost keys")
    check_same(lost.line, fresh.line, "which streams are recorded")
    check_same(lost.span, fresh.span, "the span of a pane")
    check_within(lost.pane, -FAR, FAR, "a pane")


@checks(Decided)
def check_decided(index: Any, store: Store, fresh: Any) -> None:
    """Whether what is known of the tuples is sound."""
    check_shapes(index, fresh, "what is known of the tuples")
    check_same(index.rules, fresh.rules, "the kind of join")
    check_lost_keys(index.lost, store, fresh.lost)
    check_within(index.meta, 0, FAR, "a counter")
    check_within(index.last, 0, FAR, "an arrival")
    if not index.rules[TOGETHER]:
        check_flow(index.flow, store, fresh.flow)
    check_parts(index.condition, store, fresh.condition)


@checks(ManyFates)
def check_many_fates(known: ManyFates, store: Store, fresh: ManyFates) -> None:
    """Whether what is known of the tuples of the first of many streams is sound."""
    check_shapes(known, fresh, "what is known of the tuples")
    for name in ("role", "partner", "reach", "rules"):
        check_same(getattr(known, name), getattr(fresh, name), "the kind of join")
    check_lost_keys(known.lost, store, fresh.lost)
    check_within(known.meta, 0, FAR, "a counter")
    for events in (known.born, known.stamp, known.left):
        check_within(events, 0, known.meta[EVENTS], "an event")
    check_numbers(known.newest, "a time")


@checks(PairCondition)
def check_condition(condition: PairCondition, store: Store, fresh: PairCondition) -> None:
    """Whether a condition is the one of the config."""
    check_shapes(condition, fresh, "the condition")
    for name in ("code", "result", "constant", "constant_state"):
        check_same(getattr(condition, name), getattr(fresh, name), "the condition")
    check_within(condition.meta, -FAR, FAR, "a counter")


@checks(Sketch)
def check_sketch(sketch: Sketch, store: Store, fresh: Sketch) -> None:
    """Whether a sketch of what was evicted is one of the same window."""
    check_shapes(sketch, fresh, "the sketch")
    check_same(sketch.span, fresh.span, "the span of a pane")
    for numbers in (sketch.missed, sketch.extent, sketch.forgotten, sketch.shared):
        check_numbers(numbers, "an estimate")


def check_sample(sample: sampling.ResultSample, fresh: sampling.ResultSample) -> None:
    """Whether every node of a sample of keys is in one list, and every key in its bucket."""
    check_shapes(sample, fresh, "the sample of keys")
    check_same(sample.behind, fresh.behind, "the lateness")
    check_within(sample.meta, 0, FAR, "a counter")
    for numbers in (sample.numbers, sample.times, sample.progress, sample.floor, sample.forgotten):
        check_numbers(numbers, "a time")
    for numbers in (sample.level, sample.missed):
        check_numbers(numbers, "an estimate")
    high, free = int(sample.meta[HIGH_KEY]), int(sample.meta[FREE_KEY])
    used = check_hash(sample.buckets, sample.k32[:, LINK], sample.k64[:, KEY], free, high)
    sound((sample.k64[used, KEY] >= 0).all() and len(used) == sample.meta[sampling.KEYS], "a key is lost")
    unused = np.setdiff1d(np.arange(1, high + 1), used)
    sound((sample.k64[unused, KEY] == -1).all(), "a key is free and in use")
    last = int(sample.meta[counting.HIGH_NODE])
    sound(last < len(sample.nodes), "more nodes than there is room for")
    parts = np.arange(sample.scheme.stream.shape[1]) * counting.LIST_WIDTH + counting.LISTS
    places = counting.FIRST, counting.INSIDE, counting.LAST
    ends = {at: sample.k32[used[:, None], parts + at] for at in places}
    for nodes in ends.values():
        check_within(nodes, 0, last, "a node")
    heads = np.append(ends[counting.FIRST].ravel(), sample.meta[counting.FREE_NODE]).astype(np.int64)
    links = sample.nodes[: last + 1, counting.NEXT].astype(np.int64)
    check_lists(heads, links, np.arange(1, last + 1), "nodes")
    free_nodes = int(sample.meta[counting.FREE_NODE])
    unused_nodes = len(followed(free_nodes, links, "nodes")) if free_nodes else 0
    sound(sample.meta[counting.NODES] == last - unused_nodes, "the number of nodes is another")
    sound(((ends[counting.LAST] > 0) == (ends[counting.FIRST] > 0)).all(), "a list of nodes has no end")


def check_open(batch: Any, empty: Batch, sized: bool) -> None:
    """Whether arrivals that are held back are such as may come."""
    sound(isinstance(batch, Batch), "the arrivals held back are something else")
    lengths = [len(part) for part in batch]
    sound(len(set(lengths[:4])) == 1 and lengths[4] in (0, lengths[0]), "arrivals are lost")
    sound(not sized or lengths[4] == lengths[0], "an arrival has no size")
    for part, fresh in zip(batch, empty, strict=True):
        sound(part.dtype == fresh.dtype and part.ndim == 1, "the arrivals held back have another type")
    check_within(batch.stream, 0, 1, "the stream of an arrival")
    check_within(batch.size, 0, 2**31 - 1, "the size of an arrival")
    check_numbers(batch.time, "a time")
    sound((batch.time == batch.time[:1]).all(), "the arrivals held back are not of one tick")


@checks(Index)
def check_index(index: Index, store: Store, fresh: Index) -> None:
    """Whether every tuple is in the chain of its key in each of its joins, and every key in its bucket."""
    check_shapes(index, fresh, "the index")
    for name, mine, other in zip(Scheme._fields, index.scheme, fresh.scheme, strict=True):
        check_same(mine, other, f"the scheme ({name})")
    check_same(index.meta[[COUNTING, HEEDING]], fresh.meta[[COUNTING, HEEDING]], "a setting")
    check_within(index.meta, 0, FAR, "a counter")
    check_within(index.found, 0, FAR, "a counter")
    check_parts(index.counts, store, fresh.counts)
    high, free = int(index.meta[HIGH_KEY]), int(index.meta[FREE_KEY])
    used = check_hash(index.buckets, index.k32[:, LINK], index.k64[:, KEY], free, high)
    total = np.zeros(high + 1, np.int64)
    for join, size in enumerate(index.scheme.size.tolist()):
        for part in range(size):
            total += _check_chains(index, store, join, part, high)
    check_same(index.k32[used, TUPLES], total[used], "the tuples of a key")
    sound((total[used] > 0).all() and total.sum() == total[used].sum(), "a tuple has a key that is free")


def _check_chains(index: Index, store: Store, join: int, part: int, high: int) -> np.ndarray:
    """Whether the chains of one participant of a join are sound; the length of each."""
    scheme = index.scheme
    stream, place = scheme.stream[join, part], scheme.place[join, part]
    live = live_tuples(store)
    mine = live[store.t32[live, STREAM] == stream]
    held = index.links[mine, place, HELD].astype(np.int64)
    check_within(held, 0, high, "the key of a tuple")
    mine, held = mine[held > 0], held[held > 0]
    sound((index.k64[held, KEY] % len(scheme.size) == join).all(), "a key is of another join")
    links = index.links[:, place]
    check_links(mine, held, links[:, OLDER], links[:, YOUNGER], store.t64[:, ARRIVAL])
    of_join = np.arange(high + 1)
    of_join = of_join[(of_join > 0) & (index.k64[: high + 1, KEY] % len(scheme.size) == join)]
    chain, length = CHAIN + 3 * part, np.bincount(held, minlength=high + 1)
    rows = index.k32[: high + 1]
    sound((rows[of_join, chain + LENGTH] == length[of_join]).all(), "a chain has another length")
    for end, near in ((OLDEST, OLDER), (NEWEST, YOUNGER)):
        ends = np.zeros(high + 1, np.int64)
        ends[of_join] = rows[of_join, chain + end]
        check_ends(mine, held, links[:, near], ends, high + 1)
    return length
