"""Tables, columns and arrays that cannot be joined are refused with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import ColumnError, PenstockError
from tests.joins.refusals import GOOD, TABLE, refuse_run

# Streams.


@pytest.mark.interpreted
def test_missing_columns() -> None:
    refuse_run(ColumnError, "left stream", "'kex'", "did you mean 'key'?", on="kex")
    refuse_run(ColumnError, "right stream", "'key'", "Allowed: id, ts", right={"id": [1], "ts": [1]})
    refuse_run(ColumnError, "left stream", "'time'", "Allowed: key, ts", time="time")
    refuse_run(ColumnError, "right stream", "'t'", time=("ts", "t"))
    refuse_run(ColumnError, "'b'", on=["key", "b"])
    for kind in (pd.DataFrame, pa.table):
        refuse_run(ColumnError, "did you mean 'key'?", left=kind(TABLE), on="kez")


@pytest.mark.parametrize("on", [None, 5, "", [1], [("key",)], [("key", "key", "key")], [("key", 3)], {"key"}])
def test_what_on_cannot_be(on: Any) -> None:
    refuse_run(ColumnError, on=on)


@pytest.mark.parametrize("time", [None, 5, [], ("ts",), ("ts", "ts", "ts"), ("ts", 1)])
def test_what_time_cannot_be(time: Any) -> None:
    refuse_run(ColumnError, "time takes a column name", time=time)


@pytest.mark.parametrize(
    "table", [[1, 2], "table.csv", 5, np.zeros((2, 2)), pd.Series([1]), [{"key": 1, "ts": 2}]], ids=type
)
def test_what_a_stream_cannot_be(table: Any) -> None:
    refuse_run(ColumnError, "pandas DataFrame", type(table).__name__, left=table)
    refuse_run(ColumnError, "pandas DataFrame", type(table).__name__, right=table)


MISSHAPEN = {
    "ragged": {"key": [1, 2, 3], "ts": [0, 1]},
    "ragged elsewhere": {"key": [1, 2], "ts": [0, 1], "note": ["x"]},
    "a number for a column": {"key": 5, "ts": [0]},
    "None for a column": {"key": None, "ts": [0]},
    "two dimensions": {"key": np.zeros((2, 2)), "ts": [0, 1]},
    "lists of unequal lengths": {"key": [[1], [1, 2]], "ts": [0, 1]},
    "a frame for a column": {"key": pd.DataFrame({"a": [1, 2]}), "ts": [0, 1]},
}


@pytest.mark.parametrize("shape", MISSHAPEN)
def test_misshapen_dicts(shape: str) -> None:
    refuse_run(ColumnError, left=MISSHAPEN[shape])


def test_ragged_columns_are_told_with_their_lengths() -> None:
    refuse_run(ColumnError, "equally long", "'key': 3", "'ts': 2", left=MISSHAPEN["ragged"])


def test_a_column_that_is_there_twice() -> None:
    twice = pd.DataFrame([[1, 2, 0]], columns=["key", "key", "ts"])
    refuse_run(ColumnError, "'key'", left=twice)
    refuse_run(ColumnError, "'key'", left=pa.table([[1], [2], [0]], names=["key", "key", "ts"]))


def test_columns_whose_names_are_numbers() -> None:
    refuse_run(ColumnError, left=pd.DataFrame([[1, 0]]), on="0", time="1", right=pd.DataFrame([[1, 0]]))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([1, 2], ["1", "2"]),
        ([True, False], [1, 0]),
        (["a"], [b"a"]),
        (pd.to_datetime(["2024-01-01"]), ["2024-01-01"]),
        (pd.to_datetime(["2024-01-01"]), [1_704_067_200]),
        ([1.5], ["1.5"]),
        (pd.Categorical(["a"]), [1]),
    ],
)
def test_keys_of_mismatched_types(left: Any, right: Any) -> None:
    tables = [{"key": keys, "ts": [0] * len(keys)} for keys in (left, right)]
    refuse_run(ColumnError, "mismatched types", "left 'key'", "right 'key'", left=tables[0], right=tables[1])


def test_aware_and_naive_timestamps_are_two_types() -> None:
    naive = pd.to_datetime(["2024-01-01"])
    refuse_run(
        ColumnError,
        left={"key": naive, "ts": [0]},
        right={"key": naive.tz_localize("Europe/Berlin"), "ts": [0]},
    )
    refuse_run(
        ColumnError,
        left={"key": [1], "ts": naive},
        right={"key": [1], "ts": naive.tz_localize("Europe/Berlin")},
    )


@pytest.mark.parametrize(
    "keys", [[[1], [2]], [{"a": 1}, {"a": 2}], [{1}, {2}]], ids=["lists", "dicts", "sets"]
)
def test_keys_that_cannot_be_hashed(keys: list[Any]) -> None:
    column = pd.Series(keys, dtype=object)
    refuse_run(
        ColumnError,
        "'key'",
        "cannot be hashed",
        left={"key": column, "ts": [0, 1]},
        right={"key": column, "ts": [0, 1]},
    )


@pytest.mark.interpreted
@pytest.mark.parametrize(
    "times",
    [
        [0.0, float("nan")],
        [0, None],
        pd.to_datetime(["2024-01-01", None]),
        pd.array([1, None], dtype="Int64"),
        pa.array([1, None]),
    ],
    ids=["NaN", "None", "NaT", "Int64", "Arrow"],
)
def test_missing_times(times: Any) -> None:
    refuse_run(
        ColumnError,
        "time column 'ts' of the right stream",
        "missing",
        "row 1",
        right={"key": [1, 2], "ts": times},
    )


def test_endless_times() -> None:
    refuse_run(ColumnError, "infinite", right={"key": [1, 2], "ts": [0.0, float("inf")]})
    refuse_run(ColumnError, "63 bits", right={"key": [1], "ts": np.array([2**63], np.uint64)})


@pytest.mark.parametrize(
    "times",
    [["0", "1"], [True, False], [b"0", b"1"], [1j, 2j], [(0,), (1,)], [[0], [1]], [2**70, 2**71]],
    ids=str,
)
def test_times_of_a_wrong_type(times: Any) -> None:
    column = pd.Series(times, dtype=object) if isinstance(times[0], tuple | list) else times
    refuse_run(ColumnError, "time column 'ts' of the left stream", left={"key": [1, 2], "ts": column})


def test_times_of_two_kinds() -> None:
    stamps = pd.to_datetime(["2024-01-01", "2024-01-02"])
    refuse_run(ColumnError, "one kind", "left: int64", left=TABLE, right={"key": [1, 2], "ts": stamps})


def test_timestamps_too_far_for_a_common_unit() -> None:
    far = {"key": [1], "ts": np.array(["9000-01-01"], "datetime64[s]")}
    near = {"key": [1], "ts": np.array(["2024-01-01"], "datetime64[ns]")}
    refuse_run(ColumnError, "time", left=far, right=near)


# States that take arrays.


def process(*arrays: Any, budget: Any = None, **options: Any) -> None:
    join = ps.WindowJoin(**(GOOD | {"budget": budget or ps.Tuples(4)} | options))
    join.start().process(*arrays)


def test_arrays_of_unequal_length() -> None:
    for short in range(4):
        arrays: list[Any] = [[0, 1, 0], [5, 5, 5], [0, 1, 2], [0, 0, 1]]
        arrays[short] = arrays[short][:1]
        with pytest.raises(PenstockError, match="the same length"):
            process(*arrays)
    with pytest.raises(PenstockError, match="the same length"):
        process([0, 1], [5, 5], [0, 1], [0, 0], [7], budget=ps.Bytes("64 KiB"))


@pytest.mark.parametrize("stream", [[2], [-1], [0, 7]])
def test_a_third_stream(stream: list[int]) -> None:
    n = len(stream)
    with pytest.raises(PenstockError, match="stream"):
        process(stream, [5] * n, [0] * n, [0] * n)


@pytest.mark.parametrize("size", [-1, 2**31, 2**40])
def test_sizes_that_are_none(size: int) -> None:
    """A size that cannot be right is refused; a huge one may also be counted as too large for its buffer."""
    state = ps.WindowJoin(**(GOOD | {"budget": ps.Bytes("64 KiB")})).start()
    try:
        state.process([0], [5], [0], [0], [size])
    except PenstockError:
        return
    assert size > 0
    assert state.totals()["oversize"] == 1
    state.check()


TEXTS = {"key": [1, 2], "ts": ["2024-05-01T12:00:00", "2024-05-01T12:00:01"]}


def test_times_that_are_texts_are_refused_together() -> None:
    both = "'ts' of the left stream and 'ts' of the right stream"
    refuse_run(ColumnError, both, "'2024-05-01T12:00:00'", "cast both", left=TEXTS, right=TEXTS)
    refuse_run(ColumnError, "'ts' of the right stream is text", "cast it", right=TEXTS)
    three = dict.fromkeys(("a", "b", "c"), TEXTS)
    with pytest.raises(ColumnError, match="cast all of them"):
        ps.join_many(three, on="key", time="ts", within="1 s", budget=ps.Tuples(9), policy="fifo")
