"""Spark's types in Arrow and back, as the installed version of PySpark converts them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from pyspark.sql import types as T

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_schema(schema: T.StructType) -> pa.Schema:
    """The schema in which Spark passes rows to Python, with timestamps in UTC.

    >>> from pyspark.sql.types import LongType, StructType, TimestampType
    >>> arrow_schema(StructType().add("key", LongType()).add("ts", TimestampType())).types
    [DataType(int64), TimestampType(timestamp[us, tz=UTC])]
    """
    from pyspark.sql.pandas import types

    if "timezone" in inspect.signature(types.to_arrow_schema).parameters:
        return types.to_arrow_schema(schema, timezone="UTC")
    return types.to_arrow_schema(schema)  # PySpark 4.1, where UTC is the default


def spark_type(kind: pa.DataType) -> T.DataType:
    """The counterpart for one type; timestamps without a time zone stay without one.

    >>> import pyarrow as pa
    >>> spark_type(pa.timestamp("us"))
    TimestampNTZType()
    """
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind, prefer_timestamp_ntz=True)
