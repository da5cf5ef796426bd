"""Attribute columns as arrays of one kind, and the codes by which kernels compare them.

The kinds are numbers, texts, booleans and timestamps; a predicate compares values of one kind. Kernels see
dense whole numbers: columns that a predicate compares share one numbering, in the order of the values. -1 is
null, for which every comparison is false.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from penstock.errors import ColumnError
from penstock.patterns.compile.analysis import Predicate, PredicateSide
from penstock.patterns.language.nodes import ConstantValue

NOTHING = "null"
_KINDS = {
    "string": "text",
    "integer": "number",
    "floating": "number",
    "mixed-integer-float": "number",
    "decimal": "number",
    "boolean": "truth value",
    "datetime64": "timestamp",
    "datetime": "timestamp",
    "date": "timestamp",
    "empty": NOTHING,
}
_EXACT = 2**53  # whole numbers up to here are exact as floats


@dataclass(frozen=True)
class Values:
    """One column: its kind, its values, and where they are missing."""

    kind: str
    data: np.ndarray
    null: np.ndarray

    def __len__(self) -> int:
        return len(self.data)

    def take(self, rows: np.ndarray) -> Values:
        """These rows."""
        return Values(self.kind, self.data[rows], self.null[rows])

    def tolist(self) -> list[Any]:
        """Python values, None where they are missing."""
        values = self.data.tolist()
        if self.null.any():
            for i in np.flatnonzero(self.null).tolist():
                values[i] = None
        return values


def values_of(series: pd.Series) -> Values:
    """Convert a column to the form in which it is compared, or raise an error that says what it holds.

    >>> import pandas as pd
    >>> from penstock.patterns.compile.values import values_of
    >>> values_of(pd.Series(["a", None])).tolist()
    ['a', None]
    """
    null = series.isna().to_numpy()
    if null.all():
        return Values(NOTHING, np.zeros(len(series), np.int64), null)
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "iuf":
        return Values("number", _numbers(series.to_numpy()), null)
    kind = _KINDS.get(pd.api.types.infer_dtype(series, skipna=True))
    if isinstance(dtype, pd.ArrowDtype | pd.DatetimeTZDtype) and dtype.kind == "M":
        kind = "timestamp"
    if kind is None:
        raise ColumnError(
            f"The attribute {series.name!r} holds values that cannot be compared "
            f"({pd.api.types.infer_dtype(series, skipna=True)}); allowed are numbers, texts, booleans "
            "and timestamps, one kind per column."
        )
    if kind == "text":
        data = series.astype(object).to_numpy(dtype=object, copy=True)
        data[null] = ""
        return Values(kind, data, null)
    if kind == "timestamp":
        return Values(kind, _stamps(series), null)
    data = series.to_numpy(dtype=object, copy=True)
    data[null] = data[~null][0]
    if kind == "truth value":
        return Values(kind, data.astype(bool).astype(np.int64), null)
    whole = dtype.kind in "iu" or pd.api.types.infer_dtype(data, skipna=False) == "integer"
    if whole:
        try:
            return Values(kind, data.astype(np.int64), null)
        except OverflowError:
            return Values(kind, data, null)
    return Values(kind, data.astype(np.float64), null)


def _numbers(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "u" and len(values) and values.max() >= 2**63:
        return values.astype(object)
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64)


def _stamps(series: pd.Series) -> np.ndarray:
    """Nanoseconds since 1970, UTC where no zone is given."""
    try:
        stamps = pd.to_datetime(series, utc=True)
        return stamps.astype("datetime64[ns, UTC]").astype("int64").to_numpy()
    except (ValueError, OverflowError) as error:
        raise ColumnError(f"The timestamps of {series.name!r} cannot be compared: {error}") from error


def joined(parts: Sequence[Values], name: str) -> Values:
    """Several pieces of one column, one after the other."""
    kinds = {part.kind for part in parts if part.kind != NOTHING}
    if len(kinds) > 1:
        raise ColumnError(f"The attribute {name!r} was a {sorted(kinds)[0]} and is now a {sorted(kinds)[1]}.")
    kind = kinds.pop() if kinds else NOTHING
    null = np.concatenate([part.null for part in parts])
    pieces = [
        part.data if part.kind == kind else np.full(len(part), "" if kind == "text" else 0, object)
        for part in parts
    ]
    return Values(kind, _together(pieces), null)


def _together(pieces: list[np.ndarray]) -> np.ndarray:
    """One array; whole numbers and fractions meet in floats only if nothing is lost."""
    pieces = [piece for piece in pieces if len(piece)] or pieces[:1]
    kinds = {piece.dtype.kind for piece in pieces}
    if "O" in kinds and not all(isinstance(v, str) for p in pieces if p.dtype == object for v in p[:1]):
        typed = [piece for piece in pieces if piece.dtype != object]
        blank = [piece for piece in pieces if piece.dtype == object and not any(piece)]
        if typed and len(typed) + len(blank) == len(pieces):
            kind = np.float64 if any(piece.dtype.kind == "f" for piece in typed) else np.int64
            return np.concatenate([piece.astype(kind) for piece in pieces])
    if kinds == {"i", "f"} and any(
        piece.dtype.kind == "i" and len(piece) and max(-int(piece.min()), int(piece.max())) > _EXACT
        for piece in pieces
    ):
        return np.concatenate([piece.astype(object) for piece in pieces])
    return np.concatenate(pieces)


def constant(const: ConstantValue, kind: str, text: str) -> Any:
    """Convert a constant to the kind of the column it is compared with, or raise an error."""
    value = const.value
    plain: Any = value
    if isinstance(value, bool):
        mine, plain = "truth value", int(value)
    elif isinstance(value, int | float):
        mine = "number"
    elif isinstance(value, datetime.datetime):
        mine, plain = "timestamp", _stamp(value, text)
    else:
        mine = "text"
        if kind == "timestamp":
            try:
                stamp = datetime.datetime.fromisoformat(value)
            except ValueError as error:
                raise ColumnError(f"{text}: {value!r} is not a timestamp ({error}).") from error
            return _stamp(stamp, text)
    if kind not in (mine, NOTHING):
        raise ColumnError(
            f"{text} compares a {kind} with a {mine}, which is not possible; cast the column or "
            "change the constant."
        )
    return plain


def _stamp(value: datetime.datetime, text: str) -> int:
    zoned = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
    try:
        return int(pd.Timestamp(zoned).as_unit("ns").value)
    except (ValueError, OverflowError) as error:
        raise ColumnError(f"{text}: the timestamp is out of range ({error}).") from error


def check_kinds(predicates: Sequence[Predicate], columns: Mapping[str, str]) -> None:
    """Reject predicates that compare columns of different kinds."""
    for predicate in predicates:
        kinds = {columns[side.attr] for side in predicate.sides} - {NOTHING}
        if len(kinds) > 1:
            first, second = sorted(kinds)
            raise ColumnError(
                f"{predicate.text} compares a {first} with a {second}, which is not possible; cast "
                "one of the columns."
            )
        for side in (predicate.left, predicate.right):
            if isinstance(side, ConstantValue):
                constant(side, next(iter(kinds), NOTHING), predicate.text)


@dataclass(frozen=True)
class Codes:
    """Columns as codes, and the code of each constant by predicate."""

    columns: dict[str, np.ndarray]
    constants: dict[Predicate, int]


def codes_of(
    predicates: Sequence[Predicate],
    columns: dict[str, Values],
    get: Callable[[Any, Callable[[], Any]], Any] = lambda name, make: make(),
) -> Codes:
    """Number the values of columns that are compared with each other together, in their order.

    `get` is asked for what other patterns may have numbered already.
    """
    check_kinds(predicates, {name: values.kind for name, values in columns.items()})
    groups = {name: {name} for name in columns}
    for predicate in predicates:
        names = [side.attr for side in predicate.sides]
        if any(columns[name].kind == NOTHING for name in names):
            continue  # nothing compares with it, and it ties no others together
        merged = groups[names[0]] | groups[names[-1]]
        for name in merged:
            groups[name] = merged
    coded: dict[str, np.ndarray] = {}
    constants: dict[Predicate, int] = {}
    for name in columns:
        if name in coded:
            continue
        members = sorted(groups[name])
        mine = [p for p in predicates if any(side.attr in groups[name] for side in p.sides)]
        kind = columns[name].kind
        fixed = [
            (predicate, constant(side, kind, predicate.text))
            for predicate in mine
            for side in (predicate.left, predicate.right)
            if isinstance(side, ConstantValue)
        ]
        ordered = any(predicate.op not in ("=", "!=") for predicate in mine)
        values = [value for _, value in fixed]
        known = ("codes", *members, ordered, *((type(value).__name__, value) for value in values))
        found, numbers = get(known, partial(_numbered, members, kind, values, ordered, columns))
        coded |= found
        constants |= {predicate: number for (predicate, _), number in zip(fixed, numbers, strict=True)}
    return Codes(coded, constants)


def _numbered(
    members: list[str], kind: str, fixed: list[Any], ordered: bool, columns: dict[str, Values]
) -> tuple[dict[str, np.ndarray], list[int]]:
    """The codes of columns of one kind, and of the constants that they are compared with."""
    pieces = [columns[name].data for name in members if kind != NOTHING]
    extra = np.empty(len(fixed), object)
    extra[:] = fixed
    if kind != "text" and kind != NOTHING and all(piece.dtype != object for piece in pieces):
        whole = all(isinstance(value, int) and abs(value) < 2**63 for value in extra)
        small = all(isinstance(value, float) or abs(value) <= _EXACT for value in extra)
        if whole or small:
            extra = extra.astype(np.int64 if whole else np.float64)
    together = _together([*pieces, extra]) if pieces else extra
    codes = _ranked(together, ordered)
    coded: dict[str, np.ndarray] = {}
    at = 0
    for name in members:
        column = columns[name]
        if kind == NOTHING:
            coded[name] = np.full(len(column), -1, np.int64)
            continue
        mine = codes[at : at + len(column)]
        coded[name] = np.where(column.null, -1, mine) if column.null.any() else mine
        at += len(column)
    return coded, codes[at:].tolist()


def _ranked(values: np.ndarray, ordered: bool) -> np.ndarray:
    if len(values) == 0:
        return np.empty(0, np.int64)
    if values.dtype == np.float64:
        values = values + 0.0  # one zero
        values = np.where(np.isnan(values), 0.0, values)
    if values.dtype == object and isinstance(values[0], str):
        encoded = pa.array(values, pa.large_string()).dictionary_encode()  # pandas would end texts at a NUL
        codes, uniques = encoded.indices.to_numpy(), encoded.dictionary.to_numpy(zero_copy_only=False)
    else:
        codes, uniques = pd.factorize(values)
    if not ordered:
        return codes.astype(np.int64)
    rank = np.empty(len(uniques), np.int64)
    rank[np.argsort(np.asarray(uniques), kind="stable")] = np.arange(len(uniques))
    return rank[codes]


def local_mask(predicate: Predicate, codes: Codes, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
    """Where a predicate about one event holds."""
    sides: list[Any] = []
    for side in (predicate.left, predicate.right):
        if isinstance(side, PredicateSide):
            sides.append(codes.columns[side.attr][rows])
        else:
            sides.append(codes.constants[predicate])
    left, right = sides
    compared = {
        "=": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[predicate.op]
    for column, side in zip(sides, (predicate.left, predicate.right), strict=True):
        if isinstance(side, PredicateSide):
            compared = compared & (column >= 0)
    return np.asarray(compared)
