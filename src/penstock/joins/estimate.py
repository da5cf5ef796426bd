"""The estimate of recall: a share, an upper bound, or unknown."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
