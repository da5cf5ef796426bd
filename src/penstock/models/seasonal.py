"""A periodic mean with AR(1) noise: every value depends on the last one's distance from the mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.models import arguments as check
from penstock.models.arguments import Floats, ModelError
from penstock.models.base import History, Model, log_probability, normal_cell, past_of


@dataclass(frozen=True)
class Seasonal(Model):
    """`X_t = mean(t) + U_t`, where the mean repeats every `len(means)` steps and U is AR(1) around 0.

    Parameters
    ----------
    means
        The mean of each step of the period; the stream begins with the first.
    phi
        The share of a value's distance from its mean that remains in the next.
    sd
        The standard deviation of the noise of each step.
    step
        Values are multiples of it.

    Examples
    --------
    >>> from penstock.models import Seasonal
    >>> model = Seasonal(means=(10, 20), phi=0.5, sd=2)
    >>> model.pmf([20, 22], ahead=[1, 101], history=[14]).round(3).tolist()
    [[0.121, 0.197], [0.171, 0.118]]
    """

    means: tuple[float, ...]
    phi: float
    sd: float
    step: float = 1.0

    independent: ClassVar[bool] = False
    normal: ClassVar[bool] = True
    parameters: ClassVar[int] = 5

    def __post_init__(self) -> None:
        object.__setattr__(self, "means", tuple(check.series(self.means, 1).tolist()))
        check.number("phi", self.phi)
        check.number("sd", self.sd, above=0.0)
        check.number("step", self.step, above=0.0)
        if abs(self.phi) >= 1 or self.phi == 0:
            raise ModelError(f"phi={self.phi!r} is not allowed; it is between -1 and 1 and not 0.")

    @property
    def period(self) -> int:
        """Number of steps after which the mean repeats."""
        return len(self.means)

    @property
    def spread(self) -> float:
        """The long-run standard deviation around the mean."""
        return self.sd / math.sqrt(1.0 - self.phi**2)

    def pmf(self, values: ArrayLike, ahead: ArrayLike, history: History = ()) -> Floats:
        """Normal around the mean of that time plus what remains of the last distance."""
        past, steps, values = past_of(history), check.steps(ahead), check.values(values)
        means = np.array(self.means)
        away = 0.0 if past.last is None else past.last - means[past.now % self.period]
        kept = np.zeros(len(steps)) if past.last is None else self.phi ** steps.astype(np.float64)
        mean = means[(past.now + steps) % self.period] + kept * away
        sd = self.spread * np.sqrt(1.0 - kept**2)
        return normal_cell((values[None, :] - mean[:, None]) / self.step, sd[:, None] / self.step)

    def first_reference(self, values: ArrayLike, ahead: int, history: History = ()) -> Floats:
        """Visits solved for the first as if a return took the same course whenever it begins.

        >>> from penstock.models import Seasonal
        >>> Seasonal((5.0,), 0.5, 1.0).first_reference([5], 2, [5]).round(3)[:, 0].tolist()
        [0.383, 0.199]
        """
        return super().first_reference(values, ahead, history)

    def sample(self, n: int, seed: int | np.random.Generator = 0) -> NDArray[Any]:
        """Draw n values, the first from the long-run distribution.

        >>> from penstock.models import Seasonal
        >>> Seasonal((0, 100), 0.5, 1).sample(4).tolist()
        [0, 100, 1, 100]
        """
        from penstock.models.ar1 import AR1

        around = AR1(self.phi, 0.0, self.sd, step=self.step / 1024).sample(n, seed)
        found = np.rint(
            (np.array(self.means)[np.arange(check.whole("n", n, 0)) % self.period] + around) / self.step
        )
        return found.astype(np.int64) if self.step == 1.0 else found * self.step

    @classmethod
    def fit(cls, series: ArrayLike, period: int | None = None, waves: int = 1, step: float = 1.0) -> Seasonal:
        """Fit a constant and sine waves of the period by least squares, then AR(1) to the residuals.

        >>> from penstock.models import Seasonal
        >>> year = Seasonal((40, 60, 70, 60, 40, 20, 10, 20), 0.5, 4)
        >>> fitted = Seasonal.fit(year.sample(4_000), period=8, waves=2)
        >>> round(fitted.phi, 1), round(fitted.means[2] / 10)
        (0.5, 7)
        """
        if period is None:
            raise ModelError("A season needs its period: Seasonal.fit(series, period=365).")
        period, waves = check.whole("period", period, 2), check.whole("waves", waves, 1)
        found = check.series(series, max(8, 2 * waves + 4))

        def curve(time: NDArray[np.int64]) -> Floats:
            turns = 2.0 * np.pi * np.arange(1, waves + 1) * time[:, None] / period
            return np.column_stack([np.ones(len(time)), np.cos(turns), np.sin(turns)])

        time = np.arange(len(found))
        weights = np.linalg.lstsq(curve(time), found, rcond=None)[0]
        rest = found - curve(time) @ weights
        phi = float(rest[:-1] @ rest[1:]) / max(float(rest[:-1] @ rest[:-1]), 1e-300)
        phi = min(max(phi, -0.999), 0.999) or 1e-6
        sd = max(float(np.std(rest[1:] - phi * rest[:-1])), 1e-2)
        return cls(tuple((curve(np.arange(period)) @ weights).tolist()), phi, sd, step)

    def log_likelihood(self, series: ArrayLike) -> float:
        """Return the sum of log probabilities given the value before, without the first value.

        >>> from penstock.models import AR1, Seasonal
        >>> series = [2, 1, 0]
        >>> bool(Seasonal((0.0,), 0.5, 1).log_likelihood(series) == AR1(0.5, 0, 1).log_likelihood(series))
        True
        """
        found = check.series(series)
        rest = found - np.array(self.means)[np.arange(len(found)) % self.period]
        return log_probability(
            normal_cell((rest[1:] - self.phi * rest[:-1]) / self.step, self.sd / self.step)
        )
