"""The state of a join of many streams: processes batches; can be snapshotted, restored and checked."""

from __future__ import annotations

import math
import time as clock
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.arguments import flags
from penstock.arrays import check_reach, time_numbers, whole_numbers
from penstock.compiler.interpreter import interpreted
from penstock.compiler.tiers import Pace, expecting
from penstock.engine.join_loop import LOGGED, PAIRS, drive
from penstock.engine.many_index import COUNTING, TALLYING, Index
from penstock.engine.many_join import ManyBatch, ManyOut, apportion_anew
from penstock.engine.many_join_decided import ALONE
from penstock.engine.policy_race import Choice
from penstock.engine.store import (
    ARRIVALS,
    DROPPED,
    EVICTED,
    EXPIRED,
    LIVE,
    MATCHED,
    OVERSIZE,
    P_LIMIT,
    PEAK_TUPLES,
    REFUSED,
    Store,
)
from penstock.errors import PenstockError
from penstock.joins.growth import rooms_of
from penstock.joins.late import LateWatch
from penstock.joins.many_config import ManyConfig
from penstock.joins.many_follower import ManyFollower
from penstock.joins.many_growth import GrowsTables
from penstock.joins.many_invariants import check_many
from penstock.joins.many_left import DecidesFirst
from penstock.joins.many_output import ManyOutput, countable
from penstock.joins.many_switch import follow
from penstock.joins.snapshot_checks import checked_rooms
from penstock.states import snapshot as snapshots
from penstock.states.checks import (
    check_apart,
    check_index,
    check_many_fates,
    check_parts,
    check_shapes,
    looked_over,
)
from penstock.structures import key_counts
from penstock.window import UnitWatch

CHUNK = 1 << 16  # arrivals per call of the driver, so that growing tables do not grow ahead of need
FIRST_ROOM = 1 << 16  # results
CODES = "Code other keys first, for example with pandas.factorize over all streams, or use join_many()."
FLOATS = "For times that are fractions, give the state a dtype of floats."


