"""Types cross to Arrow alike on every supported PySpark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as T
from pyspark.sql.pandas import types

from penstock.spark.runtime.arrow_types import arrow_schema
from penstock.spark.runtime.join_schema import refuse_unpackable

SCHEMA = T.StructType().add("key", T.LongType()).add("ts", T.TimestampType())


def test_a_pyspark_that_takes_no_timezone(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark 4.1: every column was refused as one that Arrow lacks."""
    here = arrow_schema(SCHEMA)

    def older(
        schema: T.StructType,
        error_on_duplicated_field_names_in_struct: bool = False,
        timestamp_utc: bool = True,
        prefers_large_types: bool = False,
    ) -> pa.Schema:
        assert timestamp_utc
        return here

    monkeypatch.setattr(types, "to_arrow_schema", older)
    assert arrow_schema(SCHEMA) == here
    refuse_unpackable(SCHEMA.fields)
