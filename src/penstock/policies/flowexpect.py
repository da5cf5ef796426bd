"""FLOWEXPECT: at each step, plan the next steps with a min-cost flow and carry out the first decision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.engine.hooks import (
    arrive,
    before_tick,
    enter,
    leave,
    lowest,
    make_room,
    match_key,
    match_one,
    newcomer,
    score,
)
from penstock.engine.store import (
    ARRIVAL,
    ARRIVALS,
    ENTRY,
    KEY,
    LANDMARK,
    NUMBER,
    P_LIMIT,
    ROW,
    ROWS,
    STREAM,
    TIME,
    WINDOW,
    Store,
)
from penstock.errors import PolicyOptionError
from penstock.extras import require
from penstock.flows import best_expected
from penstock.models import AR1, LinearTrend, Model, Past, RandomWalk, Sequence, Stationary
from penstock.policies.base import Policy, Setting
from penstock.policies.heeb.state import values_of
from penstock.policies.python import Item, PythonState

SPREADS = 8.0  # standard deviations of a walk or AR(1) that are considered


class FlowState(PythonState):
    """The buffered tuples, the arrivals of this step, and which of them stay once that is decided."""

    def __init__(self, policy: FlowExpect, setting: Setting) -> None:
        values, numeric = values_of(setting)
        if not numeric:
            raise PolicyOptionError(f"{policy.name} needs numeric keys, because its models predict numbers.")
        self.policy = policy  # type: ignore[assignment]
        self.memory: Any = {}
        self.items: dict[int, Item] = {}
        assert policy.left is not None
        assert policy.right is not None
        self.models = (policy.left, policy.right)
        self.ahead = int(policy.lookahead)
        self.values = values
        self.ticking = setting.step == "tick"
        self.seen = [0, 0]
        self.last: list[float | None] = [None, None]
        self.ticks = 0
        self.began: float | None = None
        self.waiting: list[Item] = []  # arrivals of the current step
        self.open = False  # the current tick has not admitted any tuple yet
        self.stay: set[int] | None = None  # arrival numbers that stay, once decided

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))

    def value(self, key: int) -> float:
        """Return the value of a key."""
        return float(self.values[key]) if len(self.values) else float(key)

    def past(self, stream: int) -> Past:
        """Return what a model needs to know about the stream so far."""
        return Past(self.ticks - 1 if self.ticking else self.seen[stream] - 1, self.last[stream])


@dataclass(frozen=True)
class FlowExpect(Policy):
    """At every step, find the decisions for the next `lookahead` steps with the most expected results.

    A min-cost flow finds them over the tuples in memory, the newcomers and the tuples still to come, each
    with the results that the models of the streams predict for it. Only the first decision is carried out.
    It is the most thorough policy that uses a model, and a slow one: one flow per step, in Python. It is
    still not optimal, because it plans as if it could not revise its decisions (section 4 of the paper).

    `left` and `right` are the models of the streams; they must have a `pmf`. Your own model also needs a
    method `support(past, ahead)` that returns the values possible in the next `ahead` steps. The benefit of a
    tuple ends with its window.

    >>> import penstock as ps
    >>> model = ps.models.LinearTrend(slope=1, intercept=0, noise=ps.models.BoundedUniform(2))
    >>> streams = [{"key": model.sample(60, seed), "ts": range(60)} for seed in (0, 1)]
    >>> policy = ps.policies.FlowExpect(left=model, right=model, lookahead=8)
    >>> join = ps.WindowJoin(within=60, budget=ps.Tuples(4), policy=policy, step="tick")
    >>> rival = ps.WindowJoin(within=60, budget=ps.Tuples(4), policy="fifo", step="tick")
    >>> ours, theirs = (each.run(*streams, on="key", time="ts").stats.results for each in (join, rival))
    >>> ours > theirs
    True
    """

    left: Model | None = None
    right: Model | None = None
    lookahead: int = 20

    name: ClassVar[str] = "flowexpect"
    summary: ClassVar[str] = "evicts what the best fixed decisions for the next steps do not keep"
    wins: ClassVar[str] = (
        "streams are short and a model is known: it plans the next steps exactly, as a yardstick for heeb"
    )
    loses: ClassVar[str] = (
        "throughput matters: a flow is solved at every step, in Python; and decisions do not adapt within"
        " the lookahead"
    )
    cost: ClassVar[str] = "a min-cost flow per step, in Python"
    paper: ClassVar[str] = "Xie, Yang and Chen 2005, section 4"
    selective: ClassVar[bool] = True
    many: ClassVar[bool] = False
    needs_model: ClassVar[bool] = True
    reads_values: ClassVar[bool] = True
    counts_bytes: ClassVar[bool] = False
    compiled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for side in ("left", "right"):
            model = getattr(self, side)
            self.require(model is None or isinstance(model, Model), side, "a model of penstock.models")
        whole = isinstance(self.lookahead, int | np.integer) and not isinstance(self.lookahead, bool)
        self.require(whole and self.lookahead >= 1, "lookahead", "a whole number of steps from 1 up")

    def check_joins(self) -> None:
        """Flows are solved by OR-tools, and normal distributions are SciPy's."""
        require("ortools", f"The policy {self.name}")
        for model in (self.left, self.right):
            if model is not None and model.normal:
                require("scipy", f"The policy {self.name} with {type(model).__name__}")

    def build(self, setting: Setting) -> FlowState:
        """Build an empty memory."""
        if self.left is None or self.right is None:
            raise PolicyOptionError(
                f"{self.name} needs the models of both streams. Pass FlowExpect(left=MODEL, right=MODEL); "
                "penstock.models.select(series) finds a model."
            )
        for model in (self.left, self.right):
            support(model, Past(0, 0.0), 1)
        return FlowState(self, setting)


