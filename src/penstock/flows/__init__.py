"""Optimal decisions as flows, if the whole stream or its probabilities are known.

>>> from penstock.flows import keep_times
>>> callable(keep_times)
True
"""

from penstock.flows.expected import best_expected
from penstock.flows.optimum import Steps, future_results, keep_times

__all__ = ["Steps", "best_expected", "future_results", "keep_times"]
