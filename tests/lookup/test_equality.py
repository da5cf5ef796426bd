"""The database decides what is equal: every answer is that of the one-key statement by the plain driver."""

from __future__ import annotations

import datetime
import sqlite3
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa

import penstock as ps
from penstock.errors import ColumnError, FetchError, PenstockError
from penstock.lookup.ask import Union
from penstock.lookup.statement import of_table

psycopg = pytest.importorskip("psycopg", reason="psycopg is an extra")

UTC = datetime.UTC
NOON = datetime.datetime(2024, 3, 1, 12)
UUIDS = ["6f9619ff-8b86-d011-b42d-00c04fc964ff", "00000000-0000-0000-0000-000000000001"]

# Column types of PostgreSQL, two values of each as SQL has them, and keys of every kind to ask with.
COLUMNS: dict[str, tuple[list[str], list[list[Any]]]] = {
    "uuid": (UUIDS, [[UUIDS[0], UUIDS[0].upper(), "{" + UUIDS[1] + "}", "not-a-uuid"]]),
    "inet": (["10.0.0.1", "::1"], [["10.0.0.1", "10.0.0.1/32", "0:0::1", "nowhere"]]),
    "char(5)": (["ab", "cd"], [["ab", "ab   ", "cd ", "x"]]),
    "varchar(5)": (["ab", "cd "], [["ab", "ab ", "cd ", "a\0b"]]),
    "text": (["ab", "ÄB"], [["ab", "AB", "ÄB", ""]]),
    "real": (["0.1", "2"], [["0.1", "0.10", "2", "two"], [0.1, 2.0, 0.5], [2, 3], [0.10000000149011612]]),
    "double precision": (["0.1", "2"], [["0.1", "1e-1", "2.0"], [0.1, 2.0, 2.5], [2, 3], [Decimal("0.1")]]),
    "numeric(20,4)": (
        ["1.5000", "9007199254740993"],
        [["1.5", "1.50000", "x"], [1.5, 2.0**53], [2**53 + 1, 2], [Decimal("1.50"), Decimal(7)]],
    ),
    "integer": (["7", "16777217"], [
        [7, 16777217, 2**40], [7.0, 7.5, 2.0**40], [Decimal("7.0"), Decimal("0.5")]]),
    "bigint": (["7", "9007199254740993"], [[7, 9007199254740993, 9007199254740992, None], [7.0, 8.5, None]]),
    "smallint": (["7", "300"], [[7, 300, 70_000, 2**62], [7.0, 0.5]]),
    "boolean": (["true", "false"], [[True, False], ["t", "off", "perhaps"]]),
    "date": (["2024-03-01", "2020-02-29"], [[NOON.date()], ["2024-03-01", "March 1, 2024", "no"], [NOON]]),
    "timestamp": (["2024-03-01 12:00", "2020-01-01"], [[NOON, NOON + datetime.timedelta(microseconds=1)],
                                                      ["2024-03-01T12:00:00", "no"], [NOON.date()]]),
    "timestamptz": (
        ["2024-03-01 12:00+00", "2020-01-01 00:00+02"],
        [[NOON.replace(tzinfo=UTC)], [NOON], ["2024-03-01 13:00+01", "2024-03-01 12:00Z", "no"]],
    ),
    "time": (["12:00", "13:00"], [[datetime.time(12), datetime.time(1)], ["12:00:00", "noon?"]]),
    "interval": (["1 day", "2 hours"], [[datetime.timedelta(days=1)], ["24 hours", "x"]]),
    "bytea": (["\\x00ff", "\\x01"], [[b"\x00\xff", b"\x01", b"a"]]),
    "mood": (["glad", "sad"], [["glad", "Glad"]]),
}  # fmt: skip

SHAPES = [
    "SELECT v FROM {t} WHERE k = :id",
    "SELECT k, v FROM {t} WHERE :id = k -- the :key\n",
    "SELECT max(v) AS v, count(*) AS n FROM {t} WHERE k = :id",
    "SELECT * FROM (SELECT v, ':x' AS y FROM {t} WHERE k = :id) AS a LIMIT 1;",
]


