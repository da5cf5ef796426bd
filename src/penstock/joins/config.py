"""A window join made concrete: windows in the unit of the data, budgets as limits of pools."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.arrays import table_bytes
from penstock.budget import Budget, Bytes, Fraction, Tuples
from penstock.engine.loss_sketch import Sketch, new_sketch
from penstock.engine.pair_join_late import Flow, new_flow
from penstock.engine.store import (
    COMPETE,
    LANDMARK,
    P_BYTES,
    ROWS,
    SHED,
    TIMED,
    WARMUP,
    WINDOW,
    Store,
    new_store,
)
from penstock.errors import BudgetError, PenstockError, WindowError
from penstock.policies.base import Policy, Setting, Trace
from penstock.structures.key_positions import THEMSELVES, Places, new_places
from penstock.window import Resolved, window_of

COUNT_SHARE = 0.2  # of a byte budget, at most, for key counts
CHOOSING_SHARE = 0.25  # of a byte budget, at most, for the small joins of a policy that chooses
PROBE = 4_097  # just above a power of two, where tables waste most
MOST_TUPLES = 2**31 - 2  # rows of a table are numbered with 32 bits
FARTHEST = 2.0**61  # times beyond cannot be told apart from the beginning of time


@dataclass(frozen=True)
class Config:
    """All that is needed to build the state of a join."""

    window: Resolved
    policy: Policy
    step: str
    time_dtype: np.dtype  # of the clocks by which tuples expire
    input_dtype: np.dtype  # of the times of arrivals
    capacities: tuple[int, ...]  # per pool, the most tuples
    payload: tuple[int, ...] | None = None  # per pool, the most bytes of payload, under a byte budget
    count_bytes: int | None = None
    chances: tuple[float, float] = (0.0, 0.0)
    shed: bool = False
    unbiased: bool = False  # the chances are those of an unbiased sample
    warmup: int = 0
    seed: int = 0
    rates: tuple[float, float] | None = None
    mean_row: float = 0.0  # average payload
    lateness: tuple[float, ...] | None = None  # of each stream; None: arrivals come in order
    sketch_bytes: int = 0  # for the estimate of the exact results
    choosing_bytes: int | None = None  # under a byte budget, for the small joins of a policy that chooses
    numeric: bool = False  # keys are numbers, so that one may be near to another

    def build(
        self,
        trace: Trace | None = None,
        labels: np.ndarray | None = None,
        policy: Policy | None = None,
        places: Places | None = None,
    ) -> tuple[Store, Any]:
        """An empty store and the state of the policy, or of one that it follows.

        `labels` are the keys that codes stand for, `places` where these lie.
        """
        policy = policy or self.policy
        store = new_store(self.capacities, self.capacities, self.time_dtype, self.seed)
        store.horizon[:] = self.window.horizons
        store.meta[WINDOW] = self.window.kind
        store.meta[WARMUP] = self.warmup
        store.meta[SHED] = self.shed
        ticks_compete = self.step == "tick" and not policy.one_by_one
        store.meta[COMPETE] = policy.selective or ticks_compete
        if self.payload is not None:
            store.pools[:, P_BYTES] = self.payload
        store.chance[:] = self.chances
        setting = Setting(
            capacities=self.capacities,
            time_dtype=self.time_dtype,
            horizons=self.window.horizons,
            rates=self.rates,
            count_bytes=self.count_bytes,
            trace=trace,
            partial=self.lateness is not None,
            window=self.window.kind,
            warmup=self.warmup,
            step=self.step,
            labels=labels,
            places=places or self.places,
        )
        return store, policy.build(setting)

    @property
    def places(self) -> Places | None:
        """Where keys lie if nothing else is told of them."""
        return new_places(THEMSELVES) if self.numeric else None

    def build_flow(self) -> tuple[Flow, Sketch] | None:
        """For streams that advance each at its own pace: how far they have come, and what was lost."""
        if self.lateness is None:
            return None
        flow = new_flow(self.capacities, self.time_dtype, self.lateness, beginning(self.time_dtype))
        whole = self.time_dtype == np.int64
        return flow, new_sketch(self.sketch_bytes, self.window.horizons, whole)


def beginning(time_dtype: np.dtype) -> float:
    """A time before all others, from which any other can be subtracted."""
    return -(2.0**62) if time_dtype == np.int64 else -1e300


def fitting(window: Resolved, dtype: np.dtype) -> Resolved:
    """The window on the scale of the times: on whole numbers a span of 1.5 is one of 1."""
    if dtype != np.int64:
        return window
    if window.kind == LANDMARK and not float(window.horizons[0]).is_integer():
        raise WindowError("A landmark period must be a whole number in the unit of the time column.")
    left, right = (math.floor(horizon) for horizon in window.horizons)
    if max(left, right) >= 2**62:
        raise WindowError(f"A window of {max(left, right)} is longer than 62 bits can tell.")
    return dataclasses.replace(window, horizons=(left, right))


def behind_of(lateness: Any, unit: str, window: Resolved, streams: int = 2) -> tuple[float, ...]:
    """A lateness in the unit of the times, per stream; infinite: its progress is told by `advance`.

    >>> from penstock.joins.config import behind_of
    >>> from penstock.window import window_of
    >>> behind_of("2 seconds", "ms", window_of(10).resolve("ms"), streams=3)
    (2000.0, 2000.0, 2000.0)
    """
    if window.kind != TIMED:
        raise PenstockError("Streams out of step need a window of time, not one of rows or periods.")
    each = lateness if isinstance(lateness, tuple) else (lateness,) * streams
    if len(each) != streams:
        raise PenstockError(f"lateness takes a span, or a tuple of {streams}; {lateness!r} was given.")
    behind = [
        FARTHEST if one == math.inf else float(math.ceil(window_of(one).resolve(unit).horizons[0]))
        for one in each
    ]
    if max(behind) > FARTHEST:
        raise PenstockError(f"A lateness is at most 2^61; {lateness!r} was given.")
    return tuple(behind)


def check_times(times: np.ndarray) -> None:
    """Refuse times that streams out of step cannot tell apart from the beginning of time."""
    limit = int(FARTHEST) if times.dtype.kind in "iu" else FARTHEST  # 2^61 - 1 as a float is 2^61
    if not ((times > -limit) & (times < limit)).all():
        raise PenstockError("Times must be finite and less than 2^61 from zero.")


def progress_times(reached: Sequence[Any], time_dtype: np.dtype) -> np.ndarray:
    """How far streams have come, as `advance` takes it: a number, or None where nothing is known.

    >>> import numpy as np
    >>> from penstock.joins.config import progress_times
    >>> progress_times([7.5, 3], np.dtype(np.int64)).tolist()
    [7, 3]
    """
    times = np.full(len(reached), beginning(time_dtype), time_dtype)
    for stream, time in enumerate(reached):
        if time is None:
            continue
        number = isinstance(time, int | float | np.integer | np.floating) and not isinstance(time, bool)
        if not number or not abs(time) < FARTHEST:
            raise PenstockError(
                "advance takes a finite number less than 2^61 from zero per stream, or None; "
                f"{time!r} was given."
            )
        times[stream] = math.floor(time) if time_dtype == np.int64 else time
    return times


def shares_of(total: int, allocation: str, weights: tuple[float, ...]) -> tuple[int, ...]:
    """A budget cut into pools; the first gets what is left over, each at least 1.

    >>> from penstock.joins.config import shares_of
    >>> shares_of(5, "equal", (1, 1)), shares_of(10, "proportional", (3, 1)), shares_of(5, "unified", (1, 1))
    ((3, 2), (8, 2), (5,))
    """
    if allocation == "unified":
        return (total,)
    if allocation == "equal" or sum(weights) == 0:
        right = total // 2
    else:
        right = int(total * weights[1] // sum(weights))
    right = min(max(right, 1), total - 1)
    return total - right, right


def in_tuples(budget: Budget, arrivals: Sequence[float], window: Resolved, span: float) -> int:
    """A budget of tuples or a fraction as a number of tuples, at least one per stream.

    `arrivals` are those of each stream.
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


