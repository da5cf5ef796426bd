"""Choose the model that explains a series best, by an information criterion."""

from __future__ import annotations

import math
from dataclasses import dataclass

from numpy.typing import ArrayLike

from penstock.arguments import one_of
from penstock.extras import require
from penstock.models import arguments as check
from penstock.models.ar1 import AR1
from penstock.models.arguments import ModelError
from penstock.models.base import Model, log_probability
from penstock.models.stationary import Stationary
from penstock.models.trend import LinearTrend
from penstock.models.walk import RandomWalk

CRITERIA = ("bic", "aic")


@dataclass(frozen=True)
class Candidate:
    """A fitted model with its criterion; lower is better."""

    model: Model
    criterion: float
    log_likelihood: float
    parameters: int


def candidates(series: ArrayLike, criterion: str = "bic") -> list[Candidate]:
    """Return every kind of model that can be fitted to a series, the best first.

    All are judged by how well they predict each value but the first from those before it.

    >>> from penstock.models import AR1, candidates
    >>> [type(c.model).__name__ for c in candidates(AR1(0.8, 10, 9).sample(800))][:1]
    ['AR1']
    """
    one_of("criterion", criterion, CRITERIA, ModelError)
    require("statsmodels", "The choice of a model")
    found = check.series(series, 8)
    scored = []
    for kind in (Stationary, LinearTrend, RandomWalk, AR1):
        try:
            model: Model = kind.fit(found)
        except ModelError:
            continue
        if isinstance(model, Stationary):
            fitted, parameters = log_probability(model.pmf(found[1:], [1])[0]), len(model.values) - 1
        elif isinstance(model, LinearTrend):
            shifted = LinearTrend(model.slope, model.intercept + model.slope, model.noise)
            fitted, parameters = shifted.log_likelihood(found[1:]), model.parameters
        else:
            fitted, parameters = model.log_likelihood(found), model.parameters
        weight = math.log(len(found)) if criterion == "bic" else 2.0
        scored.append(Candidate(model, parameters * weight - 2.0 * fitted, fitted, parameters))
    return sorted(scored, key=lambda candidate: candidate.criterion)


def select(series: ArrayLike, criterion: str = "bic") -> Model:
    """Return the model that explains a series best: stationary, linear trend, random walk or AR(1).

    >>> from penstock import models
    >>> models.select(models.RandomWalk(drift=0, sd=2).sample(500))
    RandomWalk(drift=..., sd=..., step=1.0, start=...)
    >>> type(models.select(models.Stationary([1, 5, 90], [0.5, 0.3, 0.2]).sample(300))).__name__
    'Stationary'
    """
    return candidates(series, criterion)[0].model
