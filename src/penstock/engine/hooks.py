"""The hooks of policies: drivers call them, and each policy implements the ones it needs.

A policy's state is a NamedTuple of arrays (for a policy in plain Python: any object); its class selects
the implementation. `stream` is always that of the tuples concerned, `entry` the row of their key.
"""

from __future__ import annotations

import numpy as np

from penstock.compiler.hook_calls import hook
from penstock.engine.store import COMPETE, HEAD, NEXT


@hook
def fetch(policy, store, entry: int, side: int) -> None:
    """A key will be matched in a moment: a policy may ask for the memory it will need for its tuples."""


@hook
def arrive(policy, store, stream: int, key: int, entry: int) -> None:
    """An arrival of `stream` has come; policies that count keys count here. `entry` may be 0."""


@hook
def open_key(policy, store, entry: int) -> None:
    """A key that had no buffered tuple has got a row, whose counters are 0."""


@hook
def match_key(policy, store, entry: int, stream: int, arrival: int) -> None:
    """An arrival matches every buffered tuple of `stream` with the key `entry`.

    Where it changes all of them alike, a policy notes it once, with the key; `match_each` goes through them.
    """


@hook
def match_one(policy, store, slot: int, arrival: int) -> None:
    """An arrival matches this one buffered tuple."""


@hook
def match_some(policy, store, slots: np.ndarray, count: int, arrival: int) -> None:
    """An arrival matches these buffered tuples, which have one key and stream but need not be all of them."""
    for i in range(count):
        match_one(policy, store, slots[i], arrival)


@hook
def enter(policy, store, slot: int) -> None:
    """A tuple has been linked into its chain."""


@hook
def leave(policy, store, slot: int) -> None:
    """A tuple is about to be unlinked, expired or evicted."""


@hook
def score(policy, store, slot: int) -> float:
    """The present score of a buffered tuple; the lowest is evicted."""
    return 0.0


@hook
def changed(policy, store, slot: int) -> None:
    """A buffered tuple has another count in its key row, or another end: what its score is made of."""


@hook
def filed(policy, store, slot: int) -> bool:
    """Whether a tuple at the front of its queue is still filed there; if not, its entry goes."""
    return True


@hook
def newcomer(policy, store, stream: int, entry: int) -> float:
    """The score with which an arrival would enter, for policies that may refuse it."""
    return 0.0


@hook
def lowest(policy, store, pool: int) -> tuple[int, float]:
    """The tuple of a pool with the lowest (score, arrival), and that score."""
    return 0, 0.0


@hook
def before_tick(policy, store) -> None:
    """The arrivals of a tick have probed and been counted; their admission begins."""


@hook
def overdue(policy, store, stream: int) -> int:
    """A tuple that leaves, room or not, before an arrival of its stream is admitted; 0 if none is left."""
    return 0


@hook
def make_room(policy, store, pool: int, stream: int, entry: int) -> int:
    """The tuple that goes so that an arrival can enter; 0 if it is the arrival itself."""
    slot, low = lowest(policy, store, pool)
    if (store.meta[COMPETE] >> stream) & 1 != 0 and newcomer(policy, store, stream, entry) < low:
        return 0
    return slot


@hook
def lost(out, store, stream, key, time):
    """A tuple that could have matched is gone. What a driver writes to selects the implementation."""


@hook
def left_early(out, store, stream, slot, row, key, time):
    """A tuple leaves before it expires: evicted, or refused or dropped, and then its slot is 0."""


def match_each(policy, store, entry, stream, arrival):
    """An implementation of `match_key` for policies that must be told of each tuple. O(matches)."""
    slot = store.k32[entry, HEAD + stream]
    while slot != 0:
        match_one(policy, store, slot, arrival)
        slot = store.t32[slot, NEXT]
