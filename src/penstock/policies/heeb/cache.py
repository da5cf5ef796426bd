"""HEEB for caches: evicts the entry whose next reference is worth least.

If benefits keep their order from request to request (a stationary distribution, given or learnt), entries
are in a heap. Otherwise every entry is examined at each eviction.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine.cache_loop import (
    KEY,
    USED,
    Heap,
    asked,
    entered,
    gone,
    lower,
    new_heap,
    push,
    raise_to,
    refuses,
    remove,
    score_of,
    used,
    worst,
)
from penstock.engine.request_shares import SEEN, Shares, count, new_shares, note, recount, set_share, share_of
from penstock.errors import PolicyOptionError
from penstock.models import AR1, Model, RandomWalk, Seasonal, Sequence, Stationary, Survival
from penstock.models.kernels.benefit import locate
from penstock.models.kernels.first_reference import MOST_POINTS, build_first, first_benefit, first_directly
from penstock.models.kernels.fitting import SMALLEST, fit, follow_level
from penstock.models.kernels.offset_histogram import (
    COLUMNS,
    adapt,
    fade,
    mean_inverse,
    observe_lifetime,
    observe_new_offset,
    offset_of,
    start_again,
)
from penstock.models.kernels.outlook import (
    AUTO,
    FOUND,
    FROM,
    KNOWN,
    LEVEL,
    NONE,
    REACH,
    SD,
    STATIC,
    STEP,
    TREND,
    WALK,
    A,
    B,
    Outlook,
    fill_noise,
    new_outlook,
    set_exponential,
    sum_weights,
)
from penstock.models.survival import LEFT_OUT, AnySurvival
from penstock.policies.base import CacheSetting
from penstock.policies.heeb.state import (
    GRID_POINTS,
    LEARNT_LEFT_OUT,
    MOST_ALPHA,
    MOST_TABLE,
    Sizes,
    encode,
)

LEARNT_TABLE = 1 << 14
FIT_FROM = 1_024  # values from which a numeric model is fitted
WALK_ALPHA = 64.0  # maximum for a learnt walk, whose table is rebuilt with every fit
WALK_SD = 4.0  # maximum, in steps of the table
SOLVED = 512  # steps for which first visits are solved one by one if weights are not exponential

# Counters.
LEARNING = 0
LAST = 1  # the last value, in multiples of the step
NUMERIC = 2  # 1: all values so far were numbers
DIRECT = 3  # 1: without tables
BUCKETS = 4  # buckets of the offset histogram; 0: no histogram
FORM = 5
HIGH = 6  # the largest offset of the histogram
FITTED = 7  # the kind of process it was fitted to
COUNTERS = 8

# Moments.
VALUE = 0  # of the current request
START_ALPHA = 1
FADING = 2
OBSERVED = 3  # 1: alpha follows the lifetimes in the histogram
MOMENTS = 4


class HeebCache(NamedTuple):
    """The model of the requests, the entries, and the recent requests."""

    outlook: Outlook
    heap: Heap  # all entries; with score 0 if their order changes with time
    shares: Shares
    value: np.ndarray  # per entry, the value of its key
    at: np.ndarray  # the same in the units of the model
    since: np.ndarray  # when it entered
    offset: np.ndarray  # its distance from the stream's position at that time
    counters: np.ndarray
    moments: np.ndarray
    buckets: np.ndarray
    values: np.ndarray  # of the coming requests
    turn: np.ndarray

    def valued(self, values: np.ndarray) -> HeebCache:
        """Return the same state, with the values of the coming requests' keys (NaN if not a number)."""
        return self._replace(values=values, turn=np.zeros(1, np.int64))


