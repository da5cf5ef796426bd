"""Penstock on Spark. Only this package, experiments and the command line import pyspark.

It maps rows to arrays and states to Spark's state store; the operators do not know Spark. `api` has
the public functions, `runtime` runs them, and `monitor` shows their metrics. Workers use the driver's Python
unless `PYSPARK_PYTHON` or `spark.pyspark.python` is set.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.extras import require

if TYPE_CHECKING:
    from penstock.spark.api.asof import asof_join
    from penstock.spark.api.estimate import estimate
    from penstock.spark.api.join import bounded_join
    from penstock.spark.api.lookup import lookup_join
    from penstock.spark.api.many import bounded_join_many
    from penstock.spark.api.match import match_pattern
    from penstock.spark.api.query import stream_query
    from penstock.spark.api.queue_source import register_queue_source
    from penstock.spark.api.reconcile import reconcile
    from penstock.spark.api.reconcile_many import reconcile_many
    from penstock.spark.api.write_split import write_split
    from penstock.spark.monitor.pipeline import PipelineMonitor

__all__ = [
    "PipelineMonitor",
    "asof_join",
    "bounded_join",
    "bounded_join_many",
    "estimate",
    "lookup_join",
    "match_pattern",
    "reconcile",
    "reconcile_many",
    "register_queue_source",
    "stream_query",
    "write_split",
]

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# Names are imported on first use, so that workers that only pack rows do not wait for Numba.
_HOMES = {
    "PipelineMonitor": "monitor.pipeline",
    "asof_join": "api.asof",
    "bounded_join": "api.join",
    "bounded_join_many": "api.many",
    "estimate": "api.estimate",
    "lookup_join": "api.lookup",
    "match_pattern": "api.match",
    "reconcile": "api.reconcile",
    "reconcile_many": "api.reconcile_many",
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
