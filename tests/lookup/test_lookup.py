"""Lookups on SQLite and PostgreSQL: the answers of a plain join, and the hits of requests one by one."""

from __future__ import annotations

import pickle
import time
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import caching
from penstock.errors import (
    BudgetError,
    ColumnError,
    FetchError,
    MissingKeyError,
    PenstockError,
    SnapshotError,
    UnknownPolicyError,
)
from penstock.testing import ManualClock
from tests.data import real

POLICIES = ps.policies.caching_names()


def stream(rows: int = 3_000, keys: int = 300, seed: int = 1) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame({"item": random.zipf(1.3, rows) % keys, "n": np.arange(rows)})


def expected(events: pd.DataFrame, how: str = "left") -> list[tuple[Any, ...]]:
    items = pd.DataFrame({"item": range(0, 2_000, 2)})
    items["name"], items["weight"] = [f"item {i}" for i in items["item"]], items["item"] / 4
    joined = events.merge(items, on="item", how=how).sort_values("n")
    return [
        (a, b, None if c != c else c, None if d != d else d)
        for a, b, c, d in joined.itertuples(index=False, name=None)
    ]


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("size", [1, 25, 1_000])
def test_the_answers_of_a_plain_join(url: str, policy: str, size: int) -> None:
    events = stream()
    for missing, how in (("null", "left"), ("drop", "inner")):
        lookup = ps.LookupCache(
            (url, "items"), key="id", budget=ps.Tuples(size), policy=policy, missing=missing, batch=700
        )
        run = lookup.run(events, on="item")
        assert rows_of(run.table) == expected(events, how)
        assert run.stats.hits == caching.replay(events["item"].to_numpy(), policy, size).hits
        assert run.stats.requests == len(events)
        assert run.stats.queries <= 5


def fetch(keys: list[int]) -> list[dict[str, int] | None]:
    assert len(keys) == len(set(keys)), "a key is asked for twice"
    return [{"double": 2 * key} if key % 3 else None for key in keys]


@settings(max_examples=80)
@given(
    keys=st.lists(st.integers(0, 12), max_size=60),
    size=st.integers(1, 8),
    batch=st.integers(1, 20),
    policy=st.sampled_from(POLICIES),
    negative=st.booleans(),
)
def test_batches_change_no_hit(keys: list[int], size: int, batch: int, policy: str, negative: bool) -> None:
    if policy == "lfd":
        negative = True
    lookup = ps.LookupCache(
        fetch, key="k", budget=size, policy=policy, batch=batch, negative=negative, query_keys=3
    )
    run = lookup.run({"k": np.array(keys, np.int64)})
    cached = keys if negative else [key for key in keys if key % 3]
    assert run.stats.hits == caching.replay(np.array(cached, np.int64), policy, size).hits
    assert run.stats.misses == len(keys) - run.stats.hits
    if any(key % 3 for key in keys):
        assert run.table["double"].to_pylist() == [2 * key if key % 3 else None for key in keys]


@settings(max_examples=40)
@given(
    batches=st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=6),
    policy=st.sampled_from(["lru", "prob", "rand", "heeb", "heeb-hist"]),
    budget=st.sampled_from([ps.Tuples(7), ps.Bytes(4_000), ps.Bytes(9_000)]),
)
def test_invariants_and_snapshots(batches: list[list[int]], policy: str, budget: Any) -> None:
    """A restored state goes on as the original; without its rows it only has to fetch them again."""
    sized = lambda keys: [{"text": "x" * (13 * key)} if key % 5 else None for key in keys]  # noqa: E731
    lookup = ps.LookupCache(sized, key="k", budget=budget, policy=policy, schema={"text": pa.string()})
    state = lookup.start()
    for keys in batches:
        full, bare = (lookup.start().restore(state.snapshot(rows=rows)) for rows in (True, False))
        outs = [each.process({"k": np.array(keys, np.int64)}, on="k") for each in (state, full, bare)]
        assert outs[0].equals(outs[1])
        assert outs[0].equals(outs[2])
        assert outs[0]["text"].to_pylist() == ["x" * (13 * key) if key % 5 else None for key in keys]
        for each in (state, full, bare):
            each.check()
        assert state.stats.hits == full.stats.hits == bare.stats.hits


