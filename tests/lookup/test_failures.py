"""A SELECT that fails with a key is not the key's fault: it is counted apart, with the database's reason."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

import penstock as ps
from penstock.errors import FetchError, PenstockError
from tests.lookup.test_equality import chain

# A SELECT, keys that it can be computed with, others, and the reason that is told.
FAILING: dict[str, list[tuple[str, list[Any], list[Any], str]]] = {
    "postgresql": [
        ("SELECT 10 / (:k - 5) AS v", [4, 6, 7], [5], "DivisionByZero"),
        ("SELECT CAST(:k AS bigint) * 9223372036854775807 AS v", [1, 0], [7, 5], "NumericValueOutOfRange"),
        ("SELECT CAST(note AS integer) AS v FROM said WHERE k = :k", [1], [2], "InvalidTextRepresentation"),
        ("SELECT sqrt(:k) AS v", [1.5], [-5.5, -2.5], "InvalidArgumentForPowerFunction"),
        ("SELECT 10 / length(:k) AS v", ["a"], [""], "DivisionByZero"),
    ],
    "sqlite": [
        ("SELECT abs(:k) AS v", [-1, -3], [-(2**63)], "integer overflow"),
        ("SELECT length(zeroblob(:k)) AS v", [1, 3], [2**40], "string or blob too big"),
        ("SELECT json_extract(note, '$') AS v FROM said WHERE k = :k", [1], [2], "malformed JSON"),
    ],
}
MALFORMED: dict[str, list[tuple[str, list[Any], list[Any]]]] = {
    "postgresql": [
        ("SELECT CAST(:k AS integer) AS v", ["1"], ["x", "99999999999"]),
        ("SELECT CAST(CAST(:k AS text) AS uuid) AS v", ["6f9619ff-8b86-d011-b42d-00c04fc964ff"], ["x"]),
        ("SELECT CAST(:k AS date) AS v", ["2024-03-01"], ["2024-02-31", "x"]),
    ],
    "sqlite": [("SELECT json_extract(:k, '$.a') AS v", ['{"a": 5}'], ["x"])],
}


@pytest.fixture(scope="module", autouse=True)
def said(sqlite: str, postgresql: str) -> Iterator[None]:
    """A table of texts, of which one is no number and no JSON."""
    made = ("CREATE TABLE said (k integer, note text)", "INSERT INTO said VALUES (1, '1'), (2, 's3cret')")
    for url in (sqlite, postgresql):
        do(url, *made)
    yield
    for url in (sqlite, postgresql):
        do(url, "DROP TABLE said")


def do(url: str, *statements: str) -> None:
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


def start(url: str, statement: str, **options: Any) -> Any:
    return ps.LookupCache(statement, url=url, key="k", budget=9, policy="lru", **options).start()


def test_failed_keys_are_not_malformed(url: str) -> None:
    for statement, good, bad, reason in FAILING[url.partition(":")[0]]:
        state = start(url, statement)
        keys = [good[0], *bad, *good[1:]]
        with pytest.warns(UserWarning, match=f"fails for {len(bad)} of the keys, .* in row 1 of") as told:
            found = state.process({"k": keys}, on="k")["v"].to_pylist()
        assert reason in str(told[0].message), statement
        assert "s3cret" not in str(told[0].message)
        assert len(told) == 1
        assert [value is None for value in found] == [key in bad for key in keys], statement
        stats = state.stats
        assert (stats.failed_keys, stats.malformed, stats.absent) == (len(bad), 0, len(bad)), statement
        assert stats.metrics()["failedKeyCount"] == len(bad)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # once is enough
            state.process({"k": bad}, on="k")
        state.spec.source.close()


def test_failed_keys_can_end_the_run(url: str) -> None:
    for statement, good, bad, reason in FAILING[url.partition(":")[0]]:
        with pytest.raises(FetchError, match=f"fails for {len(bad)} of the keys") as caught:
            start(url, statement, malformed="error").spec.run({"k": good + bad})
        assert reason in str(caught.value)
        assert "s3cret" not in chain(caught.value)


def test_malformed_keys_have_not_failed(url: str) -> None:
    for statement, good, bad in MALFORMED[url.partition(":")[0]]:
        state = start(url, statement)
        with pytest.warns(UserWarning, match="cannot read"):
            state.process({"k": good + bad}, on="k")
        assert (state.stats.failed_keys, state.stats.malformed) == (0, len(bad)), statement
        state.spec.source.close()


def test_a_statement_that_is_wrong_is_an_error(url: str) -> None:
    with pytest.raises(PenstockError, match=r"no such column|does not exist"):
        start(url, "SELECT nowhere AS v FROM said WHERE k = :k").spec.run({"k": [1]})
