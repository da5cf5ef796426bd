"""Numbers of every kind against columns of every kind: each answer is that of the one-key statement."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import ColumnError, PenstockError
from penstock.lookup.keys import keys_of

psycopg = pytest.importorskip("psycopg", reason="psycopg is an extra")

INF, NAN = float("inf"), float("nan")
TIGHT = Decimal("7.00000000000000000001")  # 7 as a float, and another number as a decimal
EDGES = [2**24, 2**31, 2**53, 2**63]
WHOLE = [0, 1, 7, -7, *(edge + n for edge in EDGES for n in (-1, 0, 1)), *(-edge - 1 for edge in EDGES)]

KEYS: dict[str, pa.Array] = {
    "float64": pa.array([*map(float, WHOLE), 7.5, 0.1, -0.0, 1e300, INF, -INF, NAN], pa.float64()),
    "float32": pa.array([0.1, 7.0, 2.0**24, 2.0**53, -0.0, INF, NAN], pa.float32()),
    "int64": pa.array([n for n in WHOLE if -(2**63) <= n < 2**63], pa.int64()),
    "uint64": pa.array([n for n in WHOLE if n >= 0], pa.uint64()),
    "decimal": pa.array([*map(Decimal, WHOLE), Decimal("7.5"), Decimal("0.1")], pa.decimal128(38, 4)),
    "fine decimal": pa.array([TIGHT, Decimal(7), Decimal("0.1")], pa.decimal128(38, 20)),
}
COLUMNS: dict[str, list[Any]] = {
    "smallint": [0, 1, 7],
    "integer": [0, 7, 2**24 + 1, 2**31 - 1],
    "bigint": [0, 7, 2**24 + 1, 2**53 - 1, 2**53 + 1, 2**63 - 1, -(2**53) - 1, -(2**63)],
    "numeric": [0, TIGHT, 2**53 + 1, 2**63, Decimal("0.1"), "NaN", "Infinity"],
    "numeric(38,20)": [0, TIGHT, 2**53 + 1, Decimal("0.1")],
    "numeric(12,2)": [0, 7, Decimal("7.50"), Decimal("0.10")],
    "real": [0, 7, 2**24, 2**53, 0.1, "NaN", "-Infinity"],
    "double precision": [0, 7, 7.5, 2**53, 2**63, 0.1, "NaN", "Infinity"],
}


@pytest.fixture(scope="module")
def served(postgresql: str) -> Iterator[tuple[str, Any]]:
    """A table for each type of column, with a row for each of its numbers."""
    with psycopg.connect(postgresql, autocommit=True) as connection:
        for n, (kind, values) in enumerate(COLUMNS.items()):
            connection.execute(f"CREATE TABLE number_{n} (k {kind}, v integer)")
            for i, value in enumerate(values):
                connection.execute(f"INSERT INTO number_{n} VALUES (%s, {i})", [value])
        connection.execute("CREATE TABLE twins (k bigint PRIMARY KEY, v integer)")
        connection.execute("INSERT INTO twins VALUES (9007199254740992, 1), (9007199254740993, 2)")
        yield postgresql, connection


SQLITE_COLUMNS: dict[str, list[Any]] = {
    "INTEGER": [0, 7, 7.25, 2**53 + 1, -(2**63), 1e300, INF],
    "BIGINT": [0, 7.5, 2**53, 2**53 + 2, 2.0**63],
    "REAL": [0, 7, 7.5, 2**53, 2.0**63, 0.1, -INF],
    "NUMERIC": [0, 7, 7.5, 2**53 + 1, 0.1],
    "DECIMAL(12, 2)": [0, 7, 7.5, 0.1],
    "": [0, 7.0, 2**53 + 1, 0.1],
}


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    path = tmp_path_factory.mktemp("numbers") / "test.db"
    connection = sqlite3.connect(path, isolation_level=None)
    for n, (kind, values) in enumerate(SQLITE_COLUMNS.items()):
        connection.execute(f"CREATE TABLE number_{n} (k {kind}, v INTEGER)")
        rows = [(value, i) for i, value in enumerate(values)]
        connection.executemany(f"INSERT INTO number_{n} VALUES (?, ?)", rows)
    yield f"sqlite:///{path}", connection
    connection.close()


def one_by_one(connection: Any, statement: str, keys: list[Any]) -> list[Any]:
    """Per key the value of its only row, None for none, "several" for several. NaN counts as null."""
    found: list[Any] = []
    for key in keys:
        if key != key:
            found.append(None)
            continue
        named = {"id": key} if "id" in statement else {}
        rows = connection.execute(statement, named).fetchall()
        found.append("several" if len(rows) > 1 else rows[0][0] if rows else None)
    return found


def assert_same(table: Any, keys: pa.Array, expected: list[Any], **options: Any) -> None:
    single = [n for n, wanted in enumerate(expected) if wanted != "several"]
    keys_of_one = keys.take(pa.array(single))
    wanted = [expected[n] for n in single]
    for policy, budget in (("lru", 1_000), ("lru", 1)):  # cached, and not
        lookup = ps.LookupCache(
            table, key="k", budget=budget, policy=policy, schema={"v": "int64"}, **options
        )
        state = lookup.start()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            first = state.process(pa.table({"id": keys_of_one}), on="id")["v"].to_pylist()
            again = state.process(pa.table({"id": keys_of_one[::-1]}), on="id")["v"].to_pylist()
        told = list(zip(keys_of_one.to_pylist(), first, strict=True))
        assert first == wanted, [pair for pair, want in zip(told, wanted, strict=True) if pair[1] != want]
        assert again == wanted[::-1]
        for n in set(range(len(keys))) - set(single):
            with pytest.raises(ColumnError, match="several rows"):
                state.process(pa.table({"id": keys.slice(n, 1)}), on="id")
        lookup.source.close()


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("kind", COLUMNS)
def test_postgresql_decides(served: tuple[str, Any], kind: str, keys: str) -> None:
    url, connection = served
    name = f"number_{list(COLUMNS).index(kind)}"
    asked = KEYS[keys]
    expected = one_by_one(connection, f"SELECT v FROM {name} WHERE k = %(id)s", asked.to_pylist())
    assert_same((url, name), asked, expected)
    assert_same(f"SELECT v FROM {name} WHERE k = :id", asked, expected, url=url)


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("kind", SQLITE_COLUMNS)
def test_sqlite_decides(embedded: tuple[str, Any], kind: str, keys: str) -> None:
    url, connection = embedded
    name = f"number_{list(SQLITE_COLUMNS).index(kind)}"
    asked = KEYS[keys]
    expected = [
        found
        for key in asked.to_pylist()
        for found in one_by_one(connection, f"SELECT v FROM {name} WHERE k = {_literal(key)}", [key])
    ]
    assert_same((url, name), asked, expected)
    assert_same(f"SELECT v FROM {name} WHERE k = :id", asked, expected, url=url)


def _literal(key: Any) -> str:
    """A number as one writes it in a statement, for SQLite's driver has no decimals and only 64 bits."""
    if abs(key) == INF:
        return "9e999" if key > 0 else "-9e999"
    if isinstance(key, Decimal):
        return str(int(key)) if key == int(key) else format(key, "f")
    return repr(key)


