"""The memory layout of a window join: a cache line per key and a cache line per tuple.

Two tables of 64-byte rows, each seen as 64-bit and as 32-bit columns (and tuples also as floats):

- `keys`: one row per key that is buffered at the moment, of both streams together, so that one look-up
  serves the probe of the other stream and the admission to one's own;
- `tuples`: one row per buffered tuple; those of one key and stream form a chain in arrival order.

Row 0 of both tables is the null row, so that memory that the system hands out zeroed is an empty store
and costs nothing until it is touched.

A store may begin with fewer rows than its budget allows. A pool without a free row that may have more
(`wants_rows`) makes the driver return, and `grow_store` enlarges the tables between two arrivals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.compiler.references import prefetch
from penstock.structures.random import new_generators
from penstock.structures.tables import enlarged, new_table, unroll

# Columns of a key, 64 bits wide.
KEY = 0  # the code of the key
USE = 1  # +side: a counter for the policy, about this stream's tuples of the key

# Columns of a key, 32 bits wide.
LINK = 6  # next key in the hash bucket, or in the free list
HEAD = 8  # +side: oldest tuple of the chain
TAIL = 10  # +side: newest tuple of the chain
COUNT = 12  # +side: length of the chain

# Columns of a tuple, 64 bits wide.
ROW = 0  # row number in its input
ARRIVAL = 1  # arrival number; -1 while the row is free
TIME = 2  # in the dtype of the input's time column
BASE = 3  # a value for the policy, integer or float

# Columns of a tuple, 32 bits wide.
ENTRY = 8  # its key's row
NEXT = 9  # the next younger tuple of its chain, or the next in the free list
PREV = 10  # the next older tuple of its chain
SIZE = 11  # what it adds to the use of its pool besides the fixed cost, in bytes
STREAM = 12
PLACE = 13  # an index for the policy
NODE = 14  # another one
SIDE = 15  # which columns of its key's row are its own: its stream, where two streams share the row

# Counters in `meta`.
ARRIVALS = 0  # arrivals processed, the number of the next one
FREE_KEY = 1  # head of the free list of key rows
HIGH_KEY = 2  # highest key row used so far
FREE_TUPLE = 3
HIGH_TUPLE = 4
PINNED = 5  # key row that must not be freed while its arrival is processed
COMPETE = 6  # a bit per stream: its newcomer may be the one that goes
WINDOW = 7  # kind of window, below
EXPIRED = 8
EVICTED = 9
DROPPED = 10
REFUSED = 11  # of the evicted, those that never entered
OVERSIZE = 12  # of the refused, those larger than their whole buffer
RESULTS = 13
SAME_TICK = 14
STEPS = 15  # steps taken, for the warm-up
WARMUP = 16
PEAK_TUPLES = 17
NUMBER = 18  # arrival number of the arrival that is being admitted
LIVE = 19
SHED = 20  # 1: dropped arrivals are dropped before they probe
MATCHED = 21  # matches with what is kept, in the warm-up too: what a policy that chooses goes by
RELEASED = 22  # tuples and arrivals that left because their match decided all
META = 24

SPREAD = 1 << 16  # keys that are put into new buckets at a time

ALL_COMPETE = 2**62 - 1  # in `COMPETE`

# Kinds of window.
TIMED = 0
ROWS = 1
LANDMARK = 2

# Columns of a pool.
P_LIMIT = 0  # tuples it may hold
P_BYTES = 1  # bytes of payload it may hold; -1: payload does not count
P_USED = 2  # bytes of payload
P_LIVE = 3  # tuples
P_PEAK_USED = 4  # most payload since the tables have grown last
P_GROW = 5  # a full pool gets more rows if it has no more bytes of payload than this; -1: never
POOL = 6


class Store(NamedTuple):
    """Everything a window join keeps besides the memory of its policy."""

    k64: np.ndarray
    k32: np.ndarray
    t64: np.ndarray
    t32: np.ndarray
    f64: np.ndarray
    time: np.ndarray  # the tuples once more, column TIME being in its own dtype
    buckets: np.ndarray  # first key of each hash bucket
    ring: np.ndarray  # per stream, its tuples in order of arrival
    place: np.ndarray  # where in its stream's ring a tuple is
    ends: np.ndarray  # per stream: where its ring begins, and that plus its length
    pools: np.ndarray
    pool_of: np.ndarray  # stream -> pool
    clock: np.ndarray  # per stream: how far time has come for its tuples
    entering: np.ndarray  # the time, on its stream's clock, of the arrival that is being admitted
    horizon: np.ndarray  # per stream: how long its tuples can match; the period of a landmark window
    chance: np.ndarray  # per stream: the probability that an arrival is dropped
    random: np.ndarray  # state of the generators: of the drops, of the policy
    meta: np.ndarray

    def without_views(self) -> Store:
        """The same without the arrays that are views of others, to be stored."""
        return self._replace(k32=self.k32[:0], t32=self.t32[:0], f64=self.f64[:0], time=self.time[:0])

    def without_tables(self) -> Store:
        """What remains when the tuples have been carried elsewhere: counters, clocks and limits."""
        tables = ("k64", "k32", "t64", "t32", "f64", "time", "buckets", "ring", "place")
        return self._replace(**{name: getattr(self, name)[:0].copy() for name in tables})

    def with_views(self) -> Store:
        """The counterpart."""
        return self._replace(
            k32=self.k64.view(np.int32),
            t32=self.t64.view(np.int32),
            f64=self.t64.view(np.float64),
            time=self.t64.view(self.time.dtype),
        )


Store.widths = {  # type: ignore[attr-defined]
    "k64": 8,
    "k32": 16,
    "t64": 8,
    "t32": 16,
    "f64": 8,
    "time": 8,
    "ends": 2,
    "pools": POOL,
}
Store.hooks = "penstock.engine.hooks"  # type: ignore[attr-defined]
Store.tables = ("k64", "k32", "t64", "t32", "f64", "time")  # type: ignore[attr-defined]


def new_store(
    limits: tuple[int, ...], capacities: tuple[int, ...], time_dtype: np.dtype, seed: int, streams: int = 2
) -> Store:
    """An empty store with one pool per limit; capacities are the most tuples each pool can hold."""
    unified, sizes = len(limits) == 1, _sizes(capacities)
    k64 = new_table((sizes["k64"], 8), np.int64)
    t64 = new_table((sizes["t64"], 8), np.int64)
    pools = np.zeros((len(limits), POOL), np.int64)
    pools[:, P_LIMIT] = limits
    pools[:, P_BYTES] = pools[:, P_GROW] = -1
    return Store(
        k64=k64,
        k32=k64.view(np.int32),
        t64=t64,
        t32=t64.view(np.int32),
        f64=t64.view(np.float64),
        time=t64.view(time_dtype),
        buckets=new_table(sizes["buckets"], np.int32),
        ring=new_table((streams, sizes["ring"]), np.int32),
        place=new_table(sizes["place"], np.int32),
        ends=np.zeros((streams, 2), np.int64),
        pools=pools,
        pool_of=np.zeros(streams, np.int64) if unified else np.arange(streams, dtype=np.int64),
        clock=np.full(streams, -1, time_dtype),
        entering=np.zeros(1, time_dtype),
        horizon=np.zeros(streams, time_dtype),
        chance=np.zeros(streams),
        random=new_generators(seed),
        meta=np.zeros(META, np.int64),
    )


def _sizes(capacities: tuple[int, ...]) -> dict[str, int]:
    """Return the length of each table that grows with the tuples."""
    total, longest = sum(capacities), max(capacities)
    return {
        "k64": total + 2,
        "t64": total + 2,
        "place": total + 2,
        "buckets": power_of_two(total + total // 2),
        "ring": longest + longest // 2 + 16,  # room for what has left
    }


def grow_store(tables: dict[str, np.ndarray], capacities: tuple[int, ...]) -> None:
    """Enlarge the arrays of a store, given by name, for pools of these capacities.

    One table after the other, so that there is never more than one in two sizes: the caller keeps no others.
    """
    sizes = _sizes(capacities)
    time = tables["time"].dtype
    for views, name in ((("k32",), "k64"), (("t32", "f64", "time"), "t64")):
        for view in views:
            tables[view] = tables[view][:0].copy()
        tables[name] = enlarged(tables[name], (sizes[name], 8))
    tables["k32"] = tables["k64"].view(np.int32)
    tables |= {name: tables["t64"].view(kind) for name, kind in (("t32", np.int32), ("f64", np.float64))}
    tables["time"] = tables["t64"].view(time)
    _grow_rings(tables, sizes)
    if sizes["buckets"] > len(tables["buckets"]):
        _spread_keys(tables, sizes["buckets"])


def _grow_rings(tables: dict[str, np.ndarray], sizes: dict[str, int]) -> None:
    """Enlarge the rings of arrivals, each of which begins at 0 from then on."""
    ends = tables["ends"]
    place = tables["place"] = enlarged(tables["place"], sizes["place"])
    if sizes["ring"] <= tables["ring"].shape[1]:
        return
    ring = new_table((len(ends), sizes["ring"]), np.int32)
    for stream, (first, after) in enumerate(ends):
        unroll(tables["ring"][stream], first, ring[stream])
        ring[stream, after - first :] = 0
        filled = np.flatnonzero(ring[stream, : after - first])
        place[ring[stream, filled]] = filled
        ends[stream] = 0, after - first
    tables["ring"] = ring


def _spread_keys(tables: dict[str, np.ndarray], size: int) -> None:
    """Put the keys into more hash buckets."""
    k32 = tables["k32"]
    in_use = k32[:, COUNT] + k32[:, COUNT + 1] > 0
    tables["buckets"] = spread_keys(tables["k64"], k32, in_use, int(tables["meta"][HIGH_KEY]), size)


def spread_keys(k64: np.ndarray, k32: np.ndarray, in_use: np.ndarray, high: int, size: int) -> np.ndarray:
    """Return more hash buckets with the keys in use; the order of those in one bucket does not matter."""
    buckets = new_table(size, np.int32)
    for start in range(1, high + 1, SPREAD):
        rows = np.arange(start, min(start + SPREAD, high + 1))
        rows = rows[in_use[rows]]
        home = _home(k64[rows, KEY], size)
        order = np.argsort(home, kind="stable")
        rows, home = rows[order], home[order]
        again = np.append(False, home[1:] == home[:-1])
        before = np.append(0, rows[:-1])
        k32[rows, LINK] = np.where(again, before, buckets[home])
        buckets[home] = rows  # the last of each bucket stays
    return buckets


def _home(keys: np.ndarray, buckets: int) -> np.ndarray:
    """Return what `bucket_of` does for many keys."""
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return ((mixed >> np.uint64(32)) & np.uint64(buckets - 1)).astype(np.int64)


def power_of_two(least: int) -> int:
    """The smallest power of two that is not less, and at least 16."""
    return 1 << max(4, (least - 1).bit_length())


@jit
def bucket_of(store, key):
    """Fibonacci hashing: the high bits of the key times 2^64 / golden ratio."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((mixed >> np.uint64(32)) & np.uint64(store.buckets.shape[0] - 1))


