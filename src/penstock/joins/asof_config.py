"""The resolved parameters of an as-of join."""

from __future__ import annotations

import dataclasses
import datetime
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arguments import is_number
from penstock.budget import Budget, Bytes, Fraction, Tuples
from penstock.engine.asof_index import (
    ANY_ORDER,
    BACKWARD,
    FORWARD,
    NEAREST,
    UNLIMITED,
    AsofIndex,
    new_asof_index,
)
from penstock.errors import BudgetError, UnknownPolicyError, WindowError
from penstock.joins.budgets import with_byte_budget
from penstock.joins.config import Config, beginning
from penstock.joins.growth import MOST_TUPLES, first_rooms
from penstock.policies import Policy, get, names
from penstock.policies.candidates import can_be_candidate
from penstock.units import duration

if TYPE_CHECKING:
    from penstock.joins.asof_state import AsofState

DIRECTIONS = {"backward": BACKWARD, "forward": FORWARD, "nearest": NEAREST}
FILTER_SHARE = 20  # one part in so many of a byte budget is for the filter of evicted keys
FILTER_PER_TUPLE = 64  # bytes of it under a budget in tuples
FILTER_LEAST, FILTER_MOST = 1 << 16, 1 << 23
CANDIDATES = ("lru", "lfu", "prob")  # of `auto`


@dataclass(frozen=True)
class AsofConfig(Config):
    """Everything needed to build the state of an as-of join; `sketch_bytes` are those of the filter."""

    direction: int = BACKWARD
    exact: bool = True
    tolerance: Any = UNLIMITED
    ties: int = ANY_ORDER

    @property
    def partial(self) -> bool:
        """True: a left row is answered by one of the right rows of its key."""
        return True

    @property
    def state_class(self) -> type[AsofState]:
        """The class of the state."""
        from penstock.joins.asof_state import AsofState

        return AsofState

    def build_flow(self, rooms: tuple[int, ...] | None = None) -> tuple[AsofIndex]:  # type: ignore[override]
        """Build the index, the filter of evicted keys included."""
        return (self.build_index(rooms),)

    def build_index(self, rooms: tuple[int, ...] | None = None) -> AsofIndex:
        """Build an index without tuples."""
        return new_asof_index(
            rooms or first_rooms(self),
            self.time_dtype,
            direction=self.direction,
            exact=self.exact,
            tolerance=self.tolerance,
            behind=self.lateness,
            ties=self.ties,
            beginning=beginning(self.time_dtype),
            filter_bytes=self.sketch_bytes,
        )


def tolerance_of(given: Any, unit: str, dtype: np.dtype) -> Any:
    """Return a tolerance in the unit of the times; on whole numbers, 1.5 is 1. `None` is unlimited.

    >>> import numpy as np
    >>> from penstock.joins.asof_config import tolerance_of
    >>> tolerance_of("2 s", "ms", np.dtype(np.int64)), tolerance_of(1.5, "ms", np.dtype(float))
    (2000, 1.5)
    """
    if given is None:
        return UNLIMITED
    span = given if is_number(given) else duration(given, unit)
    if dtype == np.int64:
        span = math.floor(span)
    if not span < UNLIMITED:
        raise WindowError(
            f"tolerance={given!r} is too long; give less than 2^61 {unit}, or None for no limit."
        )
    return span


def check_tolerance(given: Any) -> None:
    """Reject anything but a span from 0 up, or None.

    >>> from penstock.joins.asof_config import check_tolerance
    >>> check_tolerance("60 s")
    """
    if given is None:
        return
    if not is_number(given):
        if not isinstance(given, str | datetime.timedelta):
            raise WindowError(
                "tolerance takes a number in the unit of the time column, a duration such as '60 s', or None "
                f"for no limit; {given!r} was given."
            )
        span = duration(given, "ns")
    else:
        span = given
    if not (math.isfinite(span) and span >= 0):
        raise WindowError(
            f"tolerance={given!r} is not allowed; it is a span from 0 up, or None for no limit."
        )


