"""The values of a column or an expression, each with what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns import Table, column_names
from penstock.engine.pair_condition import KNOWN, NULL
from penstock.errors import ColumnError, hint
from penstock.joins.conditions.kinds import DAY, UNITS, Kind, arrow_type, kind_of
from penstock.joins.conditions.nodes import SIDES
from penstock.lazy import Lazy

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = Lazy("pandas")

WIDE_DIGITS = 76  # of Arrow's widest decimals


class Evaluated(NamedTuple):
    """Values and their states: `KNOWN`, `NULL`, or why there is none. One value may stand for all rows.

    Values are whole numbers of 64 bits, floats or, where they are compared by rank, an Arrow array.
    """

    values: Any
    state: np.ndarray


def as_arrow(values: np.ndarray) -> pa.Array:
    """Return whole numbers as an Arrow array; `pa.array` would import pandas, 21 MiB in every worker.

    >>> import numpy as np
    >>> from penstock.joins.conditions.cells import as_arrow
    >>> as_arrow(np.array([3, 4])).to_pylist()
    [3, 4]
    """
    values = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def arrow_column(table: Table, name: str, side: int) -> pa.Array:
    """Return a column as an Arrow array.

    In pandas NaN means that there is no value; in Arrow tables, NumPy arrays and lists it is a number.

    >>> from penstock.joins.conditions.cells import arrow_column
    >>> arrow_column({"v": [1.5, None, float("nan")]}, "v", 0).to_pylist()
    [1.5, None, nan]
    """
    names = column_names(table)
    if name not in names:
        raise ColumnError(f"The {SIDES[side]} stream has no column {name!r}{hint(name, names)}")
    if names.count(name) > 1:
        raise ColumnError(f"The column {name!r} of the {SIDES[side]} stream occurs more than once.")
    if isinstance(table, pa.Table | pa.RecordBatch):
        values = table.column(name)
    else:
        values = table[name]
        try:
            if not isinstance(values, pa.Array | pa.ChunkedArray):
                values = pa.array(values, from_pandas=isinstance(values, pd.Series))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ColumnError(
                f"The column {name!r} of the {SIDES[side]} stream has values of several types, or of one "
                f"that a condition cannot read: {error}"
            ) from error
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        values = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def arrow_types(table: Table, names: Mapping[str, Any] | set[str], side: int) -> dict[str, pa.DataType]:
    """Return the Arrow types of some columns of a table, and of all others that it is cheap to know."""
    if isinstance(table, pa.Table | pa.RecordBatch):
        return dict(zip(table.schema.names, table.schema.types, strict=True))
    return {
        name: arrow_column(table, name, side).type if name in names else pa.null()
        for name in column_names(table)
        if isinstance(name, str)
    }


def nulls(count: int, kind: Kind) -> Evaluated:
    """Return cells of a kind without values.

    >>> from penstock.joins.conditions.cells import nulls
    >>> from penstock.joins.conditions.kinds import LONG
    >>> nulls(2, LONG).state.tolist()
    [1, 1]
    """
    return read(pa.nulls(count, arrow_type(kind)), kind)


def typed(values: pa.Array, kind: Kind, name: str, side: int) -> pa.Array:
    """Return an Arrow array of the declared kind, or raise an error if it is of another one."""
    if kind.family == "other" or kind_of(values.type) == kind:
        return values
    try:
        return values.cast(arrow_type(kind))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ColumnError(
            f"The column {name!r} of the {SIDES[side]} stream is of type {values.type}, and the condition "
            f"was made for {kind}: {error}"
        ) from error


def read(values: pa.Array, kind: Kind) -> Evaluated:
    """Return an Arrow array as cells of its kind.

    >>> import pyarrow as pa
    >>> from penstock.joins.conditions.cells import read
    >>> from penstock.joins.conditions.kinds import kind_of
    >>> cells = read(pa.array([7, None]), kind_of(pa.int64()))
    >>> cells.values.tolist(), cells.state.tolist()
    ([7, 0], [0, 1])
    """
    state = np.where(_flags(pc.is_null(values)), NULL, KNOWN).astype(np.uint8)
    if kind.family in ("other", "null"):
        return Evaluated(np.zeros(len(values), np.int64), state)
    if kind.ranked:
        return Evaluated(_rankable(values, kind), state)
    if kind.real:
        return Evaluated(_numbers(values.cast(pa.float64()), np.float64), state)
    if kind.family == "decimal":
        return Evaluated(_unscaled(values), state)
    if pa.types.is_date64(values.type):
        values = values.cast(pa.date32())
    if pa.types.is_date32(values.type) or pa.types.is_time32(values.type):
        values = values.cast(pa.int32())
    return Evaluated(_numbers(values.cast(pa.int64()), np.int64), state)


def _flags(values: pa.Array) -> np.ndarray:
    if len(values) == 0:
        return np.empty(0, bool)
    return np.frombuffer(values.cast(pa.uint8()).buffers()[1], np.uint8, len(values)).astype(bool)


def _numbers(values: pa.Array, dtype: type) -> np.ndarray:
    """Values without copies or pandas; anything where they are null."""
    if len(values) == 0:
        return np.empty(0, dtype)
    size = np.dtype(dtype).itemsize
    found: Any = np.frombuffer(values.buffers()[1], dtype, len(values), values.offset * size)
    if values.null_count:
        found = np.where(_flags(pc.is_null(values)), dtype(0), found)
    return found


def _unscaled(values: pa.Array) -> np.ndarray:
    """Decimals as whole numbers, which fit into 64 bits: the lower half of what Arrow stores."""
    if len(values) == 0:
        return np.empty(0, np.int64)
    values = values.cast(pa.decimal128(values.type.precision, values.type.scale))
    halves = np.frombuffer(values.buffers()[1], np.int64, 2 * len(values), 16 * values.offset)
    return halves[::2].copy()


def _rankable(values: pa.Array, kind: Kind) -> pa.Array:
    if kind.family == "decimal":
        scale = kind.places
        return values.cast(pa.decimal256(WIDE_DIGITS, scale))
    return values.cast(pa.large_string() if kind.family == "text" else pa.large_binary())


def constant(value: Any, kind: Kind) -> Evaluated:
    """Return a constant as cells."""
    state = np.full(1, KNOWN, np.uint8)
    if kind.ranked:
        return Evaluated(pa.array([value], pa.large_string()), state)
    return Evaluated(np.array([value], np.float64 if kind.real else np.int64), state)


def units_in(kind: Kind, other: Kind) -> int:
    """How many units of a kind of timestamps, times or durations one unit of another kind has."""
    finest = 1_000 ** UNITS.index(kind.unit)
    if other.family == "date":
        return DAY * finest
    return finest // 1_000 ** UNITS.index(other.unit)


def to_wide(cells: Evaluated, mine: Kind, kind: Kind) -> Evaluated:
    """Convert numbers that are stored in 64 bits, or decimals, to decimals that are compared by rank."""
    values = cells.values
    if isinstance(values, np.ndarray):
        numbers = as_arrow(values).cast(pa.decimal128(38, 0))
        values = pa.Array.from_buffers(pa.decimal128(38, mine.places), len(numbers), numbers.buffers())
    return Evaluated(values.cast(pa.decimal256(WIDE_DIGITS, kind.places)), cells.state)
