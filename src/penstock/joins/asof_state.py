"""The state of an as-of join: processes batches of arrivals; can be snapshotted, restored and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.arrays import table_bytes
from penstock.compiler.interpreter import interpreted
from penstock.engine.asof_index import END, ENDED, LATE, RELEASED, UNDECIDED, UNMATCHED
from penstock.engine.asof_loop import SWEPT, advance_to, drive_asof
from penstock.engine.asof_switch import Marks, carried_marks, marks_of, reindex, restore_marks
from penstock.engine.evicted_keys import forget_keys
from penstock.engine.join_loop import LOGGED, Batch, Out
from penstock.engine.store import ARRIVAL, ENTRY, KEY, LIVE, ROW, STREAM, TIME
from penstock.errors import PenstockError
from penstock.joins.asof_checks import check_asof_index, check_asof_store
from penstock.joins.asof_config import AsofConfig
from penstock.joins.buffered_rows import GONE, SO_FAR, KeepsRows
from penstock.joins.config import beginning, check_times, progress_times
from penstock.joins.growth import rooms_of
from penstock.joins.snapshot_checks import check_restored
from penstock.joins.state import JoinState, Output
from penstock.policies import Policy
from penstock.states import snapshot as snapshots
from penstock.states.checks import looked_over

COUNTED = [UNMATCHED, UNDECIDED, RELEASED, LATE]  # in `index.meta`


class AsofState(KeepsRows, JoinState):
    """The mutable state of an `AsofJoin`; `AsofJoin.start` makes one.

    Arrivals are given as to a `JoinState`. The pairs of an output are a left row and its right row, -1 if
    the exact join has none. Rows that are undecided are in the log, with `log=True`.

    >>> import penstock as ps
    >>> state = ps.AsofJoin(tolerance=10, budget=ps.Tuples(100), policy="lru").start()
    >>> state.process([1, 0], [7, 7], [100, 103], [0, 0], collect=True).pairs.tolist()  # waits
    []
    >>> state.process([1], [8], [104], [1], collect=True).pairs.tolist()
    [[0, 0]]
    >>> copy = ps.AsofState.restore(state.snapshot())
    >>> (
    ...     copy.process([0], [9], [105], [1], collect=True).pairs.tolist(),
    ...     copy.finish(collect=True).pairs.tolist(),
    ... )
    ([], [[1, -1]])
    """

    config: AsofConfig

    def __init__(self, config: AsofConfig) -> None:
        super().__init__(config)
        self.index = config.build_index()
        self.store.clock[:] = beginning(config.time_dtype)
        self._kernel = _kernel_for(config)

    def advance(self, left: float | None = None, right: float | None = None) -> None:
        """Set the progress of the streams, as a watermark does; it takes effect with the next batch."""
        self._advance_to(progress_times((left, right), self.config.time_dtype))

    def _advance_to(self, times: np.ndarray) -> None:
        advance_to(self.index, self.store, times)
        for state in self.follower.small if self.follower is not None else []:
            state._advance_to(times)  # type: ignore[attr-defined]

    def finish(self, *, collect: bool = False, log: bool = False) -> Output:
        """End the right stream: every left row that waits gets its answer."""
        end = np.array([beginning(self.config.time_dtype), END], self.config.time_dtype)
        self._advance_to(end)
        if self.index.meta[ENDED] != SWEPT:
            self.index.meta[ENDED] = 1
        return super().finish(collect=collect, log=log)

    def interpret(self) -> AsofState:
        """Run the driver and the hooks of the policy as plain Python from now on."""
        self._kernel = interpreted(drive_asof)
        return self

    @property
    def late(self) -> int:
        """Number of arrivals behind their stream's progress; they are left out."""
        return int(self.index.meta[LATE])

    @property
    def undecided(self) -> int:
        """Number of left rows whose answer may have been evicted, so that they came out without one."""
        return int(self.index.meta[UNDECIDED])

    def _check_order(self, batch: Batch) -> None:
        check_times(batch.time)
        if self.config.lateness is None:
            if self.index.meta[ENDED]:
                raise PenstockError(
                    "The streams have ended with finish(); start another state for more rows."
                )
            super()._check_order(batch)

    def _first_room(self, arrivals: int) -> int:
        """Every left row that waits or comes may be answered."""
        return int(self.store.meta[LIVE]) + arrivals + 1

    def _step(self, part: Batch, out: Out, start: int) -> int:
        return self._kernel(self.policy, self.store, self.index, part, out, start)

    def _grow_beyond(self, rooms: tuple[int, ...]) -> None:
        self.index = self.index.grown(rooms)

    @property
    def _allocated_bytes(self) -> int:
        return super()._allocated_bytes + table_bytes(self.index)

    def totals(self) -> dict[str, int]:
        """The counters since the start."""
        counted = self.index.meta
        return super().totals() | {
            "unmatched": int(counted[UNMATCHED]),
            "undecided": int(counted[UNDECIDED]),
            "released": int(counted[RELEASED]),
            "late": int(counted[LATE]),
        }

    def _follow(self, policy: Policy) -> None:
        """Order the tuples again: under another policy they have other slots."""
        marks = carried_marks(self.store, self.index)
        super()._follow(policy)
        restore_marks(self.store, self.index, marks)

    def take_over(
        self, other: AsofState, sizes: Sequence[np.ndarray] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Continue from another state that has another budget or policy, as `StreamState.take_over` does.

        A smaller budget evicts some of the tuples. If the filter of evicted keys has another size, any key
        may have been evicted so far.
        """
        slots = np.concatenate([other._live(0), other._live(1)])
        slots = slots[np.argsort(other.store.t64[slots, ARRIVAL])]
        few, row = other.store.t32[slots], other.store.t64[slots, ROW]
        stream, key, time = few[:, STREAM], other.store.k64[few[:, ENTRY], KEY], other.store.time[slots, TIME]
        size = np.empty(0, np.int64)
        if sizes is not None:
            size = np.empty(len(slots), np.int64)
            for side, mine in enumerate(sizes):
                size[stream == side] = mine[row[stream == side]]
        self.store.clock[:] = other.store.clock
        self.index.progress[:] = other.index.progress
        if self.index.evicted.cells.shape == other.index.evicted.cells.shape:
            self.index = self.index._replace(evicted=other.index.evicted)
        else:
            forget_keys(self.index.evicted, other.index.evicted)
        batch = Batch(stream.astype(np.int8), key, time.copy(), row, size)
        marks = marks_of(other.index, slots)
        log = self._reenter(batch, marks)
        self.store.meta[SO_FAR] = other.store.meta[SO_FAR]
        self.store.meta[GONE] += other.store.meta[GONE]
        self.index.meta[COUNTED] += other.index.meta[COUNTED]
        self.index.meta[ENDED] = other.index.meta[ENDED]
        return log, time

    def _reenter(self, batch: Batch, marks: Marks) -> np.ndarray:
        """Let tuples of another state enter; the log of those for which there is no room."""
        n = len(batch.key)
        room = np.empty((2 * n, 4), np.int64)
        out = Out(np.zeros(n, np.int64), np.empty((0, 2), np.int64), room, np.zeros(2, np.int64))
        start = 0
        while start < n:
            self.policy = self.running.reserve(self.policy, n - start)
            start = reindex(self.policy, self.store, self.index, batch, out, marks, start)
            if start < n and not self._grow():
                raise AssertionError("the tables cannot grow")
        return out.log[: out.ends[LOGGED]]

    def snapshot(self) -> bytes:
        """Return the whole state as bytes."""
        extra: dict[str, Any] = {
            "seconds": self.seconds,
            "peak_beyond": self.peak_beyond,
            "peak": self.peak,
            "index": self.index,
            "first": self._first,
            "latest": self._latest,
        }
        return self._pack(extra)

    @classmethod
    def restore(cls, data: bytes) -> AsofState:
        """Return the state from `snapshot`; it continues exactly as the original would have."""
        config, store, policy, extra = snapshots.unpack(data, AsofConfig)
        with looked_over():
            state = cls(config)
            fresh = state.index
            state.store = store
            state._unpack(policy, extra)
            state.seconds, state.peak_beyond = extra["seconds"], extra["peak_beyond"]
            state.peak = extra["peak"]
            state._first, state._latest = extra["first"], extra["latest"]
            state.index = extra["index"]
            check_restored(state)
            check_asof_index(state.index, store, fresh.grown(rooms_of(store)))
        return state

    def check(self) -> None:
        """Assert every invariant of the store, of the index and of the policy."""
        check_asof_store(self.store, self.index)
        self.running.check(self.policy, self.store)
        for state in self.follower.small if self.follower is not None else []:
            state.check()


def _kernel_for(config: AsofConfig) -> Callable[..., int]:
    return drive_asof if config.policy.compiled else interpreted(drive_asof)
