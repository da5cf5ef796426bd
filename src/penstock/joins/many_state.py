"""The state of a join of many streams: processes batches; can be snapshotted, restored and checked."""

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
from penstock.engine.result_sample import ResultSample, new_result_sample
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

CHUNK = 1 << 16  # arrivals per call of the driver, so that growing tables do not grow ahead of need
FIRST_ROOM = 1 << 16  # results
INTEGER = np.dtype(np.int64)
CODES = "Code other keys first, for example with pandas.factorize over all streams, or use join_many()."
FLOATS = "For times that are fractions, give the state a dtype of floats."


@dataclass(frozen=True)
class ManyConfig:
    """Everything needed to build the state of a join of many streams."""

    streams: int
    joins: tuple[tuple[int, ...], ...]  # the streams that take part in each
    window: Resolved
    policy: Policy
    limits: tuple[int, ...]  # tuples per pool: one pool, or one per stream
    time_dtype: np.dtype = INTEGER
    every: int = 0  # arrivals between two resizings of the pools by average score; 0: never
    seed: int = 0
    rates: tuple[float, ...] | None = None  # arrivals per unit of time and stream, if known
    lateness: tuple[float, ...] | None = None  # of each stream; None: arrivals come in order
    sample_bytes: int = 0  # for the estimate of the exact results

    def build(self) -> tuple[Store, Index, Any]:
        """Build an empty store, an empty index and the state of the policy."""
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
        """Build the progress of streams that advance independently."""
        assert self.lateness is not None, "arrivals come in order"
        most = self._capacities * (self.streams if len(self.limits) == 1 else 1)
        scheme, start = new_scheme(self.joins, self.streams), beginning(self.time_dtype)
        return new_many_flow(scheme, sum(self.limits), most, self.time_dtype, self.lateness, start)

    def build_sample(self) -> ResultSample:
        """Build the sample of keys from which missed results are estimated."""
        assert self.lateness is not None, "arrivals come in order"
        scheme, whole = new_scheme(self.joins, self.streams), self.time_dtype == np.int64
        return new_result_sample(
            scheme, self.sample_bytes, float(self.window.horizons[0]), self.lateness, whole
        )

    @property
    def _capacities(self) -> tuple[int, ...]:
        """Return the maximum number of tuples that each pool can ever hold."""
        if not self.every:
            return self.limits
        return (sum(self.limits) - len(self.limits) + 1,) * len(self.limits)


def _heeds_matches(state: Any) -> bool:
    """Whether a policy reacts to matches."""
    registered = match_key.on.__self__
    return registered.of(type(state)) is not registered.default


@dataclass(frozen=True)
class ManyOutput:
    """The output of a batch: results per arrival and, if requested, the results and the log of tuples."""

    counts: np.ndarray
    rows: tuple[np.ndarray, ...]  # per join: a row number per participant
    log: np.ndarray  # kind, stream, row, step


