"""Bad input is refused before any work, with what was given, what is allowed, and what was meant."""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import (
    BudgetError,
    ColumnError,
    PenstockError,
    PolicyOptionError,
    SnapshotError,
    UnknownPolicyError,
    WindowError,
)
from penstock.joins import snapshot as snapshots
from tests.joins.agreement import online

GOOD: dict[str, Any] = {"within": 10, "budget": ps.Tuples(4), "policy": "fifo"}
TABLE = {"key": [1, 2], "ts": [0, 1]}


def refuse(error: type[Exception], *words: str, **changes: Any) -> None:
    """A join with these changes is refused when it is built, in a message with all these words."""
    with pytest.raises(error) as caught:
        ps.WindowJoin(**(GOOD | changes))
    assert_says(caught.value, *words)


def refuse_run(
    error: type[Exception],
    *words: str,
    left: Any = None,
    right: Any = None,
    on: Any = "key",
    time: Any = "ts",
    **changes: Any,
) -> None:
    """The join can be built, but not run on these streams."""
    join = ps.WindowJoin(**(GOOD | changes))
    with pytest.raises(error) as caught:
        join.run(TABLE if left is None else left, TABLE if right is None else right, on=on, time=time)
    assert_says(caught.value, *words)


def assert_says(error: Exception, *words: str) -> None:
    assert isinstance(error, PenstockError)
    for word in words:
        assert word in str(error), f"{word!r} is not in: {error}"


# Policies.


@pytest.mark.nojit
@pytest.mark.parametrize(
    ("given", "meant"), [("gjd", "gdj"), ("fif", "fifo"), ("clok", "clock"), ("clock-ex", "clock-exp")]
)
def test_unknown_policy(given: str, meant: str) -> None:
    refuse(UnknownPolicyError, repr(given), f"did you mean {meant!r}?", "Allowed: fifo", policy=given)


@pytest.mark.parametrize("given", ["", " ", "no such thing at all", None, 3, ["lru"], object])
def test_no_policy_at_all(given: Any) -> None:
    refuse(UnknownPolicyError, "policy", policy=given)


def test_unknown_option() -> None:
    refuse(PolicyOptionError, "'initail'", "did you mean 'initial'?", policy="gdj:initail=0.3")
    refuse(PolicyOptionError, "has no option", policy="fifo:size=3")
    refuse(PolicyOptionError, "name=value", policy="gdj:0.3")
    refuse(PolicyOptionError, "name=value", policy="gdj:initial=")
    for policy in ps.policies.names():
        refuse(PolicyOptionError, "has no option", "'colour'", policy=f"{policy}:colour=red")


RANGES = [
    *(f"gdj:initial={bad}" for bad in ("-0.1", "1.1", "nan", "inf", "median", "true")),
    *(f"gdj:method={bad}" for bad in ("0", "4", "1.5", "first", "true")),
    *(f"clock:w0={bad}" for bad in ("-1", "nan", "inf", "high", "true")),
    *(f"clock-exp:rho={bad}" for bad in ("0", "-0.5", "1", "1.5", "nan", "inf", "slow")),
    *(f"clock-exp:w0={bad}" for bad in ("-1", "nan", "inf", "high")),
    *(f"clock-exp:threshold={bad}" for bad in ("0", "-1", "nan", "low")),
    *(f"age:k={bad}" for bad in ("-1", "nan", "best", "true")),
    *(f"age:curve={bad}" for bad in ("future", "-1", "3", "nan", "true")),
]


@pytest.mark.parametrize("spec", RANGES)
def test_option_out_of_range(spec: str) -> None:
    name, _, option = spec.partition(":")
    refuse(PolicyOptionError, name, option.partition("=")[0], "must be", policy=spec)


OBJECTS: list[Callable[[], Any]] = [
    lambda: ps.policies.Age(k=(1, 2, 3)),
    lambda: ps.policies.Age(k=(1, -2)),
    lambda: ps.policies.Age(k=()),
    lambda: ps.policies.Age(k=None),
    lambda: ps.policies.Age(k=[1, 2]),
    lambda: ps.policies.Age(curve=()),
    lambda: ps.policies.Age(curve=(0.1, -0.2)),
    lambda: ps.policies.Age(curve=(0.1, "x")),
    lambda: ps.policies.Age(curve=None),
    lambda: ps.policies.Age(curve=((0.1,), ())),
    lambda: ps.policies.GreedyDualJoin(initial=None),
    lambda: ps.policies.GreedyDualJoin(initial=(0.5, 0.5)),
    lambda: ps.policies.GreedyDualJoin(method="1"),
    lambda: ps.policies.Clock(w0=None),
    lambda: ps.policies.ClockExp(rho=None),
]


