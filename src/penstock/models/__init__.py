"""Models of streams: the probability of each value, and the benefit of a tuple that waits for it.

>>> from penstock import models
>>> trend = models.LinearTrend(slope=1, intercept=-1, noise=models.BoundedNormal(sd=1, bound=10))
>>> trend.pmf([9, 10], ahead=[1], history=range(10)).round(3).tolist()
[[0.383, 0.242]]
"""

from penstock.models.ar1 import AR1
from penstock.models.arguments import ModelError
from penstock.models.base import Model, Past
from penstock.models.benefit import benefit, benefit_elsewhere, benefit_later, benefit_table
from penstock.models.choice import Candidate, candidates, select
from penstock.models.ecb import (
    comparable,
    dominated_subset,
    dominates,
    ecb,
    is_dominated_subset,
    step_benefits,
)
from penstock.models.noise import BoundedNormal, BoundedUniform, Noise, Pmf
from penstock.models.seasonal import Seasonal
from penstock.models.sequence import Sequence
from penstock.models.stationary import Empirical, Stationary
from penstock.models.survival import OwnSurvival, Survival, alpha_for, survival_of
from penstock.models.trend import LinearTrend
from penstock.models.walk import RandomWalk

__all__ = [
    "AR1",
    "BoundedNormal",
    "BoundedUniform",
    "Candidate",
    "Empirical",
    "LinearTrend",
    "Model",
    "ModelError",
    "Noise",
    "OwnSurvival",
    "Past",
    "Pmf",
    "RandomWalk",
    "Seasonal",
    "Sequence",
    "Stationary",
    "Survival",
    "alpha_for",
    "benefit",
    "benefit_elsewhere",
    "benefit_later",
    "benefit_table",
    "candidates",
    "comparable",
    "dominated_subset",
    "dominates",
    "ecb",
    "is_dominated_subset",
    "select",
    "step_benefits",
    "survival_of",
]
