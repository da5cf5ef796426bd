"""The state of a join of many streams that advance independently, with late arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from penstock.arguments import MOST_BYTES, flag, number, shown, whole
from penstock.arrays import time_dtype
from penstock.budget import Bytes, Fraction, Tuples, budget_of
from penstock.compiler.tiers import expecting
from penstock.engine.join_loop import LOG_EVICTED
from penstock.engine.loss_sketch import UNESTIMATED
from penstock.engine.lost_keys import carry_lost
from penstock.engine.many_index import HELD, Index
from penstock.engine.many_join import ManyBatch, ManyOut
from penstock.engine.many_join_late import ManyStream, advance_many
from penstock.engine.many_search import ManyStreamSearch
from penstock.engine.pair_join_late import LATE
from penstock.engine.result_sample import (
    OWN,
    VARIANCE,
    ResultSample,
    continued,
    follow,
    observe,
)
from penstock.engine.store import ARRIVAL, ARRIVALS, DROPPED, EVICTED, KEY, ROW, STEPS, STREAM, TIME
from penstock.errors import BudgetError, PenstockError, SnapshotError
from penstock.joins.buffered_rows import GONE, SO_FAR, KeepsRows
from penstock.joins.config import beginning, behind_of, check_times, progress_times
from penstock.joins.estimate import EstimatesRecall, RecallEstimate, bounded_by, estimate_recall
from penstock.joins.growth import rooms_of
from penstock.joins.late import LateWatch
from penstock.joins.many import with_budget
from penstock.joins.many_config import INTEGER, ManyConfig
from penstock.joins.many_left import carry_first, undecided_meanwhile
from penstock.joins.many_options import check_how, check_options, check_sampling, enough
from penstock.joins.many_state import CHUNK, ManyState
from penstock.joins.many_window import many_window_of
from penstock.policies import get
from penstock.states import snapshot as snapshots
from penstock.states.checks import check_flow, check_sample, looked_over
from penstock.window import UnitWatch

MOST_STREAMS = 1_000
SAMPLE_LEAST = 1 << 18  # bytes, for the estimate
SAMPLE_PER_TUPLE = 64
SAMPLE_SHARE = 16  # one part in so many of a byte budget


class ManyStreamState(EstimatesRecall, KeepsRows, ManyState):
    """A `ManyState` for streams that advance independently; `start_many` makes one.

    A combination joins if its largest and its smallest time are within the window, whichever arrived first. A
    buffered tuple expires once every other stream that shares a join with it has passed its time plus the
    window. The progress of a stream is its largest time seen minus the lateness, or the time given to
    `advance`. Late arrivals join the tuples that are still buffered.

    >>> from penstock.joins import start_many
    >>> state = start_many(3, [(0, 1, 2)], within=10, budget="9 tuples", policy="lru")
    >>> times = [100, 115, 107, 104, 112]
    >>> out = state.process([0, 0, 1, 2, 2], [7] * 5, times, [0, 1, 0, 0, 1], collect=True)
    >>> out.rows[0].tolist()
    [[0, 0, 0], [1, 0, 1]]
    >>> copy = type(state).restore(state.snapshot())
    >>> copy.process([1], [7], [106], [1], collect=True).rows[0].tolist()
    [[1, 1, 1], [0, 1, 0]]
    >>> copy.late
    1
    """

    peak_beyond = 0  # key counts are part of the tables
    _estimates = True

    def __init__(self, config: ManyConfig, rooms: tuple[int, ...] | None = None) -> None:
        super().__init__(config, rooms)
        self.flow = config.build_flow(rooms)
        self.sample = config.build_sample()._replace(scheme=self.index.scheme)
        self.store.clock[:] = beginning(config.time_dtype)

    def advance(self, *reached: float | None) -> None:
        """Set the progress of the streams, as a watermark does; tuples expire with the next batch."""
        if len(reached) != self.config.streams:
            raise PenstockError(
                f"advance takes the progress (or None) of each of the {self.config.streams} streams; "
                f"{len(reached)} were given."
            )
        times = progress_times(reached, self.config.time_dtype)
        advance_many(self.store, self.flow, times)
        for small in self.follower.small if self.follower is not None else ():
            advance_many(small.store, small.flow, times)  # type: ignore[attr-defined]
        for stream, time in enumerate(reached):
            if time is not None:
                follow(self.sample, stream, float(times[stream]))

    def miss(self, stream: Any, key: Any, time: Any) -> None:
        """Count arrivals that were dropped elsewhere, such as those behind a watermark: they appear in no
        result, but the exact join would have had results with them.

        >>> from penstock.joins import start_many
        >>> state = start_many(2, [(0, 1)], within=10, budget="4 tuples")
        >>> out = state.process([0], [7], [100], [0])
        >>> state.miss([1], [7], [101])
        >>> state.missed, state.recall.value
        (1.0, 0.0)
        """
        batch = self._batch(stream, key, time, np.zeros(len(stream), np.int64))
        if len(batch.time):
            self._check_order(batch)
        if self.config.left:  # the exact join has no results with them either
            return
        if self.config.estimable:
            self._count(batch, np.zeros(batch.key.shape, np.int64), 0, len(batch.stream))
        else:
            self.sample.missed[UNESTIMATED] += len(batch.stream)

    def _observe(self, batch: ManyBatch, found: np.ndarray) -> None:
        n, meta, late = len(batch.stream), self.store.meta, self.late
        if self.config.left:  # late rows have taken no part
            mine, late = found[:, 0] >= 0, 0
            batch = ManyBatch(*(array[mine] if len(array) else array for array in batch))
            found = found[mine]
        if not self.config.estimable:
            if meta[EVICTED] + meta[DROPPED] + late > 0:
                self.sample.missed[UNESTIMATED] += n
            return
        warm = min(max(0, self.config.warmup - int(meta[STEPS]) + n), len(batch.stream))
        if warm:  # known from then on, but not missed
            before = self.sample.missed.copy()
            self._count(batch, found, 0, warm)
            self.sample.missed[:] = before
            self.sample.numbers[:, OWN] = 0.0
        self._count(batch, found, warm, len(batch.stream))

    def _count(self, batch: ManyBatch, found: np.ndarray, first: int, last: int) -> None:
        """Let the sample count some arrivals of a batch."""
        with expecting(last - first):
            for start in range(first, last, CHUNK):
                part = slice(start, min(start + CHUNK, last))
                observe(self.sample, batch.stream[part], batch.key[part], batch.time[part], found[part])

    @property
    def losses(self) -> np.ndarray:
        """The estimate so far."""
        return self.sample.missed

    @property
    def variance(self) -> float:
        """The variance of `missed`, which is estimated from a sample of the keys; 0 if that has them all."""
        return float(self.sample.missed[VARIANCE])

    @property
    def recall(self) -> RecallEstimate:
        """Estimated share of the exact results that was found, of all joins together. It is an upper bound,
        or unknown, if rows came so late that the results they missed cannot be estimated. It is unknown, too,
        once rows are lost in a join with a chain or with different windows, of which there is no estimate.

        >>> from penstock.joins import start_many
        >>> state = start_many(3, [(0, 1, 2)], within=10, budget="3 tuples", policy="fifo")
        >>> out = state.process([0, 1, 0, 1, 2], [7] * 5, range(5), range(5))
        >>> print(state.totals()["results"], state.missed, state.recall)
        2 2.0 50.0 %
        """
        found = estimate_recall(
            float(sum(self.per_join)) + self.unmatched,
            self.missed,
            self.unestimated,
            int(self.store.meta[ARRIVALS]),
            guessed=self.guessed,
            variance=self.variance,
        )
        return bounded_by(found, self.undecided)

    @property
    def late(self) -> int:
        """Number of arrivals behind their stream's progress."""
        return int(self.flow.meta[LATE])

    @property
    def _tables(self) -> tuple[Any, ...]:
        return *super()._tables, self.flow, self.sample

    def _keep_progress(self, other: ManyState) -> None:
        assert isinstance(other, ManyStreamState)
        self.store.clock[:], self.flow.progress[:] = other.store.clock, other.flow.progress

    def _take_progress(self, other: ManyState) -> None:
        assert isinstance(other, ManyStreamState)
        other.flow.meta[:] = self.flow.meta
        self.flow = other.flow

    def _grow_beyond(self, rooms: tuple[int, ...]) -> None:
        self.flow = self.config.grow_flow(self.flow, rooms)

    def totals(self) -> dict[str, int]:
        """The counters since the start."""
        return super().totals() | {"late": self.late}

    def take_over(
        self, other: ManyStreamState, sizes: Sequence[np.ndarray] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Continue from another state that has another budget or policy.

        The buffered tuples enter in order of arrival; a smaller budget evicts some, and scores start afresh.
        Progress, totals and the sample of keys are kept. `sizes` has the bytes of each row per stream if this
        state counts bytes. Returns the log of the evictions, numbered from 0, and the times of the tuples.
        """
        store, index = other.store, other.index
        slots = np.concatenate([other._live(stream) for stream in range(other.config.streams)])
        slots = slots[np.argsort(store.t64[slots, ARRIVAL])]
        held = index.links[slots, :, HELD]
        key = np.where(held > 0, index.k64[held, KEY] // len(index.scheme.size), -1)
        time = store.time[slots, TIME].copy()
        self.store.clock[:] = store.clock
        self.flow.progress[:] = other.flow.progress
        watch, self.late_watch = self.late_watch, None
        self._estimates = False
        chances = self.store.chance.copy()
        self.store.chance[:] = 0.0
        stream, row, size = store.t32[slots, STREAM], store.t64[slots, ROW], None
        if sizes is not None:
            size = np.empty(len(slots), np.int64)
            for each, mine in enumerate(sizes):
                size[stream == each] = mine[row[stream == each]]
        if self.known is not None and other.known is not None:
            carry_lost(self.known.lost, other.known.lost)
        with undecided_meanwhile(self.known):
            log = self.process(stream, key, time, row, size, log=True).log
        log = log[log[:, 0] == LOG_EVICTED]
        if self.known is not None:
            carry_first(self, other, log[:, 1:3])
        self._estimates = True
        self.store.chance[:] = chances
        self.sample = continued(self.sample, other.sample)._replace(scheme=self.index.scheme)
        self.store.meta[SO_FAR] = store.meta[SO_FAR]
        self.store.meta[GONE] += store.meta[GONE]
        self.index.found[:] = index.found
        self.flow.meta[LATE] = other.flow.meta[LATE]
        if watch is not None:
            watch.skip(arrived=int(self.store.meta[ARRIVALS]), late=self.late)
            self.late_watch = watch
        return log, time

    def _check_order(self, batch: ManyBatch) -> None:
        check_times(batch.time)

    def _step(self, part: ManyBatch, out: ManyOut, start: int) -> int:
        index: Any = ManyStream(self.index, self.flow)
        if self.known is not None:
            index = self._index(self.index, self.flow)
        elif self.search is not None:
            index = ManyStreamSearch(self.search._replace(chains=self.index), self.flow)
        return self._kernel(self.policy, self.store, index, part, self._target(out, index), start)

    def snapshot(self) -> bytes:
        """Return the whole state as bytes."""
        plain = self.index._asdict() | {"k32": None}  # a view of k64
        sample = self.sample._asdict() | {"scheme": None, "k32": None}
        extra = {"index": plain, "seconds": self.seconds, "flow": self.flow, "sample": sample}
        return self._pack(extra)

    @classmethod
    def restore(cls, data: bytes) -> ManyStreamState:
        """Return the state from `snapshot`; it continues exactly as the original would have."""
        config, store, policy, extra = snapshots.unpack(data, ManyConfig)
        if "flow" not in extra:
            raise SnapshotError("The snapshot is of streams in order of time; restore it with ManyState.")
        state = cls.__new__(cls)
        with looked_over():
            state._unpack(config, extra)
            index = Index(**extra["index"])
            state._adopt(config, store, index._replace(k32=index.k64.view(np.int32)), policy)
            state.seconds, state.flow, state.peak = extra["seconds"], extra["flow"], extra["peak"]
            state._check_restored(extra)
            check_flow(state.flow, store, config.build_flow(rooms_of(store)))
            state.sample = config.build_sample()
            if "sample" in extra:
                views = {"scheme": state.index.scheme, "k32": extra["sample"]["k64"].view(np.int32)}
                fresh, state.sample = state.sample, ResultSample(**extra["sample"] | views)
                check_sample(state.sample, fresh)
            else:  # written before there were samples: nothing is known of the rows so far
                state.sample.forgotten[:] = np.max(state.flow.progress + state.flow.behind)
        return state


def _members(joins: Any, streams: int) -> tuple[tuple[int, ...], ...]:
    """Return the joins as tuples of stream numbers, or raise an error that says what they are."""
    try:
        members = tuple(tuple(index(stream) for stream in join) for join in joins)
    except TypeError:
        members = ()
    if not members or any(len(set(join)) < max(2, len(join)) for join in members):
        raise PenstockError(
            f"joins={shown(joins)} is not allowed; it is a list of joins, each a tuple of two or more "
            "different stream numbers, such as [(0, 1, 2)]."
        )
    used = {stream for join in members for stream in join}
    if used != set(range(streams)):
        raise PenstockError(
            f"joins={shown(joins)} is not allowed with streams={streams}; each of the streams 0 to "
            f"{streams - 1} is in a join, and no other."
        )
    return members


def start_many(
    streams: int,
    joins: Sequence[Sequence[int]],
    *,
    within: Any,
    budget: Any,
    policy: Any = "gdj",
    how: str = "inner",
    allocation: str | None = None,
    lateness: Any = 0,
    chain: bool = False,
    drop_rate: float = 0.0,
    warmup: int = 0,
    seed: int = 0,
    unit: str = "ms",
    dtype: Any = INTEGER,
    sample_bytes: int | None = None,
    row_bytes: float = 64.0,
) -> ManyStreamState:
    """Return a fresh state for a number of streams and a list of joins, each a tuple of stream numbers.

    `chain=True` says that the joins are links of two streams each, of one join over all streams; each has a
    key of its own. Streams are known by their numbers in `within`, too.

    `lateness` is a span, or a tuple with one per stream: how far a stream's progress stays behind its
    largest time; infinite if only `advance` sets it. `sample_bytes` is the memory for the estimate of the
    exact results: by default 64 bytes per tuple of the budget and at least 256 KiB, in addition to it; of a
    budget in bytes, one part in 16 and at most 256 KiB, which count. `row_bytes` is a hint at the average
    payload under a byte budget, where every arrival comes with its `size`. The other parameters are those of
    `join_many`.

    >>> from penstock.joins import start_many
    >>> state = start_many(2, [(0, 1)], within="10 s", budget="100 tuples", lateness=("1 s", "0 s"))
    >>> state.process([0, 1], [5, 5], [9_000, 1_000], [0, 0]).counts.tolist()
    [0, 1]
    """
    budget, policy, chain = budget_of(budget), get(policy), flag("chain", chain)
    streams = whole("streams", streams, least=1, most=MOST_STREAMS)
    members = _members(joins, streams)
    number("row_bytes", row_bytes, 0, MOST_BYTES, what="a number of bytes from 0 up")
    if sample_bytes is not None:
        whole("sample_bytes", sample_bytes, most=MOST_BYTES, what="a number of bytes")
    if chain and any(len(link) != 2 for link in members):
        raise PenstockError(f"The links of a chain have two streams each; {joins!r} were given.")
    results = [tuple(range(streams))] if chain else members
    window = many_window_of(within, list(range(streams)), results)
    allocation = check_options(budget, policy, allocation, seed, rates_known=False)
    check_sampling(drop_rate, warmup)
    if isinstance(budget, Fraction):
        raise BudgetError(
            f"{budget!r} is a share of what the whole input needs, unknown for a stream; give Tuples or "
            "Bytes."
        )
    if isinstance(budget, Tuples):
        enough(budget.n, streams, f"{budget!r} was given")
    if allocation == "proportional":
        raise PenstockError(
            "allocation='proportional' needs the number of arrivals, which is not known for a stream; use "
            "'unified', 'equal' or 'credit'."
        )
    dtype = time_dtype(dtype)
    resolved = window.resolve(unit, dtype)
    behind = behind_of(lateness, unit, resolved, streams)
    if sample_bytes is None:
        share = budget.n // SAMPLE_SHARE if isinstance(budget, Bytes) else SAMPLE_PER_TUPLE * budget.n
        sample_bytes = min(share, SAMPLE_LEAST) if isinstance(budget, Bytes) else max(SAMPLE_LEAST, share)
    config = ManyConfig(
        streams=streams,
        joins=members,
        window=resolved,
        policy=policy,
        capacities=(streams,),
        time_dtype=dtype,
        every=budget.n if allocation == "credit" else 0,
        seed=int(seed),
        lateness=behind,
        sample_bytes=sample_bytes,
        chain=chain,
        how=check_how(how, len(members), chain),
        warmup=int(warmup),
        chance=float(drop_rate),
        mean_row=float(row_bytes),
    )
    config = with_budget(config, budget, allocation, (1.0,) * streams)
    state = ManyStreamState(config)
    state.unit_watch, state.late_watch = UnitWatch(window, unit), LateWatch()
    return state