def test_one_float_may_equal_two_whole_numbers(served: tuple[str, Any]) -> None:
    """PostgreSQL compares bigint with double precision as double precision."""
    url, _ = served
    lookup = ps.LookupCache((url, "twins"), key="k", budget=9, policy="lru")
    assert lookup.run({"k": [2**53, 2**53 + 1]}).table["v"].to_pylist() == [1, 2]
    with pytest.raises(PenstockError, match="several rows for the key of row 1"):
        lookup.run({"k": [7.0, 2.0**53]})


def test_a_zero_with_a_sign_is_a_key_of_its_own_where_the_database_decides() -> None:
    """Compared as numbers the two are one key; a SELECT may make texts of them."""
    events = {"k": [0.0, -0.0, 1.5, -0.0, 0.0]}
    assert keys_of(events, ("k",)).code.tolist() == [0, 0, 1, 0, 0]
    found = keys_of(events, ("k",), whole=False)
    assert [repr(found.keys[code][0]) for code in found.code] == ["0.0", "-0.0", "1.5", "-0.0", "0.0"]
    assert len(set(found.ids.tolist())) == 3


def test_the_warning_for_malformed_keys_names_the_type(tmp_path: Path) -> None:
    path = tmp_path / "items.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table items (k uuid, v int)")
    lookup = ps.LookupCache((f"sqlite:///{path}", "items"), key="k", budget=9, policy="lru")
    with warnings.catch_warnings(record=True, action="always") as told:
        assert lookup.run({"k": ["no uuid"]}).stats.absent == 1
    for each in told:
        assert "'k' (" in str(each.message)
