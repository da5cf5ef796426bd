"""Convert streams of timed triples: columns to numbers of terms, and times to one scale."""

from __future__ import annotations

import datetime
import decimal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from penstock.arguments import one_of
from penstock.columns import Table, column, column_names, times_of
from penstock.errors import ColumnError, TermError, hint
from penstock.linked.terms import Term, Terms, from_native, parse_term, string
from penstock.units import duration

LONG_NAMES = {"s": "subject", "p": "predicate", "o": "object"}
OBJECTS = ("literal", "iri")
_COARSER = {"ns": "us", "us": "ms"}
LARGEST = 2.0**53  # largest whole number that floats represent exactly


@dataclass(frozen=True)
class Scale:
    """The scale of times: their unit, and whether they are timestamps, with or without a zone."""

    unit: str = "ms"
    stamps: bool = False
    aware: bool = False
    whole: bool = True
    given: str = ""  # the unit of the columns as they came, where timestamps are counted in another

    @property
    def bare(self) -> str:
        """The unit of a bare number in an expression with times: that of the columns, as for joins."""
        return self.given or self.unit

    @property
    def named(self) -> str:
        """What they are, in words.

        >>> from penstock.linked.triples import Scale
        >>> Scale().named, Scale("us", stamps=True).named
        ('numbers of ms', 'timestamps without a time zone')
        """
        if not self.stamps:
            return f"numbers of {self.unit}"
        return f"timestamps with{'' if self.aware else 'out'} a time zone"

    def restored(self, times: np.ndarray) -> pa.Array:
        """Convert times back to whole numbers, floats or timestamps; null if infinite.

        >>> import numpy as np
        >>> from penstock.linked.triples import Scale
        >>> Scale().restored(np.array([1.0, np.inf])).to_pylist()
        [1, None]
        """
        open_ = ~np.isfinite(times)
        if not self.whole:
            return pa.array(times, mask=open_)
        numbers = pa.array(np.where(open_, 0, times).astype(np.int64), mask=open_)
        if not self.stamps:
            return numbers
        return numbers.cast(pa.timestamp(self.unit, "UTC" if self.aware else None))


@dataclass(frozen=True)
class Triples:
    """Timed triples in processing order, with terms as numbers.

    An event ends when it starts, a fact later; an open one has no end yet (infinite). A row that closes an
    open fact has its time as start and end, and `closes` set. Background triples have no time and come first.
    """

    terms: np.ndarray  # n x 3
    start: np.ndarray
    end: np.ndarray
    stream: np.ndarray  # which of the streams, -1: background
    row: np.ndarray  # the number of the row in its stream
    closes: np.ndarray
    scale: Scale

    def __len__(self) -> int:
        return len(self.start)

    @classmethod
    def none(cls, scale: Scale) -> Triples:
        """Return an empty set of triples."""
        times, numbers = np.empty(0), np.empty(0, np.int64)
        return cls(np.empty((0, 3), np.int64), times, times, numbers, numbers, np.empty(0, bool), scale)

    def take(self, which: np.ndarray) -> Triples:
        """Some of them.

        >>> import numpy as np
        >>> from penstock.linked.terms import Terms
        >>> from penstock.linked.triples import triples_of
        >>> table = {"s": ["a", "b"], "p": ["r", "r"], "o": [1, 2], "start": [5, 6]}
        >>> triples_of({"w": table}, ["w"], Terms()).take(np.array([1])).row.tolist()
        [1]
        """
        return Triples(
            self.terms[which],
            self.start[which],
            self.end[which],
            self.stream[which],
            self.row[which],
            self.closes[which],
            self.scale,
        )


