"""The experiments of the papers, rerun: a module per paper, a function per figure.

A figure is a list of trials (one run each, with its seed), a drawing of the table they give, and the paper's
claims checked against that table. `reproduce` runs figures, in processes or as Spark tasks, and goes on where
it stopped; `write_report` makes one HTML page of what came out.
"""

from penstock.reproduction.figure import Claim, Figure, Outcome, Scope, Trial
from penstock.reproduction.papers import EXPERIMENTS, figures_of
from penstock.reproduction.report import write_report
from penstock.reproduction.runner import reproduce

__all__ = [
    "EXPERIMENTS",
    "Claim",
    "Figure",
    "Outcome",
    "Scope",
    "Trial",
    "figures_of",
    "reproduce",
    "write_report",
]
