"""A database that goes away in mid-stream: what is cached is answered, and nothing is lost or doubled."""

from __future__ import annotations

import time

import pytest

import penstock as ps
from penstock.errors import FetchError


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
