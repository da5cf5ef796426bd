"""The exact join under a condition, and errors for pairs on which a condition has no value."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.engine.exact_condition import exact_condition
from penstock.engine.exact_join import exact_counts
from penstock.engine.join_loop import Batch
from penstock.engine.pair_condition import BY_ZERO, ERROR, ERROR_LEFT, ERROR_RIGHT, PairCondition
from penstock.errors import ConditionError
from penstock.joins.conditions.program import ConditionProgram

MOST_PAIRS = 100_000_000  # of equal keys: beyond this the exact join would take minutes


@dataclass(frozen=True)
class JoinCondition:
    """A condition with its leaves for all arrivals of a run."""

    program: ConditionProgram
    leaves: np.ndarray
    _known: dict[tuple[object, ...], np.ndarray | None] = field(default_factory=dict, compare=False)

    def exact_counts(
        self, arrivals: Batch, keys: int, window: tuple[int, np.ndarray], rules: np.ndarray, warmup: int
    ) -> np.ndarray | None:
        """Return the rows of the exact join per arrival; None if there are too many pairs to ask."""
        name = (window[0], window[1].tobytes(), rules.tobytes(), warmup)
        if name not in self._known:
            stream, key, time = arrivals.stream, arrivals.key, arrivals.time
            pairs = int(exact_counts(stream, key, time, keys, *window, False).sum())
            counts = None
            if pairs <= MOST_PAIRS:
                condition = self.program.build(0).hearing(self.leaves)
                condition = condition._replace(kept=self.leaves, kept_real=condition.arriving_real)
                counts = exact_condition(arrivals, keys, window, rules, warmup, condition)
                check_answered(self.program.text, condition)
            self._known[name] = counts
        counts = self._known[name]
        return None if counts is None else counts.copy()


def check_answered(text: str, condition: PairCondition) -> None:
    """Raise an error if the condition has no value for a pair that was asked for."""
    state = int(condition.meta[ERROR])
    if not state:
        return
    what = "divides by zero" if state == BY_ZERO else "needs a number that does not fit into its type"
    left, right = (int(condition.meta[at]) for at in (ERROR_LEFT, ERROR_RIGHT))
    advice = (
        "Exclude such pairs before: 'right.y != 0 and left.x / right.y > 2'."
        if state == BY_ZERO
        else "Multiply whole numbers and decimals by 1e0 to compute with doubles."
    )
    raise ConditionError(f"where={text!r} {what} for left row {left} and right row {right}. {advice}")