@pytest.mark.parametrize("number", range(len(OBJECTS)))
def test_option_of_an_object_out_of_range(number: int) -> None:
    with pytest.raises(PolicyOptionError, match="must be"):
        OBJECTS[number]()


def test_age_has_no_unified_pool() -> None:
    refuse(UnknownPolicyError, "age", "allocation='equal'", policy="age", allocation="unified")


def test_registering_what_is_no_policy() -> None:
    with pytest.raises(UnknownPolicyError, match="subclass"):
        ps.policies.register(dict)  # type: ignore[type-var]

    class Nameless(ps.policies.PythonPolicy):
        pass

    class Taken(ps.policies.PythonPolicy):
        name = "lru"

    class Colon(ps.policies.PythonPolicy):
        name = "a:b"

    for policy, words in ((Nameless, "short name"), (Taken, "taken"), (Colon, "short name")):
        with pytest.raises(UnknownPolicyError, match=words):
            ps.policies.register(policy)


# Budgets.


@pytest.mark.nojit
def test_budget_below_one_tuple_per_stream() -> None:
    refuse(BudgetError, "one tuple per stream", "Tuples(n=1)", budget=ps.Tuples(1))
    refuse_run(BudgetError, "one tuple per stream", "Fraction(share=1e-06)", budget=ps.Fraction(1e-6))
    refuse_run(BudgetError, "one tuple per stream", "100 bytes", "Give at least", budget=ps.Bytes(100))
    refuse_run(BudgetError, "one tuple per stream", "1 bytes", budget=ps.Bytes(1))


@pytest.mark.parametrize("allocation", ["equal", "proportional", "unified"])
@pytest.mark.parametrize("policy", online(bytes_too=True))
def test_the_budget_that_the_message_asks_for_is_enough(policy: str, allocation: str) -> None:
    if allocation == "unified" and not ps.policies.get(policy).unified:
        return
    options = GOOD | {"policy": policy, "allocation": allocation}
    with pytest.raises(BudgetError) as caught:
        ps.WindowJoin(**(options | {"budget": ps.Bytes(50)})).run(TABLE, TABLE, on="key", time="ts")
    enough = int(str(caught.value).rsplit("Give at least ", 1)[1].split()[0])
    stats = (
        ps.WindowJoin(**(options | {"budget": ps.Bytes(enough)})).run(TABLE, TABLE, on="key", time="ts").stats
    )
    assert stats.peak_bytes <= enough


@pytest.mark.parametrize("given", [0, -1, 1.5, "10", None, True, float("nan")])
def test_tuples_that_are_no_number_of_tuples(given: Any) -> None:
    with pytest.raises(BudgetError, match="whole number from 1"):
        ps.Tuples(given)


@pytest.mark.parametrize("given", [0, -5, 1.5, None, True, "", "many", "64 Mops", "-1 MiB", "MiB", "1e3"])
def test_bytes_that_are_no_size(given: Any) -> None:
    with pytest.raises(BudgetError, match=r"byte|size"):
        ps.Bytes(given)


@pytest.mark.parametrize("given", [0, -0.1, float("nan"), float("inf"), "half", None, True])
def test_fractions_that_are_no_share(given: Any) -> None:
    with pytest.raises(BudgetError, match="share above 0"):
        ps.Fraction(given)


@pytest.mark.parametrize(
    "given", [100, None, "100", "lots", "0 %", "-5 %", "nan %", "0 tuples", "x tuples", (5, 5), {}]
)
def test_budgets_that_are_none(given: Any) -> None:
    refuse(BudgetError, budget=given)


def test_a_fraction_needs_the_whole_input() -> None:
    with pytest.raises(BudgetError, match="give Tuples or Bytes"):
        ps.WindowJoin(**(GOOD | {"budget": ps.Fraction(0.5)})).start()


# Windows.


@pytest.mark.nojit
@pytest.mark.parametrize(
    "given", [-1, -0.5, float("nan"), float("inf"), "-1 s", (-1, 5), (5, float("nan")), ("1 s", "-1 s")]
)
def test_negative_and_endless_windows(given: Any) -> None:
    refuse(WindowError, "within", "not negative", within=given)


@pytest.mark.parametrize(
    "given", ["", "soon", "10", "10 parsecs", "minutes 10", "10 minutes or so", "1 h 30", "1..5 s"]
)
def test_durations_that_are_none(given: str) -> None:
    refuse(WindowError, "s", within=given)
    with pytest.raises(WindowError):
        ps.Landmark(given)


