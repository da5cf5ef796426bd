"""HEEB: evicts the tuple with the lowest expected benefit under a model of the stream it waits for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.arguments import is_number, one_of
from penstock.engine.score_queue import new_queue
from penstock.engine.store import (
    ARRIVAL,
    ENTRY,
    HEAD,
    P_LIVE,
    PLACE,
    STREAM,
    Store,
)
from penstock.errors import PolicyOptionError
from penstock.models import (
    AR1,
    LinearTrend,
    Model,
    ModelError,
    RandomWalk,
    Seasonal,
    Sequence,
    Stationary,
    Survival,
    alpha_for,
    survival_of,
)
from penstock.models.kernels.benefit import build
from penstock.models.kernels.offset_histogram import (
    COLUMNS,
)
from penstock.models.kernels.outlook import REACH, Outlook, new_outlook, set_exponential, sum_weights
from penstock.models.survival import KINDS, LEFT_OUT
from penstock.policies.base import CacheSetting, Policy, Setting
from penstock.policies.heeb import hooks  # noqa: F401 (registers what is done)
from penstock.policies.heeb.cache import HeebCache, new_heeb_cache
from penstock.policies.heeb.state import (
    ALL,
    ANCHOR,
    APART,
    COMMON_ALPHA,
    COUNTERS,
    DIRECT,
    LEARNING,
    LEARNT_LEFT_OUT,
    MOMENTS,
    MOST_ALPHA,
    NUMERIC,
    OBSERVING,
    TABLED,
    TICK,
    TICKING,
    TIMED,
    VALUED,
    WAY,
    WAYS,
    HeebState,
    Hopeless,
    Sizes,
    encode,
    is_whole,
    values_of,
)


@dataclass(frozen=True)
class Heeb(Policy):
    """Evict the tuple with the lowest `H_x`: expected matches, weighted by the chance to survive until then.

    In a cache, where an evicted tuple can be fetched again, only its next request counts (section 5.1).

    Parameters
    ----------
    left, right
        The models of the streams; a left tuple is scored by the model of the right stream. `None` fits one
        of the usual models to the first arrivals, and again as the stream moves.
    model
        The model of both streams, or of the requests of a cache.
    alpha
        Parameter of the survival `exp`: a number of steps, or `"auto"` to follow the observed average
        lifetime of tuples in memory; in a cache, the number of its entries (both up to 512 steps).
    lifetime
        An average lifetime to take alpha from, instead of `alpha`.
    L
        The survival function: `"exp"`, `"fixed"` (with `steps`), or your own function. `"inf"` and `"inv"`
        are for caching only; in a join the benefit would grow without bound.
    steps
        Number of steps of the survival `fixed`.
    way
        How the benefit is computed: `"direct"`, `"time"` (from the step before), `"value"` (newcomers from
        their neighbours), `"table"` (in advance), or `"auto"`, the fastest that applies.

    Time counts ticks in tick steps, and otherwise the arrivals of each stream. If the streams have different
    rates, a step lasts as long as one arrival of each takes on average.

    >>> import penstock as ps
    >>> noise = ps.models.BoundedUniform(2)
    >>> model = ps.models.LinearTrend(slope=1, intercept=0, noise=noise)
    >>> streams = [{"key": model.sample(200, seed), "ts": range(200)} for seed in (0, 1)]
    >>> policy = ps.policies.Heeb(left=model, right=model, alpha=4)
    >>> join = ps.WindowJoin(within=100, budget=ps.Tuples(6), policy=policy, step="tick")
    >>> rival = ps.WindowJoin(within=100, budget=ps.Tuples(6), policy="fifo", step="tick")
    >>> join.run(*streams, on="key", time="ts").stats.results
    209
    >>> rival.run(*streams, on="key", time="ts").stats.results
    189
    """

    left: Model | None = None
    right: Model | None = None
    alpha: float | str = "auto"
    lifetime: float | None = None
    L: Any = "exp"
    steps: int | None = None
    way: str = "auto"
    model: Model | None = None

    name: ClassVar[str] = "heeb"
    summary: ClassVar[str] = "evicts the lowest expected benefit under a model of the other stream"
    wins: ClassVar[str] = (
        "values follow a trend, a walk or a season: the model predicts when a value can occur again, which "
        "no other policy can"
    )
    loses: ClassVar[str] = "no model fits; also, it is slow if many values can still match"
    cost: ClassVar[str] = "O(keys that can still match) per eviction, nothing per match"
    paper: ClassVar[str] = "Xie, Yang and Chen 2005, sections 5.3 and 6.1"
    selective: ClassVar[bool] = True
    counts_keys: ClassVar[bool] = True
    many: ClassVar[bool] = False
    reads_values: ClassVar[bool] = True
    caches: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.model is not None:
            alone = self.left in (None, self.model) and self.right in (None, self.model)
            self.require(alone, "model", "left out if left and right are given")
            object.__setattr__(self, "left", self.model)
            object.__setattr__(self, "right", self.model)
        for side in ("left", "right"):
            model = getattr(self, side)
            known = (Stationary, LinearTrend, RandomWalk, AR1, Seasonal, Sequence)
            self.require(
                model is None or isinstance(model, known),
                side,
                "a Stationary, Empirical, LinearTrend, RandomWalk, AR1, Seasonal or Sequence, or None",
            )
        if isinstance(self.alpha, str):
            self.require(self.alpha == "auto", "alpha", "a number above 0, or 'auto'")
        else:
            self.require(is_number(self.alpha) and 0 < self.alpha <= 20_000, "alpha", "above 0, up to 20,000")
        if self.lifetime is not None:
            fine = is_number(self.lifetime) and 1 < self.lifetime <= 20_000
            self.require(fine, "lifetime", "an average number of steps above 1, up to 20,000")
            self.require(self.alpha == "auto", "alpha", "left out if a lifetime is given")
        if isinstance(self.L, str):
            one_of("L", self.L, KINDS, PolicyOptionError, say=f"{self.name}: L=")
            fine = self.steps is None or (is_number(self.steps) and 1 <= self.steps <= 1 << 18)
            fine = fine and (self.L != "fixed" or self.steps is not None)
            self.require(fine, "steps", "a number from 1 up")
        else:
            try:
                object.__setattr__(self, "L", survival_of(self.L))
            except ModelError as error:
                raise PolicyOptionError(f"{self.name}: {error}") from error
        one_of("way", self.way, WAYS, PolicyOptionError, say=f"{self.name}: way=")
        if self.way in ("time", "value"):
            self._check_way()

    def check_joins(self) -> None:
        """Reject `inf` and `inv`: they do not decay, so the sum of a join would not end."""
        kind = self.L if isinstance(self.L, str) else getattr(self.L, "kind", "exp")
        if kind in ("inf", "inv"):
            raise PolicyOptionError(
                f"{self.name}: L={kind!r} is for caching; in a join, benefits would grow without bound. "
                "Use 'exp' or 'fixed'."
            )

    def _check_way(self) -> None:
        """Reject `time` and `value` without `exp` and the models they need."""
        kinds = (LinearTrend, Stationary) if self.way == "time" else LinearTrend
        fine = all(isinstance(model, kinds) for model in (self.left, self.right))
        if not fine or not self._exponential or (self.alpha == "auto" and self.lifetime is None):
            raise PolicyOptionError(
                f"{self.name}: way={self.way!r} needs given models of independent streams (for 'value': "
                "of trends), L='exp' and a given alpha; leave it out to use the fastest way."
            )

    @property
    def _exponential(self) -> bool:
        return self.L == "exp" or (isinstance(self.L, Survival) and self.L.kind == "exp")

    @property
    def _observes(self) -> bool:
        return self.L == "exp" and self.alpha == "auto" and self.lifetime is None

    @property
    def needs_whole_stream(self) -> bool:
        """True for a given model that depends on time or the last value; a learnt one can see a part."""
        return any(m is not None and not isinstance(m, Stationary) for m in (self.left, self.right))

    def build(self, setting: Setting) -> HeebState:
        """Encode the models as tables, and build an empty memory."""
        values, numeric = values_of(setting)
        shares = _shares(self, setting)
        learnt = self.left is None or self.right is None
        ticking = setting.step == "tick" and not learnt
        stretch = (1.0, 1.0) if ticking else shares
        alphas, reach = self._alphas(setting, stretch)
        sizes = Sizes(reach)
        for model in (self.left, self.right):
            sizes.need(model, self.way, self.name, numeric)
        if learnt:
            sizes.need_to_learn(setting.count_bytes)
        outlook = new_outlook(sizes.width, sizes.places, sizes.spots, sizes.table, sizes.deep, sizes.reach)
        last = np.zeros(2, np.int64)
        for r, model in enumerate((self.left, self.right)):
            self._weigh(outlook, r, alphas[r], stretch[r])
            last[r] = encode(outlook, r, model, setting)
            build(outlook, r)
        counters = np.zeros(COUNTERS, np.int64)
        counters[TICKING] = ticking
        counters[TICK] = -1
        counters[WAY] = self._way()
        counters[LEARNING] = self.left is None
        counters[LEARNING + 1] = self.right is None
        counters[OBSERVING] = self._observes
        counters[NUMERIC] = numeric
        counters[ANCHOR] = max(1, int(8 * min(alphas)))
        counters[ALL] = setting.partial
        moments = np.zeros(MOMENTS)
        moments[COMMON_ALPHA] = alphas[0] / stretch[0]
        known = setting.rates is not None and not learnt and min(setting.rates) > 0
        return HeebState(
            outlook=outlook,
            hopeless=Hopeless(new_queue(setting.capacities)),
            members=np.zeros((len(setting.capacities), max(setting.capacities) + 1), np.int32),
            length=np.zeros(len(setting.capacities), np.int64),
            seen=np.zeros(2, np.int64),
            last=last,
            rate=np.array(setting.rates if known else (0.0, 0.0), np.float64),
            factor=np.array(shares if ticking else (1.0, 1.0)),
            stretch=np.array(stretch),
            counters=counters,
            moments=moments,
            history=np.zeros((2, sizes.history), np.int64),
            values=values,
            buckets=np.zeros((2, 1, COLUMNS)),
        )

    def build_cache(self, setting: CacheSetting) -> HeebCache:
        """Encode the model of the requests as tables, without entries."""
        if self.way in ("time", "value"):
            raise PolicyOptionError(f"{self.name}: way={self.way!r} is for joins; leave it out for a cache.")
        if self.left is not None and self.right is not None and self.model is None:
            raise PolicyOptionError(f"{self.name}: a cache has one stream of requests; give model=.")
        survival = None
        if not self._observes:
            alpha = alpha_for(self.lifetime) if self.lifetime is not None else self.alpha
            survival = survival_of(self.L, None if alpha == "auto" else float(alpha), self.steps)
        model = self.left if self.left is not None else self.right
        return new_heeb_cache(setting, model, survival, self.name, self.way == "direct")

    def _alphas(self, setting: Setting, stretch: tuple[float, float]) -> tuple[list[float], int]:
        """Return the alpha of each stream in its own steps, and how many weights are needed."""
        survival = self.L
        if self._observes:
            start = min(MOST_ALPHA, max(2.0, setting.total / 2.0))
            most = MOST_ALPHA if setting.count_bytes is None else max(4.0, setting.count_bytes / 2_048)
            reach = math.ceil(-most * math.log(LEARNT_LEFT_OUT if self.left is None else 1e-6))
            return [min(start, most) * s for s in stretch], reach
        if self.L == "exp":
            alpha = alpha_for(self.lifetime) if self.lifetime is not None else float(self.alpha)
            survival = Survival("exp", alpha=alpha)
        elif self.L == "fixed":
            survival = Survival("fixed", steps=int(self.steps or 1))
        alpha = float(getattr(survival, "alpha", None) or 1.0)
        if self.left is None or self.right is None:
            room = 1 << 14 if setting.count_bytes is None else max(16, setting.count_bytes // 128)
            return [alpha * s for s in stretch], min(room, math.ceil(survival.reach * max(stretch)))
        return [alpha * s for s in stretch], math.ceil(survival.reach * max(stretch))

    def _weigh(self, outlook: Outlook, r: int, alpha: float, stretch: float) -> None:
        """Return the weights of the steps of a stream."""
        learnt = self.left is None or self.right is None
        if self._exponential:
            left_out = LEARNT_LEFT_OUT if learnt else (1e-6 if self._observes else LEFT_OUT)
            set_exponential(outlook, r, alpha, left_out)
            return
        survival = Survival("fixed", steps=int(self.steps or 1)) if isinstance(self.L, str) else self.L
        reach = min(outlook.weight.shape[1] - 1, max(1, math.floor(survival.reach * stretch)))
        outlook.ints[r, REACH] = reach
        outlook.weight[r, 1 : reach + 1] = survival.weights(reach, stretch)
        sum_weights(outlook, r, False)

    def _way(self) -> int:
        """Return the requested way, or the fastest that applies."""
        if self.way != "auto":
            return {"direct": DIRECT, "time": TIMED, "value": VALUED, "table": TABLED}[self.way]
        # A trend that is not whole has no table: its benefits are updated from step to step.
        uneven = any(isinstance(m, LinearTrend) and not is_whole(m) for m in (self.left, self.right))
        independent = all(m is not None and m.independent for m in (self.left, self.right))
        sequences = any(isinstance(m, Sequence) for m in (self.left, self.right))
        carried = uneven and independent and not sequences and self._exponential and not self._observes
        return TIMED if carried else TABLED

    def check(self, state: Any, store: Store) -> None:
        """Assert that members know their places, and that the oldest of a key competes or is hopeless."""
        for pool in range(len(state.length)):
            assert state.length[pool] <= store.pools[pool, P_LIVE]
            for place in range(state.length[pool]):
                slot = state.members[pool, place]
                assert store.t32[slot, PLACE] == place
                assert store.t64[slot, ARRIVAL] >= 0
        waiting = set(state.hopeless.queue.run_tuple[:, :, 1].flat)
        waiting |= set(state.hopeless.queue.heap_slot.flat)
        for slot in np.flatnonzero(store.t64[:, ARRIVAL] >= 0)[1:]:
            head = store.k32[store.t32[slot, ENTRY], HEAD + store.t32[slot, STREAM]]
            if head == slot or state.counters[ALL]:
                place = store.t32[slot, PLACE]
                assert place != APART, "a tuple does not compete"
                assert place >= 0 or slot in waiting, "a tuple is lost"

    def bytes_beyond(self, state: Any) -> int:
        """Bytes of the values of keys that are not whole numbers."""
        return int(state.values.nbytes)


def _shares(policy: Heeb, setting: Setting) -> tuple[float, float]:
    """Return the arrivals of each stream per step: 1 and 1 if the rates are equal or unknown."""
    learnt = policy.left is None or policy.right is None
    if setting.rates is None or learnt or min(setting.rates) <= 0:
        return 1.0, 1.0
    left, right = setting.rates[:2]
    return 2.0 * left / (left + right), 2.0 * right / (left + right)
