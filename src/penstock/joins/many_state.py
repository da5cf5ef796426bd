"""The state of a join of many streams: it takes batches, and can be snapshotted, restored and checked."""

from __future__ import annotations

import math
import time as clock
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.arrays import check_reach, time_numbers, whole_numbers
from penstock.compiler.interpreter import interpreted
from penstock.compiler.tiers import Pace, expecting
from penstock.engine.hooks import match_key
from penstock.engine.join_loop import LOGGED, PAIRS, drive
from penstock.engine.many_index import COUNTING, MOST, Index, new_index, new_scheme
from penstock.engine.many_join import ManyBatch, ManyOut, apportion_anew
from penstock.engine.many_join_late import ManyFlow, new_many_flow
from penstock.engine.store import (
    ARRIVALS,
    COMPETE,
    DROPPED,
    EVICTED,
    EXPIRED,
    LIVE,
    P_LIMIT,
    PEAK_TUPLES,
    REFUSED,
    WINDOW,
    Store,
    new_store,
)
from penstock.errors import PenstockError
from penstock.joins.config import beginning
from penstock.joins.late import LateWatch
from penstock.joins.many_invariants import check_many
from penstock.policies.base import Policy, Setting
from penstock.states import snapshot as snapshots
from penstock.states.checks import check_apart, check_index, check_parts, check_shapes, looked_over
from penstock.structures import key_counts
from penstock.window import Resolved, UnitWatch

CHUNK = 1 << 16  # arrivals per call of the driver, so that tables that grow do not grow ahead of need
FIRST_ROOM = 1 << 16  # results
INTEGER = np.dtype(np.int64)
CODES = "Code other keys first, for example with pandas.factorize over all streams, or use join_many()."
FLOATS = "For times that are fractions, give the state a dtype of floats."


@dataclass(frozen=True)
class ManyConfig:
    """All that is needed to build the state of a join of many streams."""

    streams: int
    joins: tuple[tuple[int, ...], ...]  # the streams that take part in each
    window: Resolved
    policy: Policy
    limits: tuple[int, ...]  # tuples per pool: one pool, or one per stream
    time_dtype: np.dtype = INTEGER
    every: int = 0  # arrivals after which the pools are apportioned anew by average score; 0: never
    seed: int = 0
    rates: tuple[float, ...] | None = None  # arrivals per unit of time and stream, where known
    lateness: tuple[float, ...] | None = None  # of each stream; None: arrivals come in order

    def build(self) -> tuple[Store, Index, Any]:
        """An empty store, an empty index and the state of the policy."""
        total, capacities = sum(self.limits), self._capacities
        store = new_store(self.limits, capacities, self.time_dtype, self.seed, self.streams)
        horizon = self.window.horizons[0]
        store.horizon[:] = horizon
        store.meta[WINDOW] = self.window.kind
        store.meta[COMPETE] = self.policy.selective
        state = self.policy.build(
            Setting(
                capacities=capacities,
                time_dtype=self.time_dtype,
                horizons=(horizon,) * self.streams,
                rates=self.rates,
                streams=self.streams,
            )
        )
        counting = self.policy.counts_keys and self.policy.compiled
        scheme = new_scheme(self.joins, self.streams)
        return store, new_index(scheme, total, counting, _heeds_matches(state)), state

    def build_flow(self) -> ManyFlow:
        """For streams that advance each at its own pace: how far they have come."""
        assert self.lateness is not None, "arrivals come in order"
        most = self._capacities * (self.streams if len(self.limits) == 1 else 1)
        scheme, start = new_scheme(self.joins, self.streams), beginning(self.time_dtype)
        return new_many_flow(scheme, sum(self.limits), most, self.time_dtype, self.lateness, start)

    @property
    def _capacities(self) -> tuple[int, ...]:
        """The most tuples that each pool can ever hold."""
        if not self.every:
            return self.limits
        return (sum(self.limits) - len(self.limits) + 1,) * len(self.limits)


def _heeds_matches(state: Any) -> bool:
    """Whether a policy does anything when a tuple matches."""
    registered = match_key.on.__self__
    return registered.of(type(state)) is not registered.default


@dataclass(frozen=True)
class ManyOutput:
    """What a batch brought: results per arrival, the results and what became of tuples if asked for."""

    counts: np.ndarray
    rows: tuple[np.ndarray, ...]  # per join: a row number per participant
    log: np.ndarray  # kind, stream, row, step