def test_a_unit_that_is_nearly_one() -> None:
    refuse(WindowError, "'mims'", "Allowed: ns", within="10 mims")
    with pytest.raises(WindowError, match="unit of time"):
        ps.WindowJoin(**GOOD).run(TABLE, TABLE, on="key", time="ts", unit="fortnights")


@pytest.mark.parametrize("given", [None, True, [], (1,), (1, 2, 3), {}, object(), b"1 s", (None, 1), 1j])
def test_windows_that_are_none(given: Any) -> None:
    refuse(WindowError, "within", within=given)


@pytest.mark.parametrize("given", [0, -1, 1.5, None, True, "5"])
def test_rows_that_are_no_number(given: Any) -> None:
    with pytest.raises(WindowError, match="whole number from 1"):
        ps.Rows(given)


@pytest.mark.parametrize("given", [0, -1, float("nan"), float("inf"), "0 s", None, True])
def test_periods_that_are_none(given: Any) -> None:
    with pytest.raises(WindowError):
        ps.Landmark(given).resolve("ms")


def test_a_period_finer_than_the_clock() -> None:
    # A state for whole-number times cannot keep such periods; a run sees the times and takes them as floats.
    join = ps.WindowJoin(**(GOOD | {"within": ps.Landmark(2.5)}))
    with pytest.raises(WindowError, match="whole number"):
        join.start()
    table = {"key": [1, 1, 1], "ts": [2, 3, 4]}
    assert join.run(table, table, on="key", time="ts").stats.exact == 5


@pytest.mark.parametrize("given", [1e30, 10**30, 2**63, "100000000000 weeks", (0, 1e30)])
def test_windows_beyond_64_bits_are_endless_or_refused(given: Any) -> None:
    """All tuples join, or the window is refused; an arithmetic error is neither."""
    try:
        run = ps.WindowJoin(**(GOOD | {"within": given})).run(TABLE, TABLE, on="key", time="ts")
    except PenstockError:
        return
    assert run.stats.results == run.stats.exact == 2


# Other options.


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("allocation", "unifed"),
        ("allocation", None),
        ("allocation", ["equal"]),
        ("step", "tock"),
        ("step", 1),
        ("drop_at", "probe"),
        ("drop_at", None),
    ],
)
def test_words_that_are_not_known(option: str, given: Any) -> None:
    refuse(PenstockError, f"{option}={given!r}", "Allowed", **{option: given})


def test_did_you_mean_a_word() -> None:
    refuse(PenstockError, "did you mean 'unified'?", allocation="unifed")
    refuse(PenstockError, "did you mean 'tick'?", step="ticks")


@pytest.mark.parametrize("given", [-0.1, 1.1, float("nan"), float("inf"), "biased", None, True, (0.1, 0.2)])
def test_drop_rates(given: Any) -> None:
    refuse(PenstockError, f"drop_rate={given!r}", "from 0 to 1, or 'unbiased'", drop_rate=given)


@pytest.mark.parametrize("option", ["warmup", "seed"])
@pytest.mark.parametrize("given", [-1, 1.5, "3", None, True, float("nan")])
def test_whole_numbers(option: str, given: Any) -> None:
    refuse(PenstockError, f"{option}={given!r}", "whole number from 0", **{option: given})


@pytest.mark.parametrize("changes", [{"allocation": "proportional"}, {"drop_rate": "unbiased"}])
def test_a_stream_must_tell_its_rates(changes: dict[str, Any]) -> None:
    with pytest.raises(PenstockError, match="rates="):
        ps.WindowJoin(**(GOOD | changes)).start()


@pytest.mark.parametrize("rates", [(-1, 1), (1,), (float("nan"), 1), "fast", (1, 2, 3), 5])
def test_rates_that_are_none(rates: Any) -> None:
    with pytest.raises(PenstockError, match="rates"):
        ps.WindowJoin(**(GOOD | {"allocation": "proportional"})).start(rates=rates)


# Streams.


@pytest.mark.nojit
def test_missing_columns() -> None:
    refuse_run(ColumnError, "left stream", "'kex'", "did you mean 'key'?", on="kex")
    refuse_run(ColumnError, "right stream", "'key'", "Allowed: id, ts", right={"id": [1], "ts": [1]})
    refuse_run(ColumnError, "left stream", "'time'", "Allowed: key, ts", time="time")
    refuse_run(ColumnError, "right stream", "'t'", time=("ts", "t"))
    refuse_run(ColumnError, "'b'", on=["key", "b"])
    for kind in (pd.DataFrame, pa.table):
        refuse_run(ColumnError, "did you mean 'key'?", left=kind(TABLE), on="kez")


