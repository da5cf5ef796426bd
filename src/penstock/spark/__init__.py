"""Penstock on Spark: the only package, but for experiments and the command line, that imports pyspark.

It maps rows to arrays and states to Spark's state store; what happens to them is the operators' business.
Workers use the Python of the driver unless `PYSPARK_PYTHON` or `spark.pyspark.python` says otherwise.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from penstock.spark.join import bounded_join

__all__ = ["bounded_join"]
