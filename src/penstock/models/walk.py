"""Random walks: every value is the previous one plus a drift and an independent step."""

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

REACH = 9.0  # standard deviations; the probability beyond is 1e-18


@dataclass(frozen=True)
class RandomWalk(Model):
    """`X_t = X_{t-1} + drift + Y_t` with normal steps, rounded to whole numbers (section 7.5).

    >>> from penstock.models import RandomWalk
    >>> RandomWalk(drift=0, sd=1).pmf([5, 6], ahead=[1, 2], history=[3, 5]).round(3).tolist()
    [[0.383, 0.242], [0.271, 0.215]]
    """

    drift: float
    sd: float
    step: float = 1.0
    start: float = 0.0

    independent: ClassVar[bool] = False
    normal: ClassVar[bool] = True
    parameters: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check.number("drift", self.drift)
        check.number("sd", self.sd, above=0.0)
        check.number("step", self.step, above=0.0)
        check.number("start", self.start)
        require("scipy", "RandomWalk")

    @property
    def steps(self) -> tuple[int, Floats]:
        """Return the smallest step, and the probabilities of the steps from it up, in multiples of `step`.

        >>> from penstock.models import RandomWalk
        >>> low, table = RandomWalk(drift=2, sd=1).steps
        >>> low + int(table.argmax())
        2
        """
        drift, sd = self.drift / self.step, self.sd / self.step
        low, high = math.floor(drift - REACH * sd), math.ceil(drift + REACH * sd)
        cells = normal_cell(np.arange(low, high + 1) - drift, sd)
        return low, cells / cells.sum()

    def pmf(self, values: ArrayLike, ahead: ArrayLike, history: History = ()) -> Floats:
        """The distribution of the sum of d steps, from the last value."""
        at = past_of(history).last
        at = self.start if at is None else at
        ahead = check.steps(ahead)
        offsets = np.rint((check.values(values) - at) / self.step).astype(np.int64)
        low, table = self.steps
        found = np.zeros((len(ahead), len(offsets)))
        sums = np.ones(1)
        first = 0
        for d in range(1, int(ahead.max(initial=0)) + 1):
            sums, first = np.convolve(sums, table), first + low
            first, sums = _trimmed(first, sums)
            for row in np.flatnonzero(ahead == d):
                places = offsets - first
                inside = (places >= 0) & (places < len(sums))
                found[row, inside] = sums[places[inside]]
        return found

    def sample(self, n: int, seed: int | np.random.Generator = 0) -> NDArray[Any]:
        """Draw the first n values; the walk starts with a step from `start`.

        >>> from penstock.models import RandomWalk
        >>> RandomWalk(drift=0, sd=1).sample(5).tolist()
        [0, 0, 1, 1, 0]
        """
        random = np.random.default_rng(seed)
        steps = random.normal(self.drift / self.step, self.sd / self.step, check.whole("n", n, 0))
        walk = np.cumsum(np.rint(steps).astype(np.int64)) + round(self.start / self.step)
        return walk if self.step == 1.0 else walk * self.step

    @classmethod
    def fit(cls, series: ArrayLike) -> RandomWalk:
        """Fit the mean and spread of the steps.

        >>> from penstock.models import RandomWalk
        >>> fitted = RandomWalk.fit(RandomWalk(drift=1, sd=3).sample(5_000))
        >>> round(fitted.drift), round(fitted.sd)
        (1, 3)
        """
        found = check.series(series, 3)
        steps = np.diff(found)
        sd = math.sqrt(max(float(np.var(steps)) - 1 / 12, 0.01))
        return cls(float(steps.mean()), sd, start=float(found[0]))

    def log_likelihood(self, series: ArrayLike) -> float:
        """Return the sum of the log probabilities of the steps, without the first value.

        >>> from penstock.models import RandomWalk
        >>> round(RandomWalk(0, 1).log_likelihood([3, 3, 4]), 3)
        -2.38
        """
        found = check.series(series)
        low, table = self.steps
        at = np.rint(np.diff(found) / self.step).astype(np.int64) - low
        inside = (at >= 0) & (at < len(table))
        return log_probability(np.where(inside, table[np.clip(at, 0, len(table) - 1)], 0.0))


def _trimmed(first: int, sums: Floats) -> tuple[int, Floats]:
    """A distribution without ends whose probabilities are less than 1e-20."""
    kept = np.flatnonzero(sums > 1e-20)
    if len(kept) == 0:
        raise ModelError("The walk spreads so far that every probability is 0; use a smaller sd.")
    return first + int(kept[0]), sums[kept[0] : kept[-1] + 1]
