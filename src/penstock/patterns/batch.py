"""A batch of events: those whose types occur in the patterns over a stream, in stream order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from penstock.columns import Table, column, column_names, row_count, text_codes, times_of
from penstock.errors import ColumnError, hint
from penstock.patterns.compile.analysis import Analysis
from penstock.patterns.compile.values import NOTHING, Values, check_kinds, values_of
from penstock.patterns.language.span import Span
from penstock.window import warn_unit, window_of

WIDEST = 2**63 - 1  # wider than the difference of any two times


class Member(NamedTuple):
    """One of the patterns over a stream."""

    analysis: Analysis
    span: Span


@dataclass(frozen=True)
class EventBatch:
    """Events of the types of the patterns, in the order (time, arrival).

    Windows are measured along an axis: the times (`False`) or the positions in the stream (`True`). A batch
    has the axes that its patterns need, and the end of each.
    """

    axes: dict[bool, np.ndarray]
    types: np.ndarray  # numbers of type names
    rows: np.ndarray  # row numbers of the input, from its beginning
    columns: dict[str, Values]
    size: int  # all events of the batch, including those of other types
    unit: str
    ends: dict[bool, Any]  # after the batch: the last time, the next position
    last_time: Any = None
    first_time: Any = None

    def __len__(self) -> int:
        return len(self.rows)


def type_names(members: Sequence[Member]) -> list[str]:
    """Return the types of patterns, in the order of their numbers."""
    return sorted({slot.type for member in members for slot in member.analysis.slots})


def attribute_names(members: Sequence[Member]) -> list[str]:
    """Return the attributes that their predicates need."""
    return sorted({name for member in members for name in member.analysis.attributes})


def batch_of(
    events: Table,
    members: Sequence[Member],
    type_column: str,
    time_column: str,
    unit: str,
    first_row: int = 0,
) -> EventBatch:
    """Bring a table of events into stream order; events of other types are left out."""
    names, attributes = column_names(events), attribute_names(members)
    for name in (type_column, time_column, *attributes):
        if name not in names:
            raise ColumnError(f"The events have no column {name!r}{hint(name, names)}")
    size = row_count(events)
    times = times_of([column(events, time_column, "event")], ["event"], unit)
    time = times.arrays[0]
    _check_range(time, time_column)
    if first_row == 0 and size and not times.stamped:
        _warn_unit(members, times.unit, time)
    kinds = type_numbers(column(events, type_column, "event"), type_names(members))
    order = np.arange(size, dtype=np.int64)
    if size > 1 and not bool((time[1:] >= time[:-1]).all()):
        order = np.argsort(time, kind="stable")
    matter = kinds[order] >= 0
    rows = order[matter]
    columns = {name: values_of(column(events, name, "event")) for name in attributes}
    last = time[order[-1]] if size else None
    wanted = {member.span.events for member in members}
    axes = {
        by_events: first_row + np.flatnonzero(matter) if by_events else time[rows] for by_events in wanted
    }
    return EventBatch(
        axes=axes,
        types=kinds[rows],
        rows=rows + first_row,
        columns={name: values.take(rows) for name, values in columns.items()},
        size=size,
        unit=times.unit,
        ends={by_events: first_row + size if by_events else last for by_events in wanted},
        last_time=last,
        first_time=time[order[0]] if size else None,
    )


def _warn_unit(members: Sequence[Member], unit: str, time: np.ndarray) -> None:
    """Warn if numeric times seem to be in another unit and a window is a duration."""
    for member in members:
        if isinstance(member.span.size, str):
            warn_unit(window_of(member.span.size), unit, (float(time.min()), float(time.max())))
            return


def kinds_with(batch: EventBatch, before: dict[str, str], members: Sequence[Member]) -> dict[str, str]:
    """Return the kinds of all columns so far; raise if one has changed or two cannot be compared."""
    kinds = dict(before)
    for name, values in batch.columns.items():
        known = kinds.get(name, NOTHING)
        if NOTHING not in (known, values.kind) and known != values.kind:
            raise ColumnError(f"The attribute {name!r} was a {known} and is now a {values.kind}.")
        kinds[name] = known if values.kind == NOTHING else values.kind
    for member in members:
        check_kinds(member.analysis.predicates, kinds)
    return kinds


def type_numbers(series: pd.Series, names: list[str]) -> np.ndarray:
    """Return the number of each event's type, -1 for types that the patterns do not name."""
    uniques: Any
    if pd.api.types.infer_dtype(series, skipna=True) == "string":
        codes, texts = text_codes(series)
        uniques = texts.to_pylist()
    else:
        try:
            codes, uniques = pd.factorize(series)
        except TypeError as error:
            raise ColumnError(
                f"The type column {series.name!r} holds values that cannot be types ({error}); allowed are "
                "texts and numbers."
            ) from error
    known = {name: i for i, name in enumerate(names)}
    numbers = np.array([known.get(str(value), -1) for value in uniques] + [-1], np.int64)
    return numbers[codes]


def _check_range(time: np.ndarray, name: str) -> None:
    """Reject times whose difference would overflow."""
    most = 1e300 if time.dtype.kind == "f" else 2**62 - 1
    if len(time) and (time.min() < -most or time.max() > most):
        raise ColumnError(
            f"The times of {name!r} are out of range; allowed are times from -{most:g} to {most:g}."
        )


def width_of(span: Span, unit: str, axis: np.ndarray | None = None) -> int | float:
    """Return the window on the scale of the times; on whole numbers, 1.5 is 1."""
    width = span.width(unit)
    if axis is not None and axis.dtype.kind == "f":
        return float(width)
    return min(math.floor(width), WIDEST)
