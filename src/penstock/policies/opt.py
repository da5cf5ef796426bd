"""OPT: the clairvoyant optimum, computed from the whole stream; an upper bound for every policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from penstock.engine.hooks import enter, lowest, newcomer, score
from penstock.engine.score_queue import Queue, file_newcomer, front, new_queue
from penstock.engine.store import ARRIVAL, NUMBER, STREAM
from penstock.errors import PolicyOptionError
from penstock.extras import require
from penstock.flows import Steps, keep_times
from penstock.policies.base import Policy, Setting


class OptState(NamedTuple):
    """Per arrival, the step of the last match it is kept for (-1: not kept); and the tuples by that step."""

    until: np.ndarray
    queue: Queue


@dataclass(frozen=True)
class Opt(Policy):
    """Keep the tuples that an optimal plan for the whole trace keeps: no policy gets more results.

    The plan is a min-cost flow (see `penstock.flows`) that says up to which of its matches each tuple is
    kept. That step is the score: tuples that are finished or not wanted are evicted first, and the capacity
    of the flow guarantees that there always is one. The plan does not foresee drops, so with a `drop_rate`
    it is not optimal.

    >>> import penstock as ps
    >>> left, right = {"key": [1, 2, 3], "ts": [0, 1, 2]}, {"key": [1, 9, 1, 2], "ts": [3, 4, 5, 6]}
    >>> join = ps.WindowJoin(within=10, budget=ps.Tuples(2), policy="opt", allocation="equal")
    >>> join.run(
    ...     left, right, on="key", time="ts"
    ... ).stats.results  # there is room for one left tuple: the first
    2
    """

    name: ClassVar[str] = "opt"
    summary: ClassVar[str] = "the clairvoyant optimum: no policy gets more results"
    wins: ClassVar[str] = "the whole stream is known: it shows how much a better policy could still gain"
    loses: ClassVar[str] = (
        "results are needed while the stream runs: it needs the whole stream, and a flow over all matches"
    )
    cost: ClassVar[str] = "a min-cost flow over all matches, before the join starts"
    paper: ClassVar[str] = "Das, Gehrke and Riedewald 2003; Xie, Yang and Chen 2005, section 4"
    selective: ClassVar[bool] = True
    many: ClassVar[bool] = False
    counts_bytes: ClassVar[bool] = False
    bound: ClassVar[bool] = True

    @property
    def needs_future(self) -> bool:
        """True."""
        return True

    def check_joins(self) -> None:
        """The flow is solved by OR-tools."""
        require("ortools", f"The policy {self.name}")

    def build(self, setting: Setting) -> OptState:
        """Build the plan for the trace."""
        trace = setting.trace
        if trace is None:
            raise PolicyOptionError("opt needs the whole stream before it starts; it works with run() only.")
        until = trace.keep
        if until is None:
            steps = Steps(
                trace.stream,
                trace.key,
                trace.step,
                trace.time,
                setting.horizons,
                setting.window,
                setting.warmup,
            )
            until, _ = keep_times(steps, setting.capacities)
        return OptState(np.asarray(until, np.int64), new_queue(setting.capacities))

    def bytes_beyond(self, state: Any) -> int:
        """Bytes of the plan, which covers every arrival."""
        return int(state.until.nbytes)


@enter.on(OptState)
def _enter(policy, store, slot):
    pool = store.pool_of[store.t32[slot, STREAM]]
    file_newcomer(policy.queue, store, pool, slot, score(policy, store, slot))


@score.on(OptState)
def _score(policy, store, slot):
    return np.float64(policy.until[store.t64[slot, ARRIVAL]])


@newcomer.on(OptState)
def _newcomer(policy, store, stream, entry):
    return np.float64(policy.until[store.meta[NUMBER]])


@lowest.on(OptState)
def _lowest(policy, store, pool):
    return front(policy, policy.queue, store, pool)