def triples_of(
    streams: Mapping[str, Table],
    names: Sequence[str],
    terms: Terms,
    *,
    unit: str = "ms",
    objects: str = "literal",
    background: Sequence[Table] = (),
    scale: Scale | None = None,
    stamp_unit: str | None = None,
) -> Triples:
    """Return the triples of the named streams in the order (start, stream, row), after the background ones.

    >>> from penstock.linked.terms import Terms
    >>> from penstock.linked.triples import triples_of
    >>> table = {"s": ["a", "b"], "p": ["r", "r"], "o": [1, 2], "start": [6, 5]}
    >>> triples_of({"w": table}, ["w"], Terms()).start.tolist()
    [5.0, 6.0]
    """
    one_of("object", objects, OBJECTS, ColumnError)
    if not isinstance(streams, Mapping):
        raise ColumnError(f"streams takes a dict of name to table; {type(streams).__name__} was given.")
    for name in names:
        if name not in streams:
            known = hint(name, streams) if streams else "."
            raise ColumnError(f"The query reads the stream {name!r}, which was not given{known}")
    parts = [_coded(streams[name], name, terms, objects) for name in names]
    still = [_coded(table, "background", terms, objects) for table in background]
    starts, ends, closing, found = _times([streams[name] for name in names], names, unit, stamp_unit)
    sizes = [len(part) for part in parts]
    if scale is not None and not any(sizes):
        found = scale
    if scale is not None and (scale.unit, scale.stamps, scale.aware) != (
        found.unit,
        found.stamps,
        found.aware,
    ):
        raise ColumnError(
            f"Times changed from {scale.named} to {found.named}; all batches of a stream need the same kind."
        )
    calm = sum(len(part) for part in still)
    everything = np.concatenate([*still, *parts]) if parts or still else np.empty((0, 3), np.int64)
    start = np.concatenate([np.full(calm, -np.inf), *starts])
    stream = np.concatenate([np.full(calm, -1), np.repeat(np.arange(len(names)), sizes)]).astype(np.int64)
    triples = Triples(
        everything,
        start,
        np.concatenate([np.full(calm, np.inf), *ends]),
        stream,
        np.concatenate([np.arange(calm), *(np.arange(size) for size in sizes)]).astype(np.int64),
        np.concatenate([np.zeros(calm, bool), *closing]),
        found,
    )
    if len(start) > 1 and (start[1:] < start[:-1]).any():
        return triples.take(np.argsort(start, kind="stable"))
    return triples


def _named(table: Table, short: str, stream: str) -> str:
    """The name of a column, which may be written out."""
    names = column_names(table)
    for name in (short, LONG_NAMES[short]):
        if name in names:
            return name
    raise ColumnError(
        f"The stream {stream!r} has no column {short!r}; a stream of triples has s, p, o, start and, for "
        f"facts, end. It has: {', '.join(map(str, names))}"
    )


def _coded(table: Table, stream: str, terms: Terms, objects: str) -> np.ndarray:
    """The numbers of the terms of a table."""
    resources = [_arrow(table, _named(table, short, stream), stream) for short in "sp"]
    coded = [_resources(array, stream, short, terms) for array, short in zip(resources, "sp", strict=True)]
    coded.append(_objects(_arrow(table, _named(table, "o", stream), stream), stream, terms, objects))
    return np.stack(coded, axis=1)


def _arrow(table: Table, name: str, stream: str) -> pa.Array:
    """A column as one Arrow array, or as it is if it holds values of several kinds."""
    if isinstance(table, pa.Table | pa.RecordBatch):
        array = table.column(name)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    series = column(table, name, stream)
    if series.dtype == object and pd.api.types.infer_dtype(series, skipna=True) in ("mixed", "mixed-integer"):
        return series.tolist()  # Arrow would make numbers of truth values among floats
    try:
        return pa.array(series, from_pandas=series.dtype.kind != "f")
    except UnicodeEncodeError as error:
        raise ColumnError(
            f"The column {name!r} of the stream {stream!r} has an invalid text: {error}."
        ) from error
    except (pa.ArrowException, TypeError, OverflowError):
        return series.tolist()


def _refuse_nulls(array: Any, stream: str, name: str) -> None:
    empty = array.null_count if isinstance(array, pa.Array) else sum(map(_is_null, array))
    if empty:
        where = next(i for i, value in enumerate(array) if _is_null(value))
        raise ColumnError(
            f"The column {name!r} of the stream {stream!r} is null in row {where}; drop such rows."
        )


def _is_null(value: Any) -> bool:
    return value is None or value is pd.NaT or value is pd.NA or not getattr(value, "is_valid", True)


