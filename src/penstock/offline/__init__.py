"""What is possible if the whole stream is known, or its probabilities are: flows find the best decisions.

>>> from penstock.offline import keep_times
>>> callable(keep_times)
True
"""

from penstock.offline.expected import best_expected
from penstock.offline.optimum import Steps, future_results, keep_times

__all__ = ["Steps", "best_expected", "future_results", "keep_times"]
