"""The state of a join of two streams that advance independently, with late arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.arrays import table_bytes
from penstock.engine.join_loop import LOG_EVICTED, Batch, Out
from penstock.engine.loss_sketch import (
    Tally,
    forget_all,
    last_counted,
)
from penstock.engine.lost_keys import carry_lost
from penstock.engine.pair_condition import PASSED, TESTED
from penstock.engine.pair_join_decided import Decided
from penstock.engine.pair_join_late import LATE, Flow, advance_to, miss
from penstock.engine.policy_switch import refile
from penstock.engine.store import (
    ARRIVAL,
    ARRIVALS,
    DROPPED,
    ENTRY,
    EVICTED,
    KEY,
    RESULTS,
    ROW,
    SHED,
    STREAM,
    TIME,
)
from penstock.joins.buffered_rows import GONE, SO_FAR, KeepsRows
from penstock.joins.config import Config, beginning, check_times, progress_times
from penstock.joins.estimate import EstimatesRecall, RecallEstimate, bounded_by, estimate_recall
from penstock.joins.fates import as_inner, carry_fates
from penstock.joins.growth import rooms_of
from penstock.joins.policy_switch import carried_tuples
from penstock.joins.sample_bias import RateWatch
from penstock.joins.snapshot_checks import check_restored
from penstock.joins.state import JoinState, Output
from penstock.policies import Policy
from penstock.states import snapshot as snapshots
from penstock.states.checks import check_decided, check_flow, check_sketch, looked_over


class StreamState(EstimatesRecall, KeepsRows, JoinState):
    """A `JoinState` for streams that advance independently; `WindowJoin.start(lateness=...)` makes one.

    A buffered tuple expires once the other stream's progress has passed its time plus its horizon. The
    progress of a stream is its largest time seen minus `lateness`, or the time given to `advance`. Late
    arrivals join the tuples that are still buffered.

    >>> import penstock as ps
    >>> state = ps.WindowJoin(within=10, budget=ps.Tuples(4), policy="lru").start(lateness=0)
    >>> state.process([0, 1, 1], [7, 7, 7], [100, 108, 95], [0, 1, 2], collect=True).pairs.tolist()
    [[0, 1], [0, 2]]
    >>> state.late
    1
    >>> state.estimated_recall
    1.0
    >>> out = state.process([0, 0], [7, 7], [300, 100], [3, 4])  # the partners of the last row have expired
    >>> print(state.missed, state.recall)
    2.0 50.0 %
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.store.clock[:] = beginning(config.time_dtype)

    @property
    def flow(self) -> Flow:
        """How far the streams have come."""
        return self.index.flow if isinstance(self.index, Decided) else self.index

    def warm(self) -> StreamState:
        """Load or compile the kernels by processing an empty batch."""
        super().warm()
        self.miss([], [], [])
        return self

    def advance(self, left: float | None = None, right: float | None = None) -> None:
        """Set the progress of the streams, as a watermark does; tuples expire with the next batch."""
        times = progress_times((left, right), self.config.time_dtype)
        advance_to(self.store, self.flow, times)
        for state in self.follower.small if self.follower is not None else []:
            advance_to(state.store, state.flow, times)  # type: ignore[attr-defined]

    @property
    def late(self) -> int:
        """Number of arrivals behind their stream's progress."""
        return int(self.flow.meta[LATE])

    def miss(self, stream: Any, key: Any, time: Any) -> None:
        """Count arrivals that were dropped elsewhere, such as those behind a watermark: they appear in no
        result, but the exact join would have had results with them.
        """
        time = np.ascontiguousarray(time, self.config.input_dtype)
        check_times(time)
        if self.config.kind.strict:  # the exact join has no results with them either
            return
        stream, key = np.ascontiguousarray(stream, np.int8), np.ascontiguousarray(key, np.int64)
        miss(self.store, self.flow, self.sketch, stream, key, time)

    @property
    def losses(self) -> np.ndarray:
        """The estimate so far."""
        return self.sketch.missed

    @property
    def missed(self) -> float | None:
        """Estimated number of results that the exact join has in addition; None if it is not known.

        Of rows that have one match at most it is known only as long as nothing has left early.
        """
        kind = self.config.kind
        if kind.releases == (False, False):
            return self._passing(super().missed)
        lost = self.store.meta[EVICTED] + self.store.meta[DROPPED]
        return None if lost else 0.0

    def _passing(self, pairs: float | None) -> float | None:
        """Return how many pairs of equal keys pass the condition, if as many do as of those found.

        All, if none was found.
        """
        if self._leaves is None or not pairs:
            return pairs
        meta = self.index.condition.meta
        return pairs * float(meta[PASSED]) / float(meta[TESTED]) if meta[TESTED] else pairs

    @property
    def guessed(self) -> float:
        """A guess of what unestimated arrivals missed."""
        return self._passing(super().guessed) or 0.0

    @property
    def recall(self) -> RecallEstimate:
        """Estimated share of the exact results that was found. It is an upper bound, or unknown, if rows came
        so late that the results they missed cannot be estimated.
        """
        if self._leaves is not None and self.missed and not self.index.condition.meta[TESTED]:
            return RecallEstimate(None)
        arrived = super().totals()["arrivals"]
        results = float(self.store.meta[RESULTS]) + self.unmatched
        found = estimate_recall(results, self.missed, self.unestimated, arrived, guessed=self.guessed)
        return bounded_by(found, self.undecided)

    @property
    def _allocated_bytes(self) -> int:
        index = table_bytes(self.sketch) if self.decided else table_bytes(self.flow, self.sketch)
        return super()._allocated_bytes + index

    def totals(self) -> dict[str, int]:
        """The counters since the start."""
        return super().totals() | {"late": self.late}

    def take_over(
        self, other: StreamState, sizes: Sequence[np.ndarray] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Continue from another state that has another budget or policy.

        The buffered tuples enter in order of arrival, without drops; a smaller budget evicts some, and scores
        start afresh. Progress and totals are kept, and so is the sketch if it has the same size. `sizes` has
        the bytes of each row per stream if this state counts bytes. Returns the log of the evictions,
        numbered from 0, and the times of the tuples.
        """
        slots = np.concatenate([other._live(0), other._live(1)])
        slots = slots[np.argsort(other.store.t64[slots, ARRIVAL])]
        few, row = other.store.t32[slots], other.store.t64[slots, ROW]
        stream, key, time = few[:, STREAM], other.store.k64[few[:, ENTRY], KEY], other.store.time[slots, TIME]
        size = None
        if sizes is not None:
            size = np.empty(len(slots), np.int64)
            for side, mine in enumerate(sizes):
                size[stream == side] = mine[row[stream == side]]
        self.store.clock[:] = other.store.clock
        self.flow.progress[:] = other.flow.progress
        if self.sketch.counters.shape == other.sketch.counters.shape:
            self.sketch = other.sketch
        else:
            forget_all(self.sketch, last_counted(other.sketch))
        chances, shed = self.store.chance.copy(), self.store.meta[SHED]
        self.store.chance[:], self.store.meta[SHED] = 0.0, 0
        missed = other.sketch.missed.copy()
        watch, self.late_watch = self.late_watch, None
        if self.decided:
            carry_lost(self.index.lost, other.index.lost)
        leaves = None
        if self._leaves is not None and other._leaves is not None:
            leaves, self._leaves.values = other.index.condition.kept[slots], other._leaves.values
        with as_inner(self.index):
            log = self.process(stream.astype(np.int8), key, time, row, size, columns=leaves, log=True).log
        if leaves is not None:
            self.index.condition.meta[:] = other.index.condition.meta
        self._watch = RateWatch(self.config)  # the old state has already counted these arrivals
        self.store.chance[:], self.store.meta[SHED] = chances, shed
        self.store.meta[SO_FAR] = other.store.meta[SO_FAR]
        self.store.meta[GONE] += other.store.meta[GONE]
        self.flow.meta[LATE], self.sketch.missed[:] = other.flow.meta[LATE], missed
        if watch is not None:
            watch.skip(arrived=int(self.store.meta[ARRIVALS]), late=self.late)
            self.late_watch = watch
        log = log[log[:, 0] == LOG_EVICTED]
        if self.decided:
            carry_fates(self, other, log[:, 1:3])
        return log, time

    def _check_order(self, batch: Batch) -> None:
        check_times(batch.time)

    def _target(self, out: Out) -> Any:
        return super()._target(out) if self.decided else Tally(*out, self.sketch)

    def _grow_beyond(self, rooms: tuple[int, ...]) -> None:
        self.index = self.index.grown(rooms)

    def snapshot(self) -> bytes:
        """Return the whole state as bytes."""
        extra: dict[str, Any] = {
            "seconds": self.seconds,
            "peak_beyond": self.peak_beyond,
            "peak": self.peak,
            "index": self._index_without_views(),
            "sketch": self.sketch,
        }
        return self._pack(extra)

    def _follow(self, policy: Policy) -> None:
        """Renumber the queue of times: under another policy the tuples have other slots."""
        super()._follow(policy)
        carried = carried_tuples(self.store)
        slots = np.concatenate([self._live(0), self._live(1)])
        slots = slots[np.argsort(self.store.t64[slots, ARRIVAL])]
        self.flow.expiry.queue.ends[:] = 0
        refile(self.flow.expiry.queue, self.store, carried.stream, carried.time, slots)

    @classmethod
    def restore(cls, data: bytes) -> StreamState:
        """Return the state from `snapshot`; it continues exactly as the original would have."""
        config, store, policy, extra = snapshots.unpack(data, Config)
        with looked_over():
            state = cls(config)
            index, sketch = state.index, state.sketch
            state.store = store
            state._unpack(policy, extra)
            state.seconds, state.peak_beyond = extra["seconds"], extra["peak_beyond"]
            state.peak = extra["peak"]
            state.index, state.sketch = extra["index"], extra["sketch"]
            state._view_index()
            check_restored(state)
            check = check_decided if isinstance(index, Decided) else check_flow
            check(state.index, store, index.grown(rooms_of(store)))
            check_sketch(state.sketch, store, sketch)
        return state


__all__ = ["Output", "StreamState"]
