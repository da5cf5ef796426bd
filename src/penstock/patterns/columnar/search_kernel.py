"""The kernel that finds nested event patterns: backtracking over the events of each slot, in stream order.

A pattern is a tree of blocks. The root block has the slots of a match; every negated part is a block of its
own, left at its first hit. The slots of a block are filled in a fixed order. The slots filled earlier narrow
the candidates of a slot to a range of positions, found by binary search; equality predicates first narrow
them to the group of one value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.driver import driver
from penstock.compiler.jit import jit


class Events(NamedTuple):
    """The events in stream order, by position."""

    first_in: np.ndarray  # per position: the first position that a window ending here reaches
    last_in: np.ndarray  # per position: the last position that a window beginning here reaches
    codes: np.ndarray  # per attribute and position: the code of the value, -1 for null
    candidates: np.ndarray  # positions, slot by slot, within a slot by value of its key and position
    groups: np.ndarray  # for slots with a key: where the candidates of each value begin
    latest: np.ndarray  # per table and position: the latest start of a hit that ends at or before it
    begins: np.ndarray  # per position: whether a match may begin here


class Program(NamedTuple):
    """A pattern as tables of whole numbers. Lists of a row `i` are `list[start[i]:start[i + 1]]`."""

    order: np.ndarray  # slots in the order of filling, block by block
    order_at: np.ndarray
    span: np.ndarray  # per slot: first and last of its candidates
    key: np.ndarray  # per slot: where its groups begin (or -1); the slot and attribute of the value
    after: np.ndarray  # per slot: the slots filled before that it must come after
    after_at: np.ndarray
    before: np.ndarray
    before_at: np.ndarray
    other: np.ndarray  # per slot: the slots filled before that may not be the same event
    other_at: np.ndarray
    tests: np.ndarray  # per slot: attribute, comparison, other slot, its attribute
    tests_at: np.ndarray
    guards: np.ndarray  # per block: as `tests`, of slots that are all filled outside
    guards_at: np.ndarray
    absent: np.ndarray  # per slot: the blocks that may have no hit once it is filled
    absent_at: np.ndarray
    narrow: np.ndarray  # per slot: blocks with a table whose interval begins at this slot
    narrow_at: np.ndarray
    left: np.ndarray  # per block: the slots after which its interval begins
    left_at: np.ndarray
    right: np.ndarray
    right_at: np.ndarray
    parent: np.ndarray  # per block
    table: np.ndarray  # per block: its row of `latest`, or -1
    closed: np.ndarray  # the root is an AND: nothing after its last event counts
    plain: np.ndarray  # the last slot of the root needs no test, so that its candidates can be counted
    free: np.ndarray  # per slot: nothing but the window ties it, or a slot filled before it, to the first one


class SearchWork(NamedTuple):
    """What the search writes."""

    position: np.ndarray  # per slot
    cursor: np.ndarray  # per slot: next and end of its candidates
    lowest: np.ndarray  # per slot: the first and last position of all that is filled up to it
    bound: np.ndarray  # per block: the open interval in which it is searched
    around: np.ndarray  # per block: the first and last position filled outside of it
    frame: np.ndarray  # per block: the step and the negation at which it was left for a negation
    found: np.ndarray  # matches in all, matches stored, the event at which the search stopped (-1: none)
    out: np.ndarray  # matches, one column per slot of the root in the order of filling
    barren: np.ndarray  # per slot of the root: see `_renew`, and whether the present search has filled it


LESS, LESS_EQUAL, EQUAL, UNEQUAL, GREATER_EQUAL, GREATER = range(6)


@jit
def _holds(left, comparison, right):
    if left < 0 or right < 0:
        return False
    if comparison == EQUAL:
        return left == right
    if comparison == UNEQUAL:
        return left != right
    if comparison == LESS:
        return left < right
    if comparison == LESS_EQUAL:
        return left <= right
    if comparison == GREATER:
        return left > right
    return left >= right


@jit
def _at_least(candidates, first, last, position):
    """The first of sorted candidates that is not before a position."""
    while first < last:
        middle = (first + last) >> 1
        if candidates[middle] < position:
            first = middle + 1
        else:
            last = middle
    return first


@jit
def _interval(program, work, block, which):
    """One end of the interval of a block, from what is filled around it."""
    if which == 0:
        end = np.int64(-1)
        for i in range(program.left_at[block], program.left_at[block + 1]):
            end = max(end, work.position[program.left[i]])
        if program.left_at[block] == program.left_at[block + 1]:
            end = work.bound[program.parent[block], 0]
        return end
    end = np.int64(1 << 62)
    for i in range(program.right_at[block], program.right_at[block + 1]):
        end = min(end, work.position[program.right[i]])
    if program.right_at[block] == program.right_at[block + 1]:
        end = work.bound[program.parent[block], 1]
    return end


@jit
def _renew(program, work, slot, begin):
    """Where the candidates of a free slot begin, so that no choice is tried again that failed before.

    An earlier last event found no way to fill the slots up to this one with events before `barren`. As
    windows only move on, one of these slots must now have a later event.
    """
    barren = work.barren[slot, 0]
    if barren <= begin:
        return begin
    for i in range(1, program.order_at[1]):
        if program.order[i] == slot:
            break
        if work.position[program.order[i]] >= barren:
            return begin
    return barren


@jit
def _open(events, program, work, block, slot, low, high):
    """Set the candidates of a slot. `low` and `high` are the first and last position filled so far."""
    if block == 0:
        begin, end = events.first_in[high], high - 1
    else:
        begin = max(work.bound[block, 0] + 1, events.first_in[high])
        end = min(work.bound[block, 1] - 1, events.last_in[low])
    for i in range(program.after_at[slot], program.after_at[slot + 1]):
        begin = max(begin, work.position[program.after[i]] + 1)
    for i in range(program.before_at[slot], program.before_at[slot + 1]):
        end = min(end, work.position[program.before[i]] - 1)
    for i in range(program.narrow_at[slot], program.narrow_at[slot + 1]):
        which = program.narrow[i]
        right = _interval(program, work, which, 1)
        if right > 0:
            begin = max(begin, events.latest[program.table[which], right - 1])
    if program.free[slot] == 1:
        begin = _renew(program, work, slot, begin)
    first, last = program.span[slot, 0], program.span[slot, 1]
    if program.key[slot, 0] >= 0:
        value = events.codes[program.key[slot, 2], work.position[program.key[slot, 1]]]
        if value < 0:
            last = first
        else:
            at = program.key[slot, 0] + value
            first, last = events.groups[at], events.groups[at + 1]
    first = _at_least(events.candidates, first, last, begin)
    work.cursor[slot, 0] = first
    work.cursor[slot, 1] = _at_least(events.candidates, first, last, end + 1)


@jit
def _fits(events, program, work, slot, position):
    """Whether an event passes the tests of a slot."""
    for i in range(program.other_at[slot], program.other_at[slot + 1]):
        if work.position[program.other[i]] == position:
            return False
    for i in range(program.tests_at[slot], program.tests_at[slot + 1]):
        mine = events.codes[program.tests[i, 0], position]
        other = program.tests[i, 2]
        theirs = events.codes[program.tests[i, 3], position if other == slot else work.position[other]]
        if not _holds(mine, program.tests[i, 1], theirs):
            return False
    return True


@jit
def _guarded(events, program, work, block):
    """Whether what a block says about events around it holds."""
    for i in range(program.guards_at[block], program.guards_at[block + 1]):
        left = events.codes[program.guards[i, 1], work.position[program.guards[i, 0]]]
        right = events.codes[program.guards[i, 4], work.position[program.guards[i, 3]]]
        if not _holds(left, program.guards[i, 2], right):
            return False
    return True


@jit
def _store(program, work, room):
    work.found[0] += 1
    at = work.found[1]
    if at < room:
        size = program.order_at[1]
        for i in range(size):
            work.out[at, i] = work.position[program.order[i]]
        work.found[1] = at + 1


@jit
def _enter(events, program, work, block, low, high):
    """Begin with the first slot of a block; `low` and `high` are the first and last position around it."""
    work.around[block, 0], work.around[block, 1] = low, high
    step = program.order_at[block]
    _open(events, program, work, block, program.order[step], low, high)
    return step


@jit
def search(events, program, work, lead, room, most):
    """Find all ways to fill the slots of the root, whose first is filled; leave negations at their first hit.

    The search ends after `most` matches.
    Numba's cache does not support recursive functions, so a block that is being tested is stored in `frame`
    while its negation is searched.
    """
    single = program.order_at[1] == 1
    block, step = np.int64(0), np.int64(1)
    check = np.int64(-1)  # which negation is next; -1: the slot needs its next candidate
    work.around[0, 0], work.around[0, 1] = lead, lead
    if single:
        step = np.int64(0)
        slot = program.order[0]
        if not events.begins[lead]:
            return
        if program.closed[0] == 0:
            work.bound[0, 1] = events.last_in[lead] + 1
        check = program.absent_at[slot]
    else:
        work.barren[:, 1] = 0
        _open(events, program, work, 0, program.order[1], lead, lead)
    while True:
        start, stop = program.order_at[block], program.order_at[block + 1]
        if block == 0:
            start = np.int64(1)
        if check < 0:
            if step < start:
                if block == 0:
                    for place in program.order[1:stop]:
                        if work.barren[place, 1] == 0:
                            work.barren[place, 0] = lead
                    return
                block = program.parent[block]
                step, check = work.frame[block, 0], work.frame[block, 1] + 1
                continue
            slot = program.order[step]
            if block == 0 and step == stop - 1 and room == 0 and program.plain[0] == 1:
                work.found[0] += work.cursor[slot, 1] - work.cursor[slot, 0]
                if work.cursor[slot, 1] > work.cursor[slot, 0]:
                    work.barren[slot, 1] = 1
                step -= 1
                continue
            if work.cursor[slot, 0] >= work.cursor[slot, 1]:
                step -= 1
                continue
            position = events.candidates[work.cursor[slot, 0]]
            work.cursor[slot, 0] += 1
            if not _fits(events, program, work, slot, position):
                continue
            low, high = work.around[block, 0], work.around[block, 1]
            if step > start:
                before = program.order[step - 1]
                low, high = work.lowest[before, 0], work.lowest[before, 1]
            low, high = min(low, position), max(high, position)
            work.position[slot] = position
            work.barren[slot, 1] = 1
            work.lowest[slot, 0], work.lowest[slot, 1] = low, high
            if block == 0 and step == stop - 1:
                if not events.begins[low]:
                    continue
                if program.closed[0] == 0:
                    work.bound[0, 1] = events.last_in[low] + 1
            check = program.absent_at[slot]
        slot = program.order[step]
        clean, inside = True, False
        while check < program.absent_at[slot + 1]:
            which = program.absent[check]
            left, right = _interval(program, work, which, 0), _interval(program, work, which, 1)
            if right - left >= 2:
                if program.table[which] >= 0:
                    if events.latest[program.table[which], min(right, events.latest.shape[1]) - 1] > left:
                        clean = False
                        break
                elif _guarded(events, program, work, which):
                    work.frame[block, 0], work.frame[block, 1] = step, check
                    work.bound[which, 0], work.bound[which, 1] = left, right
                    block, inside = which, True
                    step = _enter(events, program, work, which, work.lowest[slot, 0], work.lowest[slot, 1])
                    break
            check += 1
        check = np.int64(-1)
        if inside:
            continue
        if clean and step < stop - 1:
            step += 1
            _open(
                events, program, work, block, program.order[step], work.lowest[slot, 0], work.lowest[slot, 1]
            )
            continue
        if clean:
            if block > 0:  # a hit: what was being tested around it is not to be
                block = program.parent[block]
                step = work.frame[block, 0]
            else:
                _store(program, work, room)
                if work.found[0] >= most:
                    return
        if block == 0 and single:
            return


@driver
def find(events, program, work, lead_from, lead_to, room, enough, most):
    """All matches whose last event fills the first slot of the program, from a position to before another.

    The search stops after the event with which there are `enough`, and at once when there are `most`.
    """
    lead = program.order[0]
    first = _at_least(events.candidates, program.span[lead, 0], program.span[lead, 1], lead_from)
    work.found[2] = -1
    for at in range(first, _at_least(events.candidates, first, program.span[lead, 1], lead_to)):
        position = events.candidates[at]
        if not _fits(events, program, work, lead, position):
            continue
        work.position[lead] = position
        work.lowest[lead, 0], work.lowest[lead, 1] = position, position
        work.bound[0, 0] = events.first_in[position] - 1
        work.bound[0, 1] = position + 1
        search(events, program, work, position, room, most)
        if work.found[0] >= enough:
            work.found[2] = position
            return