@jit
def find_key(store, key):
    """The row of a key, 0 if none of its tuples is buffered. O(1)."""
    entry = store.buckets[bucket_of(store, key)]
    while entry != 0 and store.k64[entry, KEY] != key:
        entry = store.k32[entry, LINK]
    return entry


@jit
def add_key(store, key):
    """A new row for a key that has none. O(1)."""
    meta = store.meta
    entry = meta[FREE_KEY]
    if entry != 0:
        meta[FREE_KEY] = store.k32[entry, LINK]
        store.k64[entry] = 0
    else:
        meta[HIGH_KEY] += 1
        entry = meta[HIGH_KEY]
    bucket = bucket_of(store, key)
    store.k64[entry, KEY] = key
    store.k32[entry, LINK] = store.buckets[bucket]
    store.buckets[bucket] = entry
    return entry


@jit
def drop_key(store, entry):
    """Free the row of a key that has no tuple left. O(1)."""
    k32 = store.k32
    bucket = bucket_of(store, store.k64[entry, KEY])
    at = store.buckets[bucket]
    if at == entry:
        store.buckets[bucket] = k32[entry, LINK]
    else:
        while k32[at, LINK] != entry:
            at = k32[at, LINK]
        k32[at, LINK] = k32[entry, LINK]
    k32[entry, LINK] = store.meta[FREE_KEY]
    store.meta[FREE_KEY] = entry


