"""A stream that is known in advance (section 7.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.models import arguments as check
from penstock.models.arguments import Floats, ModelError
from penstock.models.base import History, Model, past_of


@dataclass(frozen=True)
class Sequence(Model):
    """The values in their order, each with probability 1; no values after the last.

    >>> from penstock.models import Sequence
    >>> Sequence([3, 1, 4, 1]).pmf([1, 4], ahead=[1, 2], history=[3]).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        found = check.series(self.values, 1)
        object.__setattr__(self, "values", tuple(found.tolist()))

    def pmf(self, values: ArrayLike, ahead: ArrayLike, history: History = ()) -> Floats:
        """1 if the sequence has the value, else 0."""
        at = past_of(history).now + check.steps(ahead)
        known = np.append(np.array(self.values), np.nan)
        return np.asarray(
            known[np.clip(at, 0, len(self.values))][:, None] == check.values(values)[None, :], np.float64
        )

    def sample(self, n: int, seed: int | np.random.Generator = 0) -> NDArray[Any]:
        """Return the first n values; nothing is random.

        >>> from penstock.models import Sequence
        >>> Sequence([3, 1, 4]).sample(2).tolist()
        [3.0, 1.0]
        """
        if check.whole("n", n, 0) > len(self.values):
            raise ModelError(f"n={n} values were requested; the sequence has {len(self.values)}.")
        return np.array(self.values[:n])

    @classmethod
    def fit(cls, series: ArrayLike) -> Sequence:
        """Return the series itself.

        >>> from penstock.models import Sequence
        >>> Sequence.fit([2, 7])
        Sequence(values=(2.0, 7.0))
        """
        return cls(tuple(check.series(series, 1).tolist()))

    def log_likelihood(self, series: ArrayLike) -> float:
        """0 for the sequence itself; any other is impossible.

        >>> from penstock.models import Sequence
        >>> Sequence([2, 7]).log_likelihood([2, 7])
        0.0
        """
        found = check.series(series, 1)
        same = len(found) <= len(self.values) and np.array_equal(found, self.values[: len(found)])
        return 0.0 if same else -np.inf
