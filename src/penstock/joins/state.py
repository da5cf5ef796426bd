"""The state of a window join: processes batches of arrivals; can be snapshotted, restored and checked."""

from __future__ import annotations

import math
import time as clock
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.arguments import flags
from penstock.arrays import check_reach, table_bytes, time_numbers, whole_numbers
from penstock.compiler.interpreter import interpreted
from penstock.compiler.tiers import Pace, expecting
from penstock.engine.join_loop import LOGGED, PAIRS, Batch, Out, drive
from penstock.engine.match_predictor import check_predictor
from penstock.engine.pair_join import new_pair_index
from penstock.engine.pair_join_decided import ENDED, NULL_ROWS, UNDECIDED, UNMATCHED, Decided, Decisions
from penstock.engine.policy_race import Choice
from penstock.engine.store import (
    ARRIVAL,
    ARRIVALS,
    DROPPED,
    EVICTED,
    EXPIRED,
    HIGH_TUPLE,
    LIVE,
    MATCHED,
    OVERSIZE,
    P_PEAK_USED,
    P_USED,
    PEAK_TUPLES,
    REFUSED,
    RELEASED,
    RESULTS,
    ROWS,
    SAME_TICK,
    TIME,
    Store,
)
from penstock.engine.tick_loop import drive_ticks
from penstock.errors import BudgetError, PenstockError
from penstock.joins.conditions.exact import check_answered
from penstock.joins.conditions.leaves import Leaves
from penstock.joins.config import Config
from penstock.joins.fates import fates_of, kept_leaves, set_fates, set_leaves
from penstock.joins.follower import JoinFollower
from penstock.joins.growth import bound_by, fitting, grow, next_rooms, rooms_of, touched_bytes
from penstock.joins.invariants import check_store
from penstock.joins.late import LateWatch
from penstock.joins.policy_switch import carried_tuples, switch_policy
from penstock.joins.sample_bias import CROWDED, RateWatch, warn_biased
from penstock.joins.snapshot_checks import check_restored
from penstock.policies.base import Policy, Trace
from penstock.states import snapshot as snapshots
from penstock.states.checks import check_decided, check_open, looked_over, sound
from penstock.structures.key_positions import Places, listed_bytes
from penstock.window import UnitWatch

CHUNK = 1 << 16  # arrivals per call of a driver
GROWING_CHUNK = 1 << 12  # for tables that grow with the keys, so that they do not grow far ahead of need
FIRST_ROOM = 1 << 16  # pairs
INDEX = new_pair_index()
CODES = "Code other keys first, for example with pandas.factorize over both streams, or use run()."
NOTHING = np.empty(0)
NO_ROWS = np.empty((0, 2), np.int64)
NO_LEAVES = np.empty((0, 0), np.int64)
FLOATS = "For times that are fractions, start the state with dtype=float."


@dataclass(frozen=True)
class Output:
    """The output of a batch: results per arrival and, if requested, the pairs and the log of tuples."""

    counts: np.ndarray
    pairs: np.ndarray  # left row, right row; -1: none
    log: np.ndarray  # kind, stream, row, step
    unmatched: np.ndarray = field(
        default_factory=lambda: NO_ROWS
    )  # stream and row of those without a partner
    # If the policy weighs results, per pair: it stands for 1/t exact ones, and the identity of its tuple that
    # was kept, whose last bit is the stream.
    t: np.ndarray = field(default_factory=lambda: NOTHING)
    kept: np.ndarray = field(default_factory=lambda: NOTHING)