@pytest.mark.parametrize(
    "on", [None, 5, [], (), "", [1], [("key",)], [("key", "key", "key")], [("key", 3)], {"key"}]
)
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


@pytest.mark.nojit
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
        with pytest.raises(PenstockError, match="long"):
            process(*arrays)
    with pytest.raises(PenstockError, match="long"):
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


# Snapshots.


@pytest.fixture(scope="module")
def snapshot() -> bytes:
    state = ps.WindowJoin(within=10, budget=ps.Tuples(6), policy="prob", step="tick").start()
    state.process([0, 1, 0, 1], [5, 5, 6, 7], [0, 1, 1, 2], [0, 0, 1, 1])
    return state.snapshot()


def test_foreign_snapshots() -> None:
    for data in (b"", b"PENSTOCK", b"hello", pickle.dumps([1, 2, 3]), b"\0" * 500, b"PENSTOCK" + b"\0" * 500):
        with pytest.raises(SnapshotError):
            ps.JoinState.restore(data)


@pytest.mark.parametrize("data", [None, "text", 5, [1]])
def test_what_a_snapshot_cannot_be(data: Any) -> None:
    with pytest.raises(SnapshotError, match="bytes"):
        ps.JoinState.restore(data)


def test_a_snapshot_of_another_version(snapshot: bytes) -> None:
    other = snapshot[:8] + (99).to_bytes(2, "little") + snapshot[10:]
    with pytest.raises(SnapshotError, match="version 99"):
        ps.JoinState.restore(other)


def test_every_truncation_is_noticed(snapshot: bytes) -> None:
    for length in [*range(60), *range(60, len(snapshot), 37), len(snapshot) - 1]:
        with pytest.raises(SnapshotError):
            ps.JoinState.restore(snapshot[:length])
    with pytest.raises(SnapshotError):
        ps.JoinState.restore(snapshot + b"\0")


def test_every_flipped_bit_of_the_header_is_noticed(snapshot: bytes) -> None:
    """Whatever field a bit is in: a length that is wrong must not be believed either."""
    for at in range(40):
        for bit in range(8):
            damaged = bytearray(snapshot)
            damaged[at] ^= 1 << bit
            with pytest.raises(SnapshotError):
                ps.JoinState.restore(bytes(damaged))


def test_flipped_bits_are_noticed(snapshot: bytes) -> None:
    random = np.random.default_rng(0)
    for at in random.integers(40, len(snapshot), 300):
        damaged = bytearray(snapshot)
        damaged[at] ^= 1 << int(random.integers(8))
        with pytest.raises(SnapshotError):
            ps.JoinState.restore(bytes(damaged))


class Sneaky:
    """Pickles as a call of a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def forged(body: bytes) -> bytes:
    packed = pa.compress(body, codec="zstd", asbytes=True)
    return snapshots.SEAL.seal(struct.pack("<Q", len(body)) + packed)


@pytest.mark.parametrize(
    "function",
    [np.savetxt, np.testing.assert_equal, np.load, np.fromfile, io.open, eval, print, ps.policies.unregister],
)
def test_a_forged_snapshot_calls_no_functions(function: Any, tmp_path: Any) -> None:
    """Good checksum, bad intent: only the classes of a state may be named."""
    target = tmp_path / "written"
    arguments = (str(target), [1.0]) if function is np.savetxt else ("1", "1")
    data = forged(
        pickle.dumps(
            (None, (), Sneaky(function, *arguments[: 1 if function is ps.policies.unregister else 2]), {})
        )
    )
    with pytest.raises(SnapshotError, match="no place"):
        ps.JoinState.restore(data)
    assert not target.exists()


def test_a_forged_snapshot_reaches_nothing_through_a_module() -> None:
    # Dotted names lead from a module of Penstock to whatever it imports.
    body = b"\x80\x04\x8c\x10penstock.columns\x8c\x0bpd.read_csv\x93."
    with pytest.raises(SnapshotError, match="no place"):
        ps.JoinState.restore(forged(body))


@pytest.mark.parametrize("content", [None, (), (1, 2, 3, 4), (None, (), None, {}), "text"], ids=repr)
def test_a_snapshot_of_something_else(content: Any) -> None:
    with pytest.raises(SnapshotError):
        ps.JoinState.restore(forged(pickle.dumps(content)))


def test_unknown_measure_of_distortion() -> None:
    stats = ps.WindowJoin(**GOOD).run(TABLE, TABLE, on="key", time="ts").stats
    with pytest.raises(PenstockError, match="'sse'"):
        stats.distortion("see")
