"""Base class for policies in plain Python, to try out an idea: subclass it, name it, register it.

Such a policy is called tuple by tuple outside the kernels. It is about a thousand times slower than a
built-in policy, and works wherever a built-in one does.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.engine.hooks import (
    arrive,
    enter,
    leave,
    lowest,
    match_each,
    match_key,
    match_one,
    newcomer,
    score,
)
from penstock.engine.store import ARRIVAL, ARRIVALS, ENTRY, KEY, ROW, STREAM, TIME, Store
from penstock.errors import PolicyOptionError
from penstock.policies.base import Policy, Setting


@dataclass
class Item:
    """A buffered tuple as a plain-Python policy sees it; the policy may use `data` freely."""

    stream: int  # 0: left, 1: right
    key: int  # the code of its key: equal keys have equal codes
    time: Any
    arrival: int
    row: int
    data: Any = None


class PythonState:
    """The buffered tuples of a plain-Python policy, and the policy's own memory."""

    attributes_are_state = True  # for snapshots

    def __init__(self, policy: PythonPolicy) -> None:
        self.policy = policy
        self.memory: Any = policy.start()
        self.items: dict[int, Item] = {}  # row of the tuple table -> item


@dataclass(frozen=True)
class PythonPolicy(Policy):
    """Base of policies in plain Python: define `score`, and the other methods as needed.

    `score(item, now)` returns a number; the item with the lowest score is evicted, the earliest one if there
    are several. `entered`, `matched` and `left` are called when that happens to an item, `arrived` for every
    arrival. Anything the policy keeps outside `item.data` belongs into `memory`, which `start` creates and
    every method except `score` receives.

    >>> import penstock as ps
    >>> @ps.policies.register
    ... class Hits(ps.policies.PythonPolicy):
    ...     name = "hits"
    ...
    ...     def entered(self, item, memory):
    ...         item.data = 0
    ...
    ...     def matched(self, item, memory, now):
    ...         item.data += 1
    ...
    ...     def score(self, item, now):
    ...         return item.data
    >>> left, right = {"key": [1, 2, 3], "ts": [0, 1, 3]}, {"key": [1, 1], "ts": [2, 4]}
    >>> join = ps.WindowJoin(within=10, budget=ps.Tuples(4), policy="hits")
    >>> join.run(left, right, on="key", time="ts").stats.results
    2
    >>> ps.policies.unregister("hits")
    """

    compiled: ClassVar[bool] = False
    paper: ClassVar[str] = "yours"
    cost: ClassVar[str] = "O(n) per eviction, in Python"

    def start(self) -> Any:
        """Create the policy's own memory for one operator.

        It is saved in snapshots, so it must consist of plain values, arrays, and named tuples or dataclasses
        defined in the module of the policy.
        """
        return {}

    def score(self, item: Item, now: Any) -> float:
        """Return the score of a tuple at time `now`; the lowest is evicted."""
        raise PolicyOptionError(f"{type(self).__name__} has no score(); a plain-Python policy must define it")

    def arrived(self, stream: int, key: int, memory: Any, now: Any) -> None:
        """Called for every arrival, before it is matched and may enter."""

    def entered(self, item: Item, memory: Any) -> None:
        """Called when a tuple has entered the buffer."""

    def matched(self, item: Item, memory: Any, now: Any) -> None:
        """Called when an arrival has matched a buffered tuple."""

    def left(self, item: Item, memory: Any) -> None:
        """Called when a tuple has left the buffer, expired or evicted."""

    def build(self, setting: Setting) -> PythonState:
        """Build an empty buffer and fresh memory."""
        return PythonState(self)

    def check(self, state: Any, store: Store) -> None:
        """Assert that the items are the buffered tuples."""
        for slot, item in state.items.items():
            assert store.t64[slot, ARRIVAL] == item.arrival


@arrive.on(PythonState)
def _arrive(state, store, stream, key, entry):
    state.policy.arrived(int(stream), int(key), state.memory, store.clock[stream].item())


@enter.on(PythonState)
def _enter(state, store, slot):
    entry = store.t32[slot, ENTRY]
    item = Item(
        stream=int(store.t32[slot, STREAM]),
        key=int(store.k64[entry, KEY]),
        time=store.time[slot, TIME].item(),
        arrival=int(store.t64[slot, ARRIVAL]),
        row=int(store.t64[slot, ROW]),
    )
    state.items[int(slot)] = item
    state.policy.entered(item, state.memory)


match_key.on(PythonState)(match_each)


@match_one.on(PythonState)
def _match_one(state, store, slot, arrival):
    item = state.items[int(slot)]
    state.policy.matched(item, state.memory, store.clock[item.stream].item())


@leave.on(PythonState)
def _leave(state, store, slot):
    state.policy.left(state.items.pop(int(slot)), state.memory)


@score.on(PythonState)
def _score(state, store, slot):
    item = state.items[int(slot)]
    return _number(state, item, store.clock[item.stream].item())


@lowest.on(PythonState)
def _lowest(state, store, pool):
    best = (float("inf"), -1, 0)
    for slot, item in state.items.items():
        if store.pool_of[item.stream] == pool:
            candidate = (score(state, store, slot), item.arrival, slot)
            if best[2] == 0 or candidate < best:
                best = candidate
    return best[2], best[0]


@newcomer.on(PythonState)
def _newcomer(state, store, stream, entry):
    """Return the score of the arrival as if it had entered; `entered` gets a copy of the memory."""
    item = Item(
        stream=int(stream),
        key=int(store.k64[entry, KEY]),
        time=store.clock[stream].item(),
        arrival=int(store.meta[ARRIVALS]),
        row=-1,
    )
    state.policy.entered(item, copy.deepcopy(state.memory))
    return _number(state, item, item.time)


def _number(state: PythonState, item: Item, now: Any) -> float:
    """Return the score of an item, or raise an error if it is not a number."""
    given = state.policy.score(item, now)
    try:
        value = float(given)
    except (TypeError, ValueError):
        value = float("nan")
    if value != value or isinstance(given, str):
        raise PolicyOptionError(
            f"{type(state.policy).__name__}.score() must return a number; it returned {given!r}."
        )
    return value