class ManyState:
    """The mutable state of a join of many streams.

    Arrivals are given as arrays in processing order: `stream`, `key`, `time` and `row` (any number by
    which the caller knows the tuple). `key` has a column per join that the stream takes part in, in the
    order of the joins: integer codes, -1 where there is none. An arrival has at least one key.

    >>> from penstock import policies
    >>> from penstock.joins.many_state import ManyConfig, ManyState
    >>> from penstock.window import window_of
    >>> config = ManyConfig(
    ...     streams=3,
    ...     joins=((0, 1, 2),),
    ...     window=window_of(10).resolve("ms"),
    ...     policy=policies.get("lru"),
    ...     limits=(6,),
    ... )
    >>> state = ManyState(config)
    >>> out = state.process([0, 1, 2], [7, 7, 7], [0, 3, 5], [0, 0, 0], collect=True)
    >>> out.rows[0].tolist()
    [[0, 0, 0]]
    >>> copy = ManyState.restore(state.snapshot())
    >>> copy.process([1], [7], [6], [1]).counts.tolist()
    [1]
    """

    def __init__(self, config: ManyConfig) -> None:
        self._adopt(config, *config.build())
        self._first, self._latest = math.inf, -math.inf
        self.seconds = 0.0

    def _adopt(self, config: ManyConfig, store: Store, index: Index, policy: Any) -> None:
        self.config, self.store, self.index, self.policy = config, store, index, policy
        self._pace = Pace()
        self._kernel: Callable[..., int] = drive if config.policy.compiled else interpreted(drive)

    def _step(self, part: ManyBatch, out: ManyOut, start: int) -> int:
        """Process a part of a batch from `start`; how far it came before the room for rows was used up."""
        return self._kernel(self.policy, self.store, self.index, part, out, start)

    unit_watch: UnitWatch | None = None
    late_watch: LateWatch | None = None  # of streams that may come late

    def process(
        self, stream: Any, key: Any, time: Any, row: Any, *, collect: bool = False, log: bool = False
    ) -> ManyOutput:
        """Process a batch of arrivals."""
        stream = whole_numbers(stream, "stream")
        if ((stream < 0) | (stream >= self.config.streams)).any():
            raise PenstockError(f"stream takes numbers from 0 to {self.config.streams - 1} everywhere.")
        batch = ManyBatch(
            stream,
            self._keys(stream, whole_numbers(key, "key", instead=CODES, dimensions=2)),
            time_numbers(time, self.config.time_dtype, FLOATS),
            whole_numbers(row, "row"),
        )
        lengths = [len(part) for part in batch]
        if len(set(lengths)) != 1:
            raise PenstockError(
                f"stream, key, time and row must be equally long; their lengths are {lengths}."
            )
        if lengths[0]:
            self._check_order(batch)
        if self.unit_watch is not None:
            self.unit_watch.see(batch.time)
        out = self._run(batch, collect, log)
        if self.late_watch is not None:
            self.late_watch.see(arrived=int(self.store.meta[ARRIVALS]), late=self.late)
        return out

    @property
    def late(self) -> int:
        """Arrivals that came behind their stream's progress; none, where they must come in order."""
        return 0

    def _check_order(self, batch: ManyBatch) -> None:
        """Refuse what is out of order, or too far from what came before."""
        if (batch.time[1:] < batch.time[:-1]).any() or batch.time[0] < self._latest:
            raise PenstockError("Arrivals must come in order of time, across batches too.")
        first, last = min(self._first, batch.time[0].item()), batch.time[-1].item()
        check_reach(first, last, self.config.window.horizons)
        self._first, self._latest = first, last

    def warm(self) -> ManyState:
        """Load or compile the kernel by processing nothing."""
        self.process([], np.empty((0, self.index.scheme.join.shape[1])), [], [])
        self.seconds = 0.0
        return self

    def _keys(self, stream: np.ndarray, key: np.ndarray) -> np.ndarray:
        """Keys that say also which join they are of."""
        scheme = self.index.scheme
        joins, most = len(scheme.size), scheme.join.shape[1]
        key = key[:, None] if key.ndim == 1 else key
        if key.shape != (len(stream), most):
            raise PenstockError(
                "Keys have a row per arrival and a column per join of a stream, here "
                f"{len(stream)} x {most}; {' x '.join(map(str, key.shape))} were given."
            )
        largest = np.iinfo(np.int64).max // (joins * scheme.stream.shape[1]) - 1
        if key.max(initial=-1) > largest:
            raise PenstockError(f"Codes of keys go up to {largest}; {key.max()} was given.")
        join = scheme.join[stream]
        coded = np.where((key >= 0) & (join >= 0), key * joins + join, -1)
        if not (coded >= 0).any(axis=1).all():
            raise PenstockError("An arrival needs a key in one of its joins; leave out rows that have none.")
        return np.ascontiguousarray(coded)

    def _run(self, batch: ManyBatch, collect: bool, log: bool) -> ManyOutput:
        with expecting(len(batch.stream)):
            return self._drive(batch, collect, log)

    def _drive(self, batch: ManyBatch, collect: bool, log: bool) -> ManyOutput:
        n, (joins, widest) = len(batch.stream), self.index.scheme.stream.shape
        entries = int(self.store.meta[LIVE]) + 2 * n if log else 0  # a tuple may be late and leave
        out = ManyOut(
            np.zeros(n, np.int64),
            np.empty((FIRST_ROOM if collect else 0, 1 + widest), np.int64),
            np.empty((entries, 4), np.int64),
            np.zeros(2, np.int64),
        )
        rows: list[np.ndarray] = []
        start, limit = 0, self._next_cut(0, n)
        while True:
            self._reserve(limit - start)
            cut = self._pace.cut(start, limit)
            began = clock.perf_counter()
            reached = self._step(ManyBatch(*(array[:cut] for array in batch)), out, start)
            seconds = clock.perf_counter() - began
            self._pace.took(reached - start, seconds)
            self.seconds += seconds
            full, start = reached < cut, reached
            if start == limit:
                if n > 0:
                    self._apportion(out)
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
        every = np.concatenate(rows)
        sizes = self.index.scheme.size
        split = tuple(every[every[:, 0] == j, 1 : 1 + sizes[j]] for j in range(joins))
        return ManyOutput(out.counts, split, out.log[: out.ends[LOGGED]])

    def _next_cut(self, start: int, n: int) -> int:
        """Where the next chunk ends: no later than the pools are due to be apportioned anew."""
        cut = min(start + CHUNK, n)
        if self.config.every:
            cut = min(cut, start + self.config.every - int(self.store.meta[ARRIVALS]) % self.config.every)
        return cut

    def _apportion(self, out: ManyOut) -> None:
        """Set the limits of the pools by average credit, if that is wanted and due."""
        if self.config.every and self.store.meta[ARRIVALS] % self.config.every == 0:
            began = clock.perf_counter()
            apportion_anew(self.policy, self.store, self.index, out)
            self.seconds += clock.perf_counter() - began

    def _reserve(self, arrivals: int) -> None:
        """Let the counts grow, where they are kept: those of the index instead of the policy's own."""
        if self.index.meta[COUNTING]:
            keys = arrivals * self.index.scheme.join.shape[1]
            self.index = self.index._replace(counts=key_counts.reserve(self.index.counts, keys))
        else:
            self.policy = self.config.policy.reserve(self.policy, arrivals)

    @property
    def buffered(self) -> int:
        """Tuples in memory."""
        return int(self.store.meta[LIVE])

    @property
    def limits(self) -> tuple[int, ...]:
        """What each pool may hold at present."""
        return tuple(int(limit) for limit in self.store.pools[:, P_LIMIT])

    @property
    def per_join(self) -> tuple[int, ...]:
        """Results of each join since the start."""
        return tuple(countable(self.index.found))

    def totals(self) -> dict[str, int]:
        """The counters since the start."""
        meta = self.store.meta
        return {
            "arrivals": int(meta[ARRIVALS]),
            "results": sum(self.per_join),
            "evicted": int(meta[EVICTED]),
            "refused": int(meta[REFUSED]),
            "expired": int(meta[EXPIRED]),
            "dropped": int(meta[DROPPED]),
            "buffered": int(meta[LIVE]),
            "peak_tuples": int(meta[PEAK_TUPLES]),
        }

    def snapshot(self) -> bytes:
        """The whole state as bytes."""
        plain = self.index._asdict() | {"k32": None}  # a view of k64
        extra = {"index": plain, "seconds": self.seconds, "first": self._first, "latest": self._latest}
        return snapshots.pack(self.config, self.store, self.policy, extra)

    @classmethod
    def restore(cls, data: bytes) -> ManyState:
        """The state that `snapshot` gave; it goes on exactly as the original would have."""
        config, store, policy, extra = snapshots.unpack(data, ManyConfig)
        state = cls.__new__(cls)
        with looked_over():
            index = Index(**extra["index"])
            state._adopt(config, store, index._replace(k32=index.k64.view(np.int32)), policy)
            state.seconds = extra["seconds"]
            state._first, state._latest = extra.get("first", math.inf), extra.get("latest", -math.inf)
            state._check_restored()
        return state

    def _check_restored(self) -> None:
        """Refuse arrays that kernels would not survive."""
        store, index, policy = self.config.build()
        check_apart(self.store, store)
        if self.config.policy.compiled:
            check_shapes(self.policy, policy, "the state of the policy")
        check_index(self.index, self.store, index)
        check_parts(self.policy, self.store, policy)

    def check(self) -> None:
        """Assert every invariant of the store, the index and the policy."""
        check_many(self.store, self.index)
        self.config.policy.check(self.policy, self.store)


def countable(found: np.ndarray) -> list[int]:
    """Counts of results as numbers, or an error if they were too many to count."""
    if (found >= MOST).any():
        raise PenstockError(
            f"A join has {MOST:,} results or more, too many to count; narrow the window or the join."
        )
    return [int(count) for count in found]
