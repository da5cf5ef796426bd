"""What would have been possible had the whole stream been known: the optimum every policy is measured against.

>>> from penstock.offline import keep_times
>>> callable(keep_times)
True
"""

from penstock.offline.optimum import Steps, future_results, keep_times

__all__ = ["Steps", "future_results", "keep_times"]
