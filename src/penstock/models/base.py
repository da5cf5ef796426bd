"""The base class of models: the distribution of coming values, given the past ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.extras import require
from penstock.models import arguments as check
from penstock.models.arguments import Floats, ModelError


@dataclass(frozen=True)
class Past:
    """A summary of a history: the time of its last value (the first has time 0), and that value.

    >>> from penstock.models import Past
    >>> Past(now=9, last=4.0)
    Past(now=9, last=4.0)
    """

    now: int
    last: float | None = None


History = Past | Sequence[float] | NDArray[Any]


def past_of(history: History) -> Past:
    """Return the time and the last value of a history, which may be empty.

    >>> from penstock.models.base import past_of
    >>> past_of([3, 1, 4])
    Past(now=2, last=4.0)
    """
    if isinstance(history, Past):
        return history
    values = np.asarray(history, np.float64)
    if values.ndim != 1:
        raise ModelError(
            f"A history is a sequence of values or a Past; an array of shape {values.shape} was given."
        )
    return Past(len(values) - 1, float(values[-1]) if len(values) else None)


@dataclass(frozen=True)
class Model:
    """Base of all models. A model is a frozen record of its parameters; it keeps no history.

    Values are whole numbers, or multiples of `step` if the model has one. Time counts the values of the
    stream from 0.
    """

    independent: ClassVar[bool] = True  # values of different times do not depend on each other
    parameters: ClassVar[int] = 0  # number of fitted parameters, for the information criterion
    normal: ClassVar[bool] = False  # its `pmf` needs SciPy

    def pmf(self, values: ArrayLike, ahead: ArrayLike, history: History = ()) -> Floats:
        """Return `Pr{X_{t+d} = v | history}` for every d of `ahead` (rows) and v of `values` (columns)."""
        raise ModelError(f"{type(self).__name__} has no pmf(); a model must define it.")

    def first_reference(self, values: ArrayLike, ahead: int, history: History = ()) -> Floats:
        """Return the probability that v occurs at t+d and not between, for d from 1 to `ahead`.

        For independent values it is a product. Otherwise the last value determines what follows: a visit at
        t+d is a first visit at some t+k followed by a return in d-k steps, which is solved for the first.
        """
        values, ahead = check.values(values), check.whole("ahead", ahead)
        steps = np.arange(1, ahead + 1)
        visits = self.pmf(values, steps, history)
        if self.independent:
            missed = np.cumprod(1.0 - visits, axis=0)
            return visits * np.vstack([np.ones((1, len(values))), missed[:-1]])
        now = past_of(history).now
        returns = np.column_stack([self.pmf([v], steps, Past(now, float(v)))[:, 0] for v in values])
        first = np.empty_like(visits)
        for d in range(ahead):
            first[d] = visits[d] - (first[:d] * returns[:d][::-1]).sum(axis=0)
        return np.clip(first, 0.0, 1.0)

    def sample(self, n: int, seed: int | np.random.Generator = 0) -> NDArray[Any]:
        """Draw the first n values of a stream that follows the model."""
        raise ModelError(f"{type(self).__name__} has no sample(); a model must define it.")

    @classmethod
    def fit(cls, series: ArrayLike) -> Model:
        """Fit a model of this kind to a series."""
        raise ModelError(f"{cls.__name__} has no fit(); choose another model.")

    def log_likelihood(self, series: ArrayLike) -> float:
        """Return how well the model explains a series: the sum of the log probabilities."""
        raise ModelError(f"{type(self).__name__} has no log_likelihood().")


def log_probability(p: Floats) -> float:
    """Return the sum of logarithms; impossible values count as very improbable."""
    return float(np.log(np.maximum(p, 1e-300)).sum())


def normal_cell(offset: ArrayLike, sd: ArrayLike) -> Floats:
    """Return the probability that a normal variable with mean 0 rounds to a number at this offset.

    >>> from penstock.models.base import normal_cell
    >>> normal_cell([0, 1], 1.0).round(3).tolist()
    [0.383, 0.242]
    """
    require("scipy", "The normal distribution of a model")
    from scipy.special import ndtr  # SciPy is slow to import

    far = np.abs(np.asarray(offset, np.float64))  # the lower tail keeps its digits
    spread = np.asarray(sd, np.float64)
    return np.asarray(ndtr((0.5 - far) / spread) - ndtr((-0.5 - far) / spread), np.float64)
