"""Streams whose values are drawn independently from one distribution, known or learnt from the past."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.models import arguments as check
from penstock.models.arguments import Floats, ModelError
from penstock.models.base import History, Model, log_probability
from penstock.models.noise import probabilities_of


@dataclass(frozen=True)
class Stationary(Model):
    """Every value is drawn from the same distribution, whatever came before (section 7.2).

    >>> from penstock.models import Stationary
    >>> model = Stationary(values=[1, 2, 5], probabilities=[0.5, 0.25, 0.25])
    >>> model.pmf([1, 5, 9], ahead=[1, 100]).tolist()
    [[0.5, 0.25, 0.0], [0.5, 0.25, 0.0]]
    >>> model.first_reference([1], ahead=3)[:, 0].tolist()
    [0.5, 0.25, 0.125]
    """

    values: tuple[Any, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        values = tuple(v.item() if isinstance(v, np.generic) else v for v in self.values)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "probabilities", probabilities_of(self.probabilities))
        if len(values) != len(self.probabilities):
            raise ModelError(
                f"{len(values)} values and {len(self.probabilities)} probabilities were given; give one "
                "probability per value."
            )
        if len(set(values)) != len(values):
            raise ModelError("A value was given more than once; add up its probabilities.")

    def pmf(self, values: ArrayLike, ahead: ArrayLike, history: History = ()) -> Floats:
        """The same at every time."""
        known = dict(zip(self.values, self.probabilities, strict=True))
        row = np.array([known.get(v, 0.0) for v in np.atleast_1d(np.asarray(values)).tolist()])
        return np.tile(row, (len(check.steps(ahead)), 1))

    def sample(self, n: int, seed: int | np.random.Generator = 0) -> NDArray[Any]:
        """Return n independent draws.

        >>> from penstock.models import Stationary
        >>> Stationary([7, 8], [0.5, 0.5]).sample(4).tolist()
        [8, 7, 7, 7]
        """
        random = np.random.default_rng(seed)
        return np.asarray(self.values)[
            random.choice(len(self.values), check.whole("n", n, 0), p=self.probabilities)
        ]

    @classmethod
    def fit(cls, series: ArrayLike) -> Stationary:
        """Fit the shares of the values in the series.

        >>> from penstock.models import Stationary
        >>> Stationary.fit([1, 1, 2, 1])
        Stationary(values=(1, 2), probabilities=(0.75, 0.25))
        """
        counts = Counter(np.asarray(series).tolist())
        if not counts:
            raise ModelError("The series is empty; at least one value is needed to learn from.")
        total = sum(counts.values())
        values = sorted(counts)
        return cls(tuple(values), tuple(counts[v] / total for v in values))

    def log_likelihood(self, series: ArrayLike) -> float:
        """Return the sum of the log probabilities of the values.

        >>> from penstock.models import Stationary
        >>> round(Stationary([1, 2], [0.5, 0.5]).log_likelihood([1, 2]), 3)
        -1.386
        """
        return log_probability(self.pmf(np.asarray(series), [1])[0])


@dataclass(frozen=True)
class Empirical(Stationary):
    """A distribution learnt from the past, in which older values count less.

    >>> from penstock.models import Empirical
    >>> Empirical.fit([1, 1, 2, 2], memory=1.0).pmf([1, 2], [1]).round(3).tolist()
    [[0.119, 0.881]]
    """

    @classmethod
    def fit(cls, series: ArrayLike, memory: float | None = None) -> Empirical:
        """Fit the shares of the values; the one k steps before the last has weight exp(-k / memory).

        >>> from penstock.models import Empirical
        >>> Empirical.fit([3, 3, 4, 4])
        Empirical(values=(3, 4), probabilities=(0.5, 0.5))
        """
        found = check.series(series, 1)
        age = np.arange(len(found) - 1, -1, -1)
        weight = np.ones(len(found)) if memory is None else np.exp(-age / check.number("memory", memory, 0.0))
        values, code = np.unique(found, return_inverse=True)
        share = np.bincount(code, weights=weight)
        plain = [int(v) if v == int(v) else v for v in check.values(values).tolist()]
        return cls(tuple(plain), tuple(share / share.sum()))
