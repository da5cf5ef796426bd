"""Check the assumptions of `drop_rate="unbiased"`, and warn if they do not hold.

Section 4.2 of GreedyDual-Join drops just enough tuples that the others can stay until they expire. Every
result then has the same probability, on two conditions. Tuples of both streams are kept with the same
probability (a dropped tuple still probes, so it matters which of the two arrived first). And rates are
constant, so that tuples that are not dropped stay nearly until they expire.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import numpy as np

from penstock.engine.store import ROWS
from penstock.errors import BiasedSampleWarning

if TYPE_CHECKING:
    from penstock.joins.config import Config

UNEQUAL = 1.1  # factor by which one stream may be kept more often than the other
BURST = 1.5  # factor by which arrivals may exceed the rate
CHANCE = 5.0  # standard deviations of a constant-rate process that are tolerated on top


def unequal_shares(config: Config) -> str | None:
    """Return a warning if the tuples of one stream are kept more often than those of the other."""
    if not config.unbiased or config.shed:
        return None
    buffered = [horizon > 0 for horizon in config.window.horizons]
    kept = [1.0 - chance for chance in config.chances]
    if not all(buffered) or max(kept) <= UNEQUAL * min(kept):
        return None
    left, right = (f"{100 * share:.0f} %" for share in kept)
    return (
        f"drop_rate='unbiased' keeps {left} of the left tuples and {right} of the right ones, so results are "
        "a biased sample: results whose older tuple is from the stream that is kept more often are "
        "over-represented. To avoid this, divide the budget by rate (allocation='proportional' or 'unified') "
        "and use a symmetric window, or use drop_at='arrival'. policy='sample' without drops keeps a uniform "
        "sample in any case, and estimates with error bars."
    )


class RateWatch:
    """Detects that far more arrivals came within one horizon than the rate predicts."""

    def __init__(self, config: Config) -> None:
        self.crowded = False
        self._horizons = config.window.horizons
        self._most = [math.inf, math.inf]
        if config.unbiased and config.window.kind != ROWS and config.rates is not None:
            for side, (rate, horizon) in enumerate(zip(config.rates, self._horizons, strict=True)):
                if rate * horizon > 0:
                    self._most[side] = BURST * rate * horizon + CHANCE * math.sqrt(rate * horizon)
        self._open = [(-math.inf, 0), (-math.inf, 0)]  # per stream, the last period and its arrivals so far

    def see(self, stream: np.ndarray, time: np.ndarray) -> None:
        """Count the arrivals of a batch."""
        for side, most in enumerate(self._most):
            mine = time[stream == side] if most < math.inf and not self.crowded else time[:0]
            if len(mine) == 0:
                continue
            stretches, counts = np.unique(mine // self._horizons[side], return_counts=True)
            last, before = self._open[side]
            counts[stretches == last] += before
            self._open[side] = (float(stretches[-1]), int(counts[-1]))
            self.crowded = bool(counts.max() > most)


CROWDED = (
    "drop_rate='unbiased' assumes a constant rate, so that tuples that are not dropped can stay until they "
    "expire. Here far more arrived at times: results of bursts are under-represented, and sums over the "
    "results are too small. Give the actual rates=, a larger budget, or a drop_rate= that leaves room "
    "during bursts; or use policy='sample' without drops, which keeps a uniform sample whatever the rates do."
)


def warn_biased(text: str | None, stacklevel: int) -> None:
    """Issue the warning, if there is one; `stacklevel` is relative to the caller."""
    if text is not None:
        warnings.warn(text, BiasedSampleWarning, stacklevel=stacklevel + 1)
