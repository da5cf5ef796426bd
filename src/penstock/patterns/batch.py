"""A batch of events: those that matter to a pattern, in stream order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from penstock.columns import Table, column, column_names, row_count, times_of
from penstock.errors import ColumnError, hint
from penstock.patterns.analysis import Analysis
from penstock.patterns.span import Span
from penstock.patterns.values import Values, check_kinds, values_of


@dataclass(frozen=True)
class Batch:
    """Events of the types of a pattern, in the order (time, arrival)."""

    axis: np.ndarray  # times, or positions in the stream
    types: np.ndarray  # numbers of type names
    rows: np.ndarray  # row numbers of the input, from its beginning
    columns: dict[str, Values]
    size: int  # all events of the batch, also those of other types
    unit: str
    end: Any  # the axis after the batch: its last time, or the next position
    last_time: Any = None
    first_time: Any = None

    def __len__(self) -> int:
        return len(self.axis)


def type_names(analysis: Analysis) -> list[str]:
    """The types of a pattern, in the order of their numbers."""
    return sorted({slot.type for slot in analysis.slots})


def batch_of(
    events: Table,
    analysis: Analysis,
    span: Span,
    type_column: str,
    time_column: str,
    unit: str,
    first_row: int = 0,
) -> Batch:
    """Bring a table of events into the order of the stream; events of other types are left out."""
    names = column_names(events)
    for name in (type_column, time_column, *analysis.attributes):
        if name not in names:
            raise ColumnError(f"The events have no column {name!r}{hint(name, names)}")
    size = row_count(events)
    times = times_of([column(events, time_column, "event")], ["event"], unit)
    time = times.arrays[0]
    kinds = _numbered(column(events, type_column, "event"), type_names(analysis))
    order = np.arange(size, dtype=np.int64)
    if size > 1 and not bool((time[1:] >= time[:-1]).all()):
        order = np.argsort(time, kind="stable")
    positions = first_row + np.arange(size, dtype=np.int64)
    matter = kinds[order] >= 0
    rows = order[matter]
    columns = {name: values_of(column(events, name, "event")) for name in analysis.attributes}
    check_kinds(analysis.predicates, columns)
    axis = positions[matter] if span.events else time[rows]
    last = time[order[-1]] if size else None
    return Batch(
        axis=axis,
        types=kinds[rows],
        rows=rows + first_row,
        columns={name: values.take(rows) for name, values in columns.items()},
        size=size,
        unit=times.unit,
        end=first_row + size if span.events else last,
        last_time=last,
        first_time=time[order[0]] if size else None,
    )


def _numbered(series: pd.Series, names: list[str]) -> np.ndarray:
    """The number of each event's type, -1 for types the pattern does not name."""
    codes, uniques = pd.factorize(series)
    known = {name: i for i, name in enumerate(names)}
    numbers = np.array([known.get(str(value), -1) for value in uniques] + [-1], np.int64)
    return numbers[codes]


def width_of(span: Span, unit: str, axis: np.ndarray | None = None) -> int | float:
    """The window on the scale of the times; on whole numbers 1.5 is 1."""
    width = span.width(unit)
    if axis is not None and axis.dtype.kind == "f":
        return float(width)
    return math.floor(width)