def test_bytes_bound_what_is_kept() -> None:
    lookup = ps.LookupCache(
        lambda keys: [{"text": "x" * (key % 900)} for key in keys],
        key="k",
        budget="64 KiB",
        policy="lru",
        batch=500,
    )
    state = lookup.start()
    for part in np.array_split(np.random.default_rng(0).integers(0, 5_000, 20_000), 40):
        state.process({"k": part}, on="k")
        state.check()
    assert 24_000 < state.stats.cached_bytes <= 65_536
    large = ps.LookupCache(lambda keys: [{"t": "x" * 99_999}] * len(keys), key="k", budget="8 KiB")
    run = large.run({"k": [1, 1]})
    assert (run.stats.hits, run.stats.refused, run.stats.cached_records) == (0, 2, 0)


# Keys.


def test_composite_keys(url: str) -> None:
    events = {"x": [1, 1, 30, None, 2], "where": ["a", "c", "a", "a", "b"]}
    run = ps.LookupCache((url, "places"), key=["x", "y"], budget=9).run(events, on=["x", "where"])
    assert run.table["z"].to_pylist() == [10, None, None, None, 20]
    assert (run.stats.nulls, run.stats.absent, run.stats.queries) == (1, 2, 1)


def test_a_key_is_data(url: str) -> None:
    asked = ["ann", "'; DROP TABLE people; --", "' OR 1=1 --", "%", "a\0b", "ann"]
    for _ in range(2):
        run = ps.LookupCache((url, "people"), key="who", budget=9).run({"who": asked})
        assert run.table["age"].to_pylist() == [30, 99, None, None, None, 30]


def test_numbers_beyond_the_column_and_between_its_values(url: str) -> None:
    lookup = ps.LookupCache((url, "items"), key="id", budget=9)
    run = lookup.run({"id": [2.0, 2.5, float("nan"), 2.0**70, 2.0**40, 4.0]})
    assert run.table["name"].to_pylist() == ["item 2", None, None, None, None, "item 4"]
    with pytest.raises(ColumnError, match="cast the column of the stream"):
        lookup.run({"id": ["two"]})
    with pytest.raises(ColumnError, match="cast"):
        ps.LookupCache((url, "people"), key="who", budget=9).run({"who": [1]})


def test_two_keys_with_one_id_are_told_apart() -> None:
    lookup = ps.LookupCache(lambda keys: [{"k2": key} for key in keys], key="k", budget=3)
    state = lookup.start()
    state.process({"k": ["a"]}, on="k")
    state._check[state._cache.live] ^= 1  # as if another key with the same half of a digest were cached
    for _ in range(2):
        assert state.process({"k": ["a", "b", "a"]}, on="k")["k2"].to_pylist() == ["a", "b", "a"]


# What a table can be.