@jit
def fetch_ahead(store, far, middle, near):
    """Have the memory on its way that the eviction of tuples will need, three of them at three stages.

    A tuple leads to its key and to the next of its chain, and the key to its bucket: each can be asked for
    once the one before is there.
    """
    prefetch(store.t64, 8 * far)
    prefetch(store.place, middle)
    prefetch(store.t64, 8 * np.int64(store.t32[near, NEXT]))
    prefetch(store.k64, 8 * np.int64(store.t32[middle, ENTRY]))
    prefetch(store.buckets, bucket_of(store, store.k64[store.t32[near, ENTRY], KEY]))


@jit
def fits(store, pool, size):
    """Whether one more tuple of this size keeps the pool within its limits."""
    pools = store.pools
    if pools[pool, P_LIVE] >= pools[pool, P_LIMIT]:
        return False
    return pools[pool, P_BYTES] < 0 or pools[pool, P_USED] + size <= pools[pool, P_BYTES]


@jit
def wants_rows(store, stream):
    """Whether the pool of a stream has no free row and may have more."""
    pool = store.pools[store.pool_of[stream]]
    return pool[P_LIVE] >= pool[P_LIMIT] and pool[P_USED] <= pool[P_GROW]


@jit
def take_tuple(store, stream, side, row, time, size, arrival):
    """Take a row for a tuple and account for it; it is not yet linked to a key. O(1)."""
    meta = store.meta
    slot = meta[FREE_TUPLE]
    if slot != 0:
        meta[FREE_TUPLE] = store.t32[slot, NEXT]
    else:
        meta[HIGH_TUPLE] += 1
        slot = meta[HIGH_TUPLE]
    store.t64[slot, ROW] = row
    store.t64[slot, ARRIVAL] = arrival
    store.time[slot, TIME] = time
    store.t32[slot, SIZE] = size
    store.t32[slot, STREAM] = stream
    store.t32[slot, SIDE] = side
    pool = store.pools[store.pool_of[stream]]
    pool[P_USED] += size
    pool[P_LIVE] += 1
    pool[P_PEAK_USED] = max(pool[P_PEAK_USED], pool[P_USED])
    meta[LIVE] += 1
    meta[PEAK_TUPLES] = max(meta[PEAK_TUPLES], meta[LIVE])
    return slot


