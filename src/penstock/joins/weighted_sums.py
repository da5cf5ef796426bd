"""Sums over weighted results, and how far they may be off.

A result of a kept tuple stands for 1/t exact ones (see `penstock.policies.sample`). Results of one tuple depend
on each other, as all of them are there because it was kept; results of different tuples are uncorrelated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from penstock.errors import PenstockError, hint

WHATS = ("count", "sum", "mean")


@dataclass(frozen=True)
class Estimate:
    """What the exact join would answer: an estimate, and an interval that covers it with a probability.

    >>> from penstock.joins.weighted_sums import Estimate
    >>> answer = Estimate(value=100.0, variance=25.0, confidence=0.95)
    >>> answer.std_error, round(answer.lower, 1), round(answer.upper, 1)
    (5.0, 90.2, 109.8)
    """

    value: float
    variance: float
    confidence: float

    @property
    def std_error(self) -> float:
        """The standard error: the root of the variance."""
        return math.sqrt(self.variance)

    @property
    def lower(self) -> float:
        """The lower end of the interval."""
        return self.value - quantile(self.confidence) * self.std_error

    @property
    def upper(self) -> float:
        """The upper end of the interval."""
        return self.value + quantile(self.confidence) * self.std_error


def check_question(what: Any, column: Any, confidence: Any) -> None:
    """Reject anything but a count, a sum or a mean of a column, and a probability.

    >>> from penstock.joins.weighted_sums import check_question
    >>> check_question("sum", "amount", 0.95)
    """
    if what not in WHATS:
        raise PenstockError(f"There is no estimate of {what!r}{hint(what, WHATS)}")
    if column is None and what != "count":
        raise PenstockError(f"estimate({what!r}) needs a column: estimate({what!r}, 'amount').")
    if column is not None and not isinstance(column, str):
        raise PenstockError(f"column takes the name of a column; {column!r} was given.")
    number = isinstance(confidence, float | np.floating) and not isinstance(confidence, bool)
    if not number or not 0.0 < confidence < 1.0:
        raise PenstockError(
            f"confidence={confidence!r} is not allowed; it is a probability between 0 and 1, such as 0.95."
        )


def quantile(confidence: float) -> float:
    """Return how many standard errors an interval with this confidence reaches to each side.

    >>> from penstock.joins.weighted_sums import quantile
    >>> round(quantile(0.95), 2)
    1.96
    """
    return NormalDist().inv_cdf((1.0 + float(confidence)) / 2.0)


def estimates_of(
    what: str, group: np.ndarray, groups: int, kept: np.ndarray, t: np.ndarray, value: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the estimate of each group, and its variance.

    Results are given in the order in which they appeared: their group, the identity of the tuple that was
    kept, t, and the value to sum up (1 for a count). A mean is a ratio of two sums; its variance is that of
    the sum of the distances from the mean, by linearisation.

    >>> import numpy as np
    >>> from penstock.joins.weighted_sums import estimates_of
    >>> one_group, kept = np.zeros(3, int), np.array([7, 7, 9])
    >>> estimates_of("sum", one_group, 1, kept, np.array([0.5, 0.25, 1.0]), np.array([1.0, 2.0, 3.0]))
    (array([13.]), array([66.]))
    """
    total = np.bincount(group, value / t, groups)
    if what != "mean":
        return total, _variances(group, groups, kept, t, value)
    count = np.bincount(group, 1.0 / t, groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / count
        return mean, _variances(group, groups, kept, t, value - mean[group]) / count**2


def _variances(
    group: np.ndarray, groups: int, kept: np.ndarray, t: np.ndarray, value: np.ndarray
) -> np.ndarray:
    """Return the variance of the weighted sum of each group.

    Of a tuple with results of values v_1, v_2, ... at t_1 >= t_2 >= ... it is the sum of v_j^2 (1-t_j)/t_j^2
    and of 2 v_i v_j (1-t_i)/(t_i t_j) for i < j. What the second has of i is a running sum.
    """
    if len(t) == 0:
        return np.zeros(groups)
    order = np.lexsort((kept, group))  # stable: the results of a tuple stay in order
    group, kept, t, value = group[order], kept[order], t[order], value[order]
    first = np.append(True, (group[1:] != group[:-1]) | (kept[1:] != kept[:-1]))
    excess = value * (1.0 - t) / t
    before = np.cumsum(excess) - excess
    before -= np.repeat(before[first], np.diff(np.append(np.flatnonzero(first), len(t))))
    return np.maximum(np.bincount(group, value / t * (excess + 2.0 * before), groups), 0.0)
