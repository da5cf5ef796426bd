"""The estimate of recall: a share, an upper bound, or unknown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.engine.loss_sketch import GUESSED, MISSED, UNESTIMATED

MOST_UNESTIMATED = 0.1  # share of the arrivals; beyond it the bound may be far too high
MOST_DOUBT = 0.05  # how far recall may be below what is shown, by a standard deviation
MOST_GUESSED = 0.08  # and by a guess, which is a rough one


@dataclass(frozen=True)
class RecallEstimate:
    """The estimated share of the exact results that was found.

    `value` is None if it is unknown. `at_most` says that it is an upper bound: some arrivals came so late
    that the results they missed can no longer be estimated.

    >>> from penstock.joins.estimate import RecallEstimate
    >>> print(RecallEstimate(0.75), RecallEstimate(0.75, at_most=True), RecallEstimate(None), sep=", ")
    75.0 %, at most 75.0 %, unknown
    """

    value: float | None
    at_most: bool = False

    def __str__(self) -> str:
        """In percent."""
        if self.value is None:
            return "unknown"
        return f"{'at most ' if self.at_most else ''}{100 * self.value:.1f} %"


def estimate_recall(
    results: float,
    missed: float | None,
    unestimated: float = 0,
    arrived: float = 0,
    *,
    guessed: float = 0.0,
    variance: float = 0.0,
) -> RecallEstimate:
    """Estimate recall from the results found and the estimated number missed; 1 if there are none.

    `unestimated` of the `arrived` rows may have missed more results that were not counted. A single such row
    makes the estimate an upper bound; more than a tenth of all rows make it unknown. It is unknown as well if
    recall may be far lower: by eight points, by a guess of what those rows missed (`guessed`), or by five
    points, by the `variance` of `missed`.

    >>> from penstock.joins.estimate import estimate_recall
    >>> estimate_recall(30, 10.0).value, estimate_recall(5, -2.0).value, estimate_recall(0, 0.0).value
    (0.75, 1.0, 1.0)
    >>> print(estimate_recall(7, None), estimate_recall(30, 10.0, 1, 50), estimate_recall(30, 10.0, 9, 50))
    unknown at most 75.0 % unknown
    >>> print(estimate_recall(30, 10.0, 1, 50, guessed=9.0), estimate_recall(30, 10.0, variance=25.0))
    unknown unknown
    """
    if missed is None or unestimated > MOST_UNESTIMATED * arrived:
        return RecallEstimate(None)
    exact = results + max(0.0, missed)
    value = results / exact if exact > 0 else 1.0
    for doubt, most in ((math.sqrt(max(0.0, variance)), MOST_DOUBT), (guessed, MOST_GUESSED)):
        if doubt > 0 and value - results / (exact + doubt) > most:
            return RecallEstimate(None)
    return RecallEstimate(value, unestimated > 0)


def bounded_by(recall: RecallEstimate, undecided: int) -> RecallEstimate:
    """Return the estimate if so many rows are undecided: those that have no partner would be results, too.

    >>> from penstock.joins.estimate import RecallEstimate, bounded_by
    >>> print(bounded_by(RecallEstimate(0.75), 3), bounded_by(RecallEstimate(0.75), 0))
    at most 75.0 % 75.0 %
    """
    return RecallEstimate(recall.value, recall.at_most or undecided > 0) if undecided else recall


class EstimatesRecall:
    """A state that estimates the results it missed: what all such states say of it."""

    @property
    def late(self) -> int:
        """Number of arrivals behind their stream's progress."""
        raise NotImplementedError

    @property
    def recall(self) -> RecallEstimate:
        """Estimated share of the exact results that was found."""
        raise NotImplementedError

    @property
    def losses(self) -> np.ndarray:
        """The estimate so far, as `engine.loss_sketch` and `engine.result_sample` number it."""
        raise NotImplementedError

    @property
    def missed(self) -> float | None:
        """Estimated number of results that the exact join has in addition."""
        return float(self.losses[MISSED])

    @property
    def unestimated(self) -> int:
        """Number of arrivals that may have missed more than `missed` counts, because they came too late."""
        return int(self.losses[UNESTIMATED])

    @property
    def guessed(self) -> float:
        """A guess of what unestimated arrivals missed: as much as arrivals in time find with their keys."""
        return float(self.losses[GUESSED])

    @property
    def variance(self) -> float:
        """The variance of `missed` if it is estimated from a sample of the keys, else 0."""
        return 0.0

    @property
    def estimated_recall(self) -> float | None:
        """The value of `recall`: a share, or None if it is unknown."""
        return self.recall.value

    def doubts(self) -> dict[str, Any]:
        """What is unknown of the recall because rows came too late."""
        few = self.unestimated <= self.late
        return {"unestimated": self.unestimated, "unknown": few and self.recall.value is None}
