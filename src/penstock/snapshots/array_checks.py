"""Common checks of snapshots: an error that says what is wrong, ranges, shapes, and lists that end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock.errors import PenstockError, SnapshotError

GROWING = {"Counts", "Places"}  # tables that follow what has come
CUT = {("GreedyDualCache", "costs"), ("HeebCache", "values")}  # what the last batch has left
FAR = 2**62  # counters and steps are below


def sound(fine: Any, what: str) -> None:
    """Refuse a snapshot in which something is not as it must be."""
    if not bool(fine):
        raise SnapshotError(f"The snapshot is damaged: {what}.")


@contextmanager
def looked_over() -> Iterator[None]:
    """What cannot even be looked at is damaged too.

    >>> from penstock.snapshots.array_checks import looked_over
    >>> with looked_over():
    ...     {}["index"]
    Traceback (most recent call last):
        ...
    penstock.errors.SnapshotError: The snapshot is damaged: it cannot be read (KeyError('index')).
    """
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:  # Arrow has OSError for bytes that are no table, NumPy MemoryError for a size
        raise SnapshotError(f"The snapshot is damaged: it cannot be read ({error!r}).") from error


def check_within(numbers: np.ndarray, least: float, most: float, what: str) -> None:
    """Whether all numbers are in a range; what is not a number is in none."""
    if numbers.size:
        sound(least <= numbers.min() and numbers.max() <= most, f"{what} is out of range")


def check_numbers(numbers: np.ndarray, what: str) -> None:
    """Whether all are numbers, be they infinite: one that is not has no place in any order."""
    sound(not np.isnan(numbers).any(), f"{what} is not a number")


def check_same(mine: np.ndarray, other: np.ndarray, what: str) -> None:
    """Whether what a state is built with and keeps is the same."""
    sound(np.array_equal(mine, other, equal_nan=other.dtype.kind == "f"), f"{what} is another")


def check_shapes(part: Any, fresh: Any, name: str = "the state") -> None:
    """Whether nested tuples have the same classes, and arrays of the same types and shapes, as fresh ones."""
    _check_alike(part, fresh, name, True)


def _check_alike(part: Any, fresh: Any, name: str, sized: bool) -> None:
    if isinstance(fresh, np.ndarray):
        sound(isinstance(part, np.ndarray) and part.dtype == fresh.dtype, f"{name} has another type")
        sound(
            part.ndim == fresh.ndim and (not sized or part.shape == fresh.shape), f"{name} has another size"
        )
        sound(part.flags.c_contiguous and part.flags.writeable, f"{name} is not laid out as it should be")
    elif isinstance(fresh, tuple):
        sound(type(part) is type(fresh) and len(part) == len(fresh), f"{name} is something else")
        kind = type(fresh).__name__
        for field, mine, other in zip(getattr(fresh, "_fields", range(len(fresh))), part, fresh, strict=True):
            fixed = sized and kind not in GROWING and (kind, field) not in CUT
            _check_alike(mine, other, f"{kind}.{field}", fixed)


def check_lists(heads: np.ndarray, links: np.ndarray, members: np.ndarray, what: str) -> np.ndarray:
    """Whether lists that end with 0 have these members, each once; the last one of each member's list.

    All lists are followed at once, each time twice as far as before.
    """
    following = links[members]
    check_within(heads, 0, len(links) - 1, f"the list of {what}")
    check_within(following, 0, len(links) - 1, f"the list of {what}")
    named = np.concatenate([heads[heads > 0], following[following > 0]])
    times = np.bincount(named, minlength=len(links))
    sound(len(named) == len(members) and (times[members] == 1).all(), f"the list of {what} is broken")
    last = np.arange(len(links))
    last[members] = np.where(following > 0, following, members)
    for _ in range(max(1, len(members)).bit_length()):
        last[members] = last[last[members]]
    sound((links[last[members]] == 0).all(), f"the list of {what} does not end")
    return last[members]


def followed(head: int, links: np.ndarray, what: str) -> np.ndarray:
    """The members of a list that ends with 0, in no order; it may have any, so what it has is followed."""
    beyond = len(links)
    jump = np.append(np.where((links < 0) | (links >= beyond), beyond, links), beyond)
    found = np.array([head], np.int64)
    while len(more := jump[found]) and (more := more[more > 0]).size:
        found, jump = np.concatenate([found, more]), jump[jump]
        sound(len(found) < beyond and (more < beyond).all(), f"the list of {what} does not end")
    return found


def hashed(keys: np.ndarray, buckets: int, shift: int = 32) -> np.ndarray:
    """The buckets in which keys belong, as the kernels have it."""
    with np.errstate(over="ignore"):
        mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return ((mixed >> np.uint64(shift)) & np.uint64(buckets - 1)).astype(np.int64)


def check_hash(
    buckets: np.ndarray, links: np.ndarray, keys: np.ndarray, free: int, high: int, shift: int = 32
) -> np.ndarray:
    """Whether rows 1 to `high` are free, or in the bucket of a key of their own; those in a bucket."""
    sound(0 <= high < len(links), "more keys than there is room for")
    members = np.arange(1, high + 1)
    filled = np.flatnonzero(buckets)
    heads = buckets[filled].astype(np.int64)
    last = check_lists(np.append(heads, free), links, members, "keys")
    used = members if free == 0 else members[last != last[free - 1]]
    sound(len(np.unique(keys[used])) == len(used), "a key is there twice")
    home = hashed(keys, len(buckets), shift)
    sound((home[heads] == filled).all(), "a key is in another bucket")
    after = links[used]
    sound((home[after[after > 0]] == home[used[after > 0]]).all(), "a key is in another bucket")
    return used