class ManyState(DecidesFirst, GrowsTables):
    """The mutable state of a join of many streams.

    Arrivals are given as arrays in processing order: `stream`, `key`, `time` and `row` (any number that
    identifies the tuple for the caller). `key` has a column per join of the stream, in order of the joins:
    integer codes, -1 if there is none. An arrival has at least one key.

    >>> from penstock import policies
    >>> from penstock.joins import ManyConfig, ManyState
    >>> from penstock.window import window_of
    >>> config = ManyConfig(
    ...     streams=3,
    ...     joins=((0, 1, 2),),
    ...     window=window_of(10).resolve("ms"),
    ...     policy=policies.get("lru"),
    ...     capacities=(6,),
    ... )
    >>> state = ManyState(config)
    >>> out = state.process([0, 1, 2], [7, 7, 7], [0, 3, 5], [0, 0, 0], collect=True)
    >>> out.rows[0].tolist()
    [[0, 0, 0]]
    >>> copy = ManyState.restore(state.snapshot())
    >>> copy.process([1], [7], [6], [1]).counts.tolist()
    [1]
    """

    def __init__(self, config: ManyConfig, rooms: tuple[int, ...] | None = None) -> None:
        self.follower = ManyFollower(config, type(self)) if config.policy.chooses else None
        self._adopt(config, *config.build(rooms))
        self._first, self._latest = math.inf, -math.inf
        self.seconds = 0.0

    def _adopt(self, config: ManyConfig, store: Store, index: Index, policy: Any) -> None:
        self.config, self.store, self.index, self.policy = config, store, index, policy
        self.search = config.build_search(index, rooms_of(store))
        self.known = config.build_fates(index, rooms_of(store))
        self._pace = Pace()
        self.peak = 0
        self._kernel: Callable[..., int] = drive if config.policy.compiled else interpreted(drive)

    @property
    def choice(self) -> Choice | None:
        """The running policy and the estimated performance of the others, if the policy chooses."""
        return None if self.follower is None else self.follower.choice()

    def _step(self, part: ManyBatch, out: ManyOut, start: int) -> int:
        """Process a batch from `start`; return the position reached before the room for rows ran out."""
        index: Any = self.index
        if self.known is not None:
            index = self._index(self.index)
        elif self.search is not None:
            index = self.search._replace(chains=self.index)
        return self._kernel(self.policy, self.store, index, part, self._target(out, index), start)

    unit_watch: UnitWatch | None = None
    late_watch: LateWatch | None = None  # for streams that may be late

    def process(
        self,
        stream: Any,
        key: Any,
        time: Any,
        row: Any,
        size: Any = None,
        *,
        collect: bool = False,
        log: bool = False,
    ) -> ManyOutput:
        """Process a batch of arrivals. Under a byte budget, `size` has the bytes of each row."""
        flags(collect=collect, log=log)
        batch = self._batch(stream, key, time, row, size)
        self._check_open()
        self._check_sizes(batch)
        if len(batch.time):
            self._check_order(batch)
        if self.unit_watch is not None:
            self.unit_watch.see(batch.time)
        out = self._run(batch, collect, log)
        if self.late_watch is not None:
            self.late_watch.see(arrived=int(self.store.meta[ARRIVALS]), late=self.late, **self.doubts())
        return out

    def doubts(self) -> dict[str, Any]:
        """What is unknown of the recall because rows came too late; nothing where they must come in order."""
        return {}

    def _batch(self, stream: Any, key: Any, time: Any, row: Any, size: Any = None) -> ManyBatch:
        """Check the arrays of a batch."""
        stream = whole_numbers(stream, "stream")
        if ((stream < 0) | (stream >= self.config.streams)).any():
            raise PenstockError(f"stream must contain only numbers from 0 to {self.config.streams - 1}.")
        batch = ManyBatch(
            stream,
            self._keys(stream, whole_numbers(key, "key", instead=CODES, dimensions=2)),
            time_numbers(time, self.config.time_dtype, FLOATS),
            whole_numbers(row, "row"),
            whole_numbers([] if size is None else size, "size"),
            np.zeros(0, np.bool_),
        )
        lengths = [len(part) for part in batch]
        if len(set(lengths[:4])) != 1 or lengths[4] not in (0, lengths[0]):
            raise PenstockError(
                f"stream, key, time, row and size must have the same length; their lengths are {lengths}."
            )
        if lengths[4] and (batch.size.min() < 0 or batch.size.max() >= 2**31):
            raise PenstockError("size must be a number of bytes from 0 to 2 GiB.")
        return batch

    def _check_sizes(self, batch: ManyBatch) -> None:
        """Reject arrivals without sizes if the budget counts bytes."""
        if self.config.payload is not None and len(batch.time) and not len(batch.size):
            raise PenstockError("Under a byte budget every arrival needs its size.")

    @property
    def late(self) -> int:
        """Number of arrivals behind their stream's progress; 0 if they must come in order."""
        return 0

    def _check_order(self, batch: ManyBatch) -> None:
        """Reject arrivals out of order, or too far from earlier ones."""
        if (batch.time[1:] < batch.time[:-1]).any() or batch.time[0] < self._latest:
            raise PenstockError("Arrivals must be in order of time, across batches too.")
        first, last = min(self._first, batch.time[0].item()), batch.time[-1].item()
        check_reach(first, last, self.config.windows.timed)
        self._first, self._latest = first, last

    def warm(self) -> ManyState:
        """Load or compile the kernel by processing an empty batch."""
        self._run(self._nothing(), False, False)
        self.seconds = 0.0
        return self

    def _keys(self, stream: np.ndarray, key: np.ndarray) -> np.ndarray:
        """Return keys that also encode their join."""
        scheme = self.index.scheme
        joins, most = len(scheme.size), scheme.join.shape[1]
        key = key[:, None] if key.ndim == 1 else key
        if key.shape != (len(stream), most):
            raise PenstockError(
                "Keys must have a row per arrival and a column per join of a stream, here "
                f"{len(stream)} x {most}; {' x '.join(map(str, key.shape))} were given."
            )
        largest = np.iinfo(np.int64).max // (joins * scheme.stream.shape[1]) - 1
        if key.max(initial=-1) > largest:
            raise PenstockError(f"Key codes may be at most {largest}; {key.max()} was given.")
        join = scheme.join[stream]
        coded = np.where((key >= 0) & (join >= 0), key * joins + join, -1)
        if self.config.chain and not ((coded >= 0) | (join < 0)).all():
            raise PenstockError(
                "An arrival needs a key for each link of a chain that it is in; leave out the others."
            )
        if not (coded >= 0).any(axis=1).all():
            raise PenstockError(
                "An arrival needs a key in at least one of its joins; leave out rows without any."
            )
        return np.ascontiguousarray(coded)

    def _run(self, batch: ManyBatch, collect: bool, log: bool) -> ManyOutput:
        with expecting(len(batch.stream)):
            return self._drive(batch, collect, log)

    def _drive(self, batch: ManyBatch, collect: bool, log: bool) -> ManyOutput:
        n, sizes = len(batch.stream), [len(join) for join in self.config.results]
        widest = max(sizes)
        live = int(self.store.meta[LIVE])
        entries = live + 2 * n if log else 0  # a tuple may be late and leave
        if self.known is not None:
            entries += live + n if log else 0  # and undecided
            self._alone = np.empty(live + n if collect else 0, np.int64)
        out = ManyOut(
            np.zeros(n, np.int64),
            np.empty((FIRST_ROOM if collect else 0, 1 + widest), np.int64),
            np.zeros((n if self._estimates else 0, self.index.scheme.join.shape[1]), np.int64),
            np.empty((entries, 4), np.int64),
            np.zeros(3, np.int64),
        )
        rows: list[np.ndarray] = []
        start, limit, heard = 0, self._next_cut(0, n), 0
        while True:
            self._reserve(limit - start)
            cut = self._pace.cut(start, limit)
            began = clock.perf_counter()
            reached = self._step(ManyBatch(*(array[:cut] for array in batch)), out, start)
            seconds = clock.perf_counter() - began
            self._pace.took(reached - start, seconds)
            self.seconds += seconds
            full, start = reached < cut, reached
            if full and self._grow(int(batch.stream[start])):
                continue
            if start == limit:
                if n > 0:
                    self._apportion(out)
                if self.follower is not None:
                    began = clock.perf_counter()
                    leader = self.follower.attend(batch, heard, limit, int(self.store.meta[MATCHED]))
                    heard = limit
                    if leader is not None:
                        follow(self, leader)
                    self.seconds += clock.perf_counter() - began
                if limit == n:
                    break
                limit = self._next_cut(limit, n)
            elif not full:
                continue
            elif out.ends[PAIRS] > 0:
                rows.append(out.rows[: out.ends[PAIRS]].copy())
                out.ends[PAIRS] = 0
            else:
                out = out._replace(rows=np.empty((2 * len(out.rows), 1 + widest), np.int64))
        rows.append(out.rows[: out.ends[PAIRS]])
        alone = self._alone[: out.ends[ALONE]]
        every = np.concatenate([*rows, self._singles(alone)] if len(alone) else rows)
        split = tuple(every[every[:, 0] == j, 1 : 1 + size] for j, size in enumerate(sizes))
        if self._estimates:
            self._observe(batch, out.each)
        return ManyOutput(out.counts, split, out.log[: out.ends[LOGGED]], alone)

    def _keep_progress(self, other: ManyState) -> None:
        """Take the progress of the streams from a state whose tuples are to enter."""

    def _take_progress(self, other: ManyState) -> None:
        """Take over, with the tuples, the order in which they expire."""

    _estimates = False  # whether missed results are estimated

    def _observe(self, batch: ManyBatch, found: np.ndarray) -> None:
        """Take note of arrivals and their results in each join, for the estimate."""

    def _next_cut(self, start: int, n: int) -> int:
        """Return the end of the next chunk, at the latest where the pools are to be resized."""
        cut = min(start + CHUNK, n)
        if self.follower is not None:
            cut = min(cut, start + self.follower.race.left)
        if self.config.every:
            cut = min(cut, start + self.config.every - int(self.store.meta[ARRIVALS]) % self.config.every)
        return cut

    def _apportion(self, out: ManyOut) -> None:
        """Resize the pools by average credit, if requested and due."""
        if self.config.every and self.store.meta[ARRIVALS] % self.config.every == 0:
            began = clock.perf_counter()
            index = self.index if self.known is None else self._index(self.index)
            apportion_anew(self.policy, self.store, self.index, self._target(out, index))
            self.seconds += clock.perf_counter() - began

    def _reserve(self, arrivals: int) -> None:
        """Make room for more counts: in the index if it counts, else in the policy."""
        if self.index.meta[COUNTING] or self.index.meta[TALLYING]:
            keys = arrivals * self.index.scheme.join.shape[1]
            self.index = self.index._replace(counts=key_counts.reserve(self.index.counts, keys))
        if not self.index.meta[COUNTING]:
            self.policy = self.running.reserve(self.policy, arrivals)

    @property
    def buffered(self) -> int:
        """Number of tuples in memory."""
        return int(self.store.meta[LIVE])

    @property
    def limits(self) -> tuple[int, ...]:
        """Current limit of each pool, in tuples; under a byte budget, what there is room for."""
        if self.config.grows and not self.config.costs:
            return self.config.capacities
        return tuple(int(limit) for limit in self.store.pools[:, P_LIMIT])

    @property
    def per_join(self) -> tuple[int, ...]:
        """Results of each join since the start."""
        return tuple(countable(self.index.found[: len(self.config.results)]))

    def totals(self) -> dict[str, int]:
        """The counters since the start."""
        meta = self.store.meta
        return {
            "arrivals": int(meta[ARRIVALS]),
            "results": sum(self.per_join),
            "evicted": int(meta[EVICTED]),
            "refused": int(meta[REFUSED]),
            "oversize": int(meta[OVERSIZE]),
            "expired": int(meta[EXPIRED]),
            "dropped": int(meta[DROPPED]),
            "unmatched": self.unmatched,
            "undecided": self.undecided,
            "buffered": int(meta[LIVE]),
            "peak_tuples": int(meta[PEAK_TUPLES]),
        }

    def snapshot(self) -> bytes:
        """Return the whole state as bytes."""
        plain = self.index._asdict() | {"k32": None}  # a view of k64
        extra = {"index": plain, "seconds": self.seconds, "first": self._first, "latest": self._latest}
        return self._pack(extra)

    def _pack(self, extra: dict[str, Any]) -> bytes:
        follower = None if self.follower is None else self.follower.pack()
        extra |= {"peak": self.peak, "follower": follower, "known": self.known}
        return snapshots.pack(self.config, self.store, self.policy, extra)

    @classmethod
    def restore(cls, data: bytes) -> ManyState:
        """Return the state from `snapshot`; it continues exactly as the original would have."""
        config, store, policy, extra = snapshots.unpack(data, ManyConfig)
        state = cls.__new__(cls)
        with looked_over():
            state._unpack(config, extra)
            index = Index(**extra["index"])
            state._adopt(config, store, index._replace(k32=index.k64.view(np.int32)), policy)
            state.seconds, state.peak = extra["seconds"], extra["peak"]
            state._first, state._latest = extra.get("first", math.inf), extra.get("latest", -math.inf)
            state._check_restored(extra)
        return state

    def _unpack(self, config: ManyConfig, extra: dict[str, Any]) -> None:
        """Take the follower, if there is one, from a snapshot."""
        self.follower = None
        if config.policy.chooses:
            self.follower = ManyFollower.unpack(config, type(self), extra["follower"])

    def _check_restored(self, extra: dict[str, Any]) -> None:
        """Reject arrays that would crash the kernels, and take what is known of the tuples."""
        if self.known is not None:
            fresh, self.known = self.known, extra["known"]
            check_many_fates(self.known, self.store, fresh)
        rooms = checked_rooms(self.config, self.store) if self.config.grows else None
        store, index, policy = self.config.build(rooms, self.running)
        check_apart(self.store, store)
        if self.config.policy.compiled:
            check_shapes(self.policy, policy, "the state of the policy")
        check_index(self.index, self.store, index)
        check_parts(self.policy, self.store, policy)

    def check(self) -> None:
        """Assert every invariant of the store, the index and the policy."""
        check_many(self.store, self.index)
        self.running.check(self.policy, self.store)
        for small in self.follower.small if self.follower is not None else ():
            small.check()
