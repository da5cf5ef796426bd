"""The events that later matches may need, as columns: appended at the end, dropped at the front."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.patterns.batch import EventBatch
from penstock.patterns.compile.values import Values, joined
from penstock.states.checks import check_numbers, sound


class EventBuffer:
    """Events in stream order."""

    def __init__(self) -> None:
        self.axes: dict[bool, np.ndarray] | None = None
        self.types = np.empty(0, np.int64)
        self.rows = np.empty(0, np.int64)
        self.columns: dict[str, Values] = {}
        self.peak = 0

    def __len__(self) -> int:
        return len(self.rows)

    def append(self, batch: EventBatch) -> None:
        """Append the events of a batch."""
        if self.axes is None or not len(self):
            self.axes, self.types, self.rows = batch.axes, batch.types, batch.rows
            self.columns = dict(batch.columns)
        else:
            self.axes = {kind: np.concatenate([axis, batch.axes[kind]]) for kind, axis in self.axes.items()}
            self.types = np.concatenate([self.types, batch.types])
            self.rows = np.concatenate([self.rows, batch.rows])
            self.columns = {
                name: joined([values, batch.columns[name]], name) for name, values in self.columns.items()
            }
        self.peak = max(self.peak, len(self))

    def drop(self, events: int) -> None:
        """Drop this many of the oldest events."""
        if events and self.axes is not None:
            # Copy: a view would keep a whole large batch in memory.
            self.axes = {kind: axis[events:].copy() for kind, axis in self.axes.items()}
            self.types, self.rows = self.types[events:].copy(), self.rows[events:].copy()
            self.columns = {
                name: Values(values.kind, values.data[events:].copy(), values.null[events:].copy())
                for name, values in self.columns.items()
            }

    def dump(self) -> dict[str, Any]:
        """Return the events as plain values and arrays."""
        return {
            "axes": self.axes,
            "types": self.types,
            "rows": self.rows,
            "columns": {
                name: (v.kind, v.data.tolist() if v.data.dtype == object else v.data, v.null)
                for name, v in self.columns.items()
            },
            "peak": self.peak,
        }

    def load(self, content: dict[str, Any]) -> None:
        """The counterpart."""
        self.axes, self.types, self.rows = content["axes"], content["types"], content["rows"]
        for name, (kind, data, null) in content["columns"].items():
            values = data
            if isinstance(data, list):
                values = np.empty(len(data), object)
                values[:] = data
            self.columns[name] = Values(kind, values, null)
        self.peak = content["peak"]
        self._check_restored()

    def _check_restored(self) -> None:
        """Reject events that are incomplete or out of order."""
        for numbers in (self.types, self.rows):
            sound(numbers.dtype == np.int64 and numbers.shape == (len(self),), "events are lost")
        sound((np.diff(self.rows) > 0).all() and (self.rows >= 0).all(), "rows are out of order")
        for axis in (self.axes or {}).values():
            sound(axis.dtype.kind in "if" and axis.shape == (len(self),), "events are lost")
            check_numbers(axis, "a time")
            sound((axis[1:] >= axis[:-1]).all(), "events are out of order")
        for values in self.columns.values():
            sound(values.data.shape == values.null.shape == (len(self),), "values are lost")
            sound(values.null.dtype == bool, "values have another type")

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self.types) == len(self.rows)
        assert all(len(values) == len(self) for values in self.columns.values())
        for axis in (self.axes or {}).values():
            assert len(axis) == len(self)
            assert bool((axis[1:] >= axis[:-1]).all())
