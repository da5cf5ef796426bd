"""A database that goes away in mid-stream: what is cached is answered, and nothing is lost or doubled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import FetchError
from tests.lookup.postgres import away, kill, postgres, start_again, url_of


def test_a_function_that_fails_for_a_while() -> None:
    calls = []

    def fetch(keys: list[int]) -> dict[int, dict[str, int]]:
        calls.append(list(keys))
        if len(calls) < 4:
            raise ConnectionError("away")
        return {key: {"v": key} for key in keys}

    run = ps.LookupCache(fetch, key="k", budget=9, backoff=0.001).run({"k": [1, 2]})
    assert run.table["v"].to_pylist() == [1, 2]
    assert calls == [[1, 2]] * 4
    assert (run.stats.queries, run.stats.load_failures) == (1, 3)
    with pytest.raises(TypeError):  # what will not pass is not tried again
        ps.LookupCache(lambda keys: None + 1, key="k", budget=9).run({"k": [1]})


def test_cached_keys_answer_while_the_table_is_away() -> None:
    away = [False]

    def fetch(keys: list[int]) -> dict[int, dict[str, int]]:
        if away[0]:
            raise TimeoutError("no answer")
        return {key: {"v": key} for key in keys}

    state = ps.LookupCache(fetch, key="k", budget=9, timeout=0.1, backoff=0.01).start()
    state.process({"k": [1, 2]}, on="k")
    before = state.stats
    away[0] = True
    assert state.process({"k": [2, 1]}, on="k")["v"].to_pylist() == [2, 1]
    began = time.monotonic()
    with pytest.raises(FetchError, match=r"within 0.1 s .* no answer"):
        state.process({"k": [1, 3]}, on="k")
    assert 0.1 <= time.monotonic() - began < 2
    assert state.stats.hits == before.hits + 2  # the failed batch has changed nothing
    state.check()
    away[0] = False
    assert state.process({"k": [1, 3]}, on="k")["v"].to_pylist() == [1, 3]


@pytest.fixture
def mortal() -> Iterator[Any]:
    """A PostgreSQL of one's own, to be killed."""
    sa = pytest.importorskip("sqlalchemy")
    with postgres() as server:
        engine = sa.create_engine(url_of(server).replace("postgresql://", "postgresql+psycopg://"))
        with engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE items (id integer PRIMARY KEY, name text)"))
            connection.execute(
                sa.text("INSERT INTO items SELECT i, 'item ' || i FROM generate_series(0, 999) AS i")
            )
        engine.dispose()
        yield server


def test_postgresql_is_killed_in_mid_stream_and_comes_back(mortal: Any) -> None:
    """All events are enriched, none twice, and what is cached is answered while it is away."""
    keys = np.random.default_rng(1).zipf(1.2, 6_000) % 1_200
    lookup = ps.LookupCache((url_of(mortal), "items"), key="id", budget=150, timeout=120, policy="lru")
    state, parts = lookup.start(), []
    batches = np.array_split(keys, 12)
    for i, part in enumerate(batches):
        if i == 5:
            with away(mortal, seconds=2):
                cached = np.array(state._cache.keys)
                assert state.process({"id": cached}, on="id").num_rows == len(cached)  # at once
                assert state.stats.load_failures == 0
                parts.append(state.process({"id": part}, on="id"))
                assert state.stats.load_failures > 0
        else:
            parts.append(state.process({"id": part}, on="id"))
        state.check()
    lookup.source.close()
    whole = pa.concat_tables(parts)
    assert whole["id"].to_pylist() == keys.tolist()
    assert whole["name"].to_pylist() == [f"item {key}" if key < 1_000 else None for key in keys.tolist()]


def test_postgresql_is_away_for_longer_than_the_deadline(mortal: Any) -> None:
    """The batch fails and has changed nothing; once the server is back it goes through, from a snapshot."""
    lookup = ps.LookupCache((url_of(mortal), "items"), key="id", budget=50, timeout=0.5)
    state = lookup.start()
    state.process({"id": [1, 2, 3]}, on="id")
    kill(mortal)
    stored, before = state.snapshot(), state.stats
    with pytest.raises(FetchError, match=r"did not answer within 0\.5 s"):
        state.process({"id": [2, 7, 8]}, on="id")
    assert (state.stats.hits, state.stats.misses) == (before.hits, before.misses)
    assert state.process({"id": [3, 1]}, on="id")["name"].to_pylist() == ["item 3", "item 1"]
    start_again(mortal)
    again = lookup.start().restore(stored)
    assert again.process({"id": [2, 7, 8]}, on="id")["name"].to_pylist() == ["item 2", "item 7", "item 8"]
    assert (again.stats.hits, again.stats.misses) == (1, 5)
    lookup.source.close()
