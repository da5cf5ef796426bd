"""HEEB with histograms: the form of the streams is given or guessed, their parameters are observed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.arguments import is_number, one_of
from penstock.engine.store import Store
from penstock.errors import PolicyOptionError
from penstock.models.kernels.offset_histogram import COLUMNS, SEEN
from penstock.models.kernels.outlook import FOUND, NONE, TREND, WALK
from penstock.policies.base import CacheSetting, Policy, Setting
from penstock.policies.heeb.cache import HeebCache, new_heeb_cache
from penstock.policies.heeb.join import Heeb
from penstock.policies.heeb.state import BUCKETS, FADING, FITTED, FORM, HeebState

FORMS = {"auto": NONE, "trend": TREND, "walk": WALK, "stationary": FOUND}


@dataclass(frozen=True)
class HeebHist(Policy):
    """Evict the tuple with the lowest expected benefit, estimated from histograms over the offset.

    Parameters
    ----------
    form
        `"trend"` (linear, with any noise), `"walk"`, `"stationary"`, or `"auto"`: guessed from the values.
    buckets
        Number of buckets of each histogram.
    decay
        Weight that past observations keep after 256 arrivals.

    The offset of a value is its distance from the current trend, or from the last value of a walk. One
    histogram over the offset counts how often values occur there, another how long tuples live that enter
    there. The paper counts the results of a tuple's whole lifetime. Penstock counts them per step, so that
    every arrival is an observation, not only the tuples that were kept; lifetimes weight the steps ahead.

    >>> import penstock as ps
    >>> from penstock.workloads import tower
    >>> left, right = tower(steps=2_000)
    >>> options = {"within": 100, "budget": ps.Tuples(10), "step": "tick", "allocation": "unified"}
    >>> hist, rand = (
    ...     ps.WindowJoin(policy=policy, **options).run(left, right, on="key", time="ts").stats.results
    ...     for policy in ("heeb-hist", "rand")
    ... )
    >>> hist > 1.3 * rand
    True
    """

    form: str = "auto"
    buckets: int = 10
    decay: float = 0.9

    name: ClassVar[str] = "heeb-hist"
    summary: ClassVar[str] = "evicts the lowest expected benefit, by histograms of past observations"
    wins: ClassVar[str] = (
        "values follow a trend or a season with noise of unknown shape, and there is time to observe it"
    )
    loses: ClassVar[str] = "the stream is short or changes its shape: histograms fill slowly, and remember"
    cost: ClassVar[str] = Heeb.cost
    paper: ClassVar[str] = "Xie, Yang and Chen 2005, section 6.2"
    selective: ClassVar[bool] = True
    counts_keys: ClassVar[bool] = True
    many: ClassVar[bool] = False
    reads_values: ClassVar[bool] = True
    caches: ClassVar[bool] = True

    def __post_init__(self) -> None:
        one_of("form", self.form, FORMS, PolicyOptionError, say=f"{self.name}: form=")
        fine = is_number(self.buckets) and 3 <= self.buckets <= 1_000 and int(self.buckets) == self.buckets
        self.require(fine, "buckets", "a whole number from 3 to 1,000")
        self.require(is_number(self.decay) and 0 < self.decay <= 1, "decay", "above 0 and at most 1")

    def build(self, setting: Setting) -> HeebState:
        """Build the state of `heeb` without models, and empty histograms."""
        state = Heeb().build(setting)
        state.counters[BUCKETS] = self.buckets
        state.counters[FORM] = FORMS[self.form]
        state.moments[FADING] = self.decay
        return state._replace(buckets=np.zeros((2, int(self.buckets), COLUMNS)))

    def build_cache(self, setting: CacheSetting) -> HeebCache:
        """Build a cache without entries, and an empty histogram."""
        return new_heeb_cache(
            setting,
            None,
            None,
            self.name,
            buckets=int(self.buckets),
            form=FORMS[self.form],
            decay=float(self.decay),
        )

    def check(self, state: Any, store: Store) -> None:
        """Assert the invariants of `heeb`, and that buckets are in order."""
        Heeb().check(state, store)
        for r in (0, 1):
            if state.counters[FITTED + r] != NONE:
                assert (np.diff(state.buckets[r, :, 0]) >= 0).all(), "buckets are out of order"
                assert (state.buckets[r, :, SEEN] >= 0).all()

    def bytes_beyond(self, state: Any) -> int:
        """Bytes of the values of keys that are not whole numbers."""
        return int(state.values.nbytes)
