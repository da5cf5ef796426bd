"""HEEB with histograms: the form of the streams is known or guessed, their parameters are observed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.engine.store import Store
from penstock.errors import PolicyOptionError, hint
from penstock.models.kernels.benefit import FOUND, NONE, TREND, WALK
from penstock.models.kernels.offset_histogram import COLUMNS, SEEN
from penstock.policies.base import CacheSetting, Policy, Setting, is_number
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
        Of each histogram.
    decay
        What is left of past observations after 256 arrivals.

    The offset of a value is its distance from the present trend, or from the last value of a walk. One
    histogram over it tells how often values come there, another how long tuples live that enter there. The
    paper counts the results of a tuple's whole lifetime. Here they are observed per step, since then every
    arrival is an observation, not only tuples that were kept; the lifetimes then weigh the steps to come.

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
    summary: ClassVar[str] = "the lowest expected benefit by histograms of what was observed goes"
    wins: ClassVar[str] = (
        "values follow a trend or a season with noise of an unknown shape, and there is time to observe it"
    )
    loses: ClassVar[str] = "the stream is short or changes its shape: histograms have to fill, and remember"
    cost: ClassVar[str] = Heeb.cost
    paper: ClassVar[str] = "Xie, Yang and Chen 2005, section 6.2"
    selective: ClassVar[bool] = True
    counts_keys: ClassVar[bool] = True
    many: ClassVar[bool] = False
    reads_values: ClassVar[bool] = True
    caches: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise PolicyOptionError(f"{self.name}: form={self.form!r} is not known{hint(self.form, FORMS)}")
        whole = is_number(self.buckets) and int(self.buckets) == self.buckets
        self.require(whole and 3 <= self.buckets <= 1_000, "buckets", "a whole number from 3 to 1,000")
        self.require(is_number(self.decay) and 0 < self.decay <= 1, "decay", "above 0 and at most 1")

    def build(self, setting: Setting) -> HeebState:
        """The state of `heeb` without models, and empty histograms."""
        state = Heeb().build(setting)
        state.counters[BUCKETS] = self.buckets
        state.counters[FORM] = FORMS[self.form]
        state.moments[FADING] = self.decay
        return state._replace(buckets=np.zeros((2, int(self.buckets), COLUMNS)))

    def build_cache(self, setting: CacheSetting) -> HeebCache:
        """No entries, and an empty histogram."""
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
        """Those of `heeb`, and buckets in order."""
        Heeb().check(state, store)
        for r in (0, 1):
            if state.counters[FITTED + r] != NONE:
                assert (np.diff(state.buckets[r, :, 0]) >= 0).all(), "buckets are out of order"
                assert (state.buckets[r, :, SEEN] >= 0).all()

    def bytes_beyond(self, state: Any) -> int:
        """The values of keys that are not whole numbers."""
        return int(state.values.nbytes)
