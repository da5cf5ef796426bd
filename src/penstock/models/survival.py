"""`L_x`: the probability that a tuple is still in memory some steps from now (Table 1 and section 5.3)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.arguments import one_of
from penstock.models import arguments as check
from penstock.models.arguments import Floats, ModelError

KINDS = ("fixed", "inf", "inv", "exp")
LEFT_OUT = 1e-12  # smaller weights are ignored
FARTHEST = 1 << 20  # steps
TRIED = 1 << 16  # steps for which the properties of a function are checked


@dataclass(frozen=True)
class Survival:
    """One of the functions of Table 1: `fixed` (for `steps` steps), `inf`, `inv` or `exp` (with `alpha`).

    >>> from penstock.models import Survival
    >>> Survival("exp", alpha=2.0).weights(3).round(3).tolist()
    [0.607, 0.368, 0.223]
    >>> Survival("fixed", steps=2).weights(3).tolist()
    [1.0, 1.0, 0.0]
    """

    kind: str = "exp"
    alpha: float | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        one_of("L", self.kind, KINDS, ModelError)
        if self.kind == "exp":
            check.number("alpha", self.alpha, above=0.0)
        if self.kind == "fixed":
            check.whole("steps", self.steps)

    @property
    def converges(self) -> bool:
        """Whether the expected benefit of a join is finite with it, for any streams."""
        return self.kind in ("exp", "fixed")

    @property
    def reach(self) -> int:
        """Number of steps after which the weights are negligible.

        >>> from penstock.models import Survival
        >>> Survival("exp", alpha=12).reach
        332
        """
        if self.kind == "fixed":
            return int(self.steps or 0)
        if self.kind == "exp":
            return min(FARTHEST, math.ceil(float(self.alpha or 0.0) * -math.log(LEFT_OUT)))
        return FARTHEST

    def weights(self, ahead: int, pace: float = 1.0) -> Floats:
        """Return `L(1)` to `L(ahead)`; `pace` is the number of steps per unit of time."""
        steps = np.arange(1, ahead + 1, dtype=np.float64) / pace
        if self.kind == "exp":
            return np.exp(-steps / float(self.alpha or 0.0))
        if self.kind == "fixed":
            return np.asarray(steps <= (self.steps or 0), np.float64)
        return np.ones(ahead) if self.kind == "inf" else 1.0 / steps


@dataclass(frozen=True)
class OwnSurvival:
    """Your own function, `function(dt)` for dt = 1, 2, ..., whose properties are checked.

    It returns probabilities (1) that do not rise (2), have a finite sum (3) and are above 0 at dt = 1 (5).
    One function serves all tuples, so tuples with more benefit are given no less time (4).

    >>> from penstock.models import OwnSurvival
    >>> OwnSurvival(lambda dt: 0.5**dt).weights(3).tolist()
    [0.5, 0.25, 0.125]
    >>> OwnSurvival(lambda dt: 1 / dt)
    Traceback (most recent call last):
        ...
    penstock.models.arguments.ModelError: L must have a finite sum (property 3): ...
    """

    function: Callable[[float], float]

    converges = True

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ModelError(f"L={self.function!r} is not a function of the number of steps.")
        try:
            tried = self.weights(TRIED)
        except Exception as error:
            raise ModelError(
                f"L takes a number of steps and returns a probability; {self.function!r} does not: {error}"
            ) from error
        wrong = np.flatnonzero(~((tried >= 0) & (tried <= 1)))
        if len(wrong):
            raise ModelError(
                f"L must be a probability (property 1): at dt={wrong[0] + 1} it is {tried[wrong[0]]!r}."
            )
        rising = np.flatnonzero(tried[1:] > tried[:-1])
        if len(rising):
            raise ModelError(f"L must not rise (property 2): it does after dt={rising[0] + 1}.")
        if tried[0] <= 0:
            raise ModelError("L must be above 0 at dt=1 (property 5); otherwise every tuple is worth 0.")
        # A sum is finite if its blocks of doubling length shrink; those of 1/dt are all equal.
        half, whole = tried[TRIED // 4 : TRIED // 2].sum(), tried[TRIED // 2 :].sum()
        if whole > 0.95 * half and whole > LEFT_OUT:
            raise ModelError(
                "L must have a finite sum (property 3): the sum does not seem to converge. Let it "
                "fall faster than 1/dt, or cut it off."
            )

    @property
    def reach(self) -> int:
        """Number of steps after which the weights are negligible."""
        tried = self.weights(TRIED)
        return int(np.flatnonzero(tried > LEFT_OUT)[-1]) + 1

    def weights(self, ahead: int, pace: float = 1.0) -> Floats:
        """Return `L(1)` to `L(ahead)`; `pace` is the number of steps per unit of time."""
        return np.array([float(self.function(dt / pace)) for dt in range(1, ahead + 1)])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the table of values, because the function may not exist elsewhere."""
        return TableSurvival, (tuple(self.weights(self.reach).tolist()),)


@dataclass(frozen=True)
class TableSurvival:
    """A survival given by its values; your own function becomes one in a snapshot.

    >>> from penstock.models.survival import TableSurvival
    >>> TableSurvival((0.5, 0.25)).weights(3).tolist()
    [0.5, 0.25, 0.0]
    """

    values: tuple[float, ...]

    converges = True

    @property
    def reach(self) -> int:
        """Number of steps after which the weights are 0."""
        return len(self.values)

    def weights(self, ahead: int, pace: float = 1.0) -> Floats:
        """`L(1)` to `L(ahead)`; between two values, that of the later."""
        at = np.ceil(np.arange(1, ahead + 1) / pace).astype(np.int64) - 1
        return np.append(np.array(self.values), 0.0)[np.minimum(at, len(self.values))]


AnySurvival = Survival | OwnSurvival | TableSurvival


def survival_of(given: Any, alpha: float | None = None, steps: int | None = None) -> AnySurvival:
    """Return a survival from its name and parameters, or from a function; a survival is returned as it is.

    >>> from penstock.models import survival_of
    >>> survival_of("exp", alpha=12)
    Survival(kind='exp', alpha=12, steps=None)
    """
    if isinstance(given, Survival | OwnSurvival | TableSurvival):
        return given
    if callable(given):
        return OwnSurvival(given)
    return Survival(given, alpha, steps)


def alpha_for(lifetime: float) -> float:
    """Return the `alpha` with which `exp` predicts this average lifetime in steps (above 1).

    >>> from penstock.models import alpha_for
    >>> round(alpha_for(12.5), 3)
    11.993
    """
    return -1.0 / math.log(1.0 - 1.0 / check.number("lifetime", lifetime, above=1.0, most=1e12))
