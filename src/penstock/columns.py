"""Convert tables to arrays: pandas, Arrow or dicts of arrays; key columns of any type to dense codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.arrays import exact_floats
from penstock.errors import ColumnError, hint
from penstock.lazy import Lazy
from penstock.units import time_unit

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = Lazy("pandas")

Table = Any  # pandas DataFrame, Arrow table or record batch, mapping of column name to array

_NUMERIC = {"integer", "floating", "decimal", "mixed-integer-float"}


def column_names(table: Table) -> list[str]:
    """Return the columns of a table, or raise an error that says what a table can be.

    >>> from penstock.columns import column_names
    >>> column_names({"key": [1], "ts": [2]})
    ['key', 'ts']
    """
    if isinstance(table, pa.Table | pa.RecordBatch):  # first, for workers that have no use for pandas
        return list(table.schema.names)
    if isinstance(table, pd.DataFrame):
        return list(table.columns)
    if isinstance(table, Mapping):
        return list(table)
    raise ColumnError(
        "A stream is a pandas DataFrame, an Arrow table or a dict of arrays; "
        f"{type(table).__name__} was given."
    )


def row_count(table: Table) -> int:
    """Return the number of rows of a table.

    >>> from penstock.columns import row_count
    >>> row_count({"key": [1, 2]})
    2
    """
    if isinstance(table, pd.DataFrame):
        return len(table)
    if isinstance(table, pa.Table | pa.RecordBatch):
        return int(table.num_rows)
    for name, values in table.items():
        unsized = not hasattr(values, "__len__") or (isinstance(values, np.ndarray) and values.ndim == 0)
        if unsized or isinstance(values, str | bytes | Mapping):
            raise ColumnError(
                f"The column {name!r} is not an array but a {type(values).__name__}: {values!r}."
            )
    lengths = {str(name): len(values) for name, values in table.items()}
    if len(set(lengths.values())) > 1:
        raise ColumnError(f"The columns of a table must be equally long; their lengths are {lengths}.")
    return next(iter(lengths.values()), 0)


def column(table: Table, name: str, side: str) -> pd.Series:
    """Return a column as a pandas Series, or raise an error that names the existing ones."""
    names = column_names(table)
    if name not in names:
        raise ColumnError(f"The {side} stream has no column {name!r}{hint(name, names)}")
    if names.count(name) > 1:
        raise ColumnError(f"The column {name!r} of the {side} stream occurs more than once.")
    row_count(table)
    if isinstance(table, pa.Table | pa.RecordBatch):
        array = table.column(name)
        chunked = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
        if pa.types.is_dictionary(chunked.type):
            chunked = chunked.cast(chunked.type.value_type)
        return pd.Series(chunked.to_pandas(types_mapper=_keep_integers)).rename(name)
    values = table[name]
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return column(pa.table({name: values}), name, side)
    try:
        series = values if isinstance(values, pd.Series) else pd.Series(values, name=name)
    except (ValueError, TypeError, OverflowError) as error:
        raise ColumnError(f"The column {name!r} of the {side} stream cannot be read: {error}") from error
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(series.dtype.categories.dtype)
    return series.reset_index(drop=True).rename(name)


def _keep_integers(arrow_type: pa.DataType) -> Any:
    """Keep nullable integers as integers instead of floats."""
    return pd.ArrowDtype(arrow_type) if pa.types.is_integer(arrow_type) else None


@dataclass(frozen=True)
class Times:
    """Time columns of two or more streams in one dtype (int64 or float64) and unit."""

    arrays: tuple[np.ndarray, ...]
    unit: str
    stamped: bool = False  # they are timestamps, so their unit is certain


def times_of(columns: Sequence[pd.Series], sides: Sequence[str], unit: str = "ms") -> Times:
    """Return time columns on one scale: timestamps keep their finest unit, numbers are in `unit`."""
    unit = time_unit(unit)
    stamps = [_stamp_unit(series) for series in columns]
    _refuse_texts(columns, sides)
    for series, side in zip(columns, sides, strict=True):
        _check_time(series, side)
    if any(stamps) and not all(stamps):
        kinds = ", ".join(f"{side}: {series.dtype}" for series, side in zip(columns, sides, strict=True))
        raise ColumnError(
            f"Time columns must be of one kind ({kinds}); convert numbers to timestamps or the reverse."
        )
    if len({_is_aware(series) for series in columns if len(series)}) > 1 and all(stamps):
        raise ColumnError("Either all time columns must have a time zone or none; localize the others.")
    if all(stamps) and stamps:
        finest = min((stamp for stamp in stamps if stamp), key=["ns", "us", "ms", "s"].index)
        return Times(tuple(_in_unit(series, finest) for series in columns), finest, stamped=True)
    kinds_of = [np.issubdtype(_plain(series).dtype, np.floating) for series in columns]
    if any(kinds_of):
        floats = (exact_floats(_plain(series), f"The time column {series.name!r}") for series in columns)
        return Times(tuple(floats), unit)
    return Times(tuple(_plain(series).astype(np.int64) for series in columns), unit)


def _stamp_unit(series: pd.Series) -> str | None:
    """Return the unit of a timestamp column, None if it is numeric."""
    dtype = series.dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        return str(dtype.unit)
    if isinstance(dtype, np.dtype) and dtype.kind == "M":
        return str(np.datetime_data(np.dtype(dtype.str))[0])
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_timestamp(dtype.pyarrow_dtype):
        return str(dtype.pyarrow_dtype.unit)
    if dtype.kind == "O" and pd.api.types.infer_dtype(series, skipna=True) in ("date", "datetime"):
        return "us"
    return None


def _is_aware(series: pd.Series) -> bool:
    """Whether timestamps have a time zone."""
    dtype = series.dtype
    if isinstance(dtype, pd.ArrowDtype):
        return getattr(dtype.pyarrow_dtype, "tz", None) is not None
    return isinstance(dtype, pd.DatetimeTZDtype)


def _in_unit(series: pd.Series, unit: str) -> np.ndarray:
    """Return timestamps as whole numbers of a unit."""
    stamps = _naive(series).to_numpy()
    converted = stamps.astype(f"datetime64[{unit}]")
    if not (converted.astype(stamps.dtype) == stamps).all():
        raise ColumnError(
            f"The time column {series.name!r} does not fit the unit {unit!r} of the other one; "
            "convert both to a coarser unit."
        )
    return converted.astype(np.int64)


def _naive(series: pd.Series) -> pd.Series:
    if series.dtype == object or isinstance(series.dtype, pd.ArrowDtype):
        try:
            series = pd.to_datetime(series, utc=True)
        except (ValueError, OverflowError) as error:
            raise ColumnError(
                f"The timestamps of the column {series.name!r} cannot be read: {error}"
            ) from error
    if isinstance(series.dtype, pd.DatetimeTZDtype):
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    return series


def _plain(series: pd.Series) -> np.ndarray:
    """Return a numeric column as a NumPy array."""
    values = series.to_numpy()
    if values.dtype == object or values.dtype.kind not in "iuf":
        values = series.astype("float64" if series.dtype.kind == "f" else "int64").to_numpy()
    if values.dtype.kind == "f" and values.dtype != np.float64:
        return values.astype(np.float64)
    return values


def _refuse_texts(columns: Sequence[pd.Series], sides: Sequence[str]) -> None:
    """Refuse time columns of text, all of them in one message."""
    texts = [
        (series, side)
        for series, side in zip(columns, sides, strict=True)
        if pd.api.types.infer_dtype(series, skipna=True) == "string"
    ]
    if not texts:
        return
    first = texts[0][0].dropna().iloc[0]
    if len(texts) == 1:
        (series, side), what = texts[0], "it"
        found = f"The time column {series.name!r} of the {side} stream is text"
    else:
        what = "both" if len(texts) == 2 else "all of them"
        named = " and ".join(f"{series.name!r} of the {side} stream" for series, side in texts)
        found = f"The time columns are text: {named}"
    raise ColumnError(
        f"{found}, such as {first!r}; cast {what} to timestamps with pandas.to_datetime, or to numbers."
    )


def _check_time(series: pd.Series, side: str) -> None:
    name = series.name
    if series.isna().any():
        where = int(np.flatnonzero(series.isna().to_numpy())[0])
        raise ColumnError(
            f"The time column {name!r} of the {side} stream has missing values (NaN or null), the first in "
            f"row {where}; drop those rows or fill them in."
        )
    if _stamp_unit(series) is not None or len(series) == 0:
        return
    numeric = pd.api.types.is_any_real_numeric_dtype(series.dtype)
    if not numeric:
        raise ColumnError(
            f"The time column {name!r} of the {side} stream is of type {series.dtype}; allowed are integers, "
            "floats and timestamps (parse texts with pandas.to_datetime)."
        )
    values = series.to_numpy()
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ColumnError(f"The time column {name!r} of the {side} stream has infinite values.")
    if values.dtype.kind == "u" and len(values) and values.max() > np.iinfo(np.int64).max:
        raise ColumnError(f"The time column {name!r} of the {side} stream exceeds 63 bits.")


def codes_of(columns: Sequence[Sequence[pd.Series]], sides: Sequence[str]) -> tuple[list[np.ndarray], int]:
    """Return dense codes for the keys of several streams: equal for equal keys, -1 if any part is null.

    `columns` has the list of key columns of each stream, in the same order.
    """
    lengths = [len(parts[0]) for parts in columns]
    combined: np.ndarray | None = None
    size = 1
    for part in range(len(columns[0])):
        series = [parts[part] for parts in columns]
        _check_kinds(series, sides)
        codes, distinct = _factorize(series)
        if combined is None:
            combined, size = codes, distinct
        else:
            null = (combined < 0) | (codes < 0)
            mixed = np.where(null, -1, combined * np.int64(max(distinct, 1)) + codes)
            uniques, inverse = np.unique(mixed, return_inverse=True)
            shift = int(len(uniques) > 0 and uniques[0] == -1)
            combined, size = inverse.astype(np.int64) - shift, len(uniques) - shift
    assert combined is not None
    return list(np.split(combined, np.cumsum(lengths)[:-1])), size


def labels_of(columns: Sequence[Sequence[pd.Series]], codes: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Return the key of each code of `codes_of`, as numbers or objects; composite keys without parts."""
    if len(columns[0]) != 1:
        return np.full(count, None, object)
    parts = [_values(series) for (series,) in columns]
    kinds = {part.dtype.kind for part in parts if len(part)}
    labels = np.zeros(count, np.result_type(*parts) if len(kinds) == 1 and kinds <= {"i", "f"} else object)
    for part, code in zip(parts, codes, strict=True):
        labels[code[code >= 0]] = part[code >= 0]
    if labels.dtype == object and pd.api.types.infer_dtype(labels, skipna=False) in _NUMERIC:
        return labels.astype(np.float64)
    return labels


