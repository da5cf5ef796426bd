"""The types of SQL columns in Arrow, and keys as a column of a type takes them."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa

from penstock.errors import ColumnError

NEVER = object()  # a key that no value of the column equals


def arrow_type(kind: Any) -> pa.DataType:
    """The Arrow type of a SQLAlchemy type; text for what has none.

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
    """A value as its Arrow type takes it: what has no type of its own becomes text.

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


def as_key(value: Any, kind: Any, name: str) -> Any:
    """A key of the stream as the key column compares it; `NEVER` if nothing there equals it.

    >>> from sqlalchemy import types
    >>> from penstock.lookup.types import NEVER, as_key
    >>> as_key(3.0, types.Integer(), "id"), as_key(3.5, types.Integer(), "id") is NEVER
    (3, True)
    """
    from sqlalchemy import types

    number = isinstance(value, int | float | decimal.Decimal)
    if isinstance(kind, types.Integer):
        if not number:
            raise _mismatched(value, kind, name)
        if value != value or value in (float("inf"), float("-inf")) or value != int(value):
            return NEVER
        return int(value) if -(2**63) <= value < 2**63 else NEVER
    if isinstance(kind, types.Numeric) and not number:
        raise _mismatched(value, kind, name)
    if isinstance(kind, types.String):
        if not isinstance(value, str):
            raise _mismatched(value, kind, name)
        return NEVER if "\0" in value else value
    if type(kind) is types.Date or isinstance(kind, types.DATE):
        if isinstance(value, datetime.datetime):
            return value.date() if value.time() == datetime.time() else NEVER
        if not isinstance(value, datetime.date):
            raise _mismatched(value, kind, name)
    return value


def _mismatched(value: Any, kind: Any, name: str) -> ColumnError:
    return ColumnError(
        f"The key column {name!r} of the table is of type {kind!r}, but the stream asks for {value!r:.60} "
        f"({type(value).__name__}); cast the column of the stream."
    )
