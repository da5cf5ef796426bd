"""The resolved parameters of a window join: windows in the unit of the data, budgets as pool limits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from penstock.arguments import is_number
from penstock.arrays import table_bytes
from penstock.budget import Budget, Bytes, Fraction, Tuples
from penstock.engine.apportion import apportion
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
from penstock.errors import BudgetError, PenstockError, WindowError
from penstock.joins.conditions.program import ConditionProgram
from penstock.joins.growth import MOST_TUPLES, TableCost, first_rooms, limit_pools
from penstock.joins.kinds import INNER, JoinKind
from penstock.policies.base import Policy, Setting, Trace
from penstock.structures.key_positions import THEMSELVES, Places, new_places
from penstock.window import Resolved, window_of

if TYPE_CHECKING:
    from penstock.joins.state import JoinState

COUNT_SHARE = 0.2  # maximum share of a byte budget for key counts
CHOOSING_SHARE = 0.25  # maximum share of a byte budget for the small joins of a policy that chooses
PROBE = 4_097  # just above a power of two, where tables waste most
PROBES = (2_732, 2_751, PROBE, 5_502)  # tuples for which some table or other wastes most
FEW_PROBES = (2, 3, 4, 6, 7, 14, 15, 30, 31, 62, 63)  # the same where tables are small
AT_ONCE = 100  # a row is decided at once if that takes at most this part of the window
LOST_SHARE = 0.05  # maximum share of a budget for the filter of the keys that left early
TUPLE_BYTES = 200  # about what a tuple takes in the tables of a budget in tuples
LOST_BYTES = (1 << 12, 1 << 26)  # least and most for the filter then
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


AnyConfig = TypeVar("AnyConfig", bound=Any)  # a config of a join of two streams, or of many


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


def shares_of(total: int, allocation: str, weights: tuple[float, ...]) -> tuple[int, ...]:
    """Divide a budget into pools of at least 1; of two, the first gets the remainder.

    >>> from penstock.joins.config import shares_of
    >>> shares_of(5, "equal", (1, 1)), shares_of(10, "proportional", (3, 1)), shares_of(5, "unified", (1, 1))
    ((3, 2), (8, 2), (5,))
    >>> shares_of(11, "proportional", (3, 1, 1))
    (7, 2, 2)
    """
    if allocation == "unified":
        return (total,)
    if len(weights) > 2:
        equal = allocation != "proportional" or sum(weights) == 0
        parts = np.ones(len(weights)) if equal else np.array(weights, np.float64)
        return tuple(int(part) for part in apportion(total, parts))
    if allocation == "equal" or sum(weights) == 0:
        right = total // 2
    else:
        right = int(total * weights[1] // sum(weights))
    right = min(max(right, 1), total - 1)
    return total - right, right


def in_tuples(budget: Budget, arrivals: Sequence[float], window: Resolved, span: float) -> int:
    """Return a budget in tuples or a fraction as a number of tuples, at least one per stream.

    `arrivals` are the arrivals of each stream.
    """
    if isinstance(budget, Fraction):
        if window.kind == ROWS:
            tuples = math.floor(budget.share * min(2 * window.length, sum(arrivals)))
        else:
            tuples = budget.tuples(arrivals, window.horizons, span)
        given = f"{budget!r} of this input is {tuples:,} tuples"
    else:
        assert isinstance(budget, Tuples)
        tuples, given = budget.n, f"{budget!r} was given"
    if tuples < 2:
        raise BudgetError(f"A join needs room for at least one tuple per stream, 2 in all; {given}.")
    if tuples > MOST_TUPLES:
        raise BudgetError(f"A join keeps at most {MOST_TUPLES:,} tuples; {given}.")
    return tuples


def lost_bytes_of(kind: JoinKind, tuples: int) -> int:
    """Return the bytes for the filter of the keys that left early, for a budget in tuples.

    >>> from penstock.joins.config import lost_bytes_of
    >>> from penstock.joins.kinds import INNER, JoinKind
    >>> lost_bytes_of(JoinKind("left"), 100_000), lost_bytes_of(JoinKind("inner"), 100_000)
    (1000000, 0)
    """
    if not any(kind.recorded):
        return 0
    return min(max(int(LOST_SHARE * TUPLE_BYTES * tuples), LOST_BYTES[0]), LOST_BYTES[1])


def lost_share_of(kind: JoinKind, budget: Bytes) -> int:
    """Return the bytes of a byte budget for the filter of the keys that left early.

    >>> from penstock import Bytes
    >>> from penstock.joins.config import lost_share_of
    >>> from penstock.joins.kinds import JoinKind
    >>> lost_share_of(JoinKind("left"), Bytes(100_000)), lost_share_of(JoinKind("inner"), Bytes(100_000))
    (5000, 0)
    """
    return int(budget.n * LOST_SHARE) if any(kind.recorded) else 0


def with_byte_budget(
    config: AnyConfig, budget: Bytes, allocation: str, weights: tuple[float, ...]
) -> AnyConfig:
    """Return the config with its limits from a byte budget.

    Tables grow with the tuples, and each pool may use all of its share for whatever sizes arrive. Where they
    cannot grow, they are sized for as many tuples of the average size as the budget holds, and the rest is
    for payload: tuples larger than the average fill the payload first, smaller ones the tables.
    """
    if not config.policy.counts_bytes:
        raise BudgetError(
            f"{config.policy.name} needs a budget in tuples; {budget} was given. Give Tuples or Fraction."
        )
    config = dataclasses.replace(
        config,
        count_bytes=int(budget.n * COUNT_SHARE) if config.policy.counts_keys else None,
    )
    if config.policy.chooses:
        from penstock.joins.follower import allowance_of

        config = dataclasses.replace(
            config,
            count_bytes=int(budget.n * COUNT_SHARE / 2),
            choosing_bytes=allowance_of(config.policy, budget.n),
        )
    try:
        laid_out = _laid_out(config, budget, allocation, weights)
        if laid_out is None and config.policy.chooses:  # the first candidate alone may still fit
            config = dataclasses.replace(config, choosing_bytes=0)
            laid_out = _laid_out(config, budget, allocation, weights)
    except (MemoryError, ValueError) as error:  # NumPy raises ValueError for more than it can address
        raise BudgetError(
            f"The tables for {budget} cannot be allocated on this machine; give a smaller budget."
        ) from error
    if laid_out is not None:
        return _growing(laid_out, budget, allocation, weights) if laid_out.grows else laid_out
    fewest = len(weights)
    bare = _table_bytes(dataclasses.replace(config, count_bytes=0), shares_of(fewest, allocation, weights))
    rest = 1 - (config.count_bytes or 0) / budget.n
    needed = math.ceil((bare + fewest * config.mean_row + 64) / rest)
    raise BudgetError(
        f"A join needs room for at least one tuple per stream; {budget} was given, too little for the tables "
        f"of {config.policy.name} and {'two' if fewest == 2 else fewest} tuples of this input. Give at least "
        f"{needed} bytes."
    )


def _laid_out(
    config: AnyConfig, budget: Bytes, allocation: str, weights: tuple[float, ...]
) -> AnyConfig | None:
    """Return the config with as many tuples as a byte budget holds; None if fewer than one per stream."""
    fewest = len(weights)
    least = _table_bytes(config, shares_of(fewest, allocation, weights))
    per_tuple = (_table_bytes(config, shares_of(PROBE, allocation, weights)) - least) / PROBE
    tuples = max(fewest, int(1.1 * (budget.n - least) / (per_tuple + config.mean_row)))
    while tuples >= fewest:
        capacities = shares_of(tuples, allocation, weights)
        left = budget.n - _table_bytes(config, capacities)
        if left >= max(fewest, tuples * config.mean_row):
            payload = shares_of(left, allocation, weights)
            return dataclasses.replace(config, capacities=capacities, payload=payload)
        tuples = min(tuples - 1, int(tuples * 0.97))
    return None


def _growing(config: AnyConfig, budget: Bytes, allocation: str, weights: tuple[float, ...]) -> AnyConfig:
    """Return the config with what the tables cost under each policy that may run.

    As some tables grow in steps, they take at most what the cost says, not always all of it.
    """
    fewest = len(weights)
    few, many = (
        [(n, config.bytes_of_tables(shares_of(n, allocation, weights))) for n in numbers]
        for numbers in (sorted({fewest, *(n for n in FEW_PROBES if n > fewest)}), PROBES)
    )
    least, left, prices = few[0], [], []
    for i in range(len(least[1])):
        price = math.ceil(max((found[i] - least[1][i]) / (n - least[0]) for n, found in many))
        prices.append(price)
        left.append(budget.n - max(found[i] - price * n for n, found in few))
    fitting = [int(rest / (price + config.mean_row)) for rest, price in zip(left, prices, strict=True)]
    tuples = max(fewest, min(sum(config.capacities), *fitting))
    rooms = shares_of(tuples, allocation, weights)
    costs = []
    for rest, price in zip(left, prices, strict=True):
        shares = shares_of(max(fewest, rest - tuples * price), allocation, weights)
        pool_bytes = tuple(room * price + share for room, share in zip(rooms, shares, strict=True))
        costs.append(TableCost(budget.n - rest, price, pool_bytes))
    return dataclasses.replace(config, costs=tuple(costs))


def _table_bytes(config: AnyConfig, capacities: tuple[int, ...]) -> int:
    """Return the bytes of the tables of a config whose capacities are these."""
    config = dataclasses.replace(config, capacities=capacities, policy=_sizeable(config.policy))
    return max(config.bytes_of_tables(capacities))


def _sizeable(policy: Policy) -> Policy:
    """Return a policy with the same tables that can be built without a trace."""
    return dataclasses.replace(policy, k="stream", curve="past") if policy.needs_future else policy  # type: ignore[call-arg]
