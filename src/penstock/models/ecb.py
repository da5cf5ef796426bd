"""The expected cumulative benefit of a tuple, and when one tuple is certainly worth more than another.

`B_x(dt)` is the expected number of results that x gives in the next dt steps; for the caching problem, the
probability that x is referenced in them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from penstock.arguments import one_of
from penstock.models import arguments as check
from penstock.models.arguments import Floats, ModelError
from penstock.models.base import History, Model

PROBLEMS = ("joining", "caching")


def ecb(
    model: Model, values: ArrayLike, ahead: int, history: History = (), *, problem: str = "joining"
) -> Floats:
    """Return `B_x(1)` to `B_x(ahead)` for tuples with these values: a row per dt, a column per value.

    `model` is that of the stream the tuples join with (Lemma 1), or of the references (Corollary 1).

    >>> from penstock.models import Stationary, ecb
    >>> model = Stationary([1, 2], [0.75, 0.25])
    >>> ecb(model, [1, 2], ahead=2).tolist()
    [[0.75, 0.25], [1.5, 0.5]]
    >>> ecb(model, [1, 2], ahead=2, problem="caching").tolist()
    [[0.75, 0.25], [0.9375, 0.4375]]
    """
    return np.cumsum(step_benefits(model, values, ahead, history, problem=problem), axis=0)


def step_benefits(
    model: Model, values: ArrayLike, ahead: int, history: History = (), *, problem: str = "joining"
) -> Floats:
    """Return what each of the next steps adds to the expected benefit.

    >>> from penstock.models import Sequence, step_benefits
    >>> step_benefits(Sequence([5, 6, 5]), [5], ahead=3)[:, 0].tolist()
    [1.0, 0.0, 1.0]
    """
    one_of("problem", problem, PROBLEMS, ModelError)
    if problem == "caching":
        return model.first_reference(values, ahead, history)
    return model.pmf(values, np.arange(1, check.whole("ahead", ahead) + 1), history)


def dominates(x: ArrayLike, y: ArrayLike, *, strongly: bool = False) -> bool:
    """Whether the ECB x is nowhere below the ECB y (everywhere above it, if `strongly`).

    Then it is optimal to keep x or to evict y (Theorem 1).

    >>> from penstock.models import dominates
    >>> dominates([1, 2, 3], [1, 1, 3]), dominates([1, 2, 3], [1, 1, 3], strongly=True)
    (True, False)
    """
    one, other = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if one.ndim != 1 or one.shape != other.shape or len(one) == 0:
        raise ModelError(
            f"Two ECBs are compared step by step; theirs are arrays of shape {one.shape} and {other.shape}."
        )
    return bool((one > other).all() if strongly else (one >= other).all())


def comparable(x: ArrayLike, y: ArrayLike) -> bool:
    """Whether one of two ECBs dominates the other.

    >>> from penstock.models import comparable
    >>> comparable([0.5, 0.6], [0.1, 0.9])
    False
    """
    return dominates(x, y) or dominates(y, x)


def is_dominated_subset(ecbs: ArrayLike, subset: Sequence[int]) -> bool:
    """Whether every ECB outside the subset dominates every one within (Corollary 2).

    `ecbs` has a column per candidate, as `ecb` gives them; `subset` has numbers of columns.

    >>> from penstock.models import is_dominated_subset
    >>> curves = [[3, 1, 2], [4, 1, 2]]
    >>> is_dominated_subset(curves, [1]), is_dominated_subset(curves, [2])
    (True, False)
    """
    columns = _columns(ecbs)
    inside = np.zeros(columns.shape[1], bool)
    inside[list(subset)] = True
    if inside.all() or not inside.any():
        return True
    return bool((columns[:, ~inside].min(axis=1) >= columns[:, inside].max(axis=1)).all())


def dominated_subset(ecbs: ArrayLike, most: int) -> list[int]:
    """Return the largest dominated subset of at most this many candidates: the best ones to evict.

    Dominated subsets are nested, so they are found by adding candidates from the lowest up: a candidate
    outside a dominated subset has the larger sum.

    >>> from penstock.models import dominated_subset
    >>> curves = [[0.5, 0.1, 0.9, 0.4], [0.6, 0.9, 2.0, 0.5]]
    >>> dominated_subset(curves, 1), dominated_subset(curves, 3)
    ([], [0, 1, 3])
    """
    columns = _columns(ecbs)
    order = np.argsort(columns.sum(axis=0), kind="stable")
    most = min(check.whole("most", most, 0), columns.shape[1])
    for size in range(most, 0, -1):
        if is_dominated_subset(columns, order[:size].tolist()):
            return sorted(order[:size].tolist())
    return []


def _columns(ecbs: ArrayLike) -> Floats:
    found = np.asarray(ecbs, np.float64)
    if found.ndim != 2 or 0 in found.shape:
        raise ModelError(f"ecbs has a row per step and a column per candidate; its shape is {found.shape}.")
    return found