def _resources(array: Any, stream: str, name: str, terms: Terms) -> np.ndarray:
    """Subjects or predicates: texts are IRIs, brackets optional, `_:x` a blank node."""
    _refuse_nulls(array, stream, name)
    if not len(array):
        return np.empty(0, np.int64)
    if isinstance(array, pa.Array) and pa.types.is_integer(array.type):
        array = array.cast(pa.string())
    if not isinstance(array, pa.Array) or not _is_text(array.type):
        raise ColumnError(
            f"The column {name!r} of the stream {stream!r} must hold IRIs as texts; it is "
            f"{getattr(array, 'type', 'of mixed types')}."
        )
    indices, texts = _distinct(array)
    plain = [text[1:-1] if text[:1] == "<" and text[-1:] == ">" else text for text in texts]
    special = [i for i, text in enumerate(plain) if text[:2] == "_:" or "\\" in text or not text]
    for i in special:
        if not plain[i] or plain[i] == "_:":
            raise TermError(f"{texts[i]!r} in the column {name!r} of the stream {stream!r} is not an IRI.")
    numbers = terms.add_iris(plain)
    for i in special:
        if plain[i][:2] == "_:":
            numbers[i] = terms.add(Term("blank", plain[i][2:]))
        elif texts[i][:1] == "<":
            numbers[i] = terms.add(parse_term(texts[i]))
    return numbers[indices]


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or kind == pa.string_view()
        or pa.types.is_null(kind)
    )


def _distinct(array: pa.Array) -> tuple[np.ndarray, list[str]]:
    """The distinct texts of a column, and which of them each row has."""
    if pa.types.is_null(array.type):
        return np.empty(0, np.int64), []
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()


def _objects(array: Any, stream: str, terms: Terms, objects: str) -> np.ndarray:
    """Objects: numbers, truth values and timestamps are literals, texts terms or strings."""
    if not len(array):
        return np.empty(0, np.int64)
    _refuse_nulls(array, stream, "o")
    if not isinstance(array, pa.Array):
        return np.array([_mixed(value, terms, objects) for value in array], np.int64)
    kind = array.type
    if _is_text(kind):
        indices, texts = _distinct(array)
        return np.array([_text(text, terms, objects) for text in texts], np.int64)[indices]
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        codes, values = pd.factorize(array.to_numpy(zero_copy_only=False), use_na_sentinel=False)
        return np.array([terms.add_native(value) for value in values.tolist()], np.int64)[codes]
    if pa.types.is_boolean(kind):
        pair = np.array([terms.add(from_native(truth)) for truth in (False, True)])
        return pair[array.to_numpy(zero_copy_only=False).astype(np.int64)]
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        stamps = array.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
        codes, values = pd.factorize(stamps.cast(pa.int64()).to_numpy(zero_copy_only=False))
        numbers = [
            terms.add(from_native(_stamp(value, getattr(kind, "tz", None)))) for value in values.tolist()
        ]
        return np.array(numbers, np.int64)[codes]
    if pa.types.is_decimal(kind):
        return np.array([terms.add(from_native(value)) for value in array.to_pylist()], np.int64)
    raise ColumnError(
        f"The column 'o' of the stream {stream!r} is {kind}; allowed are texts, numbers, booleans "
        "and timestamps."
    )


def _stamp(micro: int, zone: str | None) -> datetime.datetime:
    zoned = datetime.UTC if zone is not None else None
    return datetime.datetime(1970, 1, 1, tzinfo=zoned) + datetime.timedelta(microseconds=micro)


def _text(text: str, terms: Terms, objects: str) -> int:
    """A text as an object: a term if it is written as one."""
    if text[:1] in ("<", '"') or text[:2] == "_:":
        try:
            return terms.add(parse_term(text))
        except TermError:
            pass
    return terms.add(Term("iri", text) if objects == "iri" else string(text))


def _mixed(value: Any, terms: Terms, objects: str) -> int:
    if isinstance(value, str):
        return _text(value, terms, objects)
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise TermError(f"A whole number in the column 'o' has {value.bit_length()} bits, which is too many.")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return terms.add_native(value)
    if isinstance(value, bool | np.bool_ | np.number | decimal.Decimal | datetime.datetime):
        return terms.add(from_native(value))
    raise TermError(f"{value!r} ({type(value).__name__}) in the column 'o' is not an RDF term.")


