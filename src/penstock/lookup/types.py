"""Map SQL types to Arrow types, and convert keys to the type of a column."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa

from penstock.lookup.source import KeyRefusedError

NEVER = object()  # a key that no value of the column equals


def arrow_type(kind: Any) -> pa.DataType:
    """Return the Arrow type of a SQLAlchemy type; text for types without an equivalent.

    >>> from sqlalchemy import types
    >>> from penstock.lookup.types import arrow_type
    >>> str(arrow_type(types.Integer())), str(arrow_type(types.Numeric(10, 2)))
    ('int64', 'decimal128(10, 2)')
    """
    from sqlalchemy import types

    if isinstance(kind, types.Boolean):
        return pa.bool_()
    if isinstance(kind, types.Integer):
        return pa.int64()
    if isinstance(kind, types.Float):
        return pa.float64()
    if isinstance(kind, types.Numeric):
        if not kind.asdecimal:
            return pa.float64()
        return pa.decimal128(kind.precision or 38, kind.scale if kind.scale is not None else 18)
    if isinstance(kind, types.DateTime):
        return pa.timestamp("us", tz="UTC" if kind.timezone else None)
    if isinstance(kind, types.Date):
        return pa.date32()
    if isinstance(kind, types.LargeBinary):
        return pa.binary()
    if isinstance(kind, types.ARRAY) and kind.dimensions in (None, 1):
        return pa.list_(arrow_type(kind.item_type))
    return pa.string()


def arrow_value(value: Any, kind: pa.DataType) -> Any:
    """Convert a value for its Arrow type; values without a type of their own become text.

    >>> import pyarrow as pa
    >>> from penstock.lookup.types import arrow_value
    >>> arrow_value({"a": 1}, pa.string()), arrow_value("x", pa.string())
    ('{"a": 1}', 'x')
    """
    if value is None or not pa.types.is_string(kind) or isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        import json

        return json.dumps(value)
    return str(value)


def as_key(value: Any, kind: Any, name: str, dialect: str, at: int = 0) -> Any:
    """Convert a key of the stream for the key column of a table; `NEVER` if no value can equal it.

    >>> from sqlalchemy import types
    >>> from penstock.lookup.types import NEVER, as_key
    >>> as_key(3.0, types.Integer(), "id", "mysql"), as_key(3.5, types.Integer(), "id", "mysql") is NEVER
    (3, True)
    """
    from sqlalchemy import types

    if isinstance(kind, types.Integer):
        number = isinstance(value, int | float | decimal.Decimal)
        if not number or (isinstance(value, bool) and dialect == "postgresql"):
            raise _mismatched(value, kind, name, at)
        return value if dialect == "sqlite" else _as_integer(value)
    if isinstance(kind, types.Numeric) and dialect != "sqlite" and isinstance(value, float):
        return _as_decimal(value, None if isinstance(kind, types.Float) else kind.scale)
    if isinstance(kind, types.String):
        if not isinstance(value, str):
            raise _mismatched(value, kind, name, at)
        return NEVER if dialect == "postgresql" and "\0" in value else value
    if isinstance(kind, types.Date) and dialect != "postgresql" and isinstance(value, datetime.datetime):
        return value.date() if value.time() == datetime.time() else NEVER
    return value


def _as_integer(value: int | float | decimal.Decimal) -> Any:
    """Convert a number for a whole-number column. Beyond 2^53 databases compare as floats, so it stays one.

    SQLite does not enforce such columns: any of them may hold a fraction.
    """
    if isinstance(value, float):
        if value != value or abs(value) == float("inf"):
            return NEVER
        if abs(value) >= 2**53:
            return value
    whole = int(value)
    return whole if whole == value and -(2**63) <= whole < 2**63 else NEVER


def _as_decimal(value: float, scale: int | None) -> Any:
    """Convert a whole float to a whole number so that an index is used, if no other decimal equals it.

    Databases compare decimals with floats as floats, and several decimals may map to one float.
    """
    near = scale is not None and value.is_integer() and abs(value) * 10.0**scale < 2**53
    return int(value) if near else value


def refuse_nanoseconds(value: Any, name: str, at: int) -> None:
    """Reject keys with nanoseconds: databases store microseconds and would truncate them."""
    if getattr(value, "nanosecond", 0):
        raise KeyRefusedError(
            at,
            f"The key {name!r} of {{row}} has nanoseconds, but databases have microseconds; round the column "
            "of the stream, for example with dt.round('us').",
        )


def _mismatched(value: Any, kind: Any, name: str, at: int) -> KeyRefusedError:
    return KeyRefusedError(
        at,
        f"The key column {name!r} of the table is of type {kind!r}, but {{row}} has a value of type "
        f"{type(value).__name__}; cast the column of the stream.",
    )
