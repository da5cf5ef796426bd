"""Penstock on Spark: the only package, but for experiments and the command line, that imports pyspark.

It maps rows to arrays and states to Spark's state store; what happens to them is the operators' business.
Workers use the Python of the driver unless `PYSPARK_PYTHON` or `spark.pyspark.python` says otherwise.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.join import bounded_join
    from penstock.spark.lookup import lookup_join
    from penstock.spark.many import bounded_join_many
    from penstock.spark.match import match_pattern
    from penstock.spark.monitor import PipelineMonitor
    from penstock.spark.query import stream_query
    from penstock.spark.queue_source import register_queue_source
    from penstock.spark.reconciliation import reconcile
    from penstock.spark.split import write_split

__all__ = [
    "PipelineMonitor",
    "bounded_join",
    "bounded_join_many",
    "lookup_join",
    "match_pattern",
    "reconcile",
    "register_queue_source",
    "stream_query",
    "write_split",
]

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# Names are loaded when they are first used: workers that only pack rows need not wait for Numba.
_HOMES = {
    "PipelineMonitor": "monitor",
    "bounded_join": "join",
    "bounded_join_many": "many",
    "lookup_join": "lookup",
    "match_pattern": "match",
    "reconcile": "reconciliation",
    "register_queue_source": "queue_source",
    "stream_query": "query",
    "write_split": "split",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