def test_forms_of_a_table(url: str) -> None:
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    items = sa.Table("items", sa.MetaData(), autoload_with=engine)
    columns = [items.c.id, items.c.name]
    bound = items.c.id == sa.bindparam("wanted")
    alone = 3 if url.startswith("sqlite") else 1  # SQLite has no LATERAL: a SELECT is run for each key
    forms: list[tuple[Any, dict[str, Any], int]] = [
        ((url, "items"), {}, 1),
        (url + "#items", {}, 1),
        (url, {"name": "items"}, 1),
        ("items", {"url": url}, 1),
        (items, {"url": engine}, 1),
        ((engine, items), {}, 1),
        (sa.select(*columns).where(bound), {"url": url}, alone),
        (sa.select(*columns).where(bound).limit(1), {"url": url}, alone),
        (sa.select(items.c.name).where(bound), {"url": url}, alone),
        (sa.select(*columns).where(items.c.id.in_(sa.bindparam("w", expanding=True))), {"url": url}, alone),
        ("SELECT id, name FROM items WHERE id = :wanted", {"url": url}, alone),
        ("SELECT name FROM items WHERE id = :wanted LIMIT 1", {"url": url}, alone),
    ]
    for table, options, queries in forms:
        run = ps.LookupCache(table, key="id", budget=5, **options).run({"id": [4, 8, 4, 3]})
        assert run.table["name"].to_pylist() == ["item 4", "item 8", "item 4", None], table
        assert run.stats.queries == queries, table
    engine.dispose()


def test_functions() -> None:
    answers: list[Any] = [
        lambda keys: {1: {"v": "a"}},
        lambda keys: [{"v": "a"} if key == 1 else None for key in keys],
        lambda keys: [{"k": 1, "v": "a"}],
        lambda keys: pa.table({"k": [1], "v": ["a"]}),
        lambda keys: pd.DataFrame({"k": [1], "v": ["a"]}),
    ]
    for call in answers:
        run = ps.LookupCache(call, key="k", budget=2).run({"k": [2, 1, 1]})
        assert run.table.to_pydict() == {"k": [2, 1, 1], "v": [None, "a", "a"]}
    for wrong in (lambda keys: 5, lambda keys: ["a"], lambda keys: [{"v": 1}] * 9):
        with pytest.raises(FetchError, match="fetch function"):
            ps.LookupCache(wrong, key="k", budget=2).run({"k": [1]})


def test_names_on_both_sides_and_columns(sqlite: str) -> None:
    lookup = ps.LookupCache((sqlite, "items"), key="id", budget=2, columns=["name"])
    run = lookup.run({"id": [2], "name": ["mine"]})
    assert run.table.to_pydict() == {"id": [2], "name": ["mine"], "name_table": ["item 2"]}


# Ages, absences, costs.


def test_ttl_fetches_again() -> None:
    clock, asked = ManualClock(), []

    def fetch_now(keys: list[int]) -> list[dict[str, float]]:
        asked.append(list(keys))
        return [{"at": clock.now} for _ in keys]

    state = ps.LookupCache(fetch_now, key="k", budget=9, ttl="10 seconds", clock=clock).start()
    for moment, told in ((0.0, 0.0), (10.0, 0.0), (10.5, 10.5), (20.0, 10.5), (21.0, 21.0)):
        clock.now = moment
        assert state.process({"k": [1, 1]}, on="k")["at"].to_pylist() == [told, told]
    assert len(asked) == 3
    assert (state.stats.hits, state.stats.misses) == (7, 3)


def test_missing() -> None:
    with pytest.raises(MissingKeyError, match="No row for the key of row 1 of the batch"):
        ps.LookupCache(fetch, key="k", budget=2, missing="error").run({"k": [1, 3]})
    with pytest.raises(MissingKeyError, match="has no key"):
        ps.LookupCache(fetch, key="k", budget=2, missing="error").run({"k": [1.0, None]})
    run = ps.LookupCache(fetch, key="k", budget=2, missing="drop").run({"k": [3, 1, None]})
    assert run.table["double"].to_pylist() == [2]


