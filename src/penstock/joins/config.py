"""A window join made concrete: windows in the unit of the data, budgets as limits of pools."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.budget import Budget, Bytes, Fraction, Tuples
from penstock.errors import BudgetError
from penstock.kernels.layout import (
    COMPETE,
    P_FIXED,
    P_WEIGHT,
    ROWS,
    SHED,
    WARMUP,
    WINDOW,
    Store,
    new_store,
)
from penstock.policies.base import Policy, Setting, Trace
from penstock.window import Resolved

COUNT_SHARE = 0.2  # of a byte budget, at most, for key counts
PROBE = 4_097  # just above a power of two, where tables waste most


@dataclass(frozen=True)
class Config:
    """All that is needed to build the state of a join."""

    window: Resolved
    policy: Policy
    step: str
    time_dtype: np.dtype  # of the clocks by which tuples expire
    input_dtype: np.dtype  # of the times of arrivals
    limits: tuple[int, ...]  # per pool, in tuples or bytes
    capacities: tuple[int, ...]  # per pool, the most tuples there can be
    in_bytes: bool = False
    fixed: int = 1  # what a tuple costs besides its payload
    base: int = 0  # bytes of tables whose size is fixed
    count_bytes: int | None = None
    chances: tuple[float, float] = (0.0, 0.0)
    shed: bool = False
    warmup: int = 0
    seed: int = 0
    rates: tuple[float, float] | None = None
    mean_row: float = 0.0  # average payload, for reports

    def build(self, trace: Trace | None = None) -> tuple[Store, Any]:
        """An empty store and the state of the policy."""
        store = new_store(self.limits, self.capacities, self.time_dtype, self.seed)
        store.horizon[:] = self.window.horizons
        store.meta[WINDOW] = self.window.kind
        store.meta[WARMUP] = self.warmup
        store.meta[SHED] = self.shed
        ticks_compete = self.step == "tick" and not self.policy.one_by_one
        store.meta[COMPETE] = self.policy.selective or ticks_compete
        store.pools[:, P_FIXED] = self.fixed
        store.pools[:, P_WEIGHT] = self.in_bytes
        store.chance[:] = self.chances
        setting = Setting(
            capacities=self.capacities,
            time_dtype=self.time_dtype,
            horizons=self.window.horizons,
            rates=self.rates,
            count_bytes=self.count_bytes,
            trace=trace,
        )
        return store, self.policy.build(setting)

    @property
    def bytes_per_tuple(self) -> float:
        """What the tables take per tuple, whatever the budget is in."""
        store, state = dataclasses.replace(self, policy=_sizeable(self.policy)).build()
        return (array_bytes(store) + array_bytes(state)) / sum(self.capacities)


def _sizeable(policy: Policy) -> Policy:
    """A policy with the same tables that can be built without a trace."""
    return dataclasses.replace(policy, k="stream", curve="past") if policy.needs_future else policy  # type: ignore[call-arg]


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
        right = math.floor(total * weights[1] / sum(weights))
    right = min(max(right, 1), total - 1)
    return total - right, right


def in_tuples(budget: Budget, arrivals: int, window: Resolved, span: float) -> int:
    """A budget of tuples or a fraction as a number of tuples, at least one per stream."""
    if isinstance(budget, Fraction):
        need = 2 * window.length if window.kind == ROWS else window.length
        if window.kind == ROWS:
            tuples = math.floor(budget.share * min(need, arrivals))
        else:
            tuples = budget.tuples(arrivals, need, span)
        given = f"{budget!r} of this input is {tuples:,} tuples"
    else:
        assert isinstance(budget, Tuples)
        tuples, given = budget.n, f"{budget!r} was given"
    if tuples < 2:
        raise BudgetError(f"A join needs room for at least one tuple per stream, 2 in all; {given}.")
    return tuples


def with_byte_budget(
    config: Config, budget: Bytes, allocation: str, weights: tuple[float, ...], least_row: int
) -> Config:
    """The config with limits in bytes, and as many rows in its tables as could ever be needed."""
    count_bytes = int(budget.n * COUNT_SHARE) if config.policy.counts_keys else None
    shares = shares_of(budget.n, allocation, weights) if budget.n >= 2 else (budget.n,)
    probe = dataclasses.replace(
        config,
        policy=_sizeable(config.policy),
        capacities=tuple(PROBE for _ in shares),
        limits=shares,
        count_bytes=count_bytes,
    )
    store, state = probe.build()
    base = store.buckets.nbytes + probe.policy.fixed_bytes(state)
    sketch = array_bytes(getattr(state, "counts", ())) if config.policy.counts_keys else 0
    growing = (base - sketch) / (PROBE * len(shares))
    rows = (array_bytes(store) + array_bytes(state) - base) / (PROBE * len(shares))
    fixed = math.ceil(rows) + 1
    capacities = tuple(
        int((share - share / budget.n * sketch) // (fixed + growing + least_row)) for share in shares
    )
    if min(capacities) < (1 if allocation != "unified" else 2):
        needed = len(shares) * 2 * (fixed + math.ceil(growing) + least_row) + sketch
        raise BudgetError(
            f"A join needs room for at least one tuple per stream; {budget} was given, and with the index a "
            f"tuple of this input takes {fixed + math.ceil(growing) + least_row} bytes. Give at least "
            f"{needed} bytes."
        )
    sized = dataclasses.replace(probe, capacities=capacities, policy=config.policy)
    store, state = dataclasses.replace(sized, policy=probe.policy).build()
    base = store.buckets.nbytes + probe.policy.fixed_bytes(state) + array_bytes(store[9:])
    limits = tuple(int(share - share / budget.n * base) for share in shares)
    return dataclasses.replace(sized, limits=limits, fixed=fixed, base=base, in_bytes=True)


def array_bytes(value: Any) -> int:
    """Bytes of all arrays in a nested tuple, views counted once."""
    seen: dict[int, int] = {}
    for array in _arrays(value):
        owner: Any = array
        while owner.base is not None:
            owner = owner.base
        seen[id(owner)] = owner.nbytes
    return sum(seen.values())


def _arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _arrays(part)
