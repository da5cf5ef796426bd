"""The experiments of the papers, as functions that return tidy tables; `penstock reproduce` runs them.

>>> from penstock import experiments
>>> sorted(experiments.PAPERS)
['heeb']
"""

from penstock.experiments import heeb
from penstock.experiments.base import Experiment, Options

PAPERS: dict[str, tuple[Experiment, ...]] = {"heeb": heeb.EXPERIMENTS}

__all__ = ["PAPERS", "Experiment", "Options"]