def _times(
    tables: Sequence[Table], names: Sequence[str], unit: str, stamp_unit: str | None
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray], Scale]:
    """Starts, ends and which rows close a fact, of each stream, on one scale."""
    columns: list[pd.Series] = []
    empty: list[np.ndarray] = []
    owners: list[str] = []
    for table, name in zip(tables, names, strict=True):
        start = column(table, "start", name)
        end = column(table, "end", name) if "end" in column_names(table) else start
        unset, open_ = start.isna().to_numpy(), end.isna().to_numpy()
        if unset.any():
            if (unset & open_).any():
                where = int(np.flatnonzero(unset & open_)[0])
                raise ColumnError(f"Row {where} of the stream {name!r} has neither start nor end.")
            start = start.where(~unset, end)
        if open_.any():
            end = end.where(~open_, start)
        if unset.any() or open_.any():
            start, end = (part.infer_objects() if part.dtype == object else part for part in (start, end))
        columns += [start, end] if end is not start else [start]
        owners += [name, name] if end is not start else [name]
        empty += [unset, open_, np.array([end is not start])]
    filled = next((series for series in columns if len(series)), None)
    if filled is not None:  # a column without rows is of whatever kind the others are
        columns = [series if len(series) else filled.iloc[:0].rename(str(series.name)) for series in columns]
    times = times_of(columns, owners, unit)
    arrays, scale = _coarse(list(times.arrays), times.unit, columns, stamp_unit)
    starts, ends, closing = [], [], []
    for i, name in enumerate(names):
        unset, open_, has_end = empty[3 * i : 3 * i + 3]
        begin = _as_floats(arrays.pop(0), name)
        finish = _as_floats(arrays.pop(0), name) if has_end[0] else begin
        late = np.flatnonzero(finish < begin)
        if len(late):
            raise ColumnError(f"Row {int(late[0])} of the stream {name!r} ends before it starts.")
        starts.append(begin)
        ends.append(np.where(open_, np.inf, finish) if open_.any() else finish)
        closing.append(unset)
    return starts, ends, closing, scale


def _coarse(
    arrays: list[np.ndarray], unit: str, columns: Sequence[pd.Series], wanted: str | None
) -> tuple[list[np.ndarray], Scale]:
    """Timestamps in a wanted unit, or in the coarsest down to milliseconds that holds them all.

    Floats are exact to 2^53, which is 1970 +- 285 years in microseconds.
    """
    stamps = any(
        series.dtype.kind == "M"
        or "timestamp" in str(series.dtype)
        or (series.dtype == object and len(series))
        for series in columns
    )
    if not stamps:
        whole = all(array.dtype.kind == "i" for array in arrays)
        return arrays, Scale(unit, whole=whole)
    if wanted is not None:
        factor = duration(f"1 {unit}", wanted)
        return [_rescaled(array, factor) for array in arrays], Scale(
            wanted, stamps=True, aware=_aware(columns), given=unit
        )
    given = unit
    while unit in _COARSER and all((array % 1000 == 0).all() for array in arrays):
        arrays, unit = [array // 1000 for array in arrays], _COARSER[unit]
    return arrays, Scale(unit, stamps=True, aware=_aware(columns), given=given)


def _as_floats(times: np.ndarray, stream: str) -> np.ndarray:
    floats = times.astype(np.float64)
    if times.dtype.kind == "i" and (np.abs(floats) >= LARGEST).any():
        lost = np.flatnonzero(floats.astype(np.int64) != times)
        if len(lost):
            raise ColumnError(
                f"The time {times[lost[0]]} in row {int(lost[0])} of the stream {stream!r} is beyond 2^53 "
                "and would be rounded; give times in a coarser unit, timestamps in microseconds at most."
            )
    return floats


def _rescaled(array: np.ndarray, factor: float) -> np.ndarray:
    if factor >= 1:
        return array * int(factor)
    whole, rest = np.divmod(array, round(1 / factor))  # nanoseconds are beyond what floats hold exactly
    return whole + rest * factor if rest.any() else whole


def _aware(columns: Sequence[pd.Series]) -> bool:
    return any(isinstance(s.dtype, pd.DatetimeTZDtype) or "tz=" in str(s.dtype) for s in columns)
