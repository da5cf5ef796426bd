"""Streams whose values rise or fall steadily, with independent noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.extras import require
from penstock.models import arguments as check
from penstock.models.arguments import Floats, ModelError
from penstock.models.base import History, Model, log_probability, past_of
from penstock.models.noise import BoundedNormal, Noise


@dataclass(frozen=True)
class LinearTrend(Model):
    """`X_t = slope * t + intercept + noise` (sections 7.3 and 7.4), the trend rounded to whole numbers.

    Parameters
    ----------
    slope, intercept
        The trend at time t, which counts from 0.
    noise
        `BoundedNormal`, `BoundedUniform` or any `Pmf`, in multiples of `step`.
    step
        Values are multiples of it.

    Examples
    --------
    >>> from penstock.models import BoundedUniform, LinearTrend
    >>> model = LinearTrend(slope=1, intercept=-1, noise=BoundedUniform(1))
    >>> model.pmf([9, 12], ahead=[1, 2], history=range(10)).round(3).tolist()
    [[0.333, 0.0], [0.333, 0.0]]
    """

    slope: float
    intercept: float
    noise: Noise
    step: float = 1.0

    parameters: ClassVar[int] = 3

    def __post_init__(self) -> None:
        check.number("slope", self.slope)
        check.number("intercept", self.intercept)
        check.number("step", self.step, above=0.0)
        if not isinstance(self.noise, Noise):
            raise ModelError(
                f"noise={self.noise!r} is not allowed; it is a BoundedNormal, a BoundedUniform or a Pmf."
            )

    def trend(self, time: ArrayLike) -> NDArray[np.int64]:
        """Return the trend at some times, as multiples of `step`.

        >>> from penstock.models import BoundedUniform, LinearTrend
        >>> LinearTrend(0.5, 0, BoundedUniform(1)).trend([0, 1, 2, 3]).tolist()
        [0, 1, 1, 2]
        """
        exact = (self.slope / self.step) * np.asarray(time, np.float64) + self.intercept / self.step
        return np.floor(exact + 0.5).astype(np.int64)

    def pmf(self, values: ArrayLike, ahead: ArrayLike, history: History = ()) -> Floats:
        """Return the probability of the noise that leads to the value."""
        at = self.trend(past_of(history).now + check.steps(ahead))
        return self.noise.pmf(check.values(values)[None, :] / self.step - at[:, None])

    def sample(self, n: int, seed: int | np.random.Generator = 0) -> NDArray[Any]:
        """Draw the first n values.

        >>> from penstock.models import BoundedUniform, LinearTrend
        >>> LinearTrend(2, 5, BoundedUniform(1)).sample(4).tolist()
        [5, 6, 8, 10]
        """
        found = self.trend(np.arange(check.whole("n", n, 0))) + self.noise.sample(n, seed)
        return found if self.step == 1.0 else found * self.step

    @classmethod
    def fit(cls, series: ArrayLike) -> LinearTrend:
        """Fit the trend by least squares; the noise is normal with the spread and range of the residuals.

        >>> from penstock.models import BoundedNormal, LinearTrend
        >>> fitted = LinearTrend.fit(LinearTrend(2, 5, BoundedNormal(2, 10)).sample(2_000))
        >>> round(fitted.slope, 2), round(fitted.noise.sd, 1)
        (2.0, 2.0)
        """
        require("statsmodels", "LinearTrend.fit()")
        from statsmodels.regression.linear_model import OLS

        found = check.series(series, 3)
        time = np.arange(len(found))
        intercept, slope = OLS(found, np.column_stack([np.ones(len(found)), time])).fit().params
        return cls.around(found, float(slope), float(intercept))

    @classmethod
    def around(cls, series: ArrayLike, slope: float, intercept: float) -> LinearTrend:
        """Return the model with this trend, and normal noise that covers the residuals of the series.

        >>> from penstock.models import LinearTrend
        >>> LinearTrend.around([0, 2, 1, 3], 1.0, 0.0).noise.bound
        2
        """
        found = check.series(series)
        rest = found - slope * np.arange(len(found)) - intercept
        # Rounding adds 1/12 to the variance of a normal variable; the observed values include it.
        sd = math.sqrt(max(float(np.mean(rest**2)) - 1 / 12, 0.04))
        bound = int(max(np.ceil(np.abs(rest).max()), math.ceil(sd))) + 1
        return cls(slope, intercept, BoundedNormal(sd, bound))

    def log_likelihood(self, series: ArrayLike) -> float:
        """Return the sum of the log probabilities of the noise.

        >>> from penstock.models import BoundedUniform, LinearTrend
        >>> round(LinearTrend(1, 0, BoundedUniform(1)).log_likelihood([0, 2]), 3)
        -2.197
        """
        found = check.series(series, 1)
        return log_probability(self.noise.pmf(found / self.step - self.trend(np.arange(len(found)))))
