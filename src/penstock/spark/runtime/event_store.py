"""Rows appended under ascending numbers, fetched by number, and removed in any order.

They are kept in segments. Two neighbours are merged when the later has grown to the size of the earlier, so
there are few segments, and a row is copied about as often as their number can double. The cost of an
operation depends on the rows it affects, not on all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.spark.runtime.payload_table import appended


@dataclass
class Segment:
    """Rows with ascending numbers, some of which have been removed."""

    numbers: np.ndarray
    table: pa.Table
    live: np.ndarray = field(init=False)
    removed: int = 0

    def __post_init__(self) -> None:
        self.live = np.ones(len(self.numbers), bool)

    def __len__(self) -> int:
        return len(self.numbers) - self.removed

    def pack(self) -> None:
        """Forget what was removed."""
        if self.removed:
            self.table = self.table.filter(pa.array(self.live)).combine_chunks()
            self.numbers, self.removed = self.numbers[self.live], 0
            self.live = np.ones(len(self.numbers), bool)


class EventStore:
    """Rows by number.

    >>> import pyarrow as pa
    >>> from penstock.spark.runtime.event_store import EventStore
    >>> store = EventStore()
    >>> store.append(pa.table({"name": ["a", "b", "c"]})).tolist()
    [0, 1, 2]
    >>> store.remove(np.array([1]))
    >>> store.append(pa.table({"name": ["d"]})).tolist()
    [3]
    >>> store.take(np.array([3, 0]), ["name"])["name"].to_pylist(), len(store)
    (['d', 'a'], 3)
    """

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.next = 0
        self.copied = 0  # rows that were moved from one segment into another, in all

    def __len__(self) -> int:
        return sum(len(segment) for segment in self.segments)

    def append(self, rows: pa.Table) -> np.ndarray:
        """Add rows; their numbers."""
        numbers = np.arange(self.next, self.next + rows.num_rows)
        if not rows.num_rows:
            return numbers
        self.next += rows.num_rows
        # Not cast: Arrow does not cast structs of which some are null and no field may be, as variants are.
        schema = pa.schema([each.with_nullable(True) for each in rows.schema])
        self.segments.append(Segment(numbers, pa.table(rows.columns, schema=schema).combine_chunks()))
        while len(self.segments) > 1 and len(self.segments[-2]) <= 2 * len(self.segments[-1]):
            last, before = self.segments.pop(), self.segments.pop()
            self.segments.append(self._merged(before, last))
        return numbers

    def _merged(self, before: Segment, after: Segment) -> Segment:
        before.pack()
        after.pack()
        self.copied += len(before) + len(after)
        table = appended(before.table, after.table).combine_chunks()
        return Segment(np.concatenate([before.numbers, after.numbers]), table)

    def take(self, numbers: np.ndarray, columns: Sequence[str]) -> pa.Table:
        """Some columns of these rows, in this order."""
        order = np.argsort(numbers, kind="stable")
        found: pa.Table | None = None
        for segment, wanted in self._places(numbers[order]):
            found = appended(found, segment.table.select(columns).take(pa.array(wanted)))
        assert found is not None, "no rows were asked for"
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return found.combine_chunks().take(pa.array(back))

    def remove(self, numbers: np.ndarray) -> None:
        """Forget these rows, which are in ascending order."""
        for segment, places in self._places(numbers):
            segment.live[places] = False
            segment.removed += len(places)
            if 2 * segment.removed > len(segment.numbers):
                segment.pack()
        self.segments = [segment for segment in self.segments if len(segment)]

    def _places(self, numbers: np.ndarray) -> Iterator[tuple[Segment, np.ndarray]]:
        """Where rows of ascending numbers stand."""
        begins = [segment.numbers[0] for segment in self.segments]
        cuts = [*np.searchsorted(numbers, begins).tolist(), len(numbers)]
        for segment, first, last in zip(self.segments, cuts[:-1], cuts[1:], strict=True):
            if last > first:
                yield segment, np.searchsorted(segment.numbers, numbers[first:last])

    def whole(self) -> pa.Table | None:
        """All rows, in the order of their numbers; None if there are none."""
        table: pa.Table | None = None
        for segment in self.segments:
            segment.pack()
            table = appended(table, segment.table)
        return table

    def check(self) -> None:
        """Assert the invariants."""
        for segment in self.segments:
            assert len(segment.numbers) == segment.table.num_rows == len(segment.live)
            assert 0 < len(segment) == int(segment.live.sum())
            assert bool((np.diff(segment.numbers) > 0).all())
        numbers = [segment.numbers[[0, -1]].tolist() for segment in self.segments]
        assert all(a[1] < b[0] for a, b in pairwise(numbers))
