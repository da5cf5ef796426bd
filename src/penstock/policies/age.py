"""AGE: keeps tuples up to the age that yields the most results for the memory they use.

Under the age-based model all tuples of a stream match at the same ages. The curve p(k) gives the best age
k_opt to keep them to. A buffer that can hold all tuples up to that age works as a FIFO; a smaller one is
staggered: it keeps its tuples until k_opt and refuses newcomers meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from penstock.arguments import is_number
from penstock.compiler.jit import jit
from penstock.engine import arrival_ring
from penstock.engine.hooks import (
    arrive,
    enter,
    leave,
    make_room,
    match_each,
    match_key,
    match_one,
    overdue,
    score,
)
from penstock.engine.score_queue import Queue, file_newcomer, front, new_queue
from penstock.engine.store import ROW, STREAM, TIME, Store
from penstock.errors import PolicyOptionError
from penstock.policies.base import Policy, Setting
from penstock.structures.age_curves import BINS, age_bin, best_age, trace_ages

EVERY = 1_000  # arrivals of a stream between two updates of its learnt curve

# Columns of `learnt`, per stream.
SEEN = 0  # arrivals
SINCE = 1  # time of the first arrival
LEARNING = 2  # 1: rate and curve are learnt


class AgeState(NamedTuple):
    """Per stream: the best age, the rate and the learnt curve; per tuple: its own best age, if it has one."""

    k: np.ndarray
    rate: np.ndarray
    width: np.ndarray
    capacity: np.ndarray
    matches: np.ndarray  # stream, bin
    ended: np.ndarray  # stream, bin: tuples that left at that age
    learnt: np.ndarray
    own: np.ndarray  # stream, row: the best age of each tuple; empty: one age per stream
    queue: Queue  # tuples with their own age, by the time at which they leave


@dataclass(frozen=True)
class Age(Policy):
    """Keep tuples up to the best age of their stream, as a FIFO or staggered.

    `k` is `"stream"` (the default: one best age per stream, from `curve`), `"tuple"` (an age per tuple,
    computed from the whole trace as in the paper's experiments), a number, or a pair (left, right).
    `curve` says how to find the best age of a stream. `"past"` learns it while the stream runs; for the
    first horizon it keeps all tuples as long as possible, to observe every age. `"trace"` computes it from
    the whole trace. A tuple of numbers is the curve itself, p(1), p(2), ... in units of the time column; a
    pair of such tuples gives one curve per stream.

    >>> import penstock as ps
    >>> left, right = {"key": [1, 2, 3], "ts": [0, 1, 4]}, {"key": [1, 3], "ts": [2, 5]}
    >>> join = ps.WindowJoin(within=10, budget=ps.Tuples(2), policy=ps.policies.Age(k=2))
    >>> join.run(left, right, on="key", time="ts").stats.results  # keeps 1 until time 2, then 3
    2
    """

    k: str | float | tuple[float, float] = "stream"
    curve: str | tuple[Any, ...] = "past"

    name: ClassVar[str] = "age"
    summary: ClassVar[str] = "keeps tuples to their stream's best age, staggered if memory is short"
    wins: ClassVar[str] = "all tuples of a stream match at about the same age, and none later"
    loses: ClassVar[str] = (
        "ages of matches differ between keys, as they usually do: it does not look at keys at all"
    )
    cost: ClassVar[str] = "O(1) per arrival, O(1) per match while it learns"
    paper: ClassVar[str] = "Li, Chang, Bestavros and Kollios 2004, section 3.2; Srivastava and Widom 2004"
    one_by_one: ClassVar[bool] = True
    unified: ClassVar[bool] = False
    many: ClassVar[bool] = False
    grows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.k, str):
            self.require(self.k in ("stream", "tuple"), "k", "'stream', 'tuple', a number or a pair")
        else:
            pair = self.k if isinstance(self.k, tuple) else (self.k, self.k)
            fine = len(pair) == 2 and all(is_number(k) and k >= 0 for k in pair)
            self.require(fine, "k", "'stream', 'tuple', a number from 0 up, or a pair of them")
        if isinstance(self.curve, str):
            self.require(self.curve in ("past", "trace"), "curve", "'past', 'trace' or a tuple of numbers")
        else:
            for curve in self._curves():
                fine = isinstance(curve, tuple) and len(curve) > 0
                fine = fine and all(is_number(p) and 0 <= p < float("inf") for p in curve)
                self.require(fine, "curve", "'past', 'trace', or a tuple of numbers from 0 up")

    @property
    def needs_future(self) -> bool:
        """Whether curve or ages come from the trace."""
        return self.k == "tuple" or (self.k == "stream" and self.curve == "trace")

    def _curves(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        curve = self.curve
        if isinstance(curve, tuple) and len(curve) == 2 and all(isinstance(c, tuple) for c in curve):
            return curve
        return (curve, curve)  # type: ignore[return-value]

    def build(self, setting: Setting) -> AgeState:
        """Build the state with the best ages as far as they are known."""
        if self.needs_future and setting.trace is None:
            raise PolicyOptionError(
                f"{self.spell()} needs the whole stream before it starts; use age:curve=past, or give k."
            )
        horizons = np.array([float(h) for h in setting.horizons])
        width = np.where(horizons <= BINS, 1.0, np.ceil(horizons) / BINS)
        own = np.zeros((2, 0))
        k = np.zeros(2)
        learning = self.k == "stream" and self.curve == "past"
        if not isinstance(self.k, str):
            k[:] = self.k
        elif self.k == "stream" and not isinstance(self.curve, str):
            k[:] = [best_age(np.asarray(c, np.float64), 1.0) for c in self._curves()]
        elif self.needs_future:
            k, own = self._from_trace(setting, width)
        elif learning:
            k[:] = horizons
        learnt = np.zeros((2, 3))
        learnt[:, LEARNING] = learning
        return AgeState(
            k=k,
            rate=np.array(setting.rates or (0.0, 0.0), np.float64),
            width=width,
            capacity=np.array(setting.capacities, np.int64),
            matches=np.zeros((2, BINS)),
            ended=np.zeros((2, BINS)),
            learnt=learnt,
            own=own,
            queue=new_queue(setting.at_first if self.k == "tuple" else (0, 0)),
        )

    def grow(self, state: AgeState, store: Store, rooms: tuple[int, ...]) -> AgeState:
        """Return the same state; only tuples with ages of their own have a queue."""
        return state._replace(queue=state.queue.grown(rooms)) if self.k == "tuple" else state

    def _from_trace(self, setting: Setting, width: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the best age of each stream, and of each tuple by row if wanted, from the whole trace."""
        trace = setting.trace
        assert trace is not None
        codes = np.unique(trace.key, return_inverse=True)[1]
        curve, best = np.zeros((2, BINS)), np.zeros(len(codes))
        horizon = np.array(setting.horizons, setting.time_dtype)
        trace_ages(
            trace.stream, codes, trace.time, int(codes.max(initial=-1)) + 1, horizon, curve, width, best
        )
        if self.k == "stream":
            return np.array([best_age(curve[s], width[s]) for s in (0, 1)]), np.zeros((2, 0))
        own = np.zeros((2, int(trace.row.max(initial=0)) + 1))
        own[trace.stream, trace.row] = best
        means = [best[trace.stream == s].mean() if (trace.stream == s).any() else 0.0 for s in (0, 1)]
        return np.array(means), own


@jit
def _staggered(policy, stream):
    return policy.capacity[stream] < policy.rate[stream] * policy.k[stream]


@jit
def _learn(policy, stream):
    """Estimate the best age from the results per tuple that was present at each age."""
    curve = np.zeros(policy.matches.shape[1])
    there = 0.0
    for b in range(curve.shape[0] - 1, -1, -1):
        there += policy.ended[stream, b]
        if there > 0.0:
            curve[b] = policy.matches[stream, b] / there
    age = best_age(curve, policy.width[stream])
    if age > 0.0:
        policy.k[stream] = age


@arrive.on(AgeState)
def _arrive(policy, store, stream, key, entry):
    learnt = policy.learnt[stream]
    if learnt[LEARNING] == 0.0:
        return
    now = np.float64(store.clock[stream])
    if learnt[SEEN] == 0.0:
        learnt[SINCE] = now
    learnt[SEEN] += 1.0
    span = now - learnt[SINCE]
    if span > 0.0:
        policy.rate[stream] = learnt[SEEN] / span
    if learnt[SEEN] % EVERY == 0.0 and span > np.float64(store.horizon[stream]):
        _learn(policy, stream)


match_key.on(AgeState)(match_each)


@match_one.on(AgeState)
def _match_one(policy, store, slot, arrival):
    stream = store.t32[slot, STREAM]
    if policy.learnt[stream, LEARNING] != 0.0:
        age = np.float64(store.clock[stream] - store.time[slot, TIME])
        policy.matches[stream, age_bin(age, policy.width[stream], policy.matches.shape[1])] += 1.0


@enter.on(AgeState)
def _enter(policy, store, slot):
    if policy.own.shape[1] > 0:
        file_newcomer(policy.queue, store, store.t32[slot, STREAM], slot, score(policy, store, slot))


@score.on(AgeState)
def _score(policy, store, slot):
    """Return the time at which a tuple with its own age leaves."""
    own = policy.own[store.t32[slot, STREAM], store.t64[slot, ROW]]
    return np.float64(store.time[slot, TIME]) + own


@leave.on(AgeState)
def _leave(policy, store, slot):
    stream = store.t32[slot, STREAM]
    if policy.learnt[stream, LEARNING] != 0.0:
        age = np.float64(store.clock[stream] - store.time[slot, TIME])
        policy.ended[stream, age_bin(age, policy.width[stream], policy.ended.shape[1])] += 1.0


@overdue.on(AgeState)
def _overdue(policy, store, stream):
    if not _staggered(policy, stream):
        return 0
    if policy.own.shape[1] > 0:
        slot, _ = front(policy, policy.queue, store, stream)
        allowed = policy.own[stream, store.t64[slot, ROW]]
    else:
        slot = arrival_ring.oldest(store, stream)
        allowed = policy.k[stream]
    if slot != 0 and store.clock[stream] - store.time[slot, TIME] > allowed:
        return slot
    return 0


@make_room.on(AgeState)
def _make_room(policy, store, pool, stream, entry):
    if _staggered(policy, stream):
        return 0
    return arrival_ring.oldest(store, stream)