def asof_policy(given: Any) -> Policy:
    """Return a policy that can run an as-of join, or raise an error that says why it cannot.

    `auto` follows the candidates that were given, or those that suit a table of the newest row per key.

    >>> from penstock.joins.asof_config import asof_policy
    >>> asof_policy("auto").candidates
    ('lru', 'lfu', 'prob')
    """
    policy = get(given)
    if policy.chooses:
        if policy.candidates is None:  # type: ignore[attr-defined]
            policy = dataclasses.replace(policy, candidates=CANDIDATES)  # type: ignore[call-arg]
        return policy
    if not can_be_candidate(policy, "join"):
        fit = [name for name in names() if not get(name).chooses and can_be_candidate(get(name), "join")]
        if not policy.joins:
            why = "is for caches"
        elif not policy.unified:
            why = "cannot manage one pool for both streams"
        elif not policy.compiled:
            why = "is written in plain Python"
        else:
            why = "plans for the results of a join, where every tuple of a key within the window matches"
        raise UnknownPolicyError(
            f"{policy.name} cannot run an as-of join: it {why}. Use one of auto, {', '.join(fit)}."
        )
    if policy.weighs_results:
        raise UnknownPolicyError(
            f"{policy.name} estimates counts and sums of inner joins; an as-of join has one answer per row. "
            "Use another policy."
        )
    policy.check_joins()
    return policy


def within_budget(
    config: AsofConfig,
    budget: Budget,
    need: float,
    filter_bytes: int | None = None,
    most: int = MOST_TUPLES,
) -> AsofConfig:
    """Return the config with its limits.

    `need` is how many tuples the exact join keeps, for a fraction, and `most` how many arrivals there are.
    """
    if isinstance(budget, Bytes):
        size = budget.n // FILTER_SHARE if filter_bytes is None else filter_bytes
        config = dataclasses.replace(config, sketch_bytes=size)
        return with_byte_budget(config, budget, "unified", (1, 1))
    tuples = budget.n if isinstance(budget, Tuples) else math.floor(budget.share * need)
    check_tuples(tuples, budget)
    tuples = max(1, min(tuples, most))
    size = min(max(FILTER_PER_TUPLE * tuples, FILTER_LEAST), FILTER_MOST)
    return dataclasses.replace(
        config, capacities=(tuples,), sketch_bytes=size if filter_bytes is None else filter_bytes
    )


def check_tuples(tuples: int, budget: Budget) -> None:
    """Reject a budget for fewer tuples than one, or more than a join can keep.

    >>> import penstock as ps
    >>> from penstock.joins.asof_config import check_tuples
    >>> check_tuples(1, ps.Tuples(1))
    """
    if tuples < 1:
        raise BudgetError(f"{budget!r} of this input is {tuples} tuples; an as-of join needs at least one.")
    if tuples > MOST_TUPLES:
        raise BudgetError(f"An as-of join keeps at most {MOST_TUPLES:,} tuples; {budget!r} was given.")


def need_of(arrivals: tuple[int, int], right_keys: int, span: float, tolerance: Any, direction: str) -> float:
    """Return about how many tuples the exact join keeps: the newest right row of each key, and what waits.

    A right row is of use for the tolerance, and so is a left row that waits for a later one.

    >>> from penstock.joins.asof_config import need_of
    >>> need_of((1000, 1000), 50, 1000.0, 10, "backward"), need_of((1000, 1000), 50, 1000.0, 100, "nearest")
    (10.0, 150.0)
    """
    left, right = arrivals
    share = min(1.0, tolerance / span) if span > 0 else 1.0
    kept = min(right_keys, right * share) if direction != "forward" else 0.0
    waiting = left * share if direction != "backward" else 0.0
    return kept + waiting


def check_budget_of_stream(budget: Budget) -> None:
    """Reject a share of a need that is not known."""
    if isinstance(budget, Fraction):
        raise BudgetError(
            f"{budget!r} is a share of what the whole input needs, which is not known for a stream; "
            "give Tuples or Bytes."
        )
