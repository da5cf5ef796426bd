"""What a stream may be given as: kinds of table, of key and of time; the result is the same."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock as ps
from tests.joins.agreement import online, steps

LEFT = {"key": [1, 2, 1, 3, 2], "ts": [0, 10, 20, 30, 40]}
RIGHT = {"key": [2, 1, 3, 3], "ts": [5, 15, 25, 60]}
# within 20: right 5 finds nothing (2 comes at 10: left 1 finds it), and so on.
PAIRS = [(1, 0), (0, 1), (2, 1), (3, 2)]

KINDS = {
    "lists": dict,
    "arrays": lambda t: {name: np.asarray(values) for name, values in t.items()},
    "series": lambda t: {name: pd.Series(values) for name, values in t.items()},
    "pandas": pd.DataFrame,
    "pandas with an index": lambda t: pd.DataFrame(t, index=[f"row {i}" for i in range(len(t["ts"]))]),
    "arrow": pa.table,
    "arrow chunks": lambda t: pa.concat_tables([pa.table(t).slice(0, 2), pa.table(t).slice(2)]),
    "record batch": lambda t: pa.RecordBatch.from_pydict(t),
    "arrow arrays": lambda t: {name: pa.array(values) for name, values in t.items()},
}


def pairs(
    left: Any,
    right: Any,
    on: Any = "key",
    time: Any = "ts",
    within: Any = 20,
    unit: str = "ms",
    **options: Any,
) -> list[tuple[int, int]]:
    join = ps.WindowJoin(within=within, budget=ps.Tuples(100), policy="fifo", **options)
    found = join.run(left, right, on=on, time=time, unit=unit, collect=True).pairs
    return list(zip(found.column(0).to_pylist(), found.column(1).to_pylist(), strict=True))


# Tables.


@pytest.mark.interpreted
@pytest.mark.parametrize("right", KINDS)
@pytest.mark.parametrize("left", KINDS)
def test_kinds_of_table(left: str, right: str) -> None:
    assert pairs(KINDS[left](LEFT), KINDS[right](RIGHT)) == PAIRS


def test_columns_besides_key_and_time_do_not_matter() -> None:
    left = LEFT | {"note": ["x"] * 5, "nested": [[1], [], [2, 3], None, [4]]}
    assert pairs(pd.DataFrame(left), RIGHT) == PAIRS
    assert pairs(pa.table(left), RIGHT) == PAIRS


def test_different_column_names() -> None:
    right = {"id": RIGHT["key"], "at": RIGHT["ts"]}
    assert pairs(LEFT, right, on=[("key", "id")], time=("ts", "at")) == PAIRS


def test_input_is_not_changed() -> None:
    left, right = pd.DataFrame(LEFT).sample(frac=1, random_state=1), pa.table(RIGHT)
    before = left.copy(deep=True)
    pairs(left, right)
    pd.testing.assert_frame_equal(left, before)
    assert right.equals(pa.table(RIGHT))


# Keys. Each entry gives the keys 1, 2 and 3 in another form; -1 is a null.
FORMS: dict[str, dict[int, Any]] = {
    "strings": {1: "one", 2: "two", 3: "three"},
    "empty strings": {1: "", 2: " ", 3: "0"},
    "floats": {1: 0.1, 2: 0.2, 3: -0.0},
    "timestamps": {i: pd.Timestamp("2024-01-01") + pd.Timedelta(i, "us") for i in (1, 2, 3)},
    "aware timestamps": {i: pd.Timestamp(f"2024-01-0{i}", tz="Europe/Berlin") for i in (1, 2, 3)},
    "dates": {i: datetime.date(2024, 1, i) for i in (1, 2, 3)},
    "times of day": {i: datetime.time(i) for i in (1, 2, 3)},
    "durations": {i: pd.Timedelta(i, "us") for i in (1, 2, 3)},
    "bytes": {1: b"a", 2: b"b", 3: b"c"},
    "decimals": {i: decimal.Decimal(i) / 3 for i in (1, 2, 3)},
    "large integers": {i: 2**62 + i for i in (1, 2, 3)},
    "negative integers": {i: -i for i in (1, 2, 3)},
    "tuples": {1: (1, "a"), 2: (1, "b"), 3: (2, "a")},
    "frozensets": {1: frozenset("ab"), 2: frozenset("b"), 3: frozenset()},
}


def formed(table: dict[str, Any], form: dict[int, Any], kind: str) -> Any:
    keys = [form[key] for key in table["key"]]
    if kind == "arrow":
        return pa.table({"key": pa.array(keys), "ts": table["ts"]})
    if kind == "pandas":
        frame = pd.DataFrame({"ts": table["ts"]})
        frame["key"] = pd.Series(keys)
        return frame
    return {"key": keys, "ts": table["ts"]}


@pytest.mark.parametrize("kind", ["lists", "pandas", "arrow"])
@pytest.mark.parametrize("form", FORMS)
def test_keys_of_any_hashable_type(form: str, kind: str) -> None:
    if kind == "arrow" and form in ("tuples", "frozensets"):
        pytest.skip("Arrow has no such type")
    assert pairs(formed(LEFT, FORMS[form], kind), formed(RIGHT, FORMS[form], kind)) == PAIRS


def test_truth_values_as_keys() -> None:
    left, right = {"key": [True, False], "ts": [0, 1]}, {"key": [False, True, True], "ts": [2, 3, 90]}
    assert pairs(left, right) == [(1, 0), (0, 1)]


def test_categories_are_compared_by_value() -> None:
    # The codes of the categories differ between the two sides, and one side is no category at all.
    left = pd.DataFrame({"key": pd.Categorical(["a", "b"], categories=["a", "b"]), "ts": [0, 0]})
    right = pd.DataFrame({"key": pd.Categorical(["a", "b"], categories=["b", "a", "c"]), "ts": [0, 0]})
    plain = pd.DataFrame({"key": ["a", "b"], "ts": [0, 0]})
    arrow = pa.table({"key": pa.array(["a", "b"]).dictionary_encode(), "ts": [0, 0]})
    for other in (right, plain, arrow):
        assert pairs(left, other) == [(0, 0), (1, 1)]


def test_integers_against_floats() -> None:
    assert pairs(LEFT, {"key": np.array([2.0, 1.0, 3.0, 3.0]), "ts": RIGHT["ts"]}) == PAIRS
    assert pairs({"key": [1, 2], "ts": [0, 0]}, {"key": [1.5, 2.0], "ts": [0, 0]}) == [(1, 1)]


@pytest.mark.parametrize(
    ("mine", "theirs"), [("int64", "float64"), ("int64", "uint64"), ("uint64", "float64")]
)
def test_large_keys_of_two_types_are_not_rounded_together(mine: str, theirs: str) -> None:
    # 2**53 + 1 is no float64: it must not be taken for 2**53.
    left = {"key": np.array([2**53 + 1], mine), "ts": [0]}
    right = {"key": np.array([2**53], theirs), "ts": [0]}
    assert pairs(left, right) == []


@pytest.mark.parametrize(
    "types", [("int8", "int64"), ("int32", "uint8"), ("uint16", "int64"), ("float32", "float64")]
)
def test_widths_of_numbers(types: tuple[str, str]) -> None:
    left = {"key": np.array(LEFT["key"], types[0]), "ts": LEFT["ts"]}
    right = {"key": np.array(RIGHT["key"], types[1]), "ts": RIGHT["ts"]}
    assert pairs(left, right) == PAIRS


NULLS = {
    "None in a list": [1, None, 2],
    "NaN in a list": [1.0, float("nan"), 2.0],
    "None among texts": ["1", None, "2"],
    "NaN among texts": ["1", float("nan"), "2"],
    "NaN in an array": np.array([1.0, np.nan, 2.0]),
    "pandas Int64": pd.array([1, None, 2], dtype="Int64"),
    "pandas string": pd.array(["1", None, "2"], dtype="string"),
    "pandas boolean": pd.array([True, None, False], dtype="boolean"),
    "Arrow integers": pa.array([1, None, 2]),
    "Arrow texts": pa.array(["1", None, "2"]),
    "NaT": pd.to_datetime(["2024-01-01", None, "2024-01-02"]),
    "categories": pd.Categorical(["a", None, "b"]),
    "pd.NA among texts": ["1", pd.NA, "2"],
}


@pytest.mark.parametrize("form", NULLS)
def test_null_keys_never_match(form: str) -> None:
    table = {"key": NULLS[form], "ts": [0, 0, 0]}
    assert pairs(table, table) == [(0, 0), (2, 2)]
    stats = (
        ps.WindowJoin(within=1, budget=ps.Tuples(9), policy="fifo")
        .run(table, table, on="key", time="ts")
        .stats
    )
    assert stats.null_keys == (1, 1)
    assert stats.arrivals == 4


def test_large_nullable_integers_stay_exact() -> None:
    values = [2**53 + 1, None, 2**53]
    for keys in (pd.array(values, dtype="Int64"), pa.array(values)):
        table = {"key": keys, "ts": [0, 0, 0]}
        assert pairs(table, table) == [(0, 0), (2, 2)]
    arrow = pa.table({"key": pa.array(values), "ts": [0, 0, 0]})
    assert pairs(arrow, arrow) == [(0, 0), (2, 2)]
    # A pandas column with nulls on one side, one without on the other.
    assert pairs({"key": pd.array(values, dtype="Int64"), "ts": [0] * 3}, {"key": [2**53], "ts": [0]}) == [
        (2, 0)
    ]


def test_a_list_of_several_types_keeps_them_apart() -> None:
    left, right = {"key": [1, "1"], "ts": [0, 0]}, {"key": ["1", 1], "ts": [0, 0]}
    assert sorted(pairs(left, right)) == [(0, 1), (1, 0)]


def test_texts_that_differ_in_a_trailing_nul() -> None:
    left, right = {"key": ["a", "b"], "ts": [0, 0]}, {"key": ["a\0", "b"], "ts": [0, 0]}
    assert pairs(left, right) == [(1, 1)]


def test_several_key_columns() -> None:
    left = {"a": [1, 1, 2, None], "b": ["x", "y", "x", "x"], "ts": [0, 0, 0, 0]}
    right = {"b": ["x", "y", "y", "x", None], "a": [2, 1, 2, 1, 1], "ts": [0, 0, 0, 0, 0]}
    assert pairs(left, right, on=["a", "b"]) == [(2, 0), (1, 1), (0, 3)]
    named = {"c": right["a"], "d": right["b"], "ts": right["ts"]}
    assert pairs(left, named, on=[("a", "c"), ("b", "d")]) == [(2, 0), (1, 1), (0, 3)]
    # Several columns and a column of tuples are the same thing.
    assert pairs(left, right, on=["a", "b", "b"]) == [(2, 0), (1, 1), (0, 3)]


def test_many_key_columns_of_many_values() -> None:
    # 2,000 values in each of 7 columns: the product of their numbers exceeds 64 bits.
    random = np.random.default_rng(0)
    names = [f"k{i}" for i in range(7)]
    table = {name: random.integers(0, 2**60, 2_000) for name in names} | {"ts": np.zeros(2_000, np.int64)}
    join = ps.WindowJoin(within=0, budget=ps.Tuples(5_000), policy="fifo")
    assert join.run(table, table, on=names, time="ts").stats.results == 2_000


# Times.

BASE = pd.Timestamp("2024-03-31 00:30")


def stamped(table: dict[str, Any], form: str) -> Any:
    stamps = pd.Series([BASE + pd.Timedelta(minutes=t) for t in table["ts"]])
    if form == "python datetimes":
        return {"key": table["key"], "ts": [stamp.to_pydatetime() for stamp in stamps]}
    if form == "aware python datetimes":
        return {"key": table["key"], "ts": [s.tz_localize("UTC").to_pydatetime() for s in stamps]}
    if form == "list of timestamps":
        return {"key": table["key"], "ts": list(stamps)}
    kind, _, unit = form.partition(" ")
    if kind == "numpy":
        return {"key": table["key"], "ts": stamps.to_numpy().astype(f"datetime64[{unit}]")}
    if kind == "pandas":
        return pd.DataFrame({"key": table["key"], "ts": stamps.astype(f"datetime64[{unit}]")})
    if kind == "aware":
        # The clocks of Berlin change in between.
        aware = (
            stamps.dt.tz_localize("UTC")
            .dt.tz_convert("Europe/Berlin")
            .astype(f"datetime64[{unit}, Europe/Berlin]")
        )
        return pd.DataFrame({"key": table["key"], "ts": aware})
    zone = "Europe/Berlin" if kind == "arrow-aware" else None
    times = pa.array(stamps.astype("datetime64[s]")).cast(pa.timestamp("s")).cast(pa.timestamp(unit))
    if zone:
        times = times.cast(pa.timestamp(unit, "UTC")).cast(pa.timestamp(unit, zone))
    return pa.table({"key": table["key"], "ts": times})


STAMPS = [
    f"{kind} {unit}"
    for kind in ("numpy", "pandas", "aware", "arrow", "arrow-aware")
    for unit in ("s", "ms", "us", "ns")
]
STAMPS += ["python datetimes", "aware python datetimes", "list of timestamps"]


@pytest.mark.parametrize("form", STAMPS)
def test_timestamps(form: str) -> None:
    left, right = stamped(LEFT, form), stamped(RIGHT, form)
    assert pairs(left, right, within="20 minutes") == PAIRS
    assert pairs(left, right, within=datetime.timedelta(minutes=20)) == PAIRS
    assert pairs(left, right, within=pd.Timedelta("20min")) == PAIRS


@pytest.mark.parametrize("other", STAMPS)
def test_timestamps_of_different_units_join(other: str) -> None:
    naive = "aware" not in other
    first = "pandas us" if naive else "aware us"
    assert pairs(stamped(LEFT, first), stamped(RIGHT, other), within="20 minutes") == PAIRS


def test_nanoseconds_count() -> None:
    times = pd.to_datetime([0, 1], unit="ns")
    left, right = {"key": [1], "ts": times[:1]}, {"key": [1], "ts": times[1:]}
    assert pairs(left, right, within="1 ns") == [(0, 0)]
    assert pairs(left, right, within="0 ns") == []
    assert (
        pairs({"key": [1], "ts": list(times[:1])}, {"key": [1], "ts": list(times[1:])}, within="0 ns") == []
    )


def test_dates_are_times() -> None:
    left = {"key": [1, 1], "ts": [datetime.date(2024, 1, 1), datetime.date(2024, 1, 5)]}
    right = {"key": [1], "ts": [datetime.date(2024, 1, 2)]}
    assert pairs(left, right, within="1 day") == [(0, 0)]
    assert pairs(pa.table(left), pa.table(right), within="1 day") == [(0, 0)]


@pytest.mark.parametrize("unit", ["ns", "us", "ms", "s", "min", "h", "minutes", "seconds"])
def test_unit_of_a_number(unit: str) -> None:
    factor = {
        "ns": 60 * 10**9,
        "us": 60 * 10**6,
        "ms": 60_000,
        "s": 60,
        "seconds": 60,
        "min": 1,
        "minutes": 1,
    }
    if unit == "h":
        left, right = ({"key": t["key"], "ts": [x / 60 for x in t["ts"]]} for t in (LEFT, RIGHT))
        assert pairs(left, right, within="20.0001 minutes", unit=unit) == PAIRS
        return
    left, right = ({"key": t["key"], "ts": [x * factor[unit] for x in t["ts"]]} for t in (LEFT, RIGHT))
    assert pairs(left, right, within="20 minutes", unit=unit) == PAIRS
    assert pairs(left, right, within=20 * factor[unit], unit=unit) == PAIRS


def test_integers_are_milliseconds_by_default() -> None:
    left, right = {"key": [1], "ts": [0]}, {"key": [1], "ts": [1_000]}
    assert pairs(left, right, within="1 s") == [(0, 0)]
    assert pairs(left, right, within="999 ms") == []


@pytest.mark.parametrize(
    "dtype", ["int8", "int32", "uint16", "uint64", "float32", "float64", "Int64", "Float64"]
)
def test_types_of_number(dtype: str) -> None:
    left, right = (
        pd.DataFrame({"key": t["key"], "ts": pd.array(t["ts"], dtype=dtype)}) for t in (LEFT, RIGHT)
    )
    assert pairs(left, right) == PAIRS
    assert pairs(left, RIGHT) == PAIRS


def test_fractional_window_on_whole_times() -> None:
    left, right = {"key": [1, 1], "ts": [0, 1]}, {"key": [1], "ts": [2]}
    assert pairs(left, right, within=1.5) == [(1, 0)]
    assert pairs(left, right, within="1500 us") == [(1, 0)]


def test_one_sided_window() -> None:
    # A click within ten minutes after its impression.
    impressions = {"key": ["a", "a"], "ts": [0, 900_000]}
    clicks = {"key": ["a", "a", "a"], "ts": [600_000, 600_001, 800_000]}
    assert pairs(impressions, clicks, within=("0 s", "10 minutes")) == [(0, 0)]
    assert pairs(impressions, clicks, within=("10 minutes", "0 s")) == [(1, 0), (1, 1), (1, 2)]


def test_landmark_of_a_duration() -> None:
    left = {"key": [1, 1], "ts": [59 * 60_000, 60 * 60_000]}
    assert pairs(left, left, within=ps.Landmark("1 hour")) == [(0, 0), (1, 1)]


def test_durations_as_people_write_them() -> None:
    left, right = {"key": [1], "ts": [0]}, {"key": [1], "ts": [5_400_000]}
    for text in (
        "1.5 h",
        "90 min",
        "90 minutes",
        "1 hour 30 minutes",
        "1h30m",
        "5400 s",
        "5400000ms",
        "1 h, 30 min",
    ):
        assert pairs(left, right, within=text) == [(0, 0)], text
    assert pairs(left, right, within="89 minutes") == []


# Little or nothing.


@pytest.mark.interpreted
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", [*online(), "opt"])
def test_empty_streams(kind: str, policy: str) -> None:
    empty = {"key": np.zeros(0, np.int64), "ts": np.zeros(0, np.int64)}
    some = KINDS[kind](LEFT)
    for step in steps(policy):
        join = ps.WindowJoin(within=20, budget=ps.Tuples(4), policy=policy, step=step)
        for left, right in (
            (KINDS[kind](empty), some),
            (some, KINDS[kind](empty)),
            (KINDS[kind](empty), empty),
        ):
            run = join.run(left, right, on="key", time="ts", collect=True, log=True)
            assert run.stats.results == run.stats.exact == run.pairs.num_rows == 0
            assert run.stats.recall == 1
            assert run.stats.distortion().sse == 0
            assert len(run.stats.recalls(5)) == -(-run.stats.arrivals // 5)


def test_empty_lists_and_columns_of_nulls() -> None:
    assert pairs({"key": [], "ts": []}, RIGHT) == []
    assert pairs({"key": [], "ts": []}, {"key": [], "ts": []}) == []
    assert pairs({"key": [None, None], "ts": [1, 2]}, RIGHT) == []
    assert pairs({"key": ["x"], "ts": [1]}, {"key": [], "ts": []}) == []


@pytest.mark.interpreted
@pytest.mark.parametrize("policy", [*online(), "opt"])
def test_a_single_row(policy: str) -> None:
    one = {"key": ["a"], "ts": [7]}
    for step in steps(policy):
        for allocation in ("equal", "proportional"):
            join = ps.WindowJoin(
                within=0, budget=ps.Tuples(2), policy=policy, step=step, allocation=allocation
            )
            stats = join.run(one, one, on="key", time="ts").stats
            assert stats.results == stats.exact == 1
            assert stats.same_tick == (step == "tick")


def test_a_fraction_of_a_stream_without_duration() -> None:
    one = {"key": list(range(10)), "ts": [7] * 10}
    stats = (
        ps.WindowJoin(within=5, budget=ps.Fraction(0.5), policy="fifo")
        .run(one, one, on="key", time="ts")
        .stats
    )
    assert stats.peak_tuples <= 10


def test_a_fraction_is_of_the_need_at_the_average_rate() -> None:
    # 200 arrivals in 99 units, a window of 10: floor(0.5 * 200 * 10 / 99) = 10 tuples.
    one = {"key": np.arange(100) % 5, "ts": np.arange(100)}
    join = ps.WindowJoin(within=10, budget=ps.Fraction(0.5), policy="fifo", allocation="unified")
    assert join.run(one, one, on="key", time="ts").stats.peak_tuples == 10
    # One-sided: the right stream needs nothing, floor(0.5 * 100 * 10 / 99) = 5.
    join = ps.WindowJoin(within=(0, 10), budget=ps.Fraction(0.5), policy="fifo", allocation="unified")
    assert join.run(one, one, on="key", time="ts").stats.peak_tuples == 5