class JoinState:
    """The mutable state of a `WindowJoin`; `WindowJoin.start` makes one.

    Arrivals are given as arrays in processing order: `stream` (0 left, 1 right), `key` (integer codes),
    `time`, `row` (any number that identifies the tuple for the caller) and, if payload counts, `size`.

    >>> import numpy as np, penstock as ps
    >>> state = ps.WindowJoin(within=10, budget=ps.Tuples(4), policy="lru").start()
    >>> out = state.process([0, 1, 1], [7, 7, 8], [0, 3, 5], [0, 0, 1], collect=True)
    >>> out.pairs.tolist()
    [[0, 0]]
    >>> copy = ps.JoinState.restore(state.snapshot())
    >>> copy.process([0], [8], [6], [1]).counts.tolist()
    [1]
    """

    warns = True  # about a biased sample, once
    lists_unmatched = False  # in the output, though pairs are not collected
    unit_watch: UnitWatch | None = None
    late_watch: LateWatch | None = None  # for streams that may be late

    def __init__(
        self,
        config: Config,
        trace: Trace | None = None,
        labels: np.ndarray | None = None,
        places: Places | None = None,
    ) -> None:
        self.config = config
        self.follower = JoinFollower(config, places=places) if config.policy.chooses else None
        self.store, self.policy = config.build(trace, labels, self.running, places)
        if self.follower is not None:
            self.policy = self.running.inform(self.policy, self.follower.predictor)
        self.seconds = 0.0
        self.peak_beyond = 0
        self.peak = 0  # bytes of tables and payload, before the tables changed last
        self._first: float = math.inf
        self._latest: float = -math.inf
        self._open: Batch | None = None  # arrivals of a tick that may not be complete yet
        self._kernel = _kernel_for(config)
        self._pace = Pace()
        self._watch = RateWatch(config)
        self._nulls = np.empty((0, 2), np.int64)
        self._hear_condition()
        self._build_index()

    def _hear_condition(self) -> None:
        """Set up what turns columns into what the condition needs of them."""
        where = self.config.where
        self._leaves = None if where is None else Leaves(where)
        self._arriving = NO_LEAVES

    def _build_index(self) -> None:
        """Set up what finds tuples, and what is known of each if more comes out than pairs."""
        self.index: Any
        self.index, *rest = self.config.build_flow() or (INDEX,)
        self.sketch: Any = rest[0] if rest else None

    @property
    def decided(self) -> bool:
        """Whether the fate of each tuple counts: for all kinds but the plain inner join."""
        return isinstance(self.index, Decided)

    @property
    def running(self) -> Policy:
        """The policy that currently decides: that of the join, or the one that it follows."""
        return self.config.policy if self.follower is None else self.follower.policy

    def process(
        self,
        stream: Any,
        key: Any,
        time: Any,
        row: Any,
        size: Any = None,
        *,
        columns: Any = None,
        collect: bool = False,
        log: bool = False,
    ) -> Output:
        """Process a batch of arrivals; in tick steps the last tick waits for a later time or `finish`.

        A join with `where=` needs `columns`, a pair of tables (left, right) with the columns that the
        condition names: their rows are the arrivals of that stream, in order.
        """
        flags(collect=collect, log=log)
        batch = Batch(
            whole_numbers(stream, "stream", np.int8),
            whole_numbers(key, "key", instead=CODES),
            time_numbers(time, self.config.input_dtype, FLOATS),
            whole_numbers(row, "row"),
            whole_numbers([] if size is None else size, "size"),
        )
        self._check_batch(batch)
        if self.ended:
            raise PenstockError(
                f"how={self.config.kind.how!r}: finish() has ended the streams, so that no row can come any "
                "more; start a new state."
            )
        self._watch.see(batch.stream, batch.time)
        if self.unit_watch is not None:
            self.unit_watch.see(batch.time)
        if self.config.step == "tick":
            batch = self._hold_back(batch)
        self._arriving = self._leaves_of(batch, columns)
        out = self._run(batch, collect, log)
        self.check_answered()
        if self.warns and self.crowded:
            self.warns = False
            warn_biased(CROWDED, stacklevel=2)
        if self.late_watch is not None:
            self.late_watch.see(arrived=int(self.store.meta[ARRIVALS]), late=self.late, **self.doubts())
        return out

    def _leaves_of(self, batch: Batch, columns: Any) -> np.ndarray:
        """Return what the condition needs of the arrivals; it may have been computed already."""
        if self._leaves is None:
            if columns is not None:
                raise PenstockError("columns= is for joins with where=.")
            return NO_LEAVES
        self.check_answered()
        if isinstance(columns, np.ndarray):
            return columns
        if columns is None and len(batch.key) == 0:
            return np.zeros((0, 1 + self._leaves.program.width), np.int64)
        if not isinstance(columns, tuple | list) or len(columns) != 2:
            raise PenstockError(
                "A join with where= needs columns=(left, right): tables with a row per arrival of a stream."
            )
        return self._leaves.of_tables(columns, batch.stream, None, self._holders)

    def leaves_of(self, tables: Sequence[Any], stream: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return what the condition needs of arrivals, for `process`; `rows` are theirs in the tables."""
        assert self._leaves is not None, "there is no condition"
        return self._leaves.of_tables(tables, stream, rows, self._holders)

    @property
    def value_bytes(self) -> int:
        """Bytes of the values that a condition compares by rank."""
        return 0 if self._leaves is None else self._leaves.nbytes

    @property
    def _holders(self) -> list[tuple[Any, Store]]:
        """The tables of buffered tuples of this join and of the small ones."""
        small = [] if self.follower is None else self.follower.small
        return [(state.index.condition, state.store) for state in (self, *small)]

    def hear(self, arriving: np.ndarray) -> None:
        """Take what the condition needs of the arrivals of the next batch."""
        self._arriving = arriving

    def check_answered(self) -> None:
        """Raise an error if the condition has no value for a pair."""
        if self.config.where is not None:
            check_answered(self.config.where.text, self.index.condition)

    def doubts(self) -> dict[str, Any]:
        """What is unknown of the recall because rows came too late; nothing where they must come in order."""
        return {}

    @property
    def late(self) -> int:
        """Number of arrivals behind their stream's progress; 0 if they must come in order."""
        return 0

    @property
    def crowded(self) -> bool:
        """Whether arrivals exceed the rates that `drop_rate="unbiased"` was computed for."""
        return self._watch.crowded

    def finish(self, *, collect: bool = False, log: bool = False) -> Output:
        """Process the tick that is still open.

        An outer, semi or anti join decides all that is still buffered, and takes no more batches.
        """
        flags(collect=collect, log=log)
        batch, self._open = self._open, None
        if not self.config.kind.plain:
            self.index.meta[ENDED] = 1
        self._arriving = NO_LEAVES
        return self._run(batch if batch is not None else _empty(self.config), collect, log)

    @property
    def ended(self) -> bool:
        """Whether `finish` has decided all there was."""
        return self.decided and bool(self.index.meta[ENDED])

    def warm(self) -> JoinState:
        """Load or compile the kernel by processing an empty batch."""
        self._run(_empty(self.config), False, False)
        if self.follower is not None:
            self.follower.warm(self.store)
        self.seconds = 0.0
        return self

    def interpret(self) -> JoinState:
        """Run the driver and the hooks of the policy as plain Python from now on: slow, but easy to debug.

        >>> import penstock as ps
        >>> state = ps.WindowJoin(within=10, budget=ps.Tuples(4), policy="lru").start().interpret()
        >>> state.process([0, 1], [7, 7], [0, 3], [0, 0]).counts.tolist()
        [0, 1]
        """
        self._kernel = interpreted(_driver_of(self.config))
        return self

    def _check_batch(self, batch: Batch) -> None:
        """Reject input that would crash the kernels."""
        lengths = [len(part) for part in batch]
        if len(set(lengths[:4])) != 1 or lengths[4] not in (0, lengths[0]):
            raise PenstockError(
                f"stream, key, time, row and size must have the same length; their lengths are {lengths}."
            )
        if lengths[0] == 0:
            return
        if not ((batch.stream == 0) | (batch.stream == 1)).all():
            raise PenstockError("stream must contain only 0 (left) and 1 (right).")
        if (lengths[4] and batch.size.min() < 0) or (lengths[4] and batch.size.max() >= 2**31):
            raise PenstockError("size must be a number of bytes from 0 to 2 GiB.")
        if self.config.payload is not None and lengths[4] == 0:
            raise PenstockError("Under a byte budget every arrival needs its size.")
        self._check_order(batch)

    def _check_order(self, batch: Batch) -> None:
        if (batch.time[1:] < batch.time[:-1]).any() or batch.time[0] < self._latest:
            raise PenstockError("Arrivals must be in order of time, across batches too.")
        first, last = min(self._first, batch.time[0].item()), batch.time[-1].item()
        if self.config.window.kind != ROWS:
            check_reach(first, last, self.config.window.horizons)
        self._first, self._latest = first, last

    def _hold_back(self, batch: Batch) -> Batch:
        """Append the batch to the open tick, and keep its last tick open."""
        if self._open is not None:
            batch = Batch(*(np.concatenate(parts) for parts in zip(self._open, batch, strict=True)))
        n = len(batch.key)
        cut = int(np.searchsorted(batch.time, batch.time[-1])) if n else 0
        self._open = Batch(*(part[cut:] for part in batch))
        return Batch(*(part[:cut] for part in batch))

    def _run(self, batch: Batch, collect: bool, log: bool) -> Output:
        with expecting(len(batch.key)), self._asking():
            return self._drive(batch, collect, log)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Let the condition see what it needs of the arrivals, for the time of a batch."""
        if self._leaves is None:
            yield
            return
        none = np.empty((0, 1 + self._leaves.program.width), np.int64)
        arriving = self._arriving if len(self._arriving) else none
        self.index = self.index._replace(condition=self.index.condition.hearing(arriving))
        try:
            yield
        finally:
            self.index = self.index._replace(condition=self.index.condition.hearing(none))

    def _drive(self, batch: Batch, collect: bool, log: bool) -> Output:
        n = len(batch.key)
        counts = np.zeros(n, np.int64)
        room = np.empty((self._first_room(n) if collect else 0, 2), np.int64)
        live = int(self.store.meta[LIVE])
        entries = live + 2 * n if log else 0  # a tuple may be late and leave
        if self.decided:
            entries += live + n if log else 0  # and undecided
            self._nulls = np.empty((live + n if collect or self.lists_unmatched else 0, 2), np.int64)
        out = Out(counts, room, np.empty((entries, 4), np.int64), np.zeros(3, np.int64))
        pairs: list[np.ndarray] = []
        weighed: list[tuple[np.ndarray, np.ndarray]] = []
        self.policy = self.running.note_results(self.policy, len(room))
        start, limit = 0, self._next_cut(batch, 0)
        heard = 0
        while True:
            self.policy = self.running.reserve(self.policy, limit - start)
            cut = self._between_ticks(batch, start, self._pace.cut(start, limit))
            began = clock.perf_counter()
            reached = self._step(Batch(*(array[:cut] for array in batch)), out, start)
            self._pace.took(reached - start, clock.perf_counter() - began)
            full, start = reached < cut, reached
            if full and self._grow():
                self.seconds += clock.perf_counter() - began
                continue
            if self.follower is not None and start == limit:
                if len(self.config.costs) > 1:  # of those that do not fit any more, none can be followed
                    self.follower.race.allowed = fitting(self.config, self.store)
                matched = int(self.store.meta[MATCHED])
                leader = self.follower.attend(batch, heard, limit, matched, self._arriving)
                heard = limit
                if leader is not None:
                    self._follow(leader)
            self.seconds += clock.perf_counter() - began
            if start == limit == n:
                break
            if start == limit:
                limit = self._next_cut(batch, limit)
            elif not full:
                continue
            elif out.ends[PAIRS] > 0:
                pairs.append(out.pairs[: out.ends[PAIRS]].copy())
                weighed.append(self.running.noted_results(self.policy))
                out.ends[PAIRS] = 0
            else:
                out = out._replace(pairs=np.empty((2 * len(out.pairs), 2), np.int64))
                self.policy = self.running.note_results(self.policy, len(out.pairs))
        pairs.append(out.pairs[: out.ends[PAIRS]])
        weighed.append(self.running.noted_results(self.policy))
        self.policy = self.running.note_results(self.policy, 0)
        self.peak_beyond = max(self.peak_beyond, self._beyond)
        t, kept = (np.concatenate(parts) for parts in zip(*weighed, strict=True))
        if self.running.weighs_results and collect:
            assert len(t) == sum(map(len, pairs)), "every pair has been matched, and nothing else"
        nulls = self._nulls[: out.ends[NULL_ROWS]]
        if collect and len(nulls):
            pairs.append(without_partner(nulls))
        return Output(counts, np.concatenate(pairs), out.log[: out.ends[LOGGED]], nulls, t, kept)

    def _first_room(self, arrivals: int) -> int:
        """Return for how many pairs there is room at first."""
        return FIRST_ROOM

    def _step(self, part: Batch, out: Out, start: int) -> int:
        """Process a batch from `start`; return the position where room for pairs or tuples ran out."""
        return self._kernel(self.policy, self.store, self.index, part, self._target(out), start)

    def _target(self, out: Out) -> Any:
        """What the driver writes to."""
        return Decisions(*out, self.sketch, self._nulls, self.index) if self.decided else out

    def _grow(self) -> bool:
        """Make room for more tuples if the budget allows it and the driver has come back for that."""
        bound = self._bound()
        rooms = next_rooms(bound, self.store)
        if rooms is None:
            return False
        self._note_peak()
        tables = self.store._asdict()
        self.store = None  # type: ignore[assignment]  # so that tables go as soon as they are copied
        try:
            self.store = grow(bound, tables, rooms)
            self.policy = self.running.grow(self.policy, self.store, rooms)
            self._grow_beyond(rooms)
        except MemoryError as error:
            raise BudgetError(
                f"This machine has no memory left to keep {sum(rooms):,} tuples, which the budget allows. "
                "Give a smaller budget, and start again from the last snapshot."
            ) from error
        return True

    def _bound(self) -> Config:
        """Return the config with the costs that bind at present."""
        if self.follower is None or len(self.config.costs) < 2:
            return self.config
        return bound_by(self.config, self.store, self.follower.race.running)

    def _grow_beyond(self, rooms: tuple[int, ...]) -> None:
        """Make room for more tuples in what a state has besides the store and the policy."""
        if self.decided:
            self.index = self.index.grown(rooms)

    def _note_peak(self) -> None:
        """Before tables change, note how many bytes they and the payload took."""
        self.peak = max(self.peak, self.table_bytes + self._payload_bytes)
        self.store.pools[:, P_PEAK_USED] = self.store.pools[:, P_USED]

    def _follow(self, policy: Policy) -> None:
        """Switch to the policy that does best on the sample."""
        assert self.follower is not None
        self.peak_beyond = max(self.peak_beyond, self._beyond)
        self.follower.peak = self.table_bytes
        self.follower.change(policy)
        bound = self._bound()
        carried, fates = carried_tuples(self.store), fates_of(self.index, self.store)
        leaves = kept_leaves(self.index, self.store)
        old, self.store, self.policy = self.store.without_tables(), None, None  # type: ignore[assignment]
        self.store, self.policy = switch_policy(bound, policy, carried, old, self.follower.predictor)
        set_fates(self.index, self.store, fates)
        set_leaves(self.index, self.store, leaves)
        self.follower.peak = self.table_bytes

    def _next_cut(self, batch: Batch, start: int) -> int:
        """Return the end of the next chunk."""
        chunk = GROWING_CHUNK if self.running.counts_keys else CHUNK
        if self.follower is not None:
            chunk = min(chunk, self.follower.race.left)
        return self._between_ticks(batch, start, min(start + chunk, len(batch.key)))

    def _between_ticks(self, batch: Batch, start: int, cut: int) -> int:
        """Move a cut between two ticks, if steps are ticks."""
        if self.config.step == "tick" and cut < len(batch.key):
            before = int(np.searchsorted(batch.time[start:], batch.time[cut], side="left")) + start
            after = int(np.searchsorted(batch.time[start:], batch.time[cut], side="right")) + start
            cut = before if before > start else after
        return cut

    @property
    def choice(self) -> Choice | None:
        """The running policy and the estimated performance of the others, if the policy chooses.

        >>> import penstock as ps
        >>> ps.WindowJoin(within=10, budget=ps.Tuples(4), policy="auto").start().choice.policy
        'learned'
        """
        return None if self.follower is None else self.follower.choice()

    @property
    def buffered(self) -> int:
        """Number of tuples in memory."""
        return int(self.store.meta[LIVE])

    @property
    def peak_bytes(self) -> int:
        """Peak memory in bytes: tables, scores and counts, and the payload of the tuples."""
        return max(self.peak, self.table_bytes + self._payload_bytes) + self.peak_beyond

    @property
    def _payload_bytes(self) -> int:
        """Most bytes of payload since the tables changed last."""
        if self.config.payload is None:
            return int(self.store.meta[PEAK_TUPLES] * self.config.mean_row)
        return int(self.store.pools[:, P_PEAK_USED].sum())

    @property
    def _beyond(self) -> int:
        """Bytes that grow with the keys: exact counts and the list of key positions."""
        listed = 0
        if self.follower is not None and self.running.predictor_of(self.policy) is None:
            listed = listed_bytes(self.follower.predictor.places)
        return self.running.bytes_beyond(self.policy) + listed

    @property
    def table_bytes(self) -> int:
        """Bytes of all tables, without exact key counts."""
        return touched_bytes(self._bound(), self.store, self._allocated_bytes)

    @property
    def _allocated_bytes(self) -> int:
        """Bytes of all arrays, without what is noted of results on their way out."""
        index = table_bytes(self.index) if self.decided else 0
        if self.follower is None:
            policy = self.running.note_results(self.policy, 0) if self.running.weighs_results else self.policy
            return table_bytes(self.store, policy) + index - self._beyond
        real = table_bytes(self.store, self.policy, self.follower.predictor) + index - self._beyond
        return max(real + self.follower.bytes, self.follower.peak)

    def totals(self) -> dict[str, int]:
        """The counters since the start."""
        meta = self.store.meta
        return {
            "arrivals": int(meta[ARRIVALS]) + (int(meta[DROPPED]) if self.config.shed else 0),
            "results": int(meta[RESULTS]),
            "same_tick": int(meta[SAME_TICK]),
            "evicted": int(meta[EVICTED]),
            "refused": int(meta[REFUSED]),
            "oversize": int(meta[OVERSIZE]),
            "expired": int(meta[EXPIRED]),
            "dropped": int(meta[DROPPED]),
            "released": int(meta[RELEASED]),
            "unmatched": self.unmatched,
            "undecided": self.undecided,
            "buffered": int(meta[LIVE]),
            "peak_tuples": int(meta[PEAK_TUPLES]),
        }

    @property
    def unmatched(self) -> int:
        """Rows that came out without a partner."""
        return int(self.index.meta[UNMATCHED]) if self.decided else 0

    @property
    def undecided(self) -> int:
        """Rows of which it is not known whether they have a partner."""
        return int(self.index.meta[UNDECIDED]) if self.decided else 0

    def snapshot(self) -> bytes:
        """Return the whole state as bytes."""
        extra = {
            "seconds": self.seconds,
            "peak_beyond": self.peak_beyond,
            "peak": self.peak,
            "open": self._open,
            "index": self._index_without_views() if self.decided else None,
            "first": self._first,
            "latest": self._latest,
        }
        return self._pack(extra)

    def _index_without_views(self) -> Any:
        """Return the index as snapshots have it: without arrays that are views of others."""
        if self._leaves is None:
            return self.index
        return self.index._replace(condition=self.index.condition.without_views())

    def _view_index(self) -> None:
        """The counterpart, for the index of a snapshot."""
        if self._leaves is not None:
            sound(isinstance(self.index, Decided), "it has no condition")
            self.index = self.index._replace(condition=self.index.condition.with_views())

    def _pack_values(self) -> dict[str, Any]:
        """Pack the values that the condition compares by rank."""
        return {} if self._leaves is None else {"values": self._leaves.pack()}

    def _pack(self, extra: dict[str, Any]) -> bytes:
        """Return the state as bytes, including the follower if the policy chooses."""
        extra = extra | self._pack_values()
        if self.follower is None:
            return snapshots.pack(self.config, self.store, self.policy, extra)
        whole = self.policy, self.follower.predictor
        if self.running.predictor_of(self.policy) is not None:  # it shares its predictor with the follower
            whole = self.policy, None  # type: ignore[assignment]
        return snapshots.pack(self.config, self.store, whole, extra | {"follower": self.follower.pack()})

    def _unpack(self, policy: Any, extra: dict[str, Any]) -> None:
        """Take the state of the policy, and of the follower if there is one, from a snapshot."""
        self._hear_condition()
        if self._leaves is not None:
            self._leaves.unpack(extra.get("values"))
        self.policy, self.follower = policy, None
        if self.config.policy.chooses:
            self.policy, predictor = policy
            predictor = self.policy.predictor if predictor is None else predictor
            self.follower = JoinFollower.unpack(self.config, extra["follower"], predictor)

    @classmethod
    def restore(cls, data: bytes) -> JoinState:
        """Return the state from `snapshot`; it continues exactly as the original would have."""
        config, store, policy, extra = snapshots.unpack(data, Config)
        state = cls.__new__(cls)
        with looked_over():
            state.config, state.store = config, store
            state._unpack(policy, extra)
            state._nulls = np.empty((0, 2), np.int64)
            state._build_index()
            if state.decided:
                fresh = state.index.grown(rooms_of(store))
                state.index = extra["index"]
                state._view_index()
                check_decided(state.index, store, fresh)
            state.seconds, state.peak_beyond = extra["seconds"], extra["peak_beyond"]
            state.peak = extra["peak"]
            state._open, state._latest = extra["open"], extra["latest"]
            check_restored(state)
            if state._open is not None:
                check_open(state._open, _empty(config), config.payload is not None)
            state._first = extra.get("first", _earliest(store))
            state._kernel = _kernel_for(config)
            state._pace = Pace()
            state._watch = RateWatch(config)
        return state

    def check(self) -> None:
        """Assert every invariant of the store and of the policy."""
        check_store(self.store)
        self.running.check(self.policy, self.store)
        if self.follower is not None:
            check_predictor(self.follower.predictor)
            for state in self.follower.small:
                state.check()


def without_partner(nulls: np.ndarray) -> np.ndarray:
    """Return rows without a partner as pairs; -1 stands for no row.

    >>> import numpy as np
    >>> from penstock.joins.state import without_partner
    >>> without_partner(np.array([[0, 7], [1, 4]])).tolist()
    [[7, -1], [-1, 4]]
    """
    pairs = np.full((len(nulls), 2), -1, np.int64)
    pairs[np.arange(len(nulls)), nulls[:, 0]] = nulls[:, 1]
    return pairs


def _earliest(store: Store) -> float:
    """Return the time of the earliest buffered tuple, for snapshots that do not contain the first time."""
    live = store.t64[1 : int(store.meta[HIGH_TUPLE]) + 1, ARRIVAL] >= 0
    return min(store.time[1 : len(live) + 1, TIME][live].tolist(), default=math.inf)


def _kernel_for(config: Config) -> Callable[..., int]:
    """The driver of a config; interpreted where the policy is plain Python."""
    kernel = _driver_of(config)
    return kernel if config.policy.compiled else interpreted(kernel)


def _driver_of(config: Config) -> Callable[..., int]:
    return drive_ticks if config.step == "tick" else drive


def _empty(config: Config) -> Batch:
    return Batch(
        np.empty(0, np.int8),
        np.empty(0, np.int64),
        np.empty(0, config.input_dtype),
        np.empty(0, np.int64),
        np.empty(0, np.int64),
    )
