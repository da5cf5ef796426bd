"""Sums over weighted results, and how far they may be off.

A result of a kept tuple stands for 1/t exact ones (see `penstock.policies.sample`). Results of one tuple
depend on each other, as all of them are there because it was kept. Those of others are uncorrelated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from penstock.arguments import one_of
from penstock.errors import PenstockError

WHATS = ("count", "sum", "mean")
LEAST_DEGREES = 4.0  # of freedom: fewer would let an interval explode, and hardly cover more (simulated)


@dataclass(frozen=True)
class Estimate:
    """What the exact join would answer: an estimate, and an interval that covers it with a probability.

    >>> from penstock.joins.weighted_sums import Estimate
    >>> Estimate(value=100.0, lower=90.0, upper=111.0, variance=25.0).std_error
    5.0
    """

    value: float
    lower: float
    upper: float
    variance: float

    @property
    def std_error(self) -> float:
        """The standard error: the root of the variance."""
        return math.sqrt(self.variance)


class Moments(NamedTuple):
    """Per group, an estimated sum and what its interval is made of."""

    value: np.ndarray
    variance: np.ndarray  # q, summed over the kept tuples
    fourth: np.ndarray  # q squared, summed up: how many tuples the variance rests on
    third: np.ndarray  # how estimate and variance go together


def check_question(what: Any, column: Any, confidence: Any) -> None:
    """Reject anything but a count, a sum or a mean of a column, and a probability.

    >>> from penstock.joins.weighted_sums import check_question
    >>> check_question("sum", "amount", 0.95)
    """
    one_of("what", what, WHATS)
    if column is None and what != "count":
        raise PenstockError(f"estimate({what!r}) needs a column: estimate({what!r}, 'amount').")
    if column is not None and not isinstance(column, str):
        raise PenstockError(f"column takes the name of a column; {column!r} was given.")
    number = isinstance(confidence, float | np.floating)
    if not number or not 0.0 < confidence < 1.0:
        raise PenstockError(
            f"confidence={confidence!r} is not allowed; it is a probability between 0 and 1, such as 0.95."
        )


def moments_of(
    what: str, group: np.ndarray, groups: int, kept: np.ndarray, t: np.ndarray, value: np.ndarray
) -> Moments:
    """Return the estimate of each group, and what its interval is made of.

    Results are given in the order in which they appeared: their group, the identity of the tuple that was
    kept, t, and the value to sum up (1 for a count). A mean is a ratio of two sums; its variance is that of
    the sum of the distances from the mean, by linearisation.

    >>> import numpy as np
    >>> from penstock.joins.weighted_sums import moments_of
    >>> one_group, kept = np.zeros(3, int), np.array([7, 7, 9])
    >>> found = moments_of("sum", one_group, 1, kept, np.array([0.5, 0.25, 1.0]), np.array([1.0, 2.0, 3.0]))
    >>> found.value, found.variance
    (array([13.]), array([66.]))
    """
    total = np.bincount(group, value / t, groups)
    if what != "mean":
        return Moments(total, *_spread(group, groups, kept, t, value))
    count = np.bincount(group, 1.0 / t, groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / count
        variance, fourth, third = _spread(group, groups, kept, t, value - mean[group])
        return Moments(mean, variance / count**2, fourth / count**4, third / count**3)


def _spread(
    group: np.ndarray, groups: int, kept: np.ndarray, t: np.ndarray, value: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return variance, fourth and third moment of the weighted sum of each group.

    Of a tuple with results of values v_1, v_2, ... at t_1 >= t_2 >= ... the variance q is the sum of
    v_j^2 (1-t_j)/t_j^2 and of 2 v_i v_j (1-t_i)/(t_i t_j) for i < j; all that it needs of i is a running sum.
    """
    if len(t) == 0:
        return np.zeros(groups), np.zeros(groups), np.zeros(groups)
    order = np.lexsort((kept, group))  # stable: the results of a tuple stay in order
    group, kept, t, value = group[order], kept[order], t[order], value[order]
    first = np.flatnonzero(np.append(True, (group[1:] != group[:-1]) | (kept[1:] != kept[:-1])))
    excess = value * (1.0 - t) / t
    before = np.cumsum(excess) - excess
    before -= np.repeat(before[first], np.diff(np.append(first, len(t))))
    q = np.maximum(np.add.reduceat(value / t * (excess + 2.0 * before), first), 0.0)
    share = np.add.reduceat(value / t, first) * (1.0 - np.minimum.reduceat(t, first))
    own = group[first]
    return np.bincount(own, q, groups), np.bincount(own, q * q, groups), np.bincount(own, share * q, groups)


def interval_of(moments: Moments, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and the upper ends of the intervals.

    The variance is itself estimated, from as many tuples as the moments say, so the quantile is that of
    Student's t. And a sample that lacks large values has too small a sum and too small a variance. On that
    side the interval ends where the estimate would be just as many standard errors off with the variance that
    a sum there would have, by the regression of the variance on the sum.

    >>> import numpy as np
    >>> from penstock.joins.weighted_sums import Moments, interval_of
    >>> one = Moments(*(np.array([x]) for x in (100.0, 25.0, 0.625, 0.0)))
    >>> [round(end.item(), 1) for end in interval_of(one, 0.95)]
    [90.2, 109.8]
    """
    variance = np.where(moments.variance > 0.0, moments.variance, np.nan)
    reach = student(confidence, np.maximum(2.0 * variance**2 / moments.fourth, LEAST_DEGREES))
    plain = reach * np.sqrt(variance)
    lean = moments.third / variance * expansion(confidence)[0] ** 2
    far = 0.5 * (np.abs(lean) + np.sqrt(lean**2 + 4.0 * reach**2 * variance))
    below, above = np.where(lean < 0.0, far, plain), np.where(lean > 0.0, far, plain)
    return moments.value - np.nan_to_num(below), moments.value + np.nan_to_num(above)


def student(confidence: float, degrees: Any) -> Any:
    """Return the two-sided quantile of Student's t, by its expansion around that of the normal distribution.

    An expression of Spark can use it, too. From four degrees of freedom on it is right to 0.2 % for 95 %.

    >>> import numpy as np
    >>> from penstock.joins.weighted_sums import student
    >>> student(0.95, np.array([4.0, 10.0, 1e9])).round(2).tolist()
    [2.77, 2.23, 1.96]
    """
    normal, *terms = expansion(confidence)
    return normal + sum(term / degrees**power for power, term in enumerate(terms, 1))


def expansion(confidence: float) -> tuple[float, float, float, float]:
    """Return the normal quantile, and the factors of 1/n, 1/n^2 and 1/n^3 for n degrees of freedom.

    >>> from penstock.joins.weighted_sums import expansion
    >>> [round(factor, 2) for factor in expansion(0.95)]
    [1.96, 2.37, 2.82, 2.56]
    """
    z = NormalDist().inv_cdf((1.0 + float(confidence)) / 2.0)
    return (
        z,
        (z**3 + z) / 4.0,
        (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0,
        (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0,
    )
