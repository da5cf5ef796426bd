"""Find all solutions, full and partial, that a triple completes; they are written to scratch memory.

Nothing else is changed, so that an arrival for which the room does not suffice can be taken up again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.engine.conditions import passes
from penstock.engine.join_loop import PAIRS
from penstock.engine.store import ROW, STEPS, WARMUP, find_key
from penstock.engine.triple_index import OLDEST, TALLYING, YOUNGER, place_of, side_key

# Ends of the scratch memory.
PENDING, TOUCHED, FOUND, PROBES, SHORT = 0, 1, 2, 3, 4
SHORT_RESULTS, SHORT_SCRATCH, SHORT_LOG, SHORT_COUNTS = 1, 2, 3, 4  # what room was too small
STAMP = 6  # not an end: how often it was used


class Scratch(NamedTuple):
    """What an arrival has found, until it is put into effect."""

    rows: np.ndarray  # solutions with the arrival: the row of each pattern
    made: np.ndarray  # and the step that has made each, 0: it is the arrival alone, in one of its roles
    via: np.ndarray  # the tuples that they were made with, by step; of those that were made
    span: np.ndarray  # which of them are of each pattern, and then of each step
    now: np.ndarray  # the solution at hand
    seen: np.ndarray  # per tuple: the last arrival that touched it
    share: np.ndarray  # per tuple: how much it has gained by it
    touched: np.ndarray
    probes: np.ndarray
    ends: np.ndarray


Scratch.widths = {"span": 2}  # type: ignore[attr-defined]
Scratch.tables = ("span",)  # type: ignore[attr-defined]


def new_scratch(patterns: int, tuples: int, room: int) -> Scratch:
    """Scratch memory for arrivals that make up to so many partial solutions."""
    return Scratch(
        rows=np.zeros((room, patterns), np.int64),
        made=np.zeros(room, np.int64),
        via=np.zeros((room, patterns), np.int64),
        span=np.zeros((2 * patterns, 2), np.int64),
        now=np.zeros(patterns, np.int64),
        seen=np.full(tuples + 2, -1, np.int64),
        share=np.zeros(tuples + 2),
        touched=np.zeros(tuples + 2, np.int64),
        probes=np.zeros(2 * room + patterns, np.int64),
        ends=np.zeros(8, np.int64),
    )


@jit
def find(store, index, scheme, conditions, columns, scratch, out, row):
    """Note all solutions that a triple completes, the partial ones too; False if the room is too small.

    A step joins what the triple has made so far on one side with what is cached on the other, and what it has
    made on both sides: every solution with it comes out once.
    """
    ends, span, patterns = scratch.ends, scratch.span, scheme.partners.shape[0]
    ends[:STAMP] = 0
    ends[STAMP] += 1
    mask = columns.mask[row]
    for pattern in range(patterns):
        at = ends[PENDING]
        span[pattern, 0] = at
        if (mask >> pattern) & 1 != 0:
            scratch.rows[at, pattern] = row
            scratch.made[at] = 0
            ends[PENDING] = at + 1
        span[pattern, 1] = ends[PENDING]
    for step in range(1, patterns):
        span[patterns + step, 0] = ends[PENDING]
        left, right = place_of_side(scheme, step, 0), place_of_side(scheme, step, 1)
        for at in range(span[left, 0], span[left, 1]):
            if not ask(store, index, scheme, conditions, columns, scratch, out, step, 0, at):
                return False
            if scheme.twice[step] and not pair(
                store, scheme, conditions, columns, scratch, out, step, at, right
            ):
                return False
        for at in range(span[right, 0], span[right, 1]):
            if not ask(store, index, scheme, conditions, columns, scratch, out, step, 1, at):
                return False
        span[patterns + step, 1] = ends[PENDING]
    return True


@jit
def place_of_side(scheme, step, side):
    """The row of `span` for one side of a step."""
    part = scheme.side[step, side]
    return part if part >= 0 else scheme.partners.shape[0] - part


@jit
def ask(store, index, scheme, conditions, columns, scratch, out, step, side, at):
    """Note the solutions of a new partial one, on one side of a step, with what is cached on the other."""
    key = new_key(scheme, columns, scratch, step, side, at)
    if key < 0:
        return True
    port, ports = scheme.port_of[step, 1 - side], scheme.port_roles.shape[0]
    entry = find_key(index, key * ports + port)
    note_probe(index, scratch, key * ports + port)
    slot = np.int64(index.k32[entry, OLDEST])
    if slot == 0:
        return True
    now, other = scratch.now, scheme.side[step, 1 - side]
    bring(scheme, scheme.side[step, side], scratch.rows, at, now)
    place = place_of(index, scheme, slot, port)
    while slot != 0:
        fits = True
        if other >= 0:
            now[other] = store.t64[slot, ROW]
            fits = (columns.mask[now[other]] >> other) & 1 != 0
        else:
            bring(scheme, other, index.members, slot, now)
        if fits and passes(conditions, columns, now, step):
            if not note(store, scheme, scratch, out, step, at, -1, slot):
                return False
        slot = np.int64(index.links[slot, place, YOUNGER])
    return True


@jit
def pair(store, scheme, conditions, columns, scratch, out, step, at, right):
    """Note the solutions of a new partial one on the left side of a step with the new ones on the right."""
    key, now = new_key(scheme, columns, scratch, step, 0, at), scratch.now
    if key < 0:
        return True
    for other in range(scratch.span[right, 0], scratch.span[right, 1]):
        if new_key(scheme, columns, scratch, step, 1, other) == key:
            bring(scheme, scheme.side[step, 0], scratch.rows, at, now)
            bring(scheme, scheme.side[step, 1], scratch.rows, other, now)
            if passes(conditions, columns, now, step):
                if not note(store, scheme, scratch, out, step, at, other, 0):
                    return False
    return True


@jit
def bring(scheme, part, rows, at, now):
    """Bring what a row of a table says of one side of a step to hand."""
    if part >= 0:
        now[part] = rows[at, part]
        return
    for pattern in range(now.shape[0]):
        if (scheme.members[-part] >> pattern) & 1 != 0:
            now[pattern] = rows[at, pattern]


@jit
def new_key(scheme, columns, scratch, step, side, at):
    """The key of a new solution on one side of a step; views of arrays are not for the frequent case."""
    part = scheme.side[step, side]
    if part >= 0:
        return columns.leaf_key[scheme.port_of[step, side], scratch.rows[at, part]]
    return side_key(scheme, columns, scratch.rows[at], step, side)


@jit
def note_probe(index, scratch, code):
    """Remember that a key was asked for, if this is counted."""
    if index.meta[TALLYING] != 0 and scratch.ends[PROBES] < scratch.probes.shape[0]:
        scratch.probes[scratch.ends[PROBES]] = code
        scratch.ends[PROBES] += 1


@jit
def note(store, scheme, scratch, out, step, at, other, slot):
    """Note the solution at hand, made from a new partial one with another (-1: none) or a tuple (0: none)."""
    ends, patterns = scratch.ends, scheme.partners.shape[0]
    full = step == patterns - 1
    if full:
        if out.rows.shape[0] > 0 and store.meta[STEPS] >= store.meta[WARMUP]:
            place = out.ends[PAIRS] + ends[FOUND]
            if place >= out.rows.shape[0]:
                ends[SHORT] = SHORT_RESULTS
                return False
            for i in range(patterns):
                out.rows[place, i] = scratch.now[i]
        ends[FOUND] += 1
    else:
        place = ends[PENDING]
        if place >= scratch.rows.shape[0]:
            ends[SHORT] = SHORT_SCRATCH
            return False
        for i in range(patterns):
            scratch.rows[place, i] = scratch.now[i]
            scratch.via[place, i] = via(scratch, at, i) + via(scratch, other, i)  # one of them is 0
        scratch.via[place, step] = slot
        scratch.made[place] = step
        ends[PENDING] += 1
    gain = scheme.gain[0] if full else scheme.gain[1]
    if slot != 0:
        touch(scratch, slot, gain)
    for i in range(1, step):
        used = via(scratch, at, i) + via(scratch, other, i)
        if used != 0:
            touch(scratch, used, gain)
    return True


@jit
def via(scratch, at, step):
    """The tuple with which a solution was made in a step, 0 if there is none."""
    return scratch.via[at, step] if at >= 0 and scratch.made[at] > 0 else np.int64(0)


@jit
def touch(scratch, slot, gain):
    """A tuple is in a solution of the arrival: it gains once, the most."""
    if scratch.seen[slot] != scratch.ends[STAMP]:
        scratch.seen[slot] = scratch.ends[STAMP]
        scratch.share[slot] = 0.0
        scratch.touched[scratch.ends[TOUCHED]] = slot
        scratch.ends[TOUCHED] += 1
    scratch.share[slot] = max(scratch.share[slot], gain)