def new_heeb_cache(
    setting: CacheSetting,
    model: Model | None,
    survival: AnySurvival | None,
    name: str,
    direct: bool = False,
    buckets: int = 0,
    form: int = NONE,
    decay: float = 1.0,
) -> HeebCache:
    """Build an empty cache with a model (`None`: learnt) and a survival (`None`: `exp`, alpha = entries)."""
    chosen = survival or Survival("exp", alpha=min(float(setting.capacity), MOST_ALPHA))
    exponential = isinstance(chosen, Survival) and chosen.kind == "exp"
    ring, keys = _rings(setting, model)
    left_out = LEARNT_LEFT_OUT if model is None else LEFT_OUT
    reach = _reach(chosen, model, left_out, name)
    sizes = Sizes(reach)
    if model is None:
        sizes.width, sizes.places = min(FIT_FROM, ring), min(FIT_FROM, ring)
        room = LEARNT_TABLE if setting.count_bytes is None else max(64, setting.count_bytes // 64)
        sizes.table = min(room, LEARNT_TABLE)
    elif not isinstance(model, Stationary):
        sizes.need(model, "auto", name, True)
        if isinstance(model, Seasonal):
            high = max(model.means) - min(model.means) + 12 * model.spread
            sizes.table = min(MOST_TABLE, model.period * (math.ceil(high / model.step) + 3))
    sizes.table = max(sizes.table, min(MOST_TABLE, 2 * sizes.table))
    outlook = new_outlook(sizes.width, sizes.places, sizes.spots, sizes.table, 0, reach)
    alpha = float(getattr(chosen, "alpha", None) or 1.0)
    if exponential:
        set_exponential(outlook, 0, alpha, left_out)
    else:
        outlook.ints[0, REACH] = reach
        outlook.weight[0, 1 : reach + 1] = chosen.weights(reach)
        sum_weights(outlook, 0, False)
    direct = direct and (exponential or not isinstance(model, RandomWalk))
    counters = np.zeros(COUNTERS, np.int64)
    counters[[LEARNING, NUMERIC, DIRECT, BUCKETS, FORM]] = model is None, 1, direct, buckets, form
    shares = new_shares(ring, keys)
    outlook.par[0, STEP] = 1.0
    if isinstance(model, Stationary):
        outlook.kind[0] = STATIC
        for value, p in zip(model.values, model.probabilities, strict=True):
            key = setting.key_of(value)
            if key is not None:
                set_share(shares, key, p)
    elif model is not None:
        counters[LAST] = encode(outlook, 0, model, None)
        build_first(outlook, GRID_POINTS)
    moments = np.zeros(MOMENTS)
    moments[[START_ALPHA, FADING, OBSERVED]] = alpha, decay, survival is None
    size = setting.capacity + 1
    return HeebCache(
        outlook=outlook,
        heap=new_heap(setting.capacity),
        shares=shares,
        value=np.zeros(size),
        at=np.zeros(size, np.int64),
        since=np.zeros(size, np.int64),
        offset=np.zeros(size),
        counters=counters,
        moments=moments,
        buckets=np.zeros((max(1, buckets), COLUMNS)),
        values=np.zeros(0),
        turn=np.zeros(1, np.int64),
    )


def _rings(setting: CacheSetting, model: Model | None) -> tuple[int, int]:
    """Return how many requests to remember, and for how many keys to keep shares."""
    if isinstance(model, Stationary):
        return 1, len(model.values)
    if model is not None:
        return 1, 1
    ring = max(FIT_FROM, min(1 << 18, 1 << (8 * setting.capacity - 1).bit_length()))
    if setting.count_bytes is not None:  # half of it for the ring and its table, 67 bytes per request
        ring = min(ring, max(32, 1 << (max(1, setting.count_bytes // 160).bit_length() - 1)))
    return ring, 2 * ring


def _reach(survival: AnySurvival, model: Model | None, left_out: float, name: str) -> int:
    """Return how many weights are needed."""
    if isinstance(model, Sequence) and not (isinstance(survival, Survival) and survival.kind == "exp"):
        return min(len(model.values), survival.reach)
    if isinstance(survival, Survival) and survival.kind == "exp":
        return max(1, math.ceil(-float(survival.alpha or 1.0) * math.log(left_out)))
    if model is None or isinstance(model, Seasonal):
        what = "a learnt model" if model is None else "a seasonal model"
        raise PolicyOptionError(f"{name}: {what} in a cache needs L='exp'.")
    solved = SOLVED if isinstance(model, RandomWalk | AR1) else 4_096
    if survival.converges and survival.reach > solved and not isinstance(model, Stationary):
        raise PolicyOptionError(
            f"{name}: in a cache, the survival may have up to {solved:,} steps under {type(model).__name__}; "
            f"this one has {survival.reach:,}. Use L='exp'."
        )
    return min(solved, survival.reach)


@jit
def _in_order(policy):
    """Whether benefits keep their order from request to request."""
    kind = policy.outlook.kind[0]
    return kind in (NONE, STATIC, FOUND)


@jit
def _filed_score(policy, key):
    kind = policy.outlook.kind[0]
    return share_of(policy.shares, key) if kind in (STATIC, FOUND) else 0.0


@jit
def _benefit(policy, at, value):
    """Return H of a key under a numeric model; a key that is not a number is worth 0."""
    if value != value:
        return 0.0
    now, last = policy.shares.meta[SEEN] - 1, policy.counters[LAST]
    if policy.counters[DIRECT] != 0 and policy.outlook.kind[0] != KNOWN:
        return first_directly(policy.outlook, at, now, last)
    return first_benefit(policy.outlook, at, now, last)


@jit
def _located(policy, value):
    return locate(policy.outlook, 0, value) if value == value else np.int64(-1)


@asked.on(HeebCache)
def _asked(policy, cache, key):
    value = policy.values[policy.turn[0]]
    policy.turn[0] += 1
    before, counters = policy.counters[LAST], policy.counters
    policy.moments[VALUE] = value
    if value == value:
        if policy.outlook.kind[0] != KNOWN:
            counters[LAST] = np.int64(np.rint(value / policy.outlook.par[0, STEP]))
    else:
        counters[NUMERIC] = 0
    note(policy.shares, key, value)
    if counters[LEARNING] == 0:
        return
    now = policy.shares.meta[SEEN] - 1
    par = policy.outlook.par[0]
    if policy.outlook.kind[0] == AUTO and par[LEVEL] > 0.0 and value == value:
        moved = (counters[LAST] - par[B]) / par[LEVEL]
        par[B] += moved
        par[FROM] += moved  # the surface moves with the mean
    if policy.outlook.kind[0] == FOUND:
        count(policy.shares, key, np.float64(now))
    if counters[FITTED] != NONE and value == value:
        offset = np.float64(offset_of(policy.outlook, 0, counters[LAST], before, now))
        counters[HIGH] = observe_new_offset(policy.buckets, offset, counters[HIGH])
    if _fit_is_due(policy):
        _learn(policy, cache)


@jit
def _fit_is_due(policy):
    """Whether to fit: after 32, 64, ... requests, finally every 1,024 or every quarter of the ring."""
    seen, every = policy.shares.meta[SEEN], max(FIT_FROM, policy.shares.ring_key.shape[0] // 4)
    if seen >= every:
        return seen % every == 0
    return seen >= 32 and (seen & (seen - 1)) == 0


@jit
def _learn(policy, cache):
    """Fit a model to the last requests and reorder the entries by it."""
    shares, outlook, counters = policy.shares, policy.outlook, policy.counters
    seen, room = shares.meta[SEEN], np.int64(shares.ring_key.shape[0])
    n = min(seen, room, np.int64(FIT_FROM))
    values = np.zeros(n, np.int64)
    numeric = counters[NUMERIC] != 0
    step = 1.0
    if numeric:
        recent = np.empty(n)
        for i in range(n):
            recent[i] = shares.ring_value[(seen - n + i) % room]
        step = _step_of(recent)
        for i in range(n):
            values[i] = np.int64(np.rint(recent[i] / step))
    else:
        for i in range(n):
            values[i] = shares.ring_key[(seen - n + i) % room]
    fit(outlook, 0, values, seen - n, numeric, counters[FORM])
    outlook.par[0, STEP] = step
    kind = outlook.kind[0]
    alpha = policy.moments[START_ALPHA]
    if kind == AUTO:
        follow_level(outlook, values)
    if kind == WALK:
        _coarsen(policy, values)
        alpha = min(alpha, WALK_ALPHA)
    if counters[BUCKETS] != 0:
        _bring_up(policy, values, seen - n)
        inverse = mean_inverse(policy.buckets)
        if policy.moments[OBSERVED] != 0.0 and inverse > 0.0:
            alpha = min(alpha, max(1.0 / inverse, 1.0))
    if kind == FOUND:
        recount(shares)
    else:
        set_exponential(outlook, 0, alpha, LEARNT_LEFT_OUT)
        build_first(outlook, MOST_POINTS)
    if numeric:
        last = shares.ring_value[(seen - 1) % room]
        counters[LAST] = np.int64(np.rint(last / outlook.par[0, STEP]))
    _refile(policy, cache)


@jit
def _step_of(values):
    """Return the common divisor of all values: 1 if they are whole, else a fraction of 1."""
    for step in (1.0, 0.5, 0.25, 0.1, 0.05, 0.01):
        fine = True
        for i in range(values.shape[0]):
            whole = values[i] / step
            if abs(whole - np.rint(whole)) > 1e-6:
                fine = False
                break
        if fine:
            return step
    return 0.001


@jit
def _coarsen(policy, values):
    """Scale a walk with large steps to larger units."""
    outlook = policy.outlook
    unit = np.int64(1)
    while outlook.par[0, SD] / unit > WALK_SD:
        unit *= 2
    if unit == 1:
        return
    outlook.par[0, STEP] *= unit
    outlook.par[0, A] /= unit
    outlook.par[0, SD] /= unit
    for i in range(values.shape[0]):
        values[i] = np.int64(np.rint(values[i] / unit))
    sd = math.sqrt(max(outlook.par[0, SD] ** 2 - SMALLEST, 0.0))
    fill_noise(outlook, 0, outlook.par[0, A], max(sd, 0.1))


@jit
def _bring_up(policy, values, first):
    """Decay and adapt the histogram and derive the noise from it; start again if the form changed."""
    counters, outlook, buckets = policy.counters, policy.outlook, policy.buckets
    kind = outlook.kind[0]
    if kind != TREND and kind != WALK:
        counters[FITTED] = NONE
        return
    if counters[FITTED] == kind and kind == TREND:
        fade(buckets, policy.moments[FADING])
    else:
        # The unit of a walk may have changed with the fit.
        counters[FITTED] = kind
        counters[HIGH] = start_again(buckets, outlook, 0, values, first)
    adapt(buckets, counters[HIGH], outlook, 0)


@jit
def _refile(policy, cache):
    """Reorder all entries."""
    heap = policy.heap
    n = heap.length[0]
    slots = heap.slot[:n].copy()
    heap.length[0] = 0
    for i in range(n):
        slot = np.int64(slots[i])
        policy.at[slot] = _located(policy, policy.value[slot])
        push(heap, cache, slot, _filed_score(policy, cache.e64[slot, KEY]))


@entered.on(HeebCache)
def _entered(policy, cache, slot):
    value = policy.moments[VALUE]
    policy.value[slot] = value
    policy.at[slot] = _located(policy, value)
    if policy.counters[BUCKETS] != 0:
        now = policy.shares.meta[SEEN] - 1
        policy.since[slot] = now
        policy.offset[slot] = np.float64(
            offset_of(policy.outlook, 0, policy.at[slot], policy.counters[LAST], now)
        )
    push(policy.heap, cache, slot, _filed_score(policy, cache.e64[slot, KEY]))


@used.on(HeebCache)
def _used(policy, cache, slot):
    score = _filed_score(policy, cache.e64[slot, KEY])
    if score < score_of(policy.heap, cache, slot):
        lower(policy.heap, cache, slot, score)
    else:
        raise_to(policy.heap, cache, slot, score)


@gone.on(HeebCache)
def _gone(policy, cache, slot):
    if policy.counters[FITTED] != NONE:
        steps = np.float64(policy.shares.meta[SEEN] - 1 - policy.since[slot])
        observe_lifetime(policy.buckets, policy.offset[slot], steps)
    remove(policy.heap, cache, slot)


@worst.on(HeebCache)
def _worst(policy, cache):
    heap = policy.heap
    if _in_order(policy):
        return np.int64(heap.slot[0])
    best, low, when = np.int64(0), 0.0, np.int64(0)
    for i in range(heap.length[0]):
        slot = np.int64(heap.slot[i])
        found, last = _benefit(policy, policy.at[slot], policy.value[slot]), cache.e64[slot, USED]
        if best == 0 or found < low or (found == low and last < when):
            best, low, when = slot, found, last
    return best


@refuses.on(HeebCache)
def _refuses(policy, cache, key, slot):
    if _in_order(policy):
        return _filed_score(policy, key) < score_of(policy.heap, cache, slot)
    value = policy.moments[VALUE]
    found = _benefit(policy, _located(policy, value), value)
    return found < _benefit(policy, policy.at[slot], policy.value[slot])
