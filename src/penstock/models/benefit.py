"""`H_x`: the estimated expected benefit of a tuple (section 5.3), computed in the ways of section 6.1.

`benefit` sums over the coming steps. The others need less work: `benefit_later` starts from the value a step
ago, `benefit_elsewhere` from that of another value, and `benefit_table` is computed once for all times.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from penstock.models import arguments as check
from penstock.models.arguments import Floats, ModelError
from penstock.models.base import History, Model, Past, past_of
from penstock.models.ecb import step_benefits
from penstock.models.survival import AnySurvival, Survival, survival_of
from penstock.models.trend import LinearTrend
from penstock.models.walk import RandomWalk


def benefit(
    model: Model,
    values: ArrayLike,
    history: History = (),
    L: AnySurvival | str = "exp",
    *,
    alpha: float | None = None,
    window: int | None = None,
    problem: str = "joining",
) -> Floats:
    """Return `H_x` of tuples with these values, summed step by step.

    Parameters
    ----------
    model
        The model of the stream that the tuples join with, or of the references.
    history
        The past of that stream: its values, or a `Past`.
    L, alpha
        The survival: `"exp"` with its alpha, a `Survival`, or your own function.
    window
        A tuple gives no results after this many steps.
    problem
        `"joining"` or `"caching"`.

    Examples
    --------
    >>> from penstock.models import Stationary, benefit
    >>> benefit(Stationary([1, 2], [0.75, 0.25]), [1, 2], alpha=10).round(3).tolist()
    [7.131, 2.377]
    """
    survival = survival_of(L, alpha)
    if problem == "joining" and not survival.converges:
        raise ModelError(
            f"L={survival.kind!r} lets the benefit of a join grow without bound; use 'exp' or 'fixed', or "  # type: ignore[union-attr]
            "problem='caching'."
        )
    values = check.values(values)
    exponential = isinstance(survival, Survival) and survival.kind == "exp"
    if problem == "caching" and not model.independent and exponential and window is None:
        return _first_of_returns(model, values, history, survival)
    reach = survival.reach if survival.converges else _caching_reach(model)
    ahead = reach if window is None else min(reach, window)
    if ahead < 1:
        return np.zeros(len(values))
    steps = step_benefits(model, values, ahead, history, problem=problem)
    return survival.weights(ahead) @ steps


def benefit_later(
    before: ArrayLike, probability: ArrayLike, alpha: float, *, problem: str = "joining"
) -> Floats:
    """Return `H_x` now from that of a step ago, for independent values and `exp` (Corollaries 3 and 4).

    `probability` is the chance that the value occurs now. For caching `alpha` may be infinite, which is
    the survival `inf`. Rounding errors grow by exp(1 / alpha) per step: recompute now and then.

    >>> from penstock.models import Past, Stationary, benefit, benefit_later
    >>> model = Stationary([1, 2], [0.75, 0.25])
    >>> before = benefit(model, [1, 2], alpha=5)
    >>> bool(abs(benefit_later(before, [0.75, 0.25], alpha=5) - before).max() < 1e-9)
    True
    """
    growth = math.exp(1.0 / alpha) if check.number("alpha", min(alpha, 1e300), above=0.0) else 1.0
    p = np.asarray(probability, np.float64)
    later = growth * np.asarray(before, np.float64) - p
    if problem == "caching":
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(p < 1.0, later / (1.0 - p), np.nan)
    return later


def benefit_elsewhere(
    model: LinearTrend, value: float, known: float, known_benefit: float, history: History, alpha: float
) -> float:
    """Return `H_x` for a value from that of another value, for a trend (Corollary 5 with Corollary 3).

    A tuple with `value` sees now what one with `known` sees some steps before or after, if the trend covers
    the difference in whole steps.

    >>> from penstock.models import BoundedUniform, LinearTrend, Past, benefit, benefit_elsewhere
    >>> model = LinearTrend(1, 0, BoundedUniform(3))
    >>> ten, twelve = benefit(model, [10, 12], Past(9), alpha=8)
    >>> bool(abs(benefit_elsewhere(model, 12, 10, ten, Past(9), alpha=8) - twelve) < 1e-9)
    True
    """
    if model.slope == 0 or (model.slope / model.step) != round(model.slope / model.step):
        raise ModelError(f"slope={model.slope!r} is not allowed here; it is a whole number of steps, not 0.")
    away = (known - value) / model.slope
    if away != round(away):
        raise ModelError(
            f"The trend does not lead from {known!r} to {value!r} in whole steps of {model.slope!r}."
        )
    now = past_of(history).now
    found, decay = float(known_benefit), math.exp(-1.0 / alpha)
    for i in range(int(abs(away))):
        if away > 0:  # what `known` will see later
            p = float(model.pmf([known], [1], Past(now + i))[0, 0])
            found = found / decay - p
        else:  # what it saw before
            p = float(model.pmf([known], [1], Past(now - i - 1))[0, 0])
            found = decay * (found + p)
    return found


def benefit_table(
    model: RandomWalk | LinearTrend, L: AnySurvival | str = "exp", *, alpha: float | None = None
) -> tuple[int, Floats]:
    """Return `h1` of Theorem 3, also for trends: `H_x` by the distance of a value from the stream's position.

    The position is the last value of a walk, or the current value of a trend with a whole slope. Returns the
    smallest distance (in multiples of the model's step) and the benefits from there up; elsewhere they are 0.

    >>> from penstock.models import RandomWalk, benefit_table
    >>> low, table = benefit_table(RandomWalk(drift=0, sd=1), alpha=10)
    >>> low + int(table.argmax())
    0
    """
    survival = survival_of(L, alpha)
    weights = survival.weights(survival.reach)
    if isinstance(model, RandomWalk):
        from penstock.models.kernels.benefit import walk_table

        first, steps = model.steps
        return walk_table(steps, first, weights)
    if not isinstance(model, LinearTrend) or not (model.slope / model.step).is_integer():
        raise ModelError(
            "A table needs a RandomWalk, or a LinearTrend whose slope is a whole number of steps; "
            f"{model!r} was given."
        )
    from penstock.models.kernels.benefit import trend_table

    return trend_table(model.noise.table, model.noise.low, round(model.slope / model.step), weights)


def _first_of_returns(model: Model, values: Floats, history: History, survival: AnySurvival) -> Floats:
    """Caching with `exp` where the last value decides what follows.

    A visit is a first visit followed by a return or none; weighed with exp(-d / alpha) this is a product, so
    the weighed first visits are the weighed visits over 1 plus the weighed returns.
    """
    now = past_of(history).now
    visits = benefit(model, values, history, survival)
    returns = np.array([benefit(model, [v], Past(now, float(v)), survival)[0] for v in values])
    return visits / (1.0 + returns)


def _caching_reach(model: Model) -> int:
    """How far first references are followed where the survival does not fade."""
    return 4_096 if model.independent else 512
