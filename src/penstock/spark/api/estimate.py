"""`estimate`: what the exact join would answer, from the weighted results of `policy="sample"`.

The formulas are those of `penstock.joins.weighted_sums`, as expressions of Spark: one aggregation per kept
row, another one per group. Both can run on a stream.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.errors import ColumnError, PenstockError, hint
from penstock.joins.weighted_sums import LEAST_DEGREES, check_question, expansion
from penstock.spark.runtime.join_bucket import EVENT, RESULT, SAMPLED, SMALLEST
from penstock.spark.runtime.join_schema import quoted

ANSWERS = ("value", "lower", "upper", "std_error")
OWN = "_penstock_"  # before the names of columns on their way
VALUE, T_OF = OWN + "value", OWN + "t"  # of a result
OF_ROW = OWN + "row"  # what is known of a kept row
NOTHING = {"excess_v": 0.0, "excess_1": 0.0, "a": 0.0, "b": 0.0, "c": 0.0, "v": 0.0, "n": 0.0, "t": 1.0}


def estimate(
    results: DataFrame, what: str, column: str | None = None, *, by: Any = None, confidence: float = 0.95
) -> DataFrame:
    """Estimate a count, sum or mean over the exact results, from those of a join with `policy="sample"`.

    Parameters
    ----------
    results
        Results of `bounded_join(..., policy="sample")`, or rows of theirs: batch ones, such as those that a
        query has written, or a stream, if `by` has a window.
    what
        `"count"`, `"sum"` or `"mean"`.
    column
        The column to sum up or average. Nulls do not count. With `"count"`, the results that have a value are
        counted.
    by
        One or more columns to group by: names or expressions, such as `F.window("ts", "1 hour")`.
    confidence
        The probability with which the interval covers the exact answer.

    Returns
    -------
    A row per group: the columns of `by`, `value`, `lower`, `upper` and `std_error`. Without `by`, one row.
    Estimates of counts and sums are unbiased. What is lost with rows that were late, dropped or larger than
    their buffer is not included; the metrics of the query count such rows.

    Examples
    --------
    >>> from penstock.spark import bounded_join, estimate
    >>> shown = spark.createDataFrame([("a", 0), ("b", 5)], "ad string, ts long")
    >>> clicked = spark.createDataFrame([("a", 3, 2.5), ("a", 9, 1.0)], "ad string, ts long, cost double")
    >>> hits = bounded_join(
    ...     shown, clicked, on="ad", time="ts", within=10, budget="100 tuples", policy="sample"
    ... )
    >>> estimate(hits, "sum", "cost", by="ad").show()
    +---+-----+-----+-----+---------+
    | ad|value|lower|upper|std_error|
    +---+-----+-----+-----+---------+
    |  a|  3.5|  3.5|  3.5|      0.0|
    +---+-----+-----+-----+---------+
    <BLANKLINE>
    """
    check_question(what, column, confidence)
    _check_results(results)
    given = [by] if isinstance(by, str | Column) else list(by or [])
    groups = [_named(results, each) for each in given]
    if results.isStreaming and not groups:
        raise PenstockError(
            "A stream has no end at which all of its results are there: give by=F.window(...) on a column "
            "with a watermark, such as event_time; or write the results and estimate from the table."
        )
    if EVENT in results.columns:
        results = results.filter(F.col(EVENT) == RESULT)
    value = F.lit(1.0)
    if column is not None:
        own = _number(results, column)
        value = F.when(own.isNotNull(), 1.0) if what == "count" else own
    rows = results.select(
        *groups, F.col(SAMPLED), F.col(SMALLEST).alias(T_OF), value.cast("double").alias(VALUE)
    ).filter(F.col(VALUE).isNotNull())
    names = rows.columns[: len(groups)]
    if clash := {*names} & {*ANSWERS}:
        raise ColumnError(f"by has a column {min(clash)!r}, as the estimates have; rename it.")
    if len({*names}) < len(names):
        raise ColumnError(f"by has columns of one name: {names}; rename one.")
    keys = [F.col(quoted(name)) for name in names]
    per_row = (
        rows.groupBy(*keys, F.col(SAMPLED))
        .agg(
            F.array_sort(F.collect_list(F.struct((-F.col(T_OF)).alias("order"), F.col(VALUE)))).alias(OF_ROW)
        )
        .select(*keys, F.aggregate(OF_ROW, _struct(NOTHING), _next).alias(OF_ROW))
    )
    sums = {name: F.coalesce(F.sum(term), F.lit(0.0)) for name, term in _terms().items()}
    summed = per_row.groupBy(*keys).agg(*(total.alias(OWN + name) for name, total in sums.items()))
    return _answers(summed, keys, what == "mean", confidence)


def _check_results(results: Any) -> None:
    """Reject anything but results with weights."""
    if not hasattr(results, "isStreaming") or not hasattr(results, "mapInArrow"):
        raise PenstockError(f"estimate takes a Spark DataFrame; a {type(results).__name__} was given.")
    missing = [name for name in (SMALLEST, SAMPLED) if name not in results.columns]
    if missing:
        raise PenstockError(
            'estimate takes results of bounded_join(..., policy="sample"); these have no column '
            f"{missing[0]!r}."
        )


def _named(results: DataFrame, by: Any) -> Column:
    """Return a column to group by."""
    if isinstance(by, Column):
        return by
    if by not in results.columns:
        raise ColumnError(f"The results have no column {by!r}{hint(by, results.columns)}")
    return F.col(quoted(by))


def _number(results: DataFrame, name: str) -> Column:
    """Return a column of numbers."""
    if name not in results.columns:
        raise ColumnError(f"The results have no column {name!r}{hint(name, results.columns)}")
    kind = results.schema[name].dataType.simpleString()
    if not kind.startswith(("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")):
        raise ColumnError(f"The column {name!r} is {kind}, not a number; cast it.")
    return F.col(quoted(name))


def _struct(values: dict[str, Any]) -> Column:
    return F.struct(*(F.lit(value).alias(name) for name, value in values.items()))


def _next(before: Column, result: Column) -> Column:
    """Add a result to what is known of its kept row; t falls from one to the next.

    `a`, `b` and `c` are the variance of the row's weighted values, their covariance with its weights, and the
    variance of the weights; so those of values minus a mean follow. `v` and `n` are the sums.
    """
    t, value = -result["order"], result[VALUE]
    weight = 1.0 / t
    excess = weight - 1.0  # (1-t)/t
    own_v, own_1 = value * weight, weight
    after = {
        "excess_v": before["excess_v"] + value * excess,
        "excess_1": before["excess_1"] + excess,
        "a": before["a"] + own_v * (value * excess + 2.0 * before["excess_v"]),
        "b": before["b"] + own_v * (excess + before["excess_1"]) + own_1 * before["excess_v"],
        "c": before["c"] + own_1 * (excess + 2.0 * before["excess_1"]),
        "v": before["v"] + own_v,
        "n": before["n"] + own_1,
        "t": t,
    }
    return _struct(after)


def _terms() -> dict[str, Column]:
    """Return what is summed up over the kept rows of a group: the coefficients of powers of its mean."""
    a, b, c, v, n, t = (F.col(OF_ROW)[name] for name in "abcvnt")
    rest = 1.0 - t
    return {
        "v": v,
        "n": n,
        "variance_0": a,
        "variance_1": -2.0 * b,
        "variance_2": c,
        "fourth_0": a * a,
        "fourth_1": -4.0 * a * b,
        "fourth_2": 4.0 * b * b + 2.0 * a * c,
        "fourth_3": -4.0 * b * c,
        "fourth_4": c * c,
        "third_0": rest * v * a,
        "third_1": -rest * (2.0 * v * b + n * a),
        "third_2": rest * (v * c + 2.0 * n * b),
        "third_3": -rest * n * c,
    }


def _answers(summed: DataFrame, keys: list[Column], mean: bool, confidence: float) -> DataFrame:
    """Return the columns of the answer."""
    total, count = F.col(OWN + "v"), F.col(OWN + "n")
    middle = F.try_divide(total, count)

    def moment(name: str, degree: int, order: int) -> Column:
        found = F.col(f"{OWN}{name}_0")
        if not mean:
            return found
        for power in range(1, degree + 1):
            found = found + F.col(f"{OWN}{name}_{power}") * middle**power
        return F.try_divide(found, count**order)

    whole = summed.select(
        *keys,
        (middle if mean else total).alias("value"),
        F.greatest(moment("variance", 2, 2), F.lit(0.0)).alias(OWN + "variance"),
        moment("fourth", 4, 4).alias(OWN + "fourth"),
        moment("third", 3, 3).alias(OWN + "third"),
    )
    variance, fourth, third = (F.col(OWN + name) for name in ("variance", "fourth", "third"))
    z, *factors = expansion(confidence)
    degrees = F.greatest(F.try_divide(2.0 * variance**2, fourth), F.lit(LEAST_DEGREES))
    reach = F.lit(z)
    for power, factor in enumerate(factors, 1):
        reach = reach + factor / degrees**power
    plain, lean = reach * F.sqrt(variance), F.try_divide(third, variance) * z**2
    far = 0.5 * (F.abs(lean) + F.sqrt(lean**2 + 4.0 * reach**2 * variance))
    below = F.when(lean < 0.0, far).when(variance > 0.0, plain).otherwise(0.0)
    above = F.when(lean > 0.0, far).when(variance > 0.0, plain).otherwise(0.0)
    value = F.col("value")
    return whole.select(
        *keys,
        value,
        (value - below).alias("lower"),
        (value + above).alias("upper"),
        F.sqrt(variance).alias("std_error"),
    )
