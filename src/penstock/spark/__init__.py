"""Penstock on Spark: the only package, but for experiments and the command line, that imports pyspark.

It maps rows to arrays and states to Spark's state store; what happens to them is the operators' business.
`api` has what users call, `runtime` what runs it, and `monitor` what is shown of it. Workers use the Python
of the driver unless `PYSPARK_PYTHON` or `spark.pyspark.python` says otherwise.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.extras import require

if TYPE_CHECKING:
    from penstock.spark.api.join import bounded_join
    from penstock.spark.api.lookup import lookup_join
    from penstock.spark.api.many import bounded_join_many
    from penstock.spark.api.match import match_pattern
    from penstock.spark.api.query import stream_query
    from penstock.spark.api.queue_source import register_queue_source
    from penstock.spark.api.reconcile import reconcile
    from penstock.spark.api.write_split import write_split
    from penstock.spark.monitor.pipeline import PipelineMonitor

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
    "PipelineMonitor": "monitor.pipeline",
    "bounded_join": "api.join",
    "bounded_join_many": "api.many",
    "lookup_join": "api.lookup",
    "match_pattern": "api.match",
    "reconcile": "api.reconcile",
    "register_queue_source": "api.queue_source",
    "stream_query": "api.query",
    "write_split": "api.write_split",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("pyspark", name)
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