def support(model: Model, past: Past, ahead: int) -> np.ndarray:
    """Return the values that are likely enough to come in the next `ahead` steps.

    >>> from penstock.models import BoundedUniform, LinearTrend, Past
    >>> from penstock.policies.flowexpect import support
    >>> support(LinearTrend(1, 0, BoundedUniform(1)), Past(now=9), 2).tolist()
    [9.0, 10.0, 11.0, 12.0]
    """
    if hasattr(model, "support"):
        return np.asarray(model.support(past, ahead), np.float64)
    steps = np.arange(1, ahead + 1)
    if isinstance(model, Sequence):
        return np.unique(np.asarray(model.values[past.now + 1 : past.now + 1 + ahead], np.float64))
    if isinstance(model, Stationary):
        return np.asarray(model.values, np.float64)
    if isinstance(model, LinearTrend):
        at, noise = model.trend(past.now + steps), model.noise
        reach = np.arange(at.min() + noise.low, at.max() + noise.low + len(noise.table))
        return reach * float(model.step)
    if isinstance(model, RandomWalk):
        last = model.start if past.last is None else past.last
        drift, far = model.drift * steps, SPREADS * math.sqrt(ahead) * (model.sd + model.step)
        low, high = (drift.min() - far) // model.step, (drift.max() + far) // model.step
        return last + np.arange(low, high + 1) * model.step
    if isinstance(model, AR1):
        last = model.mean if past.last is None else past.last
        far = SPREADS * model.spread
        low = (min(last, model.mean) - far) // model.step
        return np.arange(low, (max(last, model.mean) + far) // model.step + 1) * model.step
    raise PolicyOptionError(
        f"flowexpect: cannot tell which values {type(model).__name__} may produce; give it a method "
        "support(past, ahead)."
    )


def decide(state: FlowState, store: Store) -> set[int]:
    """Return the arrival numbers that stay, among the buffered tuples and the arrivals of this step."""
    ahead, models = state.ahead, state.models
    steps = np.arange(1, ahead + 1)
    pasts = [state.past(stream) for stream in (0, 1)]
    rates = [state.seen[s] / state.ticks if state.ticking else 1.0 for s in (0, 1)]
    buffered = list(state.items.values())
    held = {item.arrival for item in buffered}
    everyone = buffered + [item for item in state.waiting if item.arrival not in held]
    grid = support(models[0], pasts[0], ahead)
    chances = [model.pmf(grid, steps, past) for model, past in zip(models, pasts, strict=True)]
    stay: set[int] = set()
    for pool in range(len(store.pools)):
        streams = [s for s in (0, 1) if store.pool_of[s] == pool]
        mine = [item for item in everyone if item.stream in streams]
        benefits = np.zeros((len(mine), ahead))
        for stream in streams:
            rows = [i for i, item in enumerate(mine) if item.stream == stream]
            if rows:
                values = [state.value(mine[i].key) for i in rows]
                expected = models[1 - stream].pmf(values, steps, pasts[1 - stream]).T
                left = np.array([_steps_left(state, store, stream, mine[i].time) for i in rows])
                benefits[rows] = rates[1 - stream] * np.where(steps <= left[:, None], expected, 0.0)
        coming = []
        for stream in streams:
            expected = rates[1 - stream] * (chances[stream] @ chances[1 - stream].T)
            lives = _lives(state, store, stream, steps)
            coming.append(np.where(steps <= lives[:, None], expected, 0.0))
        capacity = int(store.pools[pool, P_LIMIT])
        counts = [max(1, round(rates[stream])) for stream in streams]
        keep, _ = best_expected(capacity, benefits, coming, counts) if mine else (np.zeros(0, bool), 0.0)
        # Tuples without expected results fill the remaining room, the latest first.
        worth = sorted(range(len(mine)), key=lambda i: (keep[i], mine[i].arrival), reverse=True)
        stay.update(mine[i].arrival for i in worth[:capacity])
    return stay


def _pace(state: FlowState, store: Store, stream: int) -> float:
    """Return the steps of the other stream per unit of the clock by which tuples of `stream` expire."""
    passed = state.ticks if state.ticking else state.seen[1 - stream]
    if store.meta[WINDOW] == ROWS:
        return passed / state.seen[stream] if state.seen[stream] else 1.0
    elapsed = float(store.clock[stream]) - (state.began or 0.0)
    return (passed - 1) / elapsed if elapsed > 0 and passed > 1 else 1.0


def _steps_left(state: FlowState, store: Store, stream: int, time: Any) -> float:
    """Return how many steps the window of a tuple still covers."""
    clock, horizon = store.clock[stream].item(), store.horizon[stream].item()
    if store.meta[WINDOW] == LANDMARK:
        end = (time // horizon + 1) * horizon
        return math.ceil((end - clock) * _pace(state, store, stream) - 1e-9) - 1
    return math.floor((time + horizon - clock) * _pace(state, store, stream) + 1e-9)


def _lives(state: FlowState, store: Store, stream: int, steps: np.ndarray) -> np.ndarray:
    """Return the last step covered by the window of tuples that arrive these numbers of steps from now."""
    if store.meta[WINDOW] != LANDMARK:
        return steps + _steps_left(state, store, stream, store.clock[stream].item())
    end = _steps_left(state, store, stream, store.clock[stream].item())
    period = max(1, round(store.horizon[stream].item() * _pace(state, store, stream)))
    return end + period * np.ceil(np.maximum(steps - end, 0) / period)


@arrive.on(FlowState)
def _arrive(state, store, stream, key, entry):
    stream, now = int(stream), store.clock[stream].item()
    if state.began is None:
        state.began = float(now)
    if not state.ticking or not state.open:
        state.waiting, state.open, state.stay = [], True, None
        state.ticks += 1
    state.seen[stream] += 1
    state.last[stream] = state.value(int(key))
    number = int(store.meta[ARRIVALS]) - 1  # within a tick, hooks run at its end
    state.waiting.append(Item(stream, int(key), now, number, -1))


@before_tick.on(FlowState)
def _before_tick(state, store):
    first = int(store.meta[ARRIVALS]) - len(state.waiting)
    for place, item in enumerate(state.waiting):
        item.arrival = first + place
    state.open = False


@enter.on(FlowState)
def _enter(state, store, slot):
    key = store.k64[store.t32[slot, ENTRY], KEY]
    state.items[int(slot)] = Item(
        int(store.t32[slot, STREAM]),
        int(key),
        store.time[slot, TIME].item(),
        int(store.t64[slot, ARRIVAL]),
        int(store.t64[slot, ROW]),
    )


@leave.on(FlowState)
def _leave(state, store, slot):
    del state.items[int(slot)]


@match_key.on(FlowState)
def _match_key(state, store, entry, stream, arrival):
    """Do nothing: a match adds nothing to what the models know."""


@match_one.on(FlowState)
def _match_one(state, store, slot, arrival):
    """The same."""


@make_room.on(FlowState)
def _make_room(state, store, pool, stream, entry):
    if state.stay is None:
        state.stay = decide(state, store)
    if int(store.meta[NUMBER]) not in state.stay:
        return 0
    slot, _ = lowest(state, store, pool)
    return slot


@score.on(FlowState)
def _score(state, store, slot):
    return float(state.stay is not None and state.items[int(slot)].arrival in state.stay)


@newcomer.on(FlowState)
def _newcomer(state, store, stream, entry):
    return float(state.stay is not None and int(store.meta[NUMBER]) in state.stay)


@lowest.on(FlowState)
def _lowest(state, store, pool):
    mine = [
        (score(state, store, slot), item.arrival, slot)
        for slot, item in state.items.items()
        if store.pool_of[item.stream] == pool
    ]
    low, _, slot = min(mine, default=(0.0, 0, 0))
    return slot, low
