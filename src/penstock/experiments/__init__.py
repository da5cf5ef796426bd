"""The experiments, as functions that return tidy tables; `penstock reproduce` runs them.

>>> from penstock import experiments
>>> "policies" in experiments.PAPERS
True
"""

from penstock.experiments import policies
from penstock.experiments.base import Experiment, Options

PAPERS: dict[str, tuple[Experiment, ...]] = {"policies": policies.EXPERIMENTS}

__all__ = ["PAPERS", "Experiment", "Options"]