def places_of(
    columns: Sequence[Sequence[pd.Series]], codes: Sequence[np.ndarray], count: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the line and the position on it of each code of `codes_of`; None if no key part is a number.

    If several parts are numbers, the last one is the position; the other parts make up the line.

    >>> import pandas as pd
    >>> from penstock.columns import codes_of, places_of
    >>> keys = [[pd.Series(["a", "b", "a"]), pd.Series([1.5, 1.5, 2.0])]]
    >>> codes, count = codes_of(keys, ["left"])
    >>> [part.tolist() for part in places_of(keys, codes, count)]
    [[0, 0, 1], [1.5, 2.0, 1.5]]
    """
    numeric = [
        all(pd.api.types.is_any_real_numeric_dtype(parts[part].dtype) for parts in columns)
        for part in range(len(columns[0]))
    ]
    if not any(numeric):
        return None
    place = len(numeric) - 1 - numeric[::-1].index(True)
    rest = [[one for i, one in enumerate(parts) if i != place] for parts in columns]
    lines = [np.zeros(len(code), np.int64) for code in codes]
    if rest[0]:
        lines, _ = codes_of(rest, [""] * len(rest))
    line, value = np.zeros(count, np.int64), np.full(count, np.nan)
    for parts, code, mine in zip(columns, codes, lines, strict=True):
        known = code >= 0
        line[code[known]] = mine[known]
        value[code[known]] = parts[place].to_numpy(np.float64, na_value=np.nan)[known]
    return line, value


def _factorize(series: list[pd.Series]) -> tuple[np.ndarray, int]:
    """Return codes over the concatenation of several columns, -1 for null."""
    parts = [_values(s) for s in series if len(s)] or [np.empty(0, np.int64)]
    kinds = {part.dtype.kind for part in parts}
    if len(kinds) > 1:
        # Integers beyond 2**53 and floats, or signed and unsigned: Python compares them exactly.
        parts = [part.astype(object) for part in parts]
    joined = np.concatenate(parts)
    try:
        if joined.dtype == object and pd.api.types.infer_dtype(joined, skipna=True) == "string":
            codes, texts = text_codes(joined)
            return codes, len(texts)
        codes, uniques = pd.factorize(joined)
    except UnicodeEncodeError as error:
        raise ColumnError(
            f"The key column {series[0].name!r} holds a text that is not valid Unicode (half of a surrogate "
            "pair); clean such texts first, for example with text.encode('utf-8', 'replace').decode()."
        ) from error
    except TypeError as error:
        raise ColumnError(
            f"The key column {series[0].name!r} holds values that cannot be hashed ({error}); "
            "use a column of numbers, texts, timestamps or tuples."
        ) from error
    return codes.astype(np.int64), len(uniques)


def text_codes(texts: np.ndarray | pd.Series) -> tuple[np.ndarray, pa.Array]:
    """Return codes of texts, -1 for null, and the texts.

    Uses Arrow, because pandas would cut texts at their first NUL.
    """
    encoded = pa.array(texts, pa.large_string(), from_pandas=True).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), encoded.dictionary


def _values(series: pd.Series) -> np.ndarray:
    """Return a key column as an array: of a plain type if it has one and no nulls, else of objects."""
    if isinstance(series.dtype, pd.DatetimeTZDtype):
        series = _naive(series)
    if isinstance(series.dtype, np.dtype):
        values = series.to_numpy()
        if values.dtype.kind == "u" and (len(values) == 0 or values.max() < 2**63):
            return values.astype(np.int64)
        return values.astype(np.int64) if values.dtype.kind == "i" else values
    if pd.api.types.is_integer_dtype(series.dtype) and not series.isna().any():
        return _values(pd.Series(series.to_numpy(dtype="uint64" if "uint" in str(series.dtype) else "int64")))
    values = series.astype(object).to_numpy(dtype=object, copy=True)
    values[series.isna().to_numpy()] = None
    return values


def _kind(series: pd.Series) -> str:
    """Describe the kind of values of a key column."""
    kind = pd.api.types.infer_dtype(series, skipna=True)
    if _is_aware(series):
        return "datetime with time zone"
    return {"datetime64": "datetime", "date": "datetime", "bytes": "binary"}.get(kind, kind)


def _check_kinds(series: list[pd.Series], sides: Sequence[str]) -> None:
    kinds = [_kind(s) if len(s) and not s.isna().all() else None for s in series]
    known = {kind for kind in kinds if kind is not None}
    if len(known) > 1 and not known <= _NUMERIC and "mixed" not in known and "mixed-integer" not in known:
        found = ", ".join(
            f"{side} {s.name!r}: {kind or 'empty'}"
            for side, s, kind in zip(sides, series, kinds, strict=True)
        )
        raise ColumnError(
            f"Key columns of mismatched types never match ({found}); cast one to the other's type."
        )