def with_byte_budget(config: Config, budget: Bytes, allocation: str, weights: tuple[float, ...]) -> Config:
    """The config with its limits from a budget in bytes.

    The tables are laid out for as many tuples of the average size as the budget holds, and count whole
    from the start; what they leave is for payload. So the budget holds whatever sizes come: tuples larger
    than the average fill the payload first, smaller ones the tables.
    """
    if not config.policy.counts_bytes:
        raise BudgetError(
            f"{config.policy.name} reckons in tuples, which all take the same room; {budget} was given. "
            "Give Tuples or Fraction."
        )
    config = dataclasses.replace(
        config, count_bytes=int(budget.n * COUNT_SHARE) if config.policy.counts_keys else None
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
        if laid_out is None and config.policy.chooses:  # the first candidate may still fit in, alone
            config = dataclasses.replace(config, choosing_bytes=0)
            laid_out = _laid_out(config, budget, allocation, weights)
    except (MemoryError, ValueError) as error:  # the latter from NumPy, for more than it can address
        raise BudgetError(
            f"The tables for {budget} cannot be allocated on this machine; give a smaller budget."
        ) from error
    if laid_out is not None:
        return laid_out
    bare = _table_bytes(dataclasses.replace(config, count_bytes=0), shares_of(2, allocation, weights))
    rest = 1 - (config.count_bytes or 0) / budget.n
    needed = math.ceil((bare + 2 * config.mean_row + 64) / rest)
    raise BudgetError(
        f"A join needs room for at least one tuple per stream; {budget} was given, too little for the tables "
        f"of {config.policy.name} and two tuples of this input. Give at least {needed} bytes."
    )


def _laid_out(config: Config, budget: Bytes, allocation: str, weights: tuple[float, ...]) -> Config | None:
    """The config with as many tuples as a budget in bytes holds; None if these are fewer than two."""
    least = _table_bytes(config, shares_of(2, allocation, weights))
    per_tuple = (_table_bytes(config, shares_of(PROBE, allocation, weights)) - least) / PROBE
    tuples = max(2, int(1.1 * (budget.n - least) / (per_tuple + config.mean_row)))
    while tuples >= 2:
        capacities = shares_of(tuples, allocation, weights)
        left = budget.n - _table_bytes(config, capacities)
        if left >= max(2, tuples * config.mean_row):
            payload = shares_of(left, allocation, weights)
            return dataclasses.replace(config, capacities=capacities, payload=payload)
        tuples = min(tuples - 1, int(tuples * 0.97))
    return None


def _table_bytes(config: Config, capacities: tuple[int, ...]) -> int:
    """What the tables of a config take for so many tuples."""
    config = dataclasses.replace(config, capacities=capacities, policy=_sizeable(config.policy))
    if config.policy.chooses:
        from penstock.joins.follower import tables_of

        return tables_of(config)
    return table_bytes(config.build(), config.build_flow())


def _sizeable(policy: Policy) -> Policy:
    """A policy with the same tables that can be built without a trace."""
    return dataclasses.replace(policy, k="stream", curve="past") if policy.needs_future else policy  # type: ignore[call-arg]
