"""Budgets of joins as limits of their pools: tuples, shares of what an input needs, and bytes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from penstock.budget import Budget, Bytes, Fraction, Tuples
from penstock.engine.apportion import apportion
from penstock.engine.store import ROWS
from penstock.errors import BudgetError
from penstock.joins.growth import MOST_TUPLES, TableCost
from penstock.joins.kinds import JoinKind
from penstock.policies.base import Policy
from penstock.window import Resolved

COUNT_SHARE = 0.2  # maximum share of a byte budget for key counts
CHOOSING_SHARE = 0.25  # maximum share of a byte budget for the small joins of a policy that chooses
PROBE = 4_097  # just above a power of two, where tables waste most
PROBES = (2_732, 2_751, PROBE, 5_502)  # tuples for which some table or other wastes most
FEW_PROBES = (2, 3, 4, 6, 7, 14, 15, 30, 31, 62, 63)  # the same where tables are small
LOST_SHARE = 0.05  # maximum share of a budget for the filter of the keys that left early
TUPLE_BYTES = 200  # about what a tuple takes in the tables of a budget in tuples
LOST_BYTES = (1 << 12, 1 << 26)  # least and most for the filter then

AnyConfig = TypeVar("AnyConfig", bound=Any)  # a config of a join of two streams, or of many


def shares_of(total: int, allocation: str, weights: tuple[float, ...]) -> tuple[int, ...]:
    """Divide a budget into pools of at least 1; of two, the first gets the remainder.

    >>> from penstock.joins.budgets import shares_of
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

    >>> from penstock.joins.budgets import lost_bytes_of
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
    >>> from penstock.joins.budgets import lost_share_of
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
