"""The experiments, as functions that return tidy tables; `penstock reproduce` runs them.

>>> from penstock import experiments
>>> sorted(experiments.PAPERS)
['heeb', 'policies']
"""

from penstock.experiments import heeb, policies
from penstock.experiments.base import Experiment, Options

PAPERS: dict[str, tuple[Experiment, ...]] = {"heeb": heeb.EXPERIMENTS, "policies": policies.EXPERIMENTS}

__all__ = ["PAPERS", "Experiment", "Options"]
