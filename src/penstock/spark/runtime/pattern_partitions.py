"""The partitions of a bucket: one stream per value of the keys, kept as long as its events can matter.

All of them share one store of events. A batch takes from it the events of the partitions that it is about,
those of its own events and those of events that leave their window, and searches them together. What a batch
costs follows these, not the partitions that are there. When none of its events is left, nothing of a
partition is; should its key come again, it begins anew.

In a window of events nothing leaves by time, so a partition stays until later events of its own have pushed
the others out.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.columns import column
from penstock.errors import SnapshotError
from penstock.patterns import Attr
from penstock.patterns.batch import type_numbers
from penstock.patterns.compile.values import values_of
from penstock.patterns.language.span import first_within
from penstock.patterns.partitioned import PartitionedEvents, PartitionedSearch
from penstock.spark.runtime.arrow_blobs import from_blob, to_blob
from penstock.spark.runtime.event_store import EventStore
from penstock.spark.runtime.partition_keys import number_partitions
from penstock.spark.runtime.pattern_stream import fill
from penstock.states.checks import sound

if TYPE_CHECKING:
    from penstock.spark.runtime.pattern_bucket import PatternSpec

AXIS, TYPE = "_penstock_axis", "_penstock_type"  # times or positions, and the numbers of types


class Partitions:
    """The events of all partitions, and where those of each are."""

    def __init__(self, spec: PatternSpec) -> None:
        self.spec = spec
        self.by_events = spec.pattern.within.events
        self.search = PartitionedSearch(spec.plain, spec.width, spec.max_events)
        self.store = EventStore()
        self.numbers: dict[Hashable, bytes] = {}  # by key: those of its events in the store, as int64
        self.sizes: dict[Hashable, int] = {}  # by key: events so far, in a window of events
        self.progress: Any = None  # how far time has come
        self.passed = 0  # events before this number have left their window
        self.attributes = spec.pattern.analysis.attributes
        items = spec.pattern.returns
        whole = not items or any(not isinstance(item.what, Attr) for item in items)
        shown = [item.what.name for item in items if isinstance(item.what, Attr)]
        self.needed = None if whole else sorted({spec.time, *self.attributes, *shown})  # None: all columns

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def held(self) -> int:
        """Events in memory."""
        return len(self.store)

    def process(self, events: pa.Table, progress: Any) -> list[pa.Table]:
        """The matches that events in order complete, and those that the progress settles."""
        if progress is None:
            return []
        parts, keys = number_partitions(events, self.spec.keys)
        types = type_numbers(column(events, self.spec.type, "event"), self.search.types)
        before, end, axis = self.progress, progress, self.spec.times(events)
        if self.by_events:
            before = np.array([self.sizes.pop(key, 0) for key in keys], np.int64)
            end = before + np.bincount(parts, minlength=len(keys))
            axis = before[parts] + _ranks(parts)
        matter = types >= 0
        rows = events.filter(pa.array(matter))
        rows = rows.append_column(AXIS, pa.array(axis[matter])).append_column(TYPE, pa.array(types[matter]))
        new = self.store.append(rows)
        self.progress = progress
        keys = self._with_passed(keys, new[0] if len(new) else self.store.next)
        found = self._searched(keys, new, parts[matter], before, end)
        if self.by_events:
            self.sizes |= {
                key: size for key, size in zip(keys, end.tolist(), strict=True) if key in self.numbers
            }
        return found

    def finish(self) -> list[pa.Table]:
        """The end of all streams."""
        if not self.search.settles:
            return []
        keys, none = list(self.numbers), np.empty(0, np.int64)
        before = np.array([self.sizes[key] for key in keys]) if self.by_events else self.progress
        return self._searched(keys, none, none, before, None)

    def _with_passed(self, keys: list[Hashable], first_new: int) -> list[Hashable]:
        """The keys of a batch, and those of the events before it that have left their window by now."""
        if self.by_events:
            return keys
        leaving = [np.empty(0, np.int64)]
        for segment in self.store.segments:
            if segment.numbers[-1] < self.passed:
                continue
            axis = segment.table[AXIS].to_numpy()
            out = first_within(axis, self.progress, self.spec.width)
            numbers = segment.numbers[:out][segment.live[:out]]
            leaving.append(numbers[(numbers >= self.passed) & (numbers < first_new)])
            if out < len(axis):
                self.passed = int(segment.numbers[out])
                break
            self.passed = int(segment.numbers[-1]) + 1
        numbers = np.concatenate(leaving)
        if not len(numbers):
            return keys
        _, more = number_partitions(self.store.take(numbers, self.spec.keys), self.spec.keys)
        known = set(keys)
        return [*keys, *(key for key in more if key not in known)]

    def _searched(
        self, keys: list[Hashable], new: np.ndarray, parts: np.ndarray, before: Any, end: Any
    ) -> list[pa.Table]:
        """Search the partitions of some keys, with new events of theirs; what is past is forgotten."""
        held = [self.numbers.pop(key, b"") for key in keys]
        numbers = np.concatenate([np.frombuffer(b"".join(held), np.int64), new])
        if not len(numbers):
            return []
        sizes = np.array([len(each) // 8 for each in held], np.int64)
        parts = np.concatenate([np.repeat(np.arange(len(keys)), sizes), parts])
        order = np.argsort(parts, kind="stable")
        numbers, parts = numbers[order], parts[order]
        rows = self.store.take(numbers, [AXIS, TYPE, *self._columns()])
        events = PartitionedEvents(
            starts=np.searchsorted(parts, np.arange(len(keys) + 1)),
            axis=rows[AXIS].to_numpy(),
            types=rows[TYPE].to_numpy(),
            columns={name: values_of(column(rows, name, "event")) for name in self.attributes},
            new=order >= int(sizes.sum()),
            before=before[parts] if isinstance(before, np.ndarray) else before,
            end=end[parts] if isinstance(end, np.ndarray) else end,
        )
        positions, needed = self.search.process(events)
        self._keep(keys, numbers, parts, needed)
        if not len(positions):
            return []
        names = [slot.name for slot in self.spec.plain.analysis.columns]
        places = {name: pa.array(at, mask=at < 0) for name, at in zip(names, positions.T, strict=True)}
        return [fill(self.spec, rows.select(self._columns()), places)]

    def _columns(self) -> list[str]:
        """The columns of events that a search and its matches need."""
        if self.needed is not None:
            return self.needed
        return [name for name in self.store.segments[0].table.column_names if name not in (AXIS, TYPE)]

    def _keep(self, keys: list[Hashable], numbers: np.ndarray, parts: np.ndarray, needed: np.ndarray) -> None:
        """Forget the events that are not needed, and note where those of each key are."""
        self.store.remove(np.sort(numbers[~needed]))
        data = numbers[needed].tobytes()
        cuts = (8 * np.searchsorted(parts[needed], np.arange(len(keys) + 1))).tolist()
        for key, begin, end in zip(keys, cuts[:-1], cuts[1:], strict=True):
            if end > begin:
                self.numbers[key] = data[begin:end]

    def dump(self) -> dict[str, Any]:
        """The events as plain values."""
        table, sizes = self.store.whole(), None
        if table is not None and self.by_events:
            parts, keys = number_partitions(table, self.spec.keys)
            sizes = np.array([self.sizes[key] for key in keys], np.int64)[parts].tobytes()
        return {
            "events": None if table is None else to_blob(table),
            "sizes": sizes,
            "progress": self.progress,
        }

    def load(self, content: dict[str, Any]) -> None:
        """The counterpart."""
        if "events" not in content:
            raise SnapshotError(
                "The state of a bucket is of another version, which kept each partition by itself; start "
                "with a new checkpoint."
            )
        self.progress = content["progress"]
        if content["events"] is None:
            return
        table = from_blob(content["events"])
        sound(not table[AXIS].null_count and not table[TYPE].null_count, "events are lost")
        numbers = self.store.append(table)
        parts, keys = number_partitions(table, self.spec.keys)
        order = np.argsort(parts, kind="stable")
        self._keep(keys, numbers[order], parts[order], np.ones(len(numbers), bool))
        if self.by_events:
            sizes = np.frombuffer(content["sizes"], np.int64)
            sound(sizes.shape == parts.shape, "events are lost")
            self.sizes = {key: int(sizes[at]) for key, at in zip(keys, _firsts(parts), strict=True)}
        else:
            axis = table[AXIS].to_numpy()
            sound(bool((axis[1:] >= axis[:-1]).all()), "events are out of order")
            self.passed = first_within(axis, self.progress, self.spec.width)

    def check(self) -> None:
        """Assert the invariants."""
        self.store.check()
        assert all(self.numbers.values())
        numbers = np.sort(np.frombuffer(b"".join(self.numbers.values()), np.int64))
        live = [segment.numbers[segment.live] for segment in self.store.segments]
        assert np.array_equal(numbers, np.concatenate([np.empty(0, np.int64), *live]))
        assert set(self.sizes) == (set(self.numbers) if self.by_events else set())


def _ranks(parts: np.ndarray) -> np.ndarray:
    """How many events of its partition stand before each."""
    order = np.argsort(parts, kind="stable")
    sizes = np.bincount(parts)
    ranks = np.empty(len(parts), np.int64)
    ranks[order] = np.arange(len(parts)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return ranks


def _firsts(parts: np.ndarray) -> list[int]:
    """Where each partition, numbered in the order of appearance, comes first."""
    firsts: list[int] = np.unique(parts, return_index=True)[1].tolist()
    return firsts