@jit
def free_tuple(store, slot):
    """Give back the row of a tuple that is no longer linked. O(1)."""
    pool = store.pools[store.pool_of[store.t32[slot, STREAM]]]
    pool[P_USED] -= store.t32[slot, SIZE]
    pool[P_LIVE] -= 1
    store.meta[LIVE] -= 1
    store.t64[slot, ARRIVAL] = -1
    store.t32[slot, NEXT] = store.meta[FREE_TUPLE]
    store.meta[FREE_TUPLE] = slot


@jit
def link(store, slot, entry):
    """Append a tuple to the chain of its key and stream. O(1)."""
    k32, t32 = store.k32, store.t32
    side = t32[slot, SIDE]
    tail = k32[entry, TAIL + side]
    t32[slot, ENTRY] = entry
    t32[slot, NEXT] = 0
    t32[slot, PREV] = tail
    if tail != 0:
        t32[tail, NEXT] = slot
    else:
        k32[entry, HEAD + side] = slot
    k32[entry, TAIL + side] = slot
    k32[entry, COUNT + side] += 1


@jit
def unlink(store, slot):
    """Take a tuple out of its chain, and its key out of the table if that was the last. O(1)."""
    k32, t32 = store.k32, store.t32
    entry, side = t32[slot, ENTRY], t32[slot, SIDE]
    older, younger = t32[slot, PREV], t32[slot, NEXT]
    if older != 0:
        t32[older, NEXT] = younger
    else:
        k32[entry, HEAD + side] = younger
    if younger != 0:
        t32[younger, PREV] = older
    else:
        k32[entry, TAIL + side] = older
    k32[entry, COUNT + side] -= 1
    if k32[entry, COUNT] + k32[entry, COUNT + 1] == 0 and entry != store.meta[PINNED]:
        drop_key(store, entry)


@jit
def lived_out(store, slot):
    """Whether a tuple can match no more at the present clock of its stream."""
    stream = store.t32[slot, STREAM]
    clock, time, horizon = store.clock[stream], store.time[slot, TIME], store.horizon[stream]
    if store.meta[WINDOW] == LANDMARK:
        return clock // horizon > time // horizon
    return clock - time > horizon


@jit
def lifetime(store, stream, time):
    """How long a tuple of this time can still match, in the unit of its stream's clock."""
    clock, horizon = store.clock[stream], store.horizon[stream]
    if store.meta[WINDOW] == LANDMARK:
        return (time // horizon + 1) * horizon - clock
    return time + horizon - clock
