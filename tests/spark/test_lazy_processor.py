"""What Spark loads on the driver at the start of a query is light."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is an extra")

from penstock.spark.runtime.lazy_processor import LazyProcessor

HEAVY = ("numba", "pandas", "pyarrow", "scipy", "penstock.joins", "penstock.lookup", "penstock.patterns")


def test_loading_the_module_loads_no_operator() -> None:
    code = (
        "import sys, penstock.spark.runtime.lazy_processor; "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Variable:
    """A state variable that remembers what it was declared with."""

    def __init__(self, *declared: Any) -> None:
        self.declared = declared


class Handle:
    """As much of Spark's handle as operators use."""

    def getValueState(self, *declared: Any) -> Variable:  # noqa: N802
        return Variable("value", *declared)

    def getMapState(self, *declared: Any) -> Variable:  # noqa: N802
        return Variable("map", *declared)


class Echo:
    """An operator that tells what it was given."""

    closed = 0

    def init(self, handle: Any) -> None:
        self.head = handle.getValueState("head", "data binary")
        self.parts = handle.getMapState("parts", "part int", "data binary")

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Any:  # noqa: N802
        yield key, list(rows), timers, self.head.declared, self.parts.declared

    def close(self) -> None:
        type(self).closed += 1


def test_the_operator_finds_the_variables_that_were_declared() -> None:
    lazy = LazyProcessor(Echo())  # type: ignore[arg-type]
    lazy.init(Handle())  # type: ignore[arg-type]
    head, parts = ("value", "head", "data binary"), ("map", "parts", "part int", "data binary")
    assert list(lazy.handleInputRows((1,), iter([2]), 3)) == [((1,), [2], 3, head, parts)]
    lazy.close()
    assert Echo.closed == 1


def test_an_operator_that_got_no_rows_is_not_loaded() -> None:
    lazy = LazyProcessor(Echo())  # type: ignore[arg-type]
    lazy.init(Handle())  # type: ignore[arg-type]
    before = Echo.closed
    lazy.close()
    assert Echo.closed == before
