"""The arrivals of two streams in processing order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock.columns import Table, codes_of, column, column_names, labels_of, places_of, times_of
from penstock.engine.join_loop import Batch
from penstock.engine.store import ROWS
from penstock.errors import ColumnError
from penstock.joins.conditions.exact import JoinCondition
from penstock.joins.conditions.leaves import Leaves
from penstock.joins.conditions.program import compiled_for
from penstock.payload import row_bytes
from penstock.policies.base import Trace
from penstock.structures.key_positions import LISTED, THEMSELVES, Places, new_places

SIDES = ("left", "right")


@dataclass(frozen=True)
class Arrivals:
    """Arrivals in the order (time, left before right, row), without null keys."""

    stream: np.ndarray
    key: np.ndarray  # dense codes
    time: np.ndarray
    row: np.ndarray
    size: np.ndarray  # bytes of payload; empty if they do not count
    keys: int
    unit: str
    null_rows: tuple[np.ndarray, np.ndarray]  # rows of each stream whose key is null
    stamped: bool = False  # times are timestamps, not numbers in an assumed unit
    labels: Callable[[], np.ndarray] | None = None  # returns the key of each code
    listed: Callable[[], tuple[np.ndarray, np.ndarray] | None] | None = None  # returns the positions of keys
    condition: JoinCondition | None = None  # what pairs must pass

    def __len__(self) -> int:
        return len(self.key)

    @property
    def nulls(self) -> tuple[int, int]:
        """Rows of left and right whose key is null."""
        return len(self.null_rows[0]), len(self.null_rows[1])

    @property
    def per_stream(self) -> tuple[int, int]:
        """Arrivals of left and right."""
        right = int(np.count_nonzero(self.stream))
        return len(self) - right, right

    @property
    def span(self) -> Any:
        """Time between the first and the last arrival."""
        return self.time[-1].item() - self.time[0].item() if len(self) else 0

    @property
    def numbers(self) -> tuple[float, float] | None:
        """The first and the last time if their unit was assumed, else None."""
        return None if self.stamped or not len(self) else (self.time[0].item(), self.time[-1].item())

    def clocked(self, window: int) -> np.ndarray:
        """Return the times by which tuples expire: in a window of rows, each stream's arrival numbers."""
        if window != ROWS:
            return self.time
        numbers = np.empty(len(self), np.int64)
        for stream in (0, 1):
            mine = self.stream == stream
            numbers[mine] = np.arange(np.count_nonzero(mine))
        return numbers

    def valued(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return keys for a policy that reads their values: whole numbers as they are, others with labels."""
        labels = np.empty(0, object) if self.labels is None else self.labels()
        if len(labels) == 0:
            return self.key, None
        if labels.dtype.kind == "i" or (labels.dtype.kind == "f" and _are_whole(labels)):
            return labels.astype(np.int64)[self.key], None
        return self.key, labels

    def placed(self, listed: bool) -> tuple[np.ndarray, Places | None]:
        """Return keys and their positions: whole numbers as they are, others with a list if possible."""
        key, labels = self.valued()
        if labels is None and key is not self.key:
            return key, new_places(THEMSELVES)
        places = self.listed() if listed and self.listed is not None else None
        return self.key, None if places is None else new_places(LISTED, *places)

    def batch(self, clocked: np.ndarray, start: int, stop: int) -> Batch:
        """Return a slice for a driver."""
        cut = slice(start, stop)
        return Batch(self.stream[cut], self.key[cut], clocked[cut], self.row[cut], self.size[cut])

    def steps(self, step: str) -> np.ndarray:
        """Return the step number of each arrival."""
        if step == "arrival":
            return np.arange(len(self))
        return np.cumsum(np.diff(self.time, prepend=self.time[:1]) != 0)

    def trace(self, window: int, step: str, keep: np.ndarray | None = None) -> Trace:
        """Return all arrivals as a trace, for policies that look ahead."""
        return Trace(self.stream, self.key, self.clocked(window), self.row, self.steps(step), keep)


def pair_of(value: Any, what: str) -> tuple[Any, Any]:
    """Return one name for both sides, or a pair of names."""
    if isinstance(value, str):
        return value, value
    if isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(v, str) for v in value):
        return value[0], value[1]
    raise ColumnError(f"{what} takes a column name, or a pair of names (left, right); {value!r} was given.")


def key_names(on: Any) -> tuple[list[str], list[str]]:
    """Return the key columns of each side: a name, several names, or pairs of differently named columns."""
    parts = [on] if isinstance(on, str) else list(on) if isinstance(on, Sequence) else []
    if not parts:
        raise ColumnError(f"on takes a column name, a list of names, or a list of pairs; {on!r} was given.")
    pairs = [pair_of(part, "on") for part in parts]
    return [left for left, _ in pairs], [right for _, right in pairs]


def arrivals_of(
    left: Table,
    right: Table,
    on: Any,
    time: Any,
    unit: str = "ms",
    sized: bool = False,
    *,
    right_first: bool = False,
    keyless: bool = False,
    where: Any = None,
) -> Arrivals:
    """Bring two tables into processing order, with coded keys and times on one scale.

    `right_first` puts right before left rows of the same time. `keyless` allows `on=()`: one key for all.
    `where` is the text of a condition on pairs.
    """
    tables = (left, right)
    for table in tables:
        column_names(table)
    program = None if where is None else compiled_for(where, tables)
    bare = keyless and isinstance(on, tuple | list) and len(on) == 0
    keys = [
        [column(table, name, side) for name in names]
        for table, names, side in zip(tables, ([], []) if bare else key_names(on), SIDES, strict=True)
    ]
    stamps = [
        column(table, name, side)
        for table, name, side in zip(tables, pair_of(time, "time"), SIDES, strict=True)
    ]
    times = times_of(stamps, SIDES, unit)
    codes, count = _one_key(times.arrays) if bare else codes_of(keys, SIDES)
    rows, kept_times, kept_codes, sizes = [], [], [], []
    for side in (0, 1):
        order = _in_time(times.arrays[side])
        order = order[codes[side][order] >= 0]
        rows.append(order)
        kept_times.append(times.arrays[side][order])
        kept_codes.append(codes[side][order])
        if sized:
            sizes.append(row_bytes(tables[side])[order])
    place = _merge(*kept_times[::-1])[::-1] if right_first else _merge(*kept_times)
    n = len(place[0]) + len(place[1])
    merged = Arrivals(
        stream=np.empty(n, np.int8),
        key=np.empty(n, np.int64),
        time=np.empty(n, kept_times[0].dtype),
        row=np.empty(n, np.int64),
        size=np.empty(n if sized else 0, np.int64),
        keys=count,
        unit=times.unit,
        null_rows=(np.flatnonzero(codes[0] < 0), np.flatnonzero(codes[1] < 0)),
        stamped=times.stamped,
        labels=partial(labels_of, keys, codes, count),
        listed=partial(places_of, keys, codes, count),
    )
    for side in (0, 1):
        merged.stream[place[side]] = side
        merged.key[place[side]] = kept_codes[side]
        merged.time[place[side]] = kept_times[side]
        merged.row[place[side]] = rows[side]
        if sized:
            merged.size[place[side]] = sizes[side]
    if program is None:
        return merged
    leaves = Leaves(program).of_tables(tables, merged.stream, merged.row)
    return dataclasses.replace(merged, condition=JoinCondition(program, leaves))


def _one_key(times: Sequence[np.ndarray]) -> tuple[list[np.ndarray], int]:
    """Return codes that are equal for all rows, and their number."""
    return [np.zeros(len(each), np.int64) for each in times], 1


def _are_whole(labels: np.ndarray) -> bool:
    """Whether floats are whole numbers small enough to be exact."""
    return bool((np.abs(labels) < 2.0**53).all() and (labels == np.floor(labels)).all())


def _in_time(times: np.ndarray) -> np.ndarray:
    """Return row numbers in order of time; rows of one time keep their order."""
    if len(times) < 2 or bool((times[1:] >= times[:-1]).all()):
        return np.arange(len(times), dtype=np.int64)
    return np.argsort(times, kind="stable")


def _merge(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of both sides' sorted times in the merged order, the first before the other."""
    return (
        np.arange(len(left)) + np.searchsorted(right, left, side="left"),
        np.arange(len(right)) + np.searchsorted(left, right, side="right"),
    )