def test_costs_that_are_given() -> None:
    """Keys that cost ten times as much to fetch are missed less, and all misses together cost less."""
    random = np.random.default_rng(3)
    keys = random.integers(0, 400, 12_000)
    price = lambda key: 10.0 if key % 4 == 0 else 1.0  # noqa: E731
    answer = lambda asked: [{"v": key} for key in asked]  # noqa: E731
    prices = {key: price(key) for key in range(400)}
    spent = {}
    for name, options in {
        "plain": {"policy": "lru"},
        "function": {"policy": "gdj", "cost": price},
        "mapping": {"policy": "gdj", "cost": prices},
    }.items():
        lookup = ps.LookupCache(answer, key="k", budget=100, batch=500, **options)
        state = lookup.start()
        total = 0.0
        for part in np.array_split(keys, 24):
            there = set(state._cache.keys)
            found = state.process({"k": part}, on="k")
            assert found["v"].to_pylist() == part.tolist()
            state.check()
            total += sum(price(key) for key in set(part.tolist()) - there)
        spent[name] = total
    assert spent["function"] == spent["mapping"] < 0.75 * spent["plain"]


def test_costs_that_are_measured(url: str) -> None:
    """A SELECT that is slow for some keys: these stay. What was measured survives a restart."""
    slow = {0, 2, 4, 6, 8}

    def answer(asked: list[int]) -> list[dict[str, int]]:
        if asked[0] in slow:
            time.sleep(0.02)
        return [{"v": 10 * key} for key in asked]

    lookup = ps.LookupCache(answer, key="k", budget=8, policy="gdj", cost="measured", query_keys=1)
    state = lookup.start()
    random = np.random.default_rng(0)
    for part in np.array_split(random.integers(0, 40, 400), 20):
        state = lookup.start().restore(state.snapshot())
        assert state.process({"k": part}, on="k")["v"].to_pylist() == (10 * part).tolist()
    held = set(state._cache.keys)
    assert len(slow & held) >= 4
    costs = dict(zip(state._cache.keys, state._cost[state._cache.live].tolist(), strict=True))
    assert min(cost for key, cost in costs.items() if key in slow) > 0.019
    served = ps.LookupCache((url, "items"), key="id", budget=20, policy="gdj", cost="measured")
    run = served.run(stream(500), on="item")
    assert rows_of(run.table) == expected(stream(500))
    assert run.stats.load_seconds > 0


def test_pickled(url: str) -> None:
    lookup = ps.LookupCache((url, "items"), key="id", budget=2)
    assert lookup.run({"id": [2]}).table.equals(pickle.loads(pickle.dumps(lookup)).run({"id": [2]}).table)
    with pytest.raises(PenstockError, match="in memory"):
        pickle.dumps(ps.LookupCache(("sqlite://", "items"), key="id", budget=2))


# What is refused.


def test_bad_input(sqlite: str) -> None:
    good = {"key": "id", "budget": 5}
    with pytest.raises(BudgetError, match="entries or of bytes"):
        ps.LookupCache(fetch, key="id", budget="20 %")
    with pytest.raises(BudgetError):
        ps.LookupCache(fetch, key="id", budget=0)
    with pytest.raises(BudgetError, match="too small"):
        ps.LookupCache(fetch, key="id", budget="1 KiB").start()
    for name, value in [
        ("missing", "nul"), ("negative", 3), ("ttl", -1), ("batch", 0), ("timeout", 0), ("connections", 1.5),
        ("cost", 5), ("schema", 5), ("seed", -1),
    ]:  # fmt: skip
        with pytest.raises(PenstockError):
            ps.LookupCache(fetch, **{**good, name: value}).start()
    with pytest.raises(UnknownPolicyError, match="does not support costs"):
        ps.LookupCache(fetch, **good, policy="fifo", cost="measured")
    with pytest.raises(PenstockError, match="did you mean 'items'"):
        ps.LookupCache((sqlite, "item"), **good).run({"id": [1]})
    with pytest.raises(PenstockError, match="has 3 tables"):
        ps.LookupCache(sqlite, **good)
    with pytest.raises(ColumnError, match="did you mean"):
        ps.LookupCache((sqlite, "items"), key="ids", budget=5).run({"ids": [1]})
    with pytest.raises(ColumnError, match="The stream has no column"):
        ps.LookupCache((sqlite, "items"), **good).run({"idd": [1]})
    with pytest.raises(ColumnError, match="one to one"):
        ps.LookupCache((sqlite, "items"), **good).run({"id": [1], "b": [1]}, on=["id", "b"])
    with pytest.raises(PenstockError, match="one bound key"):
        ps.LookupCache("SELECT 1 FROM items", url=sqlite, **good)
    with pytest.raises(PenstockError, match="not the URL"):
        ps.LookupCache(("nonsense", "items"), **good)
    with pytest.raises(PenstockError, match="not a supported table"):
        ps.LookupCache("items", **good)
    with pytest.raises(ColumnError, match="several rows for the key"):
        ps.LookupCache((sqlite, "places"), key="x", budget=5).run({"x": [1]})
    with pytest.raises(SnapshotError):
        ps.LookupCache(fetch, **good).start().restore(
            ps.LookupCache(fetch, key="id", budget=6).start().snapshot()
        )
    with pytest.raises(PenstockError, match="all requests"):
        ps.LookupCache(fetch, **good, policy="lfd").start()


