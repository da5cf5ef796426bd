"""HEEB: the tuple with the lowest estimated expected benefit goes, by a model of the stream it waits for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from penstock.errors import PolicyOptionError, hint
from penstock.kernels.benefit import (
    ALPHA,
    AUTO,
    EXPONENTIAL,
    KNOWN,
    LOW,
    PLACES,
    REACH,
    SD,
    SLOPE,
    STATIC,
    STEP,
    TREND,
    WALK,
    WHOLE,
    WIDTH,
    A,
    B,
    Outlook,
    added_up,
    build,
    chance,
    last_step,
    locate,
    looked_up,
    new_outlook,
    set_exponential,
    sum_weights,
    trend_width,
    walk_width,
)
from penstock.kernels.fitting import fit, fit_is_due
from penstock.kernels.hooks import arrive, before_tick, enter, leave, lowest, newcomer, open_key, score
from penstock.kernels.jit import jit, rare
from penstock.kernels.layout import (
    ARRIVAL,
    BASE,
    ENTRY,
    KEY,
    LANDMARK,
    NODE,
    P_LIVE,
    PLACE,
    ROWS,
    STREAM,
    TIME,
    USE,
    WINDOW,
    Store,
    lifetime,
)
from penstock.models import (
    AR1,
    LinearTrend,
    Model,
    ModelError,
    RandomWalk,
    Sequence,
    Stationary,
    Survival,
    alpha_for,
    survival_of,
)
from penstock.models.survival import LEFT_OUT, OwnSurvival
from penstock.policies.base import Policy, Setting, is_number

WAYS = ("auto", "direct", "time", "value", "table")
JOINING = ("exp", "fixed")

MOST_DEEP = 1 << 21  # entries of a table with a row per step left
MOST_TABLE = 1 << 20
GRID_POINTS = 97  # a side, of the surface of AR(1)
MOST_ALPHA = 512.0  # where it is observed
LEARNT_LEFT_OUT = 1e-4  # weights that a model learnt on the way leaves out
OBSERVE = 512  # arrivals between two looks at the average lifetime
HISTORY = 1_024  # values of a stream that a model is learnt from

# Counters.
TICKING = 0  # 1: time counts ticks, 0: the arrivals of each stream
TICK = 1  # the present tick
WAY = 2
LEARNING = 3  # +stream: 1 if its model is learnt
OBSERVING = 5  # 1: alpha follows the average lifetime
NUMERIC = 6  # 1: keys are numbers
ANCHOR = 7  # steps after which a benefit that was carried on is added up anew
COUNTERS = 8

DIRECT, TIMED, VALUED, TABLED = 1, 2, 3, 4

# Moments.
BEGAN = 0  # the time of the first arrival
NOW = 1
LIVED = 2  # steps that tuples spent in memory, since the last look
GONE = 3  # how many of them left
STARTED = 4  # 1 once there was an arrival
COMMON_ALPHA = 5
MOMENTS = 6


class HeebState(NamedTuple):
    """The models, the tuples of each pool without order, and what has come of the streams."""

    outlook: Outlook
    members: np.ndarray
    length: np.ndarray
    seen: np.ndarray  # arrivals of each stream
    last: np.ndarray  # the last value of each, as multiples of its step
    rate: np.ndarray  # arrivals per unit of time where known, 0 elsewhere
    factor: np.ndarray  # how many arrivals of a stream a tick has, in relation
    counters: np.ndarray
    moments: np.ndarray
    history: np.ndarray
    values: np.ndarray  # of the codes of keys; empty: a code is its value


@dataclass(frozen=True)
class Heeb(Policy):
    """Evict the tuple with the lowest `H_x`: expected matches, each weighed by the chance to live to see it.

    Parameters
    ----------
    left, right
        The models of the streams; a left tuple is scored by that of the right stream. `None` fits one of
        the usual models to the first arrivals and again as the stream moves.
    alpha
        Of the survival `exp`: a number of steps, or `"auto"` to follow the average lifetime of tuples in
        memory as it is observed (up to 512 steps).
    lifetime
        An average lifetime to take alpha from, instead of `alpha`.
    L
        The survival: `"exp"`, `"fixed"` (with `steps`), or a function of one's own. `"inf"` and `"inv"` are
        for caching; in a join they let the benefit grow without end.
    steps
        Of the survival `fixed`.
    way
        How it is computed: `"direct"`, `"time"` (from the step before), `"value"` (newcomers from their
        neighbours), `"table"` (beforehand), or `"auto"`, the fastest that applies.

    Time is the tick in tick steps and otherwise the number of the arrival in its stream. Where the streams
    have different rates, a step lasts as long as one arrival of each does on average.

    >>> import penstock as ps
    >>> noise = ps.models.BoundedUniform(2)
    >>> model = ps.models.LinearTrend(slope=1, intercept=0, noise=noise)
    >>> streams = [{"key": model.sample(200, seed), "ts": range(200)} for seed in (0, 1)]
    >>> policy = ps.policies.Heeb(left=model, right=model, alpha=4)
    >>> join = ps.WindowJoin(within=100, budget=ps.Tuples(6), policy=policy, step="tick")
    >>> rival = ps.WindowJoin(within=100, budget=ps.Tuples(6), policy="fifo", step="tick")
    >>> join.run(*streams, on="key", time="ts").stats.results
    191
    >>> rival.run(*streams, on="key", time="ts").stats.results
    176
    """

    left: Model | None = None
    right: Model | None = None
    alpha: float | str = "auto"
    lifetime: float | None = None
    L: Any = "exp"
    steps: int | None = None
    way: str = "auto"

    name: ClassVar[str] = "heeb"
    summary: ClassVar[str] = "the lowest expected benefit under a model of the other stream goes"
    cost: ClassVar[str] = "O(n) per eviction with a small constant, nothing per match"
    paper: ClassVar[str] = "Xie, Yang and Chen 2005, sections 5.3 and 6.1"
    selective: ClassVar[bool] = True
    counts_keys: ClassVar[bool] = True
    many: ClassVar[bool] = False
    reads_values: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for side in ("left", "right"):
            model = getattr(self, side)
            known = (Stationary, LinearTrend, RandomWalk, AR1, Sequence)
            self.require(
                model is None or isinstance(model, known),
                side,
                "a Stationary, Empirical, LinearTrend, RandomWalk, AR1 or Sequence of penstock.models, or None",
            )
        if isinstance(self.alpha, str):
            self.require(self.alpha == "auto", "alpha", "a number above 0, or 'auto'")
        else:
            self.require(is_number(self.alpha) and 0 < self.alpha <= 20_000, "alpha", "above 0, up to 20,000")
        if self.lifetime is not None:
            fine = is_number(self.lifetime) and 1 < self.lifetime <= 20_000
            self.require(fine, "lifetime", "an average number of steps above 1, up to 20,000")
            self.require(self.alpha == "auto", "alpha", "left out where a lifetime is given")
        if isinstance(self.L, str):
            if self.L in ("inf", "inv"):
                raise PolicyOptionError(
                    f"{self.name}: L={self.L!r} is for caching; in a join the benefit would grow without end. "
                    "Use 'exp' or 'fixed'."
                )
            if self.L not in JOINING:
                raise PolicyOptionError(f"{self.name}: L={self.L!r} is not known{hint(self.L, JOINING)}")
            fine = self.steps is None or (is_number(self.steps) and 1 <= self.steps <= 1 << 18)
            self.require(fine and (self.L == "exp" or self.steps is not None), "steps", "a number from 1 up")
        else:
            try:
                object.__setattr__(self, "L", survival_of(self.L))
            except ModelError as error:
                raise PolicyOptionError(f"{self.name}: {error}") from error
            if not self.L.converges:
                raise PolicyOptionError(
                    f"{self.name}: L={self.L.kind!r} is for caching; in a join the benefit would grow without "
                    "end. Use 'exp' or 'fixed'."
                )
        if self.way not in WAYS:
            raise PolicyOptionError(f"{self.name}: way={self.way!r} is not known{hint(self.way, WAYS)}")
        if self.way in ("time", "value"):
            self._check_way()

    def _check_way(self) -> None:
        """Carrying a benefit on from step to step, or from value to value, needs `exp` and a trend."""
        kinds = (LinearTrend, Stationary) if self.way == "time" else LinearTrend
        fine = all(isinstance(model, kinds) for model in (self.left, self.right))
        if not fine or not self._exponential or (self.alpha == "auto" and self.lifetime is None):
            raise PolicyOptionError(
                f"{self.name}: way={self.way!r} needs independent streams (for 'value': with trends) that are "
                "given, L='exp' and a given alpha; leave it out to have the fastest way chosen."
            )

    @property
    def _exponential(self) -> bool:
        return self.L == "exp" or (isinstance(self.L, Survival) and self.L.kind == "exp")

    @property
    def _observes(self) -> bool:
        return self.L == "exp" and self.alpha == "auto" and self.lifetime is None

    @property
    def depends_on_last(self) -> bool:
        """Whether a model goes by the last value of its stream, which must then be known."""
        models = (self.left, self.right)
        return any(model is not None and not model.independent for model in models)

    def build(self, setting: Setting) -> HeebState:
        """Models as tables, and an empty memory."""
        values, numeric = values_of(setting)
        shares = _shares(self, setting)
        learnt = self.left is None or self.right is None
        alphas, reach = self._alphas(setting, shares)
        sizes = _Sizes(reach)
        for r, model in enumerate((self.left, self.right)):
            sizes.need(model, self.way, reach, self.name, numeric, setting)
        if learnt:
            sizes.need_to_learn(setting, reach)
        outlook = new_outlook(sizes.width, sizes.places, sizes.spots, sizes.table, sizes.deep, sizes.reach)
        last = np.zeros(2, np.int64)
        for r, model in enumerate((self.left, self.right)):
            self._weigh(outlook, r, alphas[r], shares[r], setting)
            last[r] = encode(outlook, r, model, setting)
            build(outlook, r)
        counters = np.zeros(COUNTERS, np.int64)
        counters[TICKING] = setting.step == "tick" and not learnt
        counters[TICK] = -1
        counters[WAY] = self._way(outlook)
        counters[LEARNING] = self.left is None
        counters[LEARNING + 1] = self.right is None
        counters[OBSERVING] = self._observes
        counters[NUMERIC] = numeric
        counters[ANCHOR] = max(1, int(8 * min(alphas)))
        moments = np.zeros(MOMENTS)
        moments[COMMON_ALPHA] = alphas[0] / shares[0]
        known = setting.rates is not None and not learnt and min(setting.rates) > 0
        return HeebState(
            outlook=outlook,
            members=np.zeros((len(setting.capacities), max(setting.capacities) + 1), np.int32),
            length=np.zeros(len(setting.capacities), np.int64),
            seen=np.zeros(2, np.int64),
            last=last,
            rate=np.array(setting.rates if known else (0.0, 0.0), np.float64),
            factor=np.array(shares if counters[TICKING] else (1.0, 1.0)),
            counters=counters,
            moments=moments,
            history=np.zeros((2, sizes.history), np.int64),
            values=values,
        )

    def _alphas(self, setting: Setting, shares: tuple[float, float]) -> tuple[list[float], int]:
        """The alpha of each stream in its own steps, and how many weights are needed."""
        survival = self.L
        ticking = setting.step == "tick" and self.left is not None and self.right is not None
        stretch = [1.0, 1.0] if ticking else list(shares)
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

    def _weigh(self, outlook: Outlook, r: int, alpha: float, share: float, setting: Setting) -> None:
        """The weights of the steps of a stream."""
        learnt = self.left is None or self.right is None
        if self._exponential:
            left_out = LEARNT_LEFT_OUT if learnt else (1e-6 if self._observes else LEFT_OUT)
            set_exponential(outlook, r, alpha, left_out)
            return
        survival = self.L if isinstance(self.L, OwnSurvival | Survival) else None
        survival = survival or Survival("fixed", steps=int(self.steps or 1))
        stretch = 1.0 if setting.step == "tick" and not learnt else share
        reach = min(outlook.weight.shape[1] - 1, max(1, math.floor(survival.reach * stretch)))
        outlook.ints[r, REACH] = reach
        outlook.weight[r, 1 : reach + 1] = survival.weights(reach, stretch)
        sum_weights(outlook, r, False)

    def _way(self, outlook: Outlook) -> int:
        """The way that is asked for, or the fastest that applies."""
        if self.way != "auto":
            return {"direct": DIRECT, "time": TIMED, "value": VALUED, "table": TABLED}[self.way]
        # A trend that is not whole has no table: its benefits are carried on from step to step.
        uneven = any(isinstance(m, LinearTrend) and not _whole(m) for m in (self.left, self.right))
        independent = all(m is not None and m.independent for m in (self.left, self.right))
        sequences = any(isinstance(m, Sequence) for m in (self.left, self.right))
        carried = uneven and independent and not sequences and self._exponential and not self._observes
        return TIMED if carried else TABLED

    def check(self, state: Any, store: Store) -> None:
        """Every member knows its place."""
        for pool in range(len(state.length)):
            assert state.length[pool] == store.pools[pool, P_LIVE]
            for place in range(state.length[pool]):
                assert store.t32[state.members[pool, place], PLACE] == place

    def bytes_beyond(self, state: Any) -> int:
        """The values of keys that are not whole numbers."""
        return int(state.values.nbytes)


class _Sizes:
    """How large the tables of the models must be."""

    def __init__(self, reach: int) -> None:
        self.width = self.places = self.spots = self.table = self.deep = self.history = 0
        self.reach = reach

    def need(
        self, model: Model | None, way: str, reach: int, name: str, numeric: bool, setting: Setting
    ) -> None:
        if model is not None and not numeric and not isinstance(model, Stationary):
            raise PolicyOptionError(
                f"{name}: {type(model).__name__} is a model of numbers, but the keys are not numbers. Use "
                "Stationary, or join on a numeric column."
            )
        if isinstance(model, Sequence):
            self.places = max(self.places, len(set(model.values)))
            self.spots = max(self.spots, len(model.values))
        elif isinstance(model, Stationary):
            self.width = max(self.width, len(model.values))
            self.places = max(self.places, len(model.values))
        elif isinstance(model, LinearTrend):
            noise = model.noise.table
            self.width = max(self.width, len(noise))
            if _whole(model) and way in ("auto", "table"):
                slope = round(model.slope / model.step)
                self._tables(trend_width(model.noise.low, len(noise), slope, reach)[1], reach)
        elif isinstance(model, RandomWalk):
            _, steps = model.steps
            self.width = max(self.width, len(steps))
            if way in ("auto", "table"):
                self._tables(walk_width(model.drift / model.step, _sd(model), reach)[1], reach)
        elif isinstance(model, AR1) and way in ("auto", "table"):
            self.table = max(self.table, GRID_POINTS**2)

    def _tables(self, width: int, reach: int) -> None:
        if width <= MOST_TABLE:
            self.table = max(self.table, width)
            if width * reach <= MOST_DEEP:
                self.deep = max(self.deep, width * reach)

    def need_to_learn(self, setting: Setting, reach: int) -> None:
        """Within the memory for counts where that is limited: history, shares, weights and table."""
        if setting.count_bytes is None:
            self.history, places, table = HISTORY, HISTORY, 4_096
        else:
            words = max(0, setting.count_bytes // 16 - 2 * reach)
            self.history = max(16, words // 8)
            places, table = self.history, max(16, words // 2)
        self.width, self.places = max(self.width, places), max(self.places, places)
        self.table = max(self.table, table)


def _whole(model: LinearTrend) -> bool:
    """Whether the tuples at one distance from a trend see the same future."""
    return bool(model.slope != 0 and float(model.slope / model.step).is_integer())


def _sd(model: RandomWalk) -> float:
    """The spread of the rounded steps, in multiples of the model's step."""
    low, steps = model.steps
    numbers = np.arange(low, low + len(steps))
    return math.sqrt(float((numbers - numbers @ steps) ** 2 @ steps))


