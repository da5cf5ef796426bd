"""What a triple completes: all solutions with it, whole and partial, are noted in scratch memory.

Nothing else is changed, so that an arrival for which the room does not suffice can be taken up again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.kernels.drive import PAIRS
from penstock.kernels.jit import jit
from penstock.kernels.layout import ROW, STEPS, WARMUP, find_key
from penstock.kernels.linked_index import OLDEST, TALLYING, YOUNGER, left_key, place_of
from penstock.kernels.programs import passes

# Ends of the scratch memory.
PENDING, TOUCHED, FOUND, PROBES, SHORT = 0, 1, 2, 3, 4
SHORT_RESULTS, SHORT_SCRATCH, SHORT_LOG, SHORT_COUNTS = 1, 2, 3, 4  # what room was too small
STAMP = 6  # not an end: how often it was used


class Scratch(NamedTuple):
    """What an arrival has found, until it is put into effect."""

    rows: np.ndarray  # partial solutions
    step: np.ndarray  # and what each waits for
    via: np.ndarray  # the tuples that they were made with
    now: np.ndarray  # the solution at hand
    seen: np.ndarray  # per tuple: the last arrival that touched it
    share: np.ndarray  # per tuple: how much it has gained by it
    touched: np.ndarray
    probes: np.ndarray
    ends: np.ndarray


def new_scratch(patterns: int, tuples: int, room: int) -> Scratch:
    """Scratch memory for arrivals that make up to so many partial solutions."""
    return Scratch(
        rows=np.zeros((room, patterns), np.int64),
        step=np.zeros(room, np.int64),
        via=np.zeros((room, patterns), np.int64),
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

    With x the triple, a step joins what x has made so far with the cached triples of the next pattern and
    with x itself, and what is cached with x: every solution with x comes out once.
    """
    ends, order = scratch.ends, scheme.order
    ends[:STAMP] = 0
    ends[STAMP] += 1
    mask = columns.mask[row]
    if (mask >> order[0]) & 1 != 0:
        scratch.rows[0, order[0]] = row
        scratch.step[0] = 1
        scratch.via[0, :] = 0
        ends[PENDING] = 1
    now, first = scratch.now, np.int64(0)
    ports = scheme.port_roles.shape[0]
    for step in range(1, order.shape[0]):
        after, pattern = ends[PENDING], order[step]
        takes = (mask >> pattern) & 1 != 0
        port = scheme.right_port[step]
        for at in range(first, after):
            key = left_key(scheme, columns, scratch.rows[at], step, row)
            if key < 0:
                continue
            for i in range(step):
                now[order[i]] = scratch.rows[at, order[i]]
            entry = find_key(index, key * ports + port)
            note_probe(index, scratch, key * ports + port)
            slot = np.int64(index.k32[entry, OLDEST])
            place = place_of(index, scheme, slot, port)
            while slot != 0:
                partner = store.t64[slot, ROW]
                if (columns.mask[partner] >> pattern) & 1 != 0:
                    now[pattern] = partner
                    if passes(conditions, columns, now, step):
                        if not note(store, scheme, scratch, out, step, at, slot):
                            return False
                slot = np.int64(index.links[slot, place, YOUNGER])
            if takes and columns.leaf_key[port, row] == key:
                now[pattern] = row
                if passes(conditions, columns, now, step):
                    if not note(store, scheme, scratch, out, step, at, 0):
                        return False
        if takes:
            key = columns.leaf_key[port, row]
            if key >= 0:
                left = scheme.left_port[step]
                entry = find_key(index, key * ports + left)
                note_probe(index, scratch, key * ports + left)
                slot = np.int64(index.k32[entry, OLDEST])
                place = place_of(index, scheme, slot, left)
                while slot != 0:
                    if recall(store, scheme, index, columns, now, slot, step):
                        now[pattern] = row
                        if passes(conditions, columns, now, step):
                            if not note(store, scheme, scratch, out, step, -1, slot):
                                return False
                    slot = np.int64(index.links[slot, place, YOUNGER])
        first = after
    return True


@jit
def recall(store, scheme, index, columns, now, slot, step):
    """Bring what a tuple on the left side consists of to hand; False if it has not the role."""
    if step == 1:
        row = store.t64[slot, ROW]
        now[scheme.order[0]] = row
        return (columns.mask[row] >> scheme.order[0]) & 1 != 0
    for i in range(step):
        now[scheme.order[i]] = index.members[slot, scheme.order[i]]
    return True


@jit
def note_probe(index, scratch, code):
    """Remember that a key was asked for, if this is counted."""
    if index.meta[TALLYING] != 0 and scratch.ends[PROBES] < scratch.probes.shape[0]:
        scratch.probes[scratch.ends[PROBES]] = code
        scratch.ends[PROBES] += 1


@jit
def note(store, scheme, scratch, out, step, at, slot):
    """Note the solution at hand, made from the partial one `at` (-1: none) with a tuple (0: the arrival)."""
    ends, patterns = scratch.ends, scheme.order.shape[0]
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
        for i in range(step + 1):
            scratch.rows[place, scheme.order[i]] = scratch.now[scheme.order[i]]
        for i in range(patterns):
            scratch.via[place, i] = scratch.via[at, i] if at >= 0 else 0
        scratch.via[place, step] = slot
        scratch.step[place] = step + 1
        ends[PENDING] += 1
    gain = scheme.gain[0] if full else scheme.gain[1]
    if slot != 0:
        touch(scratch, slot, gain)
    if at >= 0 and step > 1:
        for i in range(1, step):
            if scratch.via[at, i] != 0:
                touch(scratch, scratch.via[at, i], gain)
    return True


@jit
def touch(scratch, slot, gain):
    """A tuple is in a solution of the arrival: it gains once, the most."""
    if scratch.seen[slot] != scratch.ends[STAMP]:
        scratch.seen[slot] = scratch.ends[STAMP]
        scratch.share[slot] = 0.0
        scratch.touched[scratch.ends[TOUCHED]] = slot
        scratch.ends[TOUCHED] += 1
    scratch.share[slot] = max(scratch.share[slot], gain)
