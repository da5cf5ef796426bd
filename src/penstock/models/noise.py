"""Noise around a trend: independent whole numbers in a bounded range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.extras import require
from penstock.models import arguments as check
from penstock.models.arguments import Floats, ModelError
from penstock.models.base import normal_cell


@dataclass(frozen=True)
class Noise:
    """Base of noises: `table` has the probabilities of the whole numbers from `low` up."""

    @property
    def low(self) -> int:
        """The smallest possible number."""
        raise ModelError(f"{type(self).__name__} has no low; a noise must define it.")

    @property
    def table(self) -> Floats:
        """The probability of each number from the smallest to the largest."""
        raise ModelError(f"{type(self).__name__} has no table; a noise must define it.")

    def pmf(self, values: ArrayLike) -> Floats:
        """The probability of each value.

        >>> from penstock.models import BoundedUniform
        >>> BoundedUniform(2).pmf([-3, 0, 2]).tolist()
        [0.0, 0.2, 0.2]
        """
        given = np.asarray(values, np.float64)
        whole = np.rint(given)
        table, at = self.table, (whole - self.low).astype(np.int64)
        inside = (at >= 0) & (at < len(table)) & (given == whole)
        return np.where(inside, table[np.clip(at, 0, len(table) - 1)], 0.0)

    def sample(self, n: int, seed: int | np.random.Generator = 0) -> NDArray[np.int64]:
        """n independent draws.

        >>> from penstock.models import BoundedNormal
        >>> BoundedNormal(sd=1, bound=3).sample(5).tolist()
        [0, -1, -2, -2, 1]
        """
        random = np.random.default_rng(seed)
        return random.choice(len(self.table), check.whole("n", n, 0), p=self.table) + self.low


@dataclass(frozen=True)
class BoundedNormal(Noise):
    """A normal distribution with mean 0, rounded to whole numbers and cut off beyond `bound`.

    >>> from penstock.models import BoundedNormal
    >>> BoundedNormal(sd=1, bound=10).pmf([0, 1, 11]).round(3).tolist()
    [0.383, 0.242, 0.0]
    """

    sd: float
    bound: int

    def __post_init__(self) -> None:
        check.number("sd", self.sd, above=0.0)
        check.whole("bound", self.bound, 0)
        require("scipy", "BoundedNormal")

    @property
    def low(self) -> int:
        """The lower bound."""
        return -self.bound

    @property
    def table(self) -> Floats:
        """The probabilities, which add up to 1."""
        cells = normal_cell(np.arange(-self.bound, self.bound + 1), float(self.sd))
        return cells / cells.sum()


@dataclass(frozen=True)
class BoundedUniform(Noise):
    """Every whole number from -`bound` to `bound` is equally likely.

    >>> from penstock.models import BoundedUniform
    >>> BoundedUniform(2).table.tolist()
    [0.2, 0.2, 0.2, 0.2, 0.2]
    """

    bound: int

    def __post_init__(self) -> None:
        check.whole("bound", self.bound, 0)

    @property
    def low(self) -> int:
        """The lower bound."""
        return -self.bound

    @property
    def table(self) -> Floats:
        """The probabilities."""
        return np.full(2 * self.bound + 1, 1.0 / (2 * self.bound + 1))


@dataclass(frozen=True)
class Pmf(Noise):
    """Any distribution over whole numbers: the probabilities of `first`, `first` + 1, and so on.

    >>> from penstock.models import Pmf
    >>> Pmf([0.5, 0.25, 0.25], first=-1).pmf([-1, 0, 5]).tolist()
    [0.5, 0.25, 0.0]
    """

    probabilities: tuple[float, ...]
    first: int = 0

    def __post_init__(self) -> None:
        check.whole("first", self.first, -(2**62))
        object.__setattr__(self, "probabilities", probabilities_of(self.probabilities))

    @property
    def low(self) -> int:
        """The smallest number."""
        return self.first

    @property
    def table(self) -> Floats:
        """The probabilities."""
        return np.array(self.probabilities)


def probabilities_of(given: Any) -> tuple[float, ...]:
    """Probabilities as a tuple, or an error: they are not negative and add up to 1.

    >>> from penstock.models.noise import probabilities_of
    >>> probabilities_of([0.5, 0.5])
    (0.5, 0.5)
    """
    try:
        found = tuple(float(p) for p in given)
    except (TypeError, ValueError):
        found = ()
    if not found or not all(math.isfinite(p) and p >= 0 for p in found):
        raise ModelError(f"probabilities={given!r} is not allowed; give numbers from 0 to 1, at least one.")
    if abs(sum(found) - 1.0) > 1e-6:
        raise ModelError(
            f"probabilities must add up to 1; these add up to {sum(found):.6g}. Divide by their sum."
        )
    total = math.fsum(found)
    return tuple(p / total for p in found) if total != 1.0 else found
