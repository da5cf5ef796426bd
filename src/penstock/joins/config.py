"""The resolved parameters of a window join: windows in the unit of the data, budgets as pool limits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arguments import is_number
from penstock.arrays import table_bytes
from penstock.engine.loss_sketch import Sketch, new_sketch
from penstock.engine.lost_keys import new_lost_keys
from penstock.engine.pair_join_decided import AnyPair, Decided, new_decided
from penstock.engine.pair_join_late import Flow, new_flow
from penstock.engine.store import (
    COMPETE,
    LANDMARK,
    ROWS,
    SHED,
    TIMED,
    WARMUP,
    WINDOW,
    Store,
    new_store,
)
from penstock.errors import PenstockError, WindowError
from penstock.joins.conditions.program import ConditionProgram
from penstock.joins.growth import TableCost, first_rooms, limit_pools
from penstock.joins.kinds import INNER, JoinKind
from penstock.policies.base import Policy, Setting, Trace
from penstock.structures.key_positions import THEMSELVES, Places, new_places
from penstock.window import Resolved, window_of

if TYPE_CHECKING:
    from penstock.joins.state import JoinState

AT_ONCE = 100  # a row is decided at once if that takes at most this part of the window
FARTHEST = 2.0**61  # times beyond this cannot be distinguished from the beginning of time


@dataclass(frozen=True)
class Config:
    """Everything needed to build the state of a join."""

    window: Resolved
    policy: Policy
    step: str
    time_dtype: np.dtype  # of the clocks by which tuples expire
    input_dtype: np.dtype  # of the times of arrivals
    capacities: tuple[int, ...]  # maximum tuples per pool; under a byte budget, those of average size
    payload: tuple[int, ...] | None = None  # bytes of payload per pool that are left then
    costs: tuple[TableCost, ...] = ()  # of the policies that may run, if tables grow under a byte budget
    count_bytes: int | None = None
    chances: tuple[float, float] = (0.0, 0.0)
    shed: bool = False
    unbiased: bool = False  # the drop probabilities are those of an unbiased sample
    warmup: int = 0
    seed: int = 0
    rates: tuple[float, float] | None = None
    mean_row: float = 0.0  # average payload in bytes
    lateness: tuple[float, ...] | None = None  # of each stream; None: arrivals come in order
    sketch_bytes: int = 0  # for the estimate of the exact results
    choosing_bytes: int | None = None  # under a byte budget, for the small joins of a policy that chooses
    numeric: bool = False  # keys are numbers, so distances between them mean something
    kind: JoinKind = INNER
    lost_bytes: int = 0  # for the filter of the keys that left early
    where: ConditionProgram | None = None  # what pairs must pass

    def build(
        self,
        trace: Trace | None = None,
        labels: np.ndarray | None = None,
        policy: Policy | None = None,
        places: Places | None = None,
        rooms: tuple[int, ...] | None = None,
    ) -> tuple[Store, Any]:
        """Build an empty store and the state of the policy, or of the one that it follows.

        `labels` are the keys of the codes, `places` their positions, and `rooms` the tuples of each pool for
        which there is room; by default, those that there is room for at first.
        """
        policy = policy or self.policy
        rooms = rooms or first_rooms(self)
        store = new_store(rooms, rooms, self.time_dtype, self.seed)
        limit_pools(self, store, rooms)
        store.horizon[:] = self.window.horizons
        store.meta[WINDOW] = self.window.kind
        store.meta[WARMUP] = self.warmup
        store.meta[SHED] = self.shed
        ticks_compete = self.step == "tick" and not policy.one_by_one
        if policy.selective or ticks_compete:
            store.meta[COMPETE] = sum(1 << side for side in (0, 1) if not self.soon_decided(side))
        store.chance[:] = self.chances
        setting = Setting(
            capacities=self.capacities,
            time_dtype=self.time_dtype,
            horizons=self.window.horizons,
            rates=self.rates,
            count_bytes=self.count_bytes,
            trace=trace,
            partial=self.partial,
            window=self.window.kind,
            warmup=self.warmup,
            step=self.step,
            labels=labels,
            places=places or self.places,
            rooms=rooms,
            soon_decided=(self.soon_decided(0), self.soon_decided(1)),
            in_bytes=self.payload is not None,
        )
        return store, policy.build(setting)

    def soon_decided(self, stream: int) -> bool:
        """Whether a row of this stream, if it is let in, comes out without a partner almost at once.

        That is so on the side of a window on which only earlier rows match. Policies that count on results
        let such rows in, although they expect no matches of them.
        """
        behind = sum(self.lateness or (0.0, 0.0))
        return (
            self.policy.lets_decide
            and self.kind.tracked[stream]
            and self.window.kind not in (ROWS, LANDMARK)
            and self.window.horizons[stream] == 0
            and behind * AT_ONCE <= max(self.window.horizons)
        )

    @property
    def partial(self) -> bool:
        """Whether an arrival may match some tuples of a key and not others."""
        return not self.kind.alike(self.lateness is None, self.where is not None)

    @property
    def state_class(self) -> type[JoinState]:
        """Return the class of the state that this configures."""
        if self.lateness is not None:
            from penstock.joins.stream import StreamState

            return StreamState
        from penstock.joins.state import JoinState

        return JoinState

    @property
    def places(self) -> Places | None:
        """Return the default positions of keys."""
        return new_places(THEMSELVES) if self.numeric else None

    @property
    def grows(self) -> bool:
        """Whether tables grow with the tuples: whichever policy runs, and it runs by arrivals."""
        policies = self.policy.among() if self.policy.chooses else [self.policy]  # type: ignore[attr-defined]
        return self.step == "arrival" and all(policy.grows for policy in policies)

    def build_flow(self, rooms: tuple[int, ...] | None = None) -> tuple[Flow | Decided, Sketch] | None:
        """Build the index and the sketch of lost results; None where the store alone is the index.

        The index has the progress of streams that advance independently, and what is known of each tuple if
        more comes out than all pairs.
        """
        together, rooms = self.lateness is None, rooms or first_rooms(self)
        plain = self.kind.plain and self.where is None
        if together and plain:
            return None
        whole, horizons = self.time_dtype == np.int64, self.window.horizons
        start, behind = beginning(self.time_dtype), self.lateness or (0.0, 0.0)
        flow = new_flow((0, 0) if together else rooms, self.time_dtype, behind, start)
        sketch = new_sketch(self.sketch_bytes, horizons, whole)
        if plain:
            return flow, sketch
        lost = new_lost_keys(self.lost_bytes, self.kind.recorded, horizons, whole, together)
        rules = self.kind.rules(together, self.where is not None)
        condition = AnyPair(np.zeros(1)) if self.where is None else self.where.build(sum(rooms))
        return new_decided(flow, rooms, lost, rules, condition), sketch

    def bytes_of_tables(self, rooms: tuple[int, ...]) -> list[int]:
        """Return the bytes of the tables for a number of tuples, under each policy that may run."""
        if self.policy.chooses:
            from penstock.joins.follower import tables_of

            return tables_of(self, rooms)
        return [table_bytes(self.build(rooms=rooms), self.build_flow(rooms))]


def beginning(time_dtype: np.dtype) -> float:
    """Return a time before all others, from which any other can be subtracted."""
    return -(2.0**62) if time_dtype == np.int64 else -1e300


def fitting(window: Resolved, dtype: np.dtype) -> Resolved:
    """Return the window on the scale of the times: on whole numbers, a span of 1.5 is a span of 1."""
    if dtype != np.int64:
        return window
    if window.kind == LANDMARK and not float(window.horizons[0]).is_integer():
        raise WindowError("A landmark period must be a whole number in the unit of the time column.")
    left, right = (math.floor(horizon) for horizon in window.horizons)
    if max(left, right) >= 2**62:
        raise WindowError(f"A window of {max(left, right)} does not fit into 62 bits.")
    return dataclasses.replace(window, horizons=(left, right))


def behind_of(lateness: Any, unit: str, window: Any, streams: int = 2) -> tuple[float, ...]:
    """Return the lateness per stream in the unit of the times; infinite if only `advance` sets progress.

    >>> from penstock.joins.config import behind_of
    >>> from penstock.window import window_of
    >>> behind_of("2 seconds", "ms", window_of(10).resolve("ms"), streams=3)
    (2000.0, 2000.0, 2000.0)
    """
    if window.kind != TIMED:
        raise PenstockError("Streams with a lateness need a window of time, not one of rows or periods.")
    each = lateness if isinstance(lateness, tuple) else (lateness,) * streams
    if len(each) != streams:
        raise PenstockError(f"lateness takes a span, or a tuple of {streams}; {lateness!r} was given.")
    behind = [
        FARTHEST
        if is_number(one) and one == math.inf
        else float(math.ceil(window_of(one).resolve(unit).horizons[0]))
        for one in each
    ]
    if max(behind) > FARTHEST:
        raise PenstockError(f"A lateness is at most 2^61; {lateness!r} was given.")
    return tuple(behind)


def check_times(times: np.ndarray) -> None:
    """Reject times that cannot be distinguished from the beginning of time."""
    limit = int(FARTHEST) if times.dtype.kind in "iu" else FARTHEST  # as a float, 2^61 - 1 is 2^61
    if not ((times > -limit) & (times < limit)).all():
        raise PenstockError("Times must be finite and between -2^61 and 2^61.")


def progress_times(reached: Sequence[Any], time_dtype: np.dtype) -> np.ndarray:
    """Return the progress of streams as `advance` takes it: a number, or None if nothing is known.

    >>> import numpy as np
    >>> from penstock.joins.config import progress_times
    >>> progress_times([7.5, 3], np.dtype(np.int64)).tolist()
    [7, 3]
    """
    times = np.full(len(reached), beginning(time_dtype), time_dtype)
    for stream, time in enumerate(reached):
        if time is None:
            continue
        if not is_number(time) or not abs(time) < FARTHEST:
            raise PenstockError(
                "advance takes a finite number between -2^61 and 2^61 per stream, or None; "
                f"{time!r} was given."
            )
        times[stream] = math.floor(time) if time_dtype == np.int64 else time
    return times