class ManyState:
    """The mutable state of a join of many streams.

    Arrivals are given as arrays in processing order: `stream`, `key`, `time` and `row` (any number that
    identifies the tuple for the caller). `key` has a column per join of the stream, in order of the joins:
    integer codes, -1 if there is none. An arrival has at least one key.

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
        """Process a batch from `start`; return the position reached before the room for rows ran out."""
        return self._kernel(self.policy, self.store, self.index, part, out, start)

    unit_watch: UnitWatch | None = None
    late_watch: LateWatch | None = None  # for streams that may be late

    def process(
        self, stream: Any, key: Any, time: Any, row: Any, *, collect: bool = False, log: bool = False
    ) -> ManyOutput:
        """Process a batch of arrivals."""
        batch = self._batch(stream, key, time, row)
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

    def _batch(self, stream: Any, key: Any, time: Any, row: Any) -> ManyBatch:
        """Check the arrays of a batch."""
        stream = whole_numbers(stream, "stream")
        if ((stream < 0) | (stream >= self.config.streams)).any():
            raise PenstockError(f"stream must contain only numbers from 0 to {self.config.streams - 1}.")
        batch = ManyBatch(
            stream,
            self._keys(stream, whole_numbers(key, "key", instead=CODES, dimensions=2)),
            time_numbers(time, self.config.time_dtype, FLOATS),
            whole_numbers(row, "row"),
        )
        lengths = [len(part) for part in batch]
        if len(set(lengths)) != 1:
            raise PenstockError(
                f"stream, key, time and row must have the same length; their lengths are {lengths}."
            )
        return batch

    @property
    def late(self) -> int:
        """Number of arrivals behind their stream's progress; 0 if they must come in order."""
        return 0

    def _check_order(self, batch: ManyBatch) -> None:
        """Reject arrivals out of order, or too far from earlier ones."""
        if (batch.time[1:] < batch.time[:-1]).any() or batch.time[0] < self._latest:
            raise PenstockError("Arrivals must be in order of time, across batches too.")
        first, last = min(self._first, batch.time[0].item()), batch.time[-1].item()
        check_reach(first, last, self.config.window.horizons)
        self._first, self._latest = first, last

    def warm(self) -> ManyState:
        """Load or compile the kernel by processing an empty batch."""
        self.process([], np.empty((0, self.index.scheme.join.shape[1])), [], [])
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
        if not (coded >= 0).any(axis=1).all():
            raise PenstockError(
                "An arrival needs a key in at least one of its joins; leave out rows without any."
            )
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
            np.zeros((n if self._estimates else 0, self.index.scheme.join.shape[1]), np.int64),
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
        if self._estimates:
            self._observe(batch, out.each)
        return ManyOutput(out.counts, split, out.log[: out.ends[LOGGED]])

    _estimates = False  # whether missed results are estimated

    def _observe(self, batch: ManyBatch, found: np.ndarray) -> None:
        """Take note of arrivals and their results in each join, for the estimate."""

    def _next_cut(self, start: int, n: int) -> int:
        """Return the end of the next chunk, at the latest where the pools are to be resized."""
        cut = min(start + CHUNK, n)
        if self.config.every:
            cut = min(cut, start + self.config.every - int(self.store.meta[ARRIVALS]) % self.config.every)
        return cut

    def _apportion(self, out: ManyOut) -> None:
        """Resize the pools by average credit, if requested and due."""
        if self.config.every and self.store.meta[ARRIVALS] % self.config.every == 0:
            began = clock.perf_counter()
            apportion_anew(self.policy, self.store, self.index, out)
            self.seconds += clock.perf_counter() - began

    def _reserve(self, arrivals: int) -> None:
        """Make room for more counts: in the index if it counts, else in the policy."""
        if self.index.meta[COUNTING]:
            keys = arrivals * self.index.scheme.join.shape[1]
            self.index = self.index._replace(counts=key_counts.reserve(self.index.counts, keys))
        else:
            self.policy = self.config.policy.reserve(self.policy, arrivals)

    @property
    def buffered(self) -> int:
        """Number of tuples in memory."""
        return int(self.store.meta[LIVE])

    @property
    def limits(self) -> tuple[int, ...]:
        """Current limit of each pool, in tuples."""
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
        """Return the whole state as bytes."""
        plain = self.index._asdict() | {"k32": None}  # a view of k64
        extra = {"index": plain, "seconds": self.seconds, "first": self._first, "latest": self._latest}
        return snapshots.pack(self.config, self.store, self.policy, extra)

    @classmethod
    def restore(cls, data: bytes) -> ManyState:
        """Return the state from `snapshot`; it continues exactly as the original would have."""
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
        """Reject arrays that would crash the kernels."""
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
    """Return the result counts, or raise an error if they are too large to count."""
    if (found >= MOST).any():
        raise PenstockError(
            f"A join has {MOST:,} results or more, too many to count; narrow the window or the join."
        )
    return [int(count) for count in found]
