"""The stateful processor: what Spark loads of it on the driver at the start of a query is light."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import create_autospec

import pytest

pytest.importorskip("pyspark", reason="pyspark is an extra")

from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle, ValueState
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient

from penstock.spark.runtime.processor import BucketProcessor
from tests.spark.packed import spec_of

HEAVY = ("numba", "pandas", "pyarrow", "scipy", "penstock.joins", "penstock.lookup", "penstock.patterns")


def test_loading_the_module_loads_no_operator() -> None:
    code = (
        "import sys, penstock.spark.runtime.processor; "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_state_variables_are_declared_without_the_operator() -> None:
    """On Spark's own handle, whose connection to the JVM is replaced by one that takes the same calls."""
    processor, client = BucketProcessor(spec_of(), (0,)), create_autospec(StatefulProcessorApiClient)
    processor.init(StatefulProcessorHandle(client))
    head, snapshot, log = processor.variables
    assert [type(each) for each in (head, snapshot, log)] == [ValueState, MapState, MapState]
    assert [call.args[:1] for call in client.get_value_state.call_args_list] == [("head",)]
    assert [call.args[0] for call in client.get_map_state.call_args_list] == ["snapshot", "log"]
    client._parse_string_schema.assert_not_called()  # each would be a round trip in every batch
    assert processor._spec is None
    assert processor.spec == spec_of()


def test_a_processor_that_got_no_rows_is_closed_like_any_other() -> None:
    processor = BucketProcessor(spec_of(), (0,))
    processor.init(StatefulProcessorHandle(create_autospec(StatefulProcessorApiClient)))
    processor.close()
    assert processor._spec is None