@pytest.fixture(scope="module")
def served(postgresql: str) -> Iterator[tuple[str, Any]]:
    """A PostgreSQL with a table for each column type: two rows each, numbered 1 and 2."""
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('glad', 'sad')")
        for n, (kind, (values, _)) in enumerate(COLUMNS.items()):
            connection.execute(f"CREATE TABLE eq_{n} (k {kind} UNIQUE, v integer)")
            for i, value in enumerate(values):
                connection.execute(f"INSERT INTO eq_{n} VALUES (%s, {i + 1})", [value])
        connection.execute("CREATE TABLE orders (who integer, amount float, note text)")
        connection.execute(
            "INSERT INTO orders VALUES (1, 5, 'a'), (1, 10, 'b'), (2, 7, 'c'), (3, 1, 'd'), (4, 0, NULL)"
        )
        yield postgresql, connection


def one_by_one(connection: Any, statement: str, keys: list[Any]) -> list[Any]:
    """For each key the row of its statement as a dict, None for none, "malformed", "failed" or "refused"."""
    found: list[Any] = []
    for key in keys:
        if key is None:
            found.append(None)
            continue
        try:
            cursor = connection.execute(statement, {"id": key})
            names = [column[0] for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except psycopg.errors.DivisionByZero:
            found.append("failed")
        except psycopg.DataError:
            found.append("malformed")
        except psycopg.ProgrammingError:
            found.append("refused")
        else:
            found.append(rows[0] if rows else None)
    return found


def looked_up(table: Any, keys: list[Any], **options: Any) -> tuple[list[Any], Any]:
    lookup = ps.LookupCache(table, key="k", budget=5_000, policy="lru", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state = lookup.start()
        first = state.process({"id": keys}, on="id")
        again = state.process({"id": keys[::-1]}, on="id")  # all of them are cached
    lookup.source.close()
    assert again.to_pylist() == first.to_pylist()[::-1]
    assert state.stats.misses == len({repr(key) for key in keys if key is not None})
    return first.to_pylist(), state.stats


def same(found: list[dict[str, Any]], expected: list[Any], stats: Any) -> None:
    for row, wanted in zip(found, expected, strict=True):
        values = {name: value for name, value in row.items() if name not in ("id", "k")}
        if wanted is None or wanted in ("malformed", "failed"):
            assert set(values.values()) <= {None}, (row, wanted)
        else:
            assert values == {name: value for name, value in wanted.items() if name != "k"}, (row, wanted)
    assert stats.malformed == expected.count("malformed")
    assert stats.failed_keys == expected.count("failed")


@pytest.mark.parametrize("kind", COLUMNS)
def test_statements_on_postgresql(served: tuple[str, Any], kind: str) -> None:
    url, connection = served
    n = list(COLUMNS).index(kind)
    for keys in COLUMNS[kind][1]:
        for shape in SHAPES:
            statement = shape.format(t=f"eq_{n}")
            plain = statement.replace(":id", "%(id)s")
            expected = one_by_one(connection, plain, keys)
            if "refused" in expected:
                with pytest.raises(PenstockError, match="operator does not exist"):
                    looked_up(statement, keys, url=url)
                continue
            found, stats = looked_up(statement, keys, url=url)
            same(found, expected, stats)


@pytest.mark.parametrize("kind", COLUMNS)
def test_tables_on_postgresql(served: tuple[str, Any], kind: str) -> None:
    url, connection = served
    n = list(COLUMNS).index(kind)
    for keys in COLUMNS[kind][1]:
        expected = one_by_one(connection, f"SELECT v FROM eq_{n} WHERE k = %(id)s", keys)
        lookup = ps.LookupCache((url, f"eq_{n}"), key="k", budget=50, policy="lru")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if "refused" in expected:
                with pytest.raises(PenstockError, match=r"cast|operator does not exist"):
                    lookup.run({"id": keys}, on="id")
                continue
            run = lookup.run({"id": keys}, on="id")
        assert run.table["v"].to_pylist() == [row["v"] if isinstance(row, dict) else None for row in expected]


AGGREGATES = [
    "SELECT sum(amount) AS v FROM orders WHERE who = :id",
    "SELECT max(amount) AS v FROM orders WHERE who = :id",
    "SELECT min(amount) AS v, avg(amount) AS w FROM orders WHERE who = :id",
    "SELECT sum(amount) AS v FROM orders WHERE who = :id GROUP BY who",
    "SELECT sum(amount) AS v FROM orders WHERE who = :id HAVING count(*) > 1",
    "SELECT DISTINCT who * 10 AS v FROM orders WHERE who = :id",
    "SELECT amount AS v FROM orders WHERE who = :id ORDER BY amount DESC LIMIT 1",
    "SELECT amount AS v FROM orders WHERE who = :id ORDER BY amount LIMIT 1 OFFSET 1",
    "SELECT v FROM (SELECT rank() OVER (ORDER BY amount) AS v FROM orders WHERE who = :id) AS a "
    "ORDER BY v DESC LIMIT 1",
    "WITH mine AS (SELECT amount FROM orders WHERE who = :id) SELECT sum(amount) AS v FROM mine",
    "SELECT (SELECT sum(amount) FROM orders WHERE who = :id) AS v",
    "SELECT max(v) AS v FROM (SELECT amount AS v FROM orders WHERE who = :id UNION SELECT 6) AS a",
    "SELECT sum(amount) AS v FROM orders WHERE who + 1 = :id",
    "SELECT sum(amount) AS v FROM orders WHERE who <= :id AND :id < who + 2",
    "SELECT sum(amount) AS v FROM orders WHERE who = :id / 2",
    "SELECT count(*) AS v FROM orders WHERE who = :id",
]
POSTGRESQL_ONLY = [
    "SELECT string_agg(note, ',' ORDER BY note) AS v FROM orders WHERE who = :id",
    "SELECT array_agg(amount ORDER BY amount) AS v FROM orders WHERE who = :id",
    "SELECT max(amount) AS v FROM orders WHERE who = :id::int",
    "SELECT upper(note) AS v FROM orders WHERE who = :id FETCH FIRST ROW ONLY",
    "SELECT max(note) AS v FROM orders WHERE left(note, :id::int) = 'a' AND note LIKE '%a'",
    "SELECT max(10 / amount) AS v FROM orders WHERE who = :id AND amount <> 0",
]


@pytest.mark.parametrize("keys", [[3, 1, 2, 9, 4], [1.0, 2.5, 3.0, 7.0]], ids=["whole", "floats"])
def test_aggregates_on_postgresql(served: tuple[str, Any], keys: list[Any]) -> None:
    url, connection = served
    for statement in AGGREGATES + POSTGRESQL_ONLY:
        plain = statement.replace("%", "%%").replace(":id", "%(id)s")
        found, stats = looked_up(statement, keys, url=url)
        same(found, one_by_one(connection, plain, keys), stats)
    orders = sa.table("orders", sa.column("who"), sa.column("amount"))
    total = sa.select(sa.func.sum(orders.c.amount).label("v")).where(orders.c.who == sa.bindparam("who"))
    found, _ = looked_up(total.where(orders.c.amount > 0), keys, url=url)
    assert [row["v"] for row in found] == [{1: 15.0, 2: 7.0, 3: 1.0}.get(key) for key in keys]


def test_rows_of_other_keys_do_not_fail(served: tuple[str, Any]) -> None:
    """With many keys the server may compute a filter for the whole table; with one it does not."""
    url, connection = served
    connection.execute("CREATE TABLE divided (k integer PRIMARY KEY, n integer)")
    connection.execute("INSERT INTO divided SELECT i, i % 50 FROM generate_series(1, 3000) AS i")
    connection.execute("ANALYZE divided")
    statement = "SELECT n AS v FROM divided WHERE k = :id AND 100 / n > 3"
    keys = [k for k in range(1, 1_500) if k % 50] + [50]
    found, stats = looked_up(statement, keys, url=url)
    same(found, one_by_one(connection, statement.replace(":id", "%(id)s"), keys), stats)
    assert (stats.failed_keys, stats.malformed) == (1, 0)  # 100 / 0


def test_text_keys_in_expressions(served: tuple[str, Any]) -> None:
    url, connection = served
    for statement, keys in [
        ("SELECT sum(amount) AS v FROM orders WHERE upper(note) = :id", ["A", "a", "B"]),
        ("SELECT sum(amount) AS v FROM orders WHERE upper(note) = upper(:id)", ["A", "a", "B", "b"]),
        ("SELECT sum(amount) AS v FROM orders WHERE who = :id", ["1", " 2 ", "x"]),
    ]:
        found, stats = looked_up(statement, keys, url=url)
        same(found, one_by_one(connection, statement.replace(":id", "%(id)s"), keys), stats)


# SQLite.

SQLITE_COLUMNS: dict[str, tuple[list[Any], list[list[Any]]]] = {
    "INTEGER": ([7, 9007199254740993], [[7, 9007199254740993, 2**40], [7.0, 7.5], [True], ["7", "x"]]),
    "REAL": ([0.1, 2.0], [["0.1", "2", "x"], [0.1, 2.0], [2, 3]]),
    "NUMERIC": ([1.5, "x"], [["1.5", "1.50", "x"], [1.5, 2.0], [Decimal("1.5")]]),
    "TEXT": (["ab", "7"], [["ab", "AB", "7", "a\0b"]]),
    "TEXT COLLATE NOCASE": (["ab", "CD"], [["ab", "AB", "cd", "x"]]),
    "TEXT COLLATE RTRIM": (["ab", "cd  "], [["ab", "ab ", "cd"]]),
    "BLOB": ([b"a", 7], [[b"a", b"b"], [7, 8]]),
    "": (["7", 8], [["7", "8"], [7, 8], [8.0]]),
    "DATE": (["2024-03-01", "2020-02-29"], [[NOON.date()], ["2024-03-01"]]),
    "BOOLEAN": ([1, 0], [[True, False], [1, 0]]),
}
SQLITE_SHAPES = [
    *SHAPES[:3],
    "SELECT v FROM {t} WHERE upper(k) = :id",
    "SELECT v FROM {t} WHERE k || '' = :id",
]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    path = tmp_path_factory.mktemp("equality") / "test.db"
    connection = sqlite3.connect(path, isolation_level=None)
    for n, (kind, (values, _)) in enumerate(SQLITE_COLUMNS.items()):
        connection.execute(f"CREATE TABLE eq_{n} (k {kind}, v INTEGER)")
        connection.executemany(
            f"INSERT INTO eq_{n} VALUES (?, ?)", [(v, i + 1) for i, v in enumerate(values)]
        )
    connection.execute("CREATE TABLE orders (who INTEGER, amount REAL, note TEXT)")
    connection.execute("INSERT INTO orders VALUES (1, 5, 'a'), (1, 10, 'b'), (2, 7, 'c'), (3, 1, 'd')")
    yield f"sqlite:///{path}", connection
    connection.close()


def on_sqlite(connection: Any, statement: str, keys: list[Any]) -> list[Any]:
    plain = [
        float(key) if isinstance(key, Decimal) else str(key) if isinstance(key, datetime.date) else key
        for key in keys
    ]
    return one_by_one(connection, statement, plain)


@pytest.mark.parametrize("kind", SQLITE_COLUMNS)
def test_sqlite(embedded: tuple[str, Any], kind: str) -> None:
    url, connection = embedded
    n = list(SQLITE_COLUMNS).index(kind)
    for keys in SQLITE_COLUMNS[kind][1]:
        for shape in SQLITE_SHAPES:
            statement = shape.format(t=f"eq_{n}")
            found, stats = looked_up(statement, keys, url=url)
            same(found, on_sqlite(connection, statement, keys), stats)
        expected = on_sqlite(connection, f"SELECT v FROM eq_{n} WHERE k = :id", keys)
        lookup = ps.LookupCache((url, f"eq_{n}"), key="k", budget=50, policy="lru")
        if isinstance(keys[0], str) and kind == "INTEGER":
            with pytest.raises(ColumnError, match="cast the column of the stream"):
                lookup.run({"id": keys}, on="id")
            continue
        run = lookup.run({"id": keys}, on="id")
        assert run.table["v"].to_pylist() == [row["v"] if row else None for row in expected], (kind, keys)


@pytest.mark.parametrize("keys", [[3, 1, 2, 9], [1.0, 2.5, 3.0, 7.0]], ids=["whole", "floats"])
def test_aggregates_on_sqlite(embedded: tuple[str, Any], keys: list[Any]) -> None:
    url, connection = embedded
    for statement in [*AGGREGATES, "SELECT group_concat(note) AS v FROM orders WHERE who = :id"]:
        found, stats = looked_up(statement, keys, url=url)
        same(found, one_by_one(connection, statement, keys), stats)


def test_whole_floats_are_other_texts_than_whole_numbers_on_sqlite(embedded: tuple[str, Any]) -> None:
    url, connection = embedded
    connection.execute("CREATE TABLE texts (k TEXT, v TEXT)")
    connection.executemany("INSERT INTO texts VALUES (?, ?)", [("1", "a"), ("1.0", "c")])
    statement = "SELECT v FROM texts WHERE k = :id"
    for keys in ([1.0, 2.0], [1]):
        found, stats = looked_up(statement, keys, url=url)
        same(found, one_by_one(connection, statement, keys), stats)


def test_sqlite_keeps_times_as_text(embedded: tuple[str, Any]) -> None:
    url, connection = embedded
    connection.execute("CREATE TABLE times (k DATETIME, v INTEGER)")
    spelt = ["2024-03-01 12:00:00", "2024-03-01T13:00:00", "2024-03-01 14:00:00.000000"]
    connection.executemany("INSERT INTO times VALUES (?, ?)", [(text, i) for i, text in enumerate(spelt)])
    lookup = ps.LookupCache((url, "times"), key="k", budget=9, policy="lru")
    keys = [NOON + datetime.timedelta(hours=i) for i in range(4)]
    assert lookup.run({"k": keys}).table["v"].to_pylist() == [0, 1, 2, None]
    with pytest.raises(ColumnError, match="time zone"):
        lookup.run({"k": [NOON.replace(tzinfo=UTC)]})


@pytest.mark.parametrize("which", ["served", "embedded"])
def test_any_database_is_asked_by_union(request: pytest.FixtureRequest, which: str) -> None:
    url, _ = request.getfixturevalue(which)
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        orders = sa.Table("orders", sa.MetaData(), autoload_with=connection)
        asker = Union(of_table([orders.c.who], [orders.c.note]), 1_000)
        answer = asker.ask(connection, [(9,), (3,), (2,)], False)
    engine.dispose()
    assert sorted(answer.rows) == [(1, {"note": "d"}), (2, {"note": "c"})]


# Numbers, times and what cannot be read.


def test_whole_numbers_with_nulls_are_not_floats(url: str) -> None:
    seen: list[Any] = []

    def fetch(keys: list[Any]) -> list[dict[str, Any]]:
        seen.extend(keys)
        return [{"v": 1} for _ in keys]

    for given in ([9007199254740993, None], (9007199254740993, float("nan"))):
        run = ps.LookupCache(fetch, key="k", budget=9, policy="lru").run({"k": given})
        assert seen.pop() == 9007199254740993
        assert run.table["k"].to_pylist() == [9007199254740993, None]
    with pytest.raises(ColumnError, match="of type float, int"):
        ps.LookupCache(fetch, key="k", budget=9, policy="lru").run({"k": [9007199254740993, 2.5]})
    assert not seen
    run = ps.LookupCache((url, "items"), key="id", budget=9, policy="lru").run({"id": [4, None, 2**53 + 1]})
    assert run.table["name"].to_pylist() == ["item 4", None, None]


def test_one_and_one_point_nought_have_rows_of_their_own(url: str) -> None:
    statement = "SELECT :id / 2 AS half FROM items WHERE id = 2"
    state = ps.LookupCache(statement, url=url, key="k", budget=9, policy="lru").start()
    for keys, halves in (([3], [1]), ([3.0], [1.5]), ([3], [1])):
        assert state.process({"k": keys}, on="k")["half"].to_pylist() == halves
    assert (state.stats.hits, state.stats.misses) == (1, 2)
    state.spec.source.close()


def test_nanoseconds_are_not_cut(url: str) -> None:
    stamps = pd.Series(pd.to_datetime(["2024-03-01 12:00:00.000000001"]))
    statement = "SELECT name FROM items WHERE id = 2 AND :t > '2000-01-01'"
    with pytest.raises(ColumnError, match="nanoseconds"):
        ps.LookupCache(statement, url=url, key="t", budget=9, policy="lru").run({"t": stamps})
    seen: list[Any] = []
    ps.LookupCache(lambda keys: [seen.extend(keys)], key="t", budget=9, policy="lru").run({"t": stamps})
    assert seen == stamps.tolist()


def test_a_malformed_key_has_no_row(served: tuple[str, Any]) -> None:
    url, _ = served
    lookup = ps.LookupCache((url, "eq_0"), key="k", budget=9, policy="lru")
    state = lookup.start()
    with pytest.warns(UserWarning, match="cannot read 2 of the requested keys") as told:
        found = state.process({"k": ["secret-1", UUIDS[1], "secret-2", UUIDS[0]]}, on="k")
    state.process({"k": ["secret-3", UUIDS[1], "secret-1"]}, on="k")  # does not warn again
    assert found["v"].to_pylist() == [None, 2, None, 1]
    assert len(told) == 1
    assert "secret" not in str(told[0].message)
    assert "no value of the type of the key column 'k' (UUID)" in str(told[0].message)
    assert (state.stats.malformed, state.stats.absent, state.stats.metrics()["malformedCount"]) == (3, 4, 3)
    lookup.source.close()
    refusing = ps.LookupCache((url, "eq_0"), key="k", budget=9, policy="lru", malformed="error")
    with pytest.raises(FetchError, match="cannot read 1 of the requested keys"):
        refusing.run({"k": [UUIDS[0], "secret"]})
    with pytest.raises(PenstockError, match="malformed="):
        ps.LookupCache((url, "eq_0"), key="k", budget=9, malformed="drop")


def test_a_malformed_key_on_sqlite(embedded: tuple[str, Any]) -> None:
    statement = "SELECT json_extract(:id, '$.a') AS v"
    found, stats = looked_up(statement, ['{"a": 5}', "no json", '{"a": 6}'], url=embedded[0])
    assert [row["v"] for row in found] == [5, None, 6]
    assert stats.malformed == 1


def chain(error: BaseException | None) -> str:
    """All that a traceback, or a logger that follows contexts, could tell of an error."""
    told = ""
    while error is not None:
        told += f"{error!r} {error} {vars(error)}"
        error = error.__cause__ or error.__context__
    return told


def test_no_error_tells_keys_or_values(url: str) -> None:
    secret = "s3cret"
    cannot = "json_extract(:k, '$')" if url.startswith("sqlite") else "CAST(:k AS integer)"
    cases: list[tuple[Any, list[Any], dict[str, Any]]] = [
        ((url, "items"), [secret], {}),
        ((url, "people"), [secret], {"missing": "error"}),
        ("SELECT nothing FROM people WHERE who = :k", [secret], {"url": url}),
        ("SELECT who AS a FROM people WHERE who <> :k", [secret], {"url": url}),
        (f"SELECT {cannot} AS a", [secret], {"url": url, "malformed": "error"}),
        ("SELECT :k AS a", [secret], {"url": url, "schema": {"a": "int64"}}),
        ((url, "people"), [secret, 5], {}),
        (lambda keys: secret, [secret], {}),
        (lambda keys: [{"k": secret, "v": 1}], ["other"], {}),
        (lambda keys: [{"v": secret}, {"v": 5}], ["other", "more"], {}),
    ]
    for table, keys, options in cases:
        name = {"items": "id", "people": "who"}.get(table[1], "k") if isinstance(table, tuple) else "k"
        lookup = ps.LookupCache(table, key=name, budget=9, policy="lru", **options)
        with pytest.raises(PenstockError) as caught:
            lookup.run({"k": keys}, on="k")
        assert secret not in chain(caught.value), table


def test_rows_of_a_function_under_keys_that_were_not_asked_for() -> None:
    for rows, words in (
        ([{"k": "A", "v": 1}], "not requested"),
        ({"A": {"v": 1}}, "not requested"),
        ({"a": {"v": 1}, "B": {"v": 1}}, "1 rows for keys that were not requested"),
        ([{"k": "a", "v": 1}, {"k": "a", "v": 2}, {"k": "b", "v": 2}], "several rows"),
    ):
        with pytest.raises(FetchError, match=words):
            ps.LookupCache(lambda keys, rows=rows: rows, key="k", budget=9, policy="lru").run(
                {"k": ["a", "b"]}
            )


def test_a_statement_that_returns_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (k TEXT, v INTEGER)")
        connection.execute("INSERT INTO t VALUES ('a', 1)")
    lookup = ps.LookupCache(
        "UPDATE t SET v = 2 WHERE k = :k", key="k", url=f"sqlite:///{path}", budget=9, policy="lru"
    )
    with pytest.raises(PenstockError, match="SELECT"):
        lookup.run({"k": ["a"]})
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT v FROM t").fetchall() == [(1,)]
