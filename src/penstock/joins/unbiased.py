"""The assumptions of `drop_rate="unbiased"`, and warnings where they do not hold.

Section 4.2 of GreedyDual-Join drops just as many tuples as make room for the rest to stay until they
expire. So every result has the same chance if the tuples of both streams are kept with the same
probability (a dropped tuple still probes, so it matters which of the two came first), and if rates are
constant, so that hardly anything is evicted.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

from penstock.errors import BiasedSampleWarning

if TYPE_CHECKING:
    from penstock.joins.config import Config

UNEQUAL = 1.1  # by which one stream may be kept more often than the other
CHANCE = 2.4  # over the root of the tuples: three times what chance evicts at a constant rate
LEAST = 0.1  # of the admitted


def unequal_shares(config: Config) -> str | None:
    """What to say if the tuples of one stream are kept more often than those of the other."""
    if not config.unbiased or config.shed:
        return None
    buffered = [horizon > 0 for horizon in config.window.horizons]
    kept = [1.0 - chance for chance in config.chances]
    if not all(buffered) or max(kept) <= UNEQUAL * min(kept):
        return None
    left, right = (f"{100 * share:.0f} %" for share in kept)
    return (
        f"drop_rate='unbiased' keeps {left} of the left tuples and {right} of the right ones, so results are "
        "a biased sample: those whose older tuple is of the stream that is kept more often are too many. "
        "Every result has the same chance where the budget is cut by rate (allocation='proportional' or "
        "'unified') and the window is as long both ways, or with drop_at='arrival'."
    )


def is_crowded(config: Config, admitted: int, evicted: int) -> bool:
    """Whether so many of the admitted tuples were evicted that the rate cannot have been constant.

    Where it is, a buffer of B tuples evicts about 0.8 / sqrt(B) of them by chance.
    """
    if not config.unbiased:
        return False
    smallest = min(config.capacities)
    return admitted > 10 * smallest and evicted > max(LEAST, CHANCE / math.sqrt(smallest)) * admitted


CROWDED = (
    "drop_rate='unbiased' assumes a constant rate, at which the tuples that are not dropped find room until "
    "they expire. Here many of them were evicted: results of bursts are too few, and sums over the results "
    "too small. It holds where rates are constant, and as rates= says; else give a larger budget, or a "
    "drop_rate= that leaves room during bursts."
)


def warn_biased(text: str | None, stacklevel: int) -> None:
    """Warn, if there is anything to say; `stacklevel` as seen by the caller."""
    if text is not None:
        warnings.warn(text, BiasedSampleWarning, stacklevel=stacklevel + 1)
