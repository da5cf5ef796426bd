"""Budgets in bytes: everything kept counts, and at no moment is there more of it than the budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.arrays import table_bytes
from penstock.engine.store import P_BYTES, P_LIVE, P_USED
from penstock.joins.growth import rooms_of
from penstock.payload import row_bytes
from tests.joins.agreement import online, steps

SPECS = [*online(bytes_too=True), "gdj:method=2"]
every_policy = pytest.mark.parametrize("spec", SPECS)
KIB = 1024


def arrivals(n: int, seed: int, largest: int, keys: int = 50) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(seed)
    return (
        random.integers(0, 2, n).astype(np.int8),
        random.integers(0, keys, n),
        np.arange(n),
        np.arange(n),
        random.integers(0, largest + 1, n),
    )


def started(join: ps.WindowJoin, **options: Any) -> ps.JoinState:
    """A state whose tables and payload fit the budget together."""
    state = join.start(**options)
    assert isinstance(join.budget, ps.Bytes)
    assert state.config.payload is not None
    assert state.table_bytes + sum(state.config.payload) <= join.budget.n
    return state


def resident(state: ps.JoinState) -> int:
    """What is really there: the payload of the buffered tuples and all arrays."""
    return table_bytes(state.store) + table_bytes(state.policy) + int(state.store.pools[:, P_USED].sum())


@pytest.mark.interpreted
@every_policy
def test_tables_and_payload_share_the_budget(spec: str) -> None:
    for budget in (64 * KIB, 100 * KIB, 10**6, 10**7):
        for average in (0, 1, 50, 1_000):
            started(ps.WindowJoin(within=10**9, budget=ps.Bytes(budget), policy=spec), row_bytes=average)


@pytest.mark.interpreted
@every_policy
def test_rows_of_one_size_do_not_outgrow_the_tables(spec: str) -> None:
    # 200 rows of 8 + 8 bytes and more than fit: the interpreter notices an index behind the end of a table.
    join = ps.WindowJoin(within=10**9, budget=ps.Bytes(32 * KIB), policy=spec)
    table = {"key": np.arange(200), "ts": np.arange(200)}
    assert join.run(table, table, on="key", time="ts").stats.peak_bytes <= 32 * KIB


# Small budgets, where fixed costs weigh most, up to middling ones.
@pytest.mark.parametrize("budget", [8 * KIB, 32 * KIB, 200 * KIB, 1_000 * KIB])
@every_policy
def test_tables_alone_fit_the_budget(spec: str, budget: int) -> None:
    """Rows are as many as fit with the least payload, so the tables never take more than the budget."""
    join = ps.WindowJoin(within=10**9, budget=ps.Bytes(budget), policy=spec)
    try:
        state = join.start()
    except ps.PenstockError:
        return  # refused as too small, which is honest too
    assert table_bytes(state.store) + table_bytes(state.policy) <= budget


@pytest.mark.parametrize("allocation", ["equal", "proportional", "unified"])
@every_policy
def test_never_exceeded_by_tuples_without_payload(spec: str, allocation: str) -> None:
    """Here all rows are used, so the tables as they are must fit."""
    if allocation == "unified" and not ps.policies.get(spec).unified:
        return
    join = ps.WindowJoin(within=10**9, budget=ps.Bytes(32 * KIB), policy=spec, allocation=allocation)
    state = started(join, rates=(3.0, 1.0))
    batch = arrivals(2_000, 1, 0)
    for start in range(0, 2_000, 50):
        state.process(*(part[start : start + 50] for part in batch))
        state.check()
        assert state.peak_bytes <= 32 * KIB
        assert resident(state) <= 32 * KIB
    assert state.totals()["evicted"] > 0


@pytest.mark.parametrize(("spec", "step"), [(spec, step) for spec in SPECS for step in steps(spec)])
@settings(max_examples=6)
@given(
    seed=st.integers(0, 1_000), largest=st.sampled_from([10, 300, 5_000]), budget=st.sampled_from([40, 90])
)
def test_never_exceeded_by_payload(spec: str, step: str, seed: int, largest: int, budget: int) -> None:
    join = ps.WindowJoin(within=60, budget=ps.Bytes(budget * KIB), policy=spec, step=step, seed=seed)
    state = started(join)
    batch = arrivals(300, seed, largest)
    for start in range(0, 300, 20):
        state.process(*(part[start : start + 20] for part in batch))
        state.check()
        assert state.peak_bytes <= budget * KIB
    totals = state.totals()
    assert totals["arrivals"] == totals["buffered"] + totals["expired"] + totals["evicted"]
    assert totals["oversize"] <= totals["refused"] <= totals["evicted"]


@every_policy
def test_the_budget_is_used(spec: str) -> None:
    """Half of it at least holds payload when tuples are large: honest is not the same as timid."""
    join = ps.WindowJoin(within=10**9, budget=ps.Bytes(512 * KIB), policy=spec, allocation="equal")
    state = started(join, row_bytes=900, rates=(1.0, 1.0))
    stream, key, time, row, _ = arrivals(3_000, 2, 0)
    state.process(stream, key, time, row, np.full(3_000, 1_000))
    assert state.totals()["evicted"] > 0
    assert int(state.store.pools[:, P_USED].sum()) > 256 * KIB
    assert state.peak_bytes <= 512 * KIB


# Tuples that do not fit.


@every_policy
def test_a_tuple_larger_than_its_buffer_is_refused(spec: str) -> None:
    state = ps.WindowJoin(within=100, budget=ps.Bytes(64 * KIB), policy=spec).start(rates=(1.0, 1.0))
    # A small tuple, one that no buffer can hold, and a partner for each: the large one probes all the same.
    out = state.process(
        [0, 0, 1, 1], [1, 2, 1, 2], [0, 1, 2, 3], [0, 1, 0, 1], [50, 10**6, 50, 50], collect=True
    )
    assert out.pairs.tolist() == [[0, 0]]
    totals = state.totals()
    assert (totals["oversize"], totals["refused"], totals["evicted"], totals["buffered"]) == (1, 1, 1, 3)
    state.check()
    state.process([1, 0], [3, 3], [4, 5], [2, 2], [0, 10**6], collect=True)
    assert state.totals()["oversize"] == 2
    assert state.totals()["results"] == 2
    state.check()


def test_several_small_tuples_make_room_for_a_large_one() -> None:
    state = ps.WindowJoin(
        within=10**9, budget=ps.Bytes(16 * KIB), policy="fifo", allocation="unified"
    ).start()
    n = 60
    state.process([0] * n, list(range(n)), list(range(n)), list(range(n)), [10] * n)
    before = state.buffered
    room = int(state.store.pools[0, P_BYTES])
    out = state.process([0], [99], [n], [n], [room - 20], log=True)
    gone = out.log[:, 2].tolist()
    assert len(gone) > 3, "one victim is not enough"
    assert gone == sorted(gone), "the oldest go first"
    assert state.buffered == before + 1 - len(gone)
    assert state.peak_bytes <= 16 * KIB
    state.check()


def test_room_is_given_back_when_tuples_leave() -> None:
    join = ps.WindowJoin(within=5, budget=ps.Bytes(64 * KIB), policy="lru", allocation="equal")
    state = join.start(row_bytes=9_000)
    for time in range(0, 3_000, 10):
        state.process([0, 1], [time, time + 1], [time, time], [time, time], [9_000, 9_000])
    totals = state.totals()
    assert totals["evicted"] == 0
    assert totals["expired"] == 598
    assert state.store.pools[:, P_LIVE].tolist() == [1, 1]
    assert state.store.pools[:, P_USED].tolist() == [9_000, 9_000]


# Payload of tables.


def measured(column: pa.Array) -> tuple[int, int]:
    """(ours, Arrow's own): bytes of a table with this column."""
    table = pa.table({"c": column})
    return int(row_bytes(table).sum()), int(table.nbytes)


N = 400
COLUMNS = {
    "int8": pa.array(range(100), pa.int8()),
    "int64": pa.array(range(N)),
    "double": pa.array(np.linspace(0, 1, N)),
    "bool": pa.array([True, False] * (N // 2)),
    "timestamp": pa.array(pd.date_range("2024", periods=N)),
    "decimal": pa.array(range(N)).cast(pa.decimal128(20)),
    "string": pa.array(["x" * (i % 50) for i in range(N)]),
    "string with nulls": pa.array([None if i % 3 else "y" * i for i in range(N)]),
    "large string": pa.array(["x" * (i % 50) for i in range(N)], pa.large_string()),
    "string view": pa.array(["x" * (i % 50) for i in range(N)], pa.string_view()),
    "binary": pa.array([b"z" * (i % 9) for i in range(N)]),
    "fixed binary": pa.array([b"12345678"] * N, pa.binary(8)),
    "list": pa.array([list(range(i % 7)) for i in range(N)]),
    "list with nulls": pa.array([None if i % 5 == 0 else [i, None] for i in range(N)]),
    "list of strings": pa.array([["ab"] * (i % 4) for i in range(N)]),
    "fixed list": pa.array([[1.0, 2.0, 3.0]] * N, pa.list_(pa.float64(), 3)),
    "large list": pa.array([list(range(i % 7)) for i in range(N)], pa.large_list(pa.int64())),
    "struct": pa.array([{"a": i, "b": "x" * (i % 5)} for i in range(N)]),
    "nested": pa.array([{"a": [{"b": "xyz"}] * (i % 3)} for i in range(N)]),
    "map": pa.array([[("k", i), ("l", 2)] for i in range(N)], pa.map_(pa.string(), pa.int64())),
    "dictionary": pa.array([f"value {i % 5}" for i in range(N)]).dictionary_encode(),
    "null": pa.nulls(N),
    "date": pa.array(range(N), pa.int32()).cast(pa.date32()),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_payload_is_what_arrow_says(kind: str) -> None:
    """Never less than Arrow takes for the values (but for dictionaries it shares), and not far from it."""
    ours, arrows = measured(COLUMNS[kind])
    rows = len(COLUMNS[kind])
    assert ours <= 1.5 * arrows + 16 * rows
    # Validity bitmaps and the one offset more than rows are all that may be missing.
    assert ours >= arrows - rows // 2 - 16


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_slice_is_measured_like_the_whole(kind: str) -> None:
    """Offsets into shared buffers are not mistaken for the start of the data."""
    table = pa.table({"c": COLUMNS[kind]})
    whole = row_bytes(table)
    assert row_bytes(table.slice(37, 41)).tolist() == whole[37:78].tolist()
    parts = pa.concat_tables([table.slice(0, 50), table.slice(50)])
    assert row_bytes(parts).tolist() == whole.tolist()


def test_payload_of_pandas_and_dicts() -> None:
    table = {"key": ["a", "bcd", ""], "ts": [1, 2, 3], "x": [0.5, None, 1.5]}
    expected = row_bytes(pa.table(table)).tolist()
    assert row_bytes(pd.DataFrame(table)).tolist() == expected
    assert row_bytes(table).tolist() == expected
    assert row_bytes(pd.DataFrame(table, index=[5, 6, 7])).tolist() == expected


def test_empty_tables_have_no_payload() -> None:
    assert row_bytes({"key": [], "ts": []}).tolist() == []
    assert row_bytes(pa.table({"key": pa.array([], pa.string())})).tolist() == []


@pytest.mark.parametrize("policy", SPECS)
def test_runs_of_whole_tables(policy: str) -> None:
    random = np.random.default_rng(7)
    n = 3_000
    tables = [
        pd.DataFrame(
            {
                "key": random.integers(0, 40, n),
                "ts": np.sort(random.integers(0, 20_000, n)),
                "note": ["n" * int(length) for length in random.integers(0, 400, n)],
            }
        )
        for _ in range(2)
    ]
    for budget in (100 * KIB, 400 * KIB):
        join = ps.WindowJoin(within=5_000, budget=ps.Bytes(budget), policy=policy)
        stats = join.run(*tables, on="key", time="ts").stats
        assert stats.peak_bytes <= budget
        assert stats.evicted > 0
        assert stats.results > 0
        assert stats.arrivals == stats.buffered + stats.expired + stats.evicted


def test_more_bytes_more_tuples() -> None:
    table = {"key": np.arange(5_000) % 50, "ts": np.arange(5_000), "note": ["x" * 100] * 5_000}
    peaks = [
        ps.WindowJoin(within=10**6, budget=ps.Bytes(kib * KIB), policy="lru")
        .run(table, table, on="key", time="ts")
        .stats.peak_tuples
        for kib in (50, 100, 200, 400)
    ]
    assert peaks == sorted(peaks)
    assert peaks[-1] > 6 * peaks[0]


# Key counts.


@pytest.mark.parametrize("policy", ["prob", "life"])
@pytest.mark.parametrize("budget", [16 * KIB, 100 * KIB, 1_000 * KIB])
def test_key_counts_take_a_fifth_at_most(policy: str, budget: int) -> None:
    state = started(ps.WindowJoin(within=10**6, budget=ps.Bytes(budget), policy=policy))
    assert 0 < table_bytes(state.policy.counts) <= 0.2 * budget
    n = 20_000
    random = np.random.default_rng(1)
    # Far more keys than the counts can hold.
    state.process(
        random.integers(0, 2, n),
        random.integers(0, 10**9, n),
        np.arange(n),
        np.arange(n),
        np.zeros(n, np.int64),
    )
    assert table_bytes(state.policy.counts) <= 0.2 * budget
    assert state.peak_bytes <= budget
    state.check()


@pytest.mark.parametrize("policy", ["prob", "life"])
def test_exact_counts_are_reported_under_a_budget_of_tuples(policy: str) -> None:
    def peak(keys: int) -> int:
        table = {"key": np.arange(20_000) % keys, "ts": np.arange(20_000)}
        join = ps.WindowJoin(within=100, budget=ps.Tuples(100), policy=policy)
        return join.run(table, table, on="key", time="ts").stats.peak_bytes

    assert peak(20_000) > peak(10) + 16 * 20_000


def test_sketch_and_exact_counts_agree_while_there_is_room() -> None:
    """Few keys: the sketch holds them all, so that the same tuples stay as with exact counts."""
    random = np.random.default_rng(3)
    n = 2_000
    batch: dict[str, Any] = {
        "stream": random.integers(0, 2, n),
        "key": random.zipf(1.5, n) % 20,
        "time": np.arange(n),
        "row": np.arange(n),
    }
    options: dict[str, Any] = {"within": 500, "policy": "prob", "allocation": "equal"}
    in_bytes = started(ps.WindowJoin(budget=ps.Bytes(64 * KIB), **options))
    first = in_bytes.process(*batch.values(), np.zeros(n, np.int64), collect=True, log=True)
    limit = rooms_of(in_bytes.store)  # as far as the tables have grown
    in_tuples = ps.WindowJoin(budget=ps.Tuples(sum(limit)), **options).start()
    assert limit[0] - limit[1] in (0, 1)
    second = in_tuples.process(*batch.values(), collect=True, log=True)
    assert first.pairs.tolist() == second.pairs.tolist()
    assert first.log.tolist() == second.log.tolist()


@pytest.mark.interpreted
def test_rows_smaller_than_promised_do_not_outgrow_the_tables() -> None:
    # The tables were made for rows of 900 bytes and more; those of 10 bytes must find the tables full, or be
    # refused with an error. The interpreter notices an index behind the end of a table.
    join = ps.WindowJoin(within=10**9, budget=ps.Bytes(32 * KIB), policy="fifo")
    state = join.start(row_bytes=900)
    n = 300
    try:
        state.process([0] * n, list(range(n)), list(range(n)), list(range(n)), [10] * n)
    except ps.PenstockError:
        return
    state.check()
    assert state.peak_bytes <= 32 * KIB