def values_of(setting: Setting) -> tuple[np.ndarray, bool]:
    """The number of each key code (empty: the code itself), and whether keys are numbers at all."""
    if setting.labels is None:
        return np.zeros(0), True
    labels = setting.labels
    if labels.dtype.kind not in "iuf":
        return np.zeros(0), False
    return np.ascontiguousarray(labels, np.float64), True


def _shares(policy: Heeb, setting: Setting) -> tuple[float, float]:
    """How many arrivals of each stream a step has: 1 and 1 where the rates are equal or not known."""
    learnt = policy.left is None or policy.right is None
    if setting.rates is None or learnt or min(setting.rates) <= 0:
        return 1.0, 1.0
    left, right = setting.rates[:2]
    return 2.0 * left / (left + right), 2.0 * right / (left + right)


def encode(outlook: Outlook, r: int, model: Model | None, setting: Setting) -> int:
    """Write a model into the tables; the value, in steps, that it starts from."""
    ints, par = outlook.ints[r], outlook.par[r]
    par[STEP] = 1.0
    if isinstance(model, Sequence):
        values = np.array(model.values)
        places = np.unique(values)
        order = np.argsort(values, kind="stable")
        outlook.kind[r] = KNOWN
        ints[PLACES] = len(places)
        outlook.places[r, : len(places)] = places
        outlook.starts[r, : len(places) + 1] = np.searchsorted(values[order], np.append(places, np.inf))
        outlook.spots[r, : len(values)] = order
    elif isinstance(model, Stationary):
        numbers, shares = _numbered(model, setting)
        outlook.kind[r] = STATIC
        ints[PLACES] = len(numbers)
        outlook.places[r, : len(numbers)] = numbers
        outlook.noise[r, : len(numbers)] = shares
    elif isinstance(model, LinearTrend):
        noise = model.noise.table
        outlook.kind[r] = TREND
        outlook.noise[r, : len(noise)] = noise
        ints[[LOW, WIDTH]] = model.noise.low, len(noise)
        ints[WHOLE] = _whole(model)
        ints[SLOPE] = round(model.slope / model.step) if _whole(model) else 0
        par[[A, B, STEP]] = model.slope / model.step, model.intercept / model.step, model.step
    elif isinstance(model, RandomWalk):
        low, steps = model.steps
        outlook.kind[r] = WALK
        outlook.noise[r, : len(steps)] = steps
        ints[[LOW, WIDTH]] = low, len(steps)
        par[[A, SD, STEP]] = model.drift / model.step, _sd(model), model.step
        return round(model.start / model.step)
    elif isinstance(model, AR1):
        outlook.kind[r] = AUTO
        par[[A, B, SD]] = model.phi, model.mean / model.step, model.spread / model.step
        par[STEP] = model.step
        return round(model.mean / model.step)
    return 0


