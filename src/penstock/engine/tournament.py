"""A kinetic tournament among falling scores: the lowest now, and until when that is certain.

The score of a key is its count times the remaining lifetime of its oldest tuple, a line that falls with
time. Each inner node of the tree remembers the winner below it and the time at which the loser may
overtake it; asking for the winner replays only the nodes whose time has come. Comparisons use the scores
themselves, so rounding cannot make the tree disagree with a scan; the times are kept a little early.

Cost: O(log n) to change a key; replays are amortised O(log n) per change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.compiler.references import prefetch
from penstock.engine.store import ARRIVAL, COUNT, HEAD, TIME, USE, lifetime
from penstock.structures.tables import new_table

TOP = 1 << 13  # nodes above this one are few and often used
LONGEST = 2.0**62  # lifetime


class Tournament(NamedTuple):
    """Per stream a tree whose leaves are the rows of the keys; entry 0 is no one."""

    winner: np.ndarray
    until: np.ndarray
    origin: np.ndarray  # the time that is 0 in `until`, once known
    side: np.ndarray  # per stream: which columns of a key's row are its own

    def grown(self, capacities: tuple[int, ...]) -> Tournament:
        """Return the trees for pools of these capacities.

        Every game stays as it was: the old tree is the left half of the new one.
        """
        larger = self
        while larger.until.shape[1] < sum(capacities) + 2:
            streams, leaves = larger.until.shape
            winner, until = new_table((streams, 4 * leaves), np.int32), new_table((streams, 2 * leaves))
            until[:] = np.inf
            winner[:, 1], until[:, 1] = larger.winner[:, 1], larger.until[:, 1]
            level = 1
            while level <= leaves:
                winner[:, 2 * level : 3 * level] = larger.winner[:, level : 2 * level]
                if level < leaves:
                    until[:, 2 * level : 3 * level] = larger.until[:, level : 2 * level]
                level *= 2
            larger = larger._replace(winner=winner, until=until)
        return larger


def new_tournament(keys: int, time_dtype: np.dtype, sides: tuple[int, ...] = (0, 1)) -> Tournament:
    """Trees for keys in rows below `keys`, one per stream."""
    leaves = 1 << (keys - 1).bit_length()
    until = new_table((len(sides), leaves))
    until[:] = np.inf
    return Tournament(
        winner=new_table((len(sides), 2 * leaves), np.int32),
        until=until,
        origin=np.zeros(2, time_dtype),
        side=np.array(sides, np.int64),
    )


@jit
def enrol(tournament, store, stream, entry):
    """A key's line has changed: its oldest tuple, its count, or whether it has any tuple at all."""
    leaves = tournament.until.shape[1]
    present = store.k32[entry, COUNT + tournament.side[stream]] > 0
    _fetch_opponents(tournament, store, stream, entry)
    node = leaves + entry
    tournament.winner[stream, node] = entry if present else 0
    node >>= 1
    while node > 0:
        _play(tournament, store, stream, node)
        node >>= 1


@jit
def _fetch_opponents(tournament, store, stream, entry):
    """Have the memory on its way that the games from a leaf up to the root will need, all of it at once.

    A game leads to the opponent, this one's key to its oldest tuple; each is asked for on all levels before
    the next is looked at. The top levels are played so often that they need not be asked for.
    """
    winner, until, side = tournament.winner[stream], tournament.until[stream], tournament.side[stream]
    leaf = until.shape[0] + entry
    node = leaf
    while node >= TOP:
        prefetch(winner, node)
        prefetch(until, node >> 1)
        node >>= 1
    node = leaf
    while node >= TOP:
        prefetch(store.k64, 8 * np.int64(winner[node ^ 1]))
        node >>= 1
    node = leaf
    while node >= TOP:
        prefetch(store.t64, 8 * np.int64(store.k32[winner[node ^ 1], HEAD + side]))
        node >>= 1


@jit
def champion(tournament, store, stream):
    """The key whose oldest tuple has the lowest score now, 0 if the stream has none."""
    leaves = tournament.until.shape[1]
    now = _now(tournament, store, stream)
    while tournament.until[stream, 1] <= now:
        # Go down to the lowest node that is due, replay it and all above it.
        node = 1
        while True:
            if 2 * node < leaves and tournament.until[stream, 2 * node] <= now:
                node = 2 * node
            elif 2 * node < leaves and tournament.until[stream, 2 * node + 1] <= now:
                node = 2 * node + 1
            else:
                break
        _play(tournament, store, stream, node)
        if tournament.until[stream, node] <= now:  # kept early, or a tie: certain for this instant
            tournament.until[stream, node] = np.nextafter(now, np.inf)
        node >>= 1
        while node > 0:
            _play(tournament, store, stream, node)
            node >>= 1
    return tournament.winner[stream, 1]


@jit
def _now(tournament, store, stream):
    return np.float64(store.clock[stream] - tournament.origin[0])


@jit
def line_score(tournament, store, stream, entry):
    """The score of a key: that of its oldest tuple."""
    side = tournament.side[stream]
    slot = store.k32[entry, HEAD + side]
    return worth(store, stream, store.k64[entry, USE + side], store.time[slot, TIME])


@jit
def worth(store, stream, count, time):
    """A count times what is left of a lifetime; one without an end is as long as can be told."""
    return np.float64(count) * min(np.float64(lifetime(store, stream, time)), LONGEST)


@jit
def _play(tournament, store, stream, node):
    """Decide a node from its two children, and until when that holds."""
    winner, until, side = tournament.winner[stream], tournament.until[stream], tournament.side[stream]
    leaves = until.shape[0]
    left, right = winner[2 * node], winner[2 * node + 1]
    certain = np.inf
    if 2 * node < leaves:
        certain = min(until[2 * node], until[2 * node + 1])
    if left == 0 or right == 0:
        winner[node] = left + right
        until[node] = certain
        return
    left_score = line_score(tournament, store, stream, left)
    right_score = line_score(tournament, store, stream, right)
    left_wins = left_score < right_score
    if left_score == right_score:
        left_head, right_head = store.k32[left, HEAD + side], store.k32[right, HEAD + side]
        left_wins = store.t64[left_head, ARRIVAL] < store.t64[right_head, ARRIVAL]
    best, other, gap = left, right, right_score - left_score
    if not left_wins:
        best, other, gap = right, left, left_score - right_score
    winner[node] = best
    closing = np.float64(store.k64[other, USE + side] - store.k64[best, USE + side])
    if closing > 0.0:
        now = _now(tournament, store, stream)
        meeting = now + gap / closing
        certain = min(certain, meeting - 1e-9 * (abs(meeting) + 1.0))
    until[node] = certain