@pytest.mark.parametrize(
    ("policy", "hits"), [("fifo", 39_735), ("lru", 42_106), ("lfu", 24_666), ("lfd", 59_819)]
)
def test_reference_counts_of_the_shop(policy: str, hits: int) -> None:
    requests = pd.read_parquet(real("shop_requests.parquet"))
    lookup = ps.LookupCache(
        lambda keys: [{"k": key} for key in keys], key="key", budget=ps.Tuples(200), policy=policy
    )
    stats = lookup.run(requests, on="key").stats
    assert (stats.hits, stats.misses) == (hits, len(requests) - hits)


@pytest.mark.parametrize("url", ["postgresql://bob:s3cret@host:notaport/shop"])
def test_a_url_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(PenstockError, match="not the URL of a database") as told:
        ps.LookupCache(f"{url}#items", key="id", budget=5)
    assert "s3cret" not in f"{told.value!r} {told.value.__cause__!r}"


@pytest.mark.parametrize("retry_on", [5, ("OSError",), (OSError, 5)])
def test_errors_to_retry_on_are_classes(retry_on: Any) -> None:
    with pytest.raises(PenstockError, match="retry_on takes exception classes"):
        ps.LookupCache(lambda keys: {}, key="id", budget=5, retry_on=retry_on)


@pytest.mark.parametrize("keys", [[1, 3], [None, None], [1, None], []], ids=str)
def test_the_columns_are_there_where_no_row_is(url: str, keys: list[Any]) -> None:
    """Without `schema=` they are told by the cursor; their types by the first row."""
    statement = "SELECT id, name, weight FROM items WHERE id = :id"
    lookup = ps.LookupCache(statement, url=url, key="id", budget=9, policy="lru")
    run = lookup.run({"id": pa.array(keys, pa.int64())})
    assert run.table.column_names == ["id", "name", "weight"]
    assert run.table.num_rows == len(keys)
    assert run.table["name"].null_count == len(keys)
    state = lookup.start()
    for asked, names in ((keys, [None] * len(keys)), ([4], ["item 4"])):
        found = state.process({"id": pa.array(asked, pa.int64())}, on="id")
        assert found["name"].to_pylist() == names
    assert found.schema.field("name").type == pa.string()
    again = lookup.start().restore(state.snapshot())
    assert again.process({"id": [4, 5]}, on="id")["name"].to_pylist() == ["item 4", None]
    lookup.source.close()


def test_the_columns_are_there_where_no_key_can_be_read(postgresql: str) -> None:
    statement = "SELECT name FROM items WHERE id = CAST(:id AS integer)"
    lookup = ps.LookupCache(statement, url=postgresql, key="id", budget=9, policy="lru")
    with pytest.warns(UserWarning, match="cannot read 1 of the requested keys"):
        assert lookup.run({"id": ["x"]}).table.column_names == ["id", "name"]