def _numbered(model: Stationary, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """The values of a distribution as numbers, in order; keys that are not numbers as their codes."""
    known: Any = model.values
    if setting.labels is not None and setting.labels.dtype.kind not in "iuf":
        codes = {label: code for code, label in enumerate(setting.labels.tolist())}
        pairs = [(codes[v], p) for v, p in zip(known, model.probabilities, strict=True) if v in codes]
    else:
        try:
            pairs = [(float(v), p) for v, p in zip(known, model.probabilities, strict=True)]
        except (TypeError, ValueError) as error:
            raise PolicyOptionError(
                f"heeb: the values of the model are not numbers ({error}), but the keys are."
            ) from error
    pairs.sort()
    return np.array([v for v, _ in pairs], np.float64), np.array([p for _, p in pairs])


@jit
def value_of(policy, key):
    """The number that a key stands for."""
    return policy.values[key] if policy.values.shape[0] > 0 else np.float64(key)


@jit
def _time(policy, r):
    """The present time of a stream: the tick, or the number of its last arrival."""
    return policy.counters[TICK] if policy.counters[TICKING] != 0 else policy.seen[r] - 1


@jit
def _pace(policy, store, stream, r):
    """How many steps of stream r pass in a unit of the clock of `stream`."""
    if store.meta[WINDOW] == ROWS:
        if policy.counters[TICKING] != 0 or policy.seen[stream] == 0:
            return 1.0
        if policy.rate[stream] > 0.0:
            return policy.rate[r] / policy.rate[stream]
        return policy.seen[r] / policy.seen[stream]
    elapsed = policy.moments[NOW] - policy.moments[BEGAN]
    if policy.counters[TICKING] != 0:
        return policy.counters[TICK] / elapsed if elapsed > 0.0 and policy.counters[TICK] > 0 else 1.0
    if policy.rate[r] > 0.0:
        return policy.rate[r]
    return policy.seen[r] / elapsed if elapsed > 0.0 else 1.0


@jit
def _steps_left(store, stream, time, pace):
    """How many steps of the other stream a tuple's window still covers."""
    left = np.float64(lifetime(store, stream, time)) * pace
    if store.meta[WINDOW] == LANDMARK:
        left = math.ceil(left - 1e-9) - 1.0
    return np.int64(max(0.0, min(math.floor(left + 1e-9), 1e15)))


@jit
def _benefit(policy, r, at, left):
    """H of a tuple with this value and so many steps left."""
    if policy.counters[WAY] == DIRECT:
        found = added_up(policy.outlook, r, at, _time(policy, r), policy.last[r], left)
    else:
        found = looked_up(policy.outlook, r, at, _time(policy, r), policy.last[r], left)
    return policy.factor[r] * found


@jit
def _carried(policy, store, slot, r, at, left):
    """H of a tuple from what it was (Corollary 3), added up anew where errors would grow."""
    now = _time(policy, r)
    since = np.int64(store.t32[slot, NODE])
    anchor = policy.counters[ANCHOR]
    outlook = policy.outlook
    if left < last_step(outlook, r, at, now):  # the window ends first
        store.t32[slot, NODE] = -1
        return policy.factor[r] * added_up(outlook, r, at, now, policy.last[r], left)
    if since < 0 or now - since > anchor or now // anchor != since // anchor:
        found = added_up(outlook, r, at, now, policy.last[r], left)
    else:
        found = store.f64[slot, BASE]
        growth = math.exp(1.0 / outlook.par[r, ALPHA])
        for time in range(since + 1, now + 1):
            found = max(0.0, growth * found - chance(outlook, r, at, time))
    store.f64[slot, BASE] = found
    store.t32[slot, NODE] = now
    return policy.factor[r] * found


@jit
def _from_neighbour(policy, store, stream, r, at, left):
    """H of a newcomer from that of the tuple whose value is nearest (Corollary 5)."""
    outlook, now = policy.outlook, _time(policy, r)
    slope = outlook.ints[r, SLOPE]
    nearest, distance = 0, np.int64(policy.counters[ANCHOR]) + 1
    pool = store.pool_of[stream]
    if outlook.ints[r, WHOLE] != 0 and left >= last_step(outlook, r, at, now):
        for i in range(policy.length[pool]):
            slot = policy.members[pool, i]
            if store.t32[slot, STREAM] == stream and store.t32[slot, NODE] == now:
                away = store.k64[store.t32[slot, ENTRY], USE + stream] - at
                if away % slope == 0 and abs(away // slope) < distance:
                    nearest, distance = slot, abs(away // slope)
    if nearest == 0:
        return policy.factor[r] * added_up(outlook, r, at, now, policy.last[r], left)
    known = store.k64[store.t32[nearest, ENTRY], USE + stream]
    found, away = store.f64[nearest, BASE], (known - at) // slope
    decay = math.exp(-1.0 / outlook.par[r, ALPHA])
    for i in range(abs(away)):
        if away > 0:
            found = max(0.0, found / decay - chance(outlook, r, known, now + 1 + i))
        else:
            found = decay * (found + chance(outlook, r, known, now - i))
    return policy.factor[r] * found


@arrive.on(HeebState)
def _arrive(policy, store, stream, key, entry):
    now = np.float64(store.clock[1 - stream])
    if policy.moments[STARTED] == 0.0:
        policy.moments[STARTED] = 1.0
        policy.moments[BEGAN] = now
    policy.moments[NOW] = max(policy.moments[BEGAN], now)
    policy.last[stream] = np.int64(np.rint(value_of(policy, key) / policy.outlook.par[stream, STEP]))
    seen = policy.seen[stream]
    policy.seen[stream] = seen + 1
    if policy.counters[LEARNING + stream] != 0:
        policy.history[stream, seen % policy.history.shape[1]] = policy.last[stream]
        if fit_is_due(seen + 1):
            _learn(policy, store, stream)
    if policy.counters[OBSERVING] != 0 and (policy.seen[0] + policy.seen[1]) % OBSERVE == 0:
        _observe(policy)


@rare
def _learn(policy, store, stream):
    """Fit a model to the last values of a stream."""
    seen, room = policy.seen[stream], np.int64(policy.history.shape[1])
    n = min(seen, room)
    values = np.empty(n, np.int64)
    for i in range(n):
        values[i] = policy.history[stream, (seen - n + i) % room]
    fit(policy.outlook, stream, values, seen - n, policy.counters[NUMERIC] != 0)
    _reweigh(policy, stream)


@rare
def _reweigh(policy, r):
    """Set the weights to the present alpha and rates, where they are exponential, and build the tables."""
    outlook = policy.outlook
    if outlook.ints[r, EXPONENTIAL] != 0:
        alpha = policy.moments[COMMON_ALPHA]
        learning = policy.counters[LEARNING] + policy.counters[LEARNING + 1] != 0
        if learning and policy.seen[r] > 0:
            alpha *= 2.0 * policy.seen[r] / (policy.seen[0] + policy.seen[1])
        elif not learning:
            alpha *= policy.outlook.par[r, ALPHA] / _old_alpha(policy, r)
        set_exponential(outlook, r, max(alpha, 0.1), LEARNT_LEFT_OUT if learning else 1e-6)
    build(outlook, r)


@jit
def _old_alpha(policy, r):
    """What the alpha of a stream is divided by to have the share of its rate."""
    return 0.5 * (policy.outlook.par[0, ALPHA] + policy.outlook.par[1, ALPHA])


@rare
def _observe(policy):
    """Let alpha follow the average lifetime of those that left, if that has changed by a tenth."""
    moments = policy.moments
    if moments[GONE] < 32.0:
        return
    lived = max(moments[LIVED] / moments[GONE], 1.05)
    moments[LIVED] = 0.0
    moments[GONE] = 0.0
    room = (policy.outlook.weight.shape[1] - 1) / 9.3
    target = min(-1.0 / math.log(1.0 - 1.0 / lived), room, MOST_ALPHA)
    alpha = 0.5 * (moments[COMMON_ALPHA] + target)
    if abs(alpha - moments[COMMON_ALPHA]) > 0.1 * moments[COMMON_ALPHA]:
        moments[COMMON_ALPHA] = alpha
        for r in range(2):
            _reweigh(policy, r)


@open_key.on(HeebState)
def _open_key(policy, store, entry):
    value = value_of(policy, store.k64[entry, KEY])
    store.k64[entry, USE] = locate(policy.outlook, 1, value)
    store.k64[entry, USE + 1] = locate(policy.outlook, 0, value)


@before_tick.on(HeebState)
def _before_tick(policy, store):
    policy.counters[TICK] += 1


@enter.on(HeebState)
def _enter(policy, store, slot):
    stream = store.t32[slot, STREAM]
    pool = store.pool_of[stream]
    place = policy.length[pool]
    policy.members[pool, place] = slot
    store.t32[slot, PLACE] = place
    store.t32[slot, NODE] = -1
    policy.length[pool] = place + 1
    if policy.counters[WAY] == VALUED:
        r = 1 - stream
        at = store.k64[store.t32[slot, ENTRY], USE + stream]
        left = _steps_left(store, stream, store.time[slot, TIME], _pace(policy, store, stream, r))
        if left >= last_step(policy.outlook, r, at, _time(policy, r)):
            found = _from_neighbour(policy, store, stream, r, at, left)
            store.f64[slot, BASE] = found / policy.factor[r]
            store.t32[slot, NODE] = _time(policy, r)


@leave.on(HeebState)
def _leave(policy, store, slot):
    stream = store.t32[slot, STREAM]
    pool = store.pool_of[stream]
    place, end = store.t32[slot, PLACE], policy.length[pool] - 1
    moved = policy.members[pool, end]
    policy.members[pool, place] = moved
    store.t32[moved, PLACE] = place
    policy.length[pool] = end
    if policy.counters[OBSERVING] != 0:
        age = np.float64(store.clock[stream] - store.time[slot, TIME])
        pace = 0.5 * (_pace(policy, store, stream, 0) + _pace(policy, store, stream, 1))
        policy.moments[LIVED] += age * pace
        policy.moments[GONE] += 1.0


@jit
def _present(policy, store, slot, pace):
    stream = np.int64(store.t32[slot, STREAM])
    at = store.k64[store.t32[slot, ENTRY], USE + stream]
    left = _steps_left(store, stream, store.time[slot, TIME], pace)
    way = policy.counters[WAY]
    if way == TIMED or way == VALUED:
        return _carried(policy, store, slot, 1 - stream, at, left)
    return _benefit(policy, 1 - stream, at, left)


@score.on(HeebState)
def _score(policy, store, slot):
    stream = np.int64(store.t32[slot, STREAM])
    return _present(policy, store, slot, _pace(policy, store, stream, 1 - stream))


@newcomer.on(HeebState)
def _newcomer(policy, store, stream, entry):
    r = 1 - stream
    at = store.k64[entry, USE + stream]
    left = _steps_left(store, stream, store.entering[0], _pace(policy, store, stream, r))
    if policy.counters[WAY] == VALUED:
        return _from_neighbour(policy, store, stream, r, at, left)
    return _benefit(policy, r, at, left)


@lowest.on(HeebState)
def _lowest(policy, store, pool):
    pace_left, pace_right = _pace(policy, store, 0, 1), _pace(policy, store, 1, 0)
    best, low, arrival = 0, 0.0, np.int64(0)
    for i in range(policy.length[pool]):
        slot = policy.members[pool, i]
        found = _present(policy, store, slot, pace_left if store.t32[slot, STREAM] == 0 else pace_right)
        number = store.t64[slot, ARRIVAL]
        if best == 0 or found < low or (found == low and number < arrival):
            best, low, arrival = np.int64(slot), found, number
    return best, low
