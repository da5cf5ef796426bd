"""The streams of a join, if they are batch DataFrames, as one DataFrame in the order of processing."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.spark.runtime.join_schema import quoted
from penstock.spark.runtime.join_spec import StreamsSpec
from penstock.spark.runtime.packer import BUCKET, SIDE
from penstock.spark.runtime.run import in_buckets

ORDER, SORT = "_penstock_order", "_penstock_sort"


def in_one(prepared: list[DataFrame], spec: StreamsSpec, last_first: bool = False) -> DataFrame:
    """All streams sorted by time within their bucket; columns have the number of their stream before them.

    `last_first` puts the rows of the last stream before the others of the same time.
    """
    hidden = [(*spec.codes(side), *spec.checks(side)) for side in range(len(prepared))]
    carried = [
        [name for name in frame.columns if name not in (BUCKET, *mine)]
        for frame, mine in zip(prepared, hidden, strict=True)
    ]
    every = list(dict.fromkeys(name for mine in hidden for name in mine))
    both = None
    for side, frame in enumerate(prepared):
        columns = [
            F.lit(side).cast("byte").alias(SIDE),
            F.monotonically_increasing_id().alias(ORDER),
            F.col(quoted(spec.sides[side].time)).try_cast(_sortable(spec, prepared)).alias(SORT),
            F.col(BUCKET),
        ]
        for name in every:
            own = name in hidden[side]
            columns.append((F.col(name) if own else F.lit(None).cast("long")).alias(name))
        for which, other in enumerate(prepared):
            for name in carried[which]:
                value = F.col(quoted(name))
                if which != side:
                    value = F.lit(None).cast(other.schema[name].dataType)
                columns.append(value.alias(f"{which}_{name}"))
        part = frame.select(*columns)
        both = part if both is None else both.unionAll(part)
    assert both is not None
    side_order = F.col(SIDE).desc() if last_first else F.col(SIDE)
    return in_buckets(both, spec.buckets, SORT, side_order, ORDER)


def _sortable(spec: StreamsSpec, prepared: list[DataFrame]) -> T.DataType:
    kind = prepared[0].schema[spec.sides[0].time].dataType
    if isinstance(kind, T.NumericType):
        return T.LongType() if spec.dtype == "int64" else T.DoubleType()
    return kind
