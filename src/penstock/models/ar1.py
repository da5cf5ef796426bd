"""AR(1): every value depends on the one before and reverts to a mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.extras import require
from penstock.models import arguments as check
from penstock.models.arguments import Floats, ModelError
from penstock.models.base import History, Model, log_probability, normal_cell, past_of


@dataclass(frozen=True)
class AR1(Model):
    """`X_t = phi * X_{t-1} + const + Y_t` with normal noise; values are its multiples of `step`, rounded.

    >>> from penstock.models import AR1
    >>> model = AR1(phi=0.72, const=5.59, sd=4.22)
    >>> round(model.mean, 2), round(model.spread, 2)
    (19.96, 6.08)
    >>> model.pmf([20], ahead=[1, 2, 50], history=[30]).round(4)[:, 0].tolist()
    [0.0222, 0.0468, 0.0655]
    """

    phi: float
    const: float
    sd: float
    step: float = 1.0

    independent: ClassVar[bool] = False
    normal: ClassVar[bool] = True
    parameters: ClassVar[int] = 3

    def __post_init__(self) -> None:
        check.number("phi", self.phi)
        check.number("const", self.const)
        check.number("sd", self.sd, above=0.0)
        check.number("step", self.step, above=0.0)
        if abs(self.phi) >= 1 or self.phi == 0:
            raise ModelError(
                f"phi={self.phi!r} is not allowed; it is between -1 and 1 and not 0. Use RandomWalk for "
                "1 and Stationary for 0."
            )

    @property
    def mean(self) -> float:
        """The long-run mean of the stream."""
        return self.const / (1.0 - self.phi)

    @property
    def spread(self) -> float:
        """The long-run standard deviation."""
        return self.sd / math.sqrt(1.0 - self.phi**2)

    def pmf(self, values: ArrayLike, ahead: ArrayLike, history: History = ()) -> Floats:
        """Normal around the mean plus what remains of the last value's distance from it."""
        last = past_of(history).last
        ahead, values = check.steps(ahead).astype(np.float64), check.values(values)
        kept = np.full(len(ahead), 0.0) if last is None else self.phi**ahead
        mean = self.mean + kept * ((last or 0.0) - self.mean) if last is not None else self.mean + kept
        sd = self.spread * np.sqrt(1.0 - kept**2)
        return normal_cell((values[None, :] - mean[:, None]) / self.step, sd[:, None] / self.step)

    def sample(self, n: int, seed: int | np.random.Generator = 0) -> NDArray[Any]:
        """Draw n values, the first from the long-run distribution.

        >>> from penstock.models import AR1
        >>> AR1(0.5, 10, 2).sample(4).tolist()
        [20, 20, 21, 21]
        """
        random = np.random.default_rng(seed)
        noise = random.normal(0.0, self.sd, check.whole("n", n, 0))
        found = np.empty(n)
        at = self.mean + (self.spread / self.sd) * noise[0] if n else 0.0
        for i in range(n):
            at = at if i == 0 else self.phi * at + self.const + noise[i]
            found[i] = at
        whole = np.rint(found / self.step).astype(np.int64)
        return whole if self.step == 1.0 else whole * self.step

    @classmethod
    def fit(cls, series: ArrayLike) -> AR1:
        """Fit by maximum likelihood (least squares of each value on the one before).

        >>> from penstock.models import AR1
        >>> fitted = AR1.fit(AR1(0.7, 30, 20).sample(5_000))
        >>> round(fitted.phi, 1), round(fitted.sd)
        (0.7, 20)
        """
        require("statsmodels", "AR1.fit()")
        from statsmodels.tsa.ar_model import AutoReg

        found = check.series(series, 4)
        if np.ptp(found[:-1]) == 0:
            raise ModelError("The series is constant, so its changes cannot be learnt; use Stationary.")
        fitted = AutoReg(found, lags=1, trend="c").fit()
        const, phi = (float(p) for p in fitted.params)
        if not 0 < abs(phi) < 1:
            raise ModelError(
                f"The series does not follow AR(1): each value is {phi:.3g} times the one before. Use "
                "RandomWalk or LinearTrend, or models.select."
            )
        return cls(phi, const, math.sqrt(max(float(np.mean(fitted.resid**2)), 1e-4)))

    def log_likelihood(self, series: ArrayLike) -> float:
        """Return the sum of log probabilities given the value before, without the first value.

        >>> from penstock.models import AR1
        >>> round(AR1(0.5, 0, 1).log_likelihood([2, 1, 0]), 3)
        -2.035
        """
        found = check.series(series)
        rest = found[1:] - self.phi * found[:-1] - self.const
        return log_probability(normal_cell(rest / self.step, self.sd / self.step))
