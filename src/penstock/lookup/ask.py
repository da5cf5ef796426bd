"""Query databases for keys: many at once via a relation of keys if that is equivalent, else key by key.

Rows come back with the number of the requested key; they are never matched by their own key value.
"""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.errors import FetchError
from penstock.lookup.refusals import KeyFaultError, fault_of
from penstock.lookup.source import Key, KeyRefusedError
from penstock.lookup.statement import OneKey

Row = tuple[int, dict[str, Any]]  # the number of a key, and one of its rows


@dataclass
class Answer:
    """The rows of some keys, each with the number of its key.

    `malformed` holds the numbers of keys that the database cannot read, `failed` those for which the query
    fails otherwise, with the reason. `names` are the columns of the rows, None if unknown.
    """

    rows: list[Row] = field(default_factory=list)
    malformed: list[int] = field(default_factory=list)
    failed: list[tuple[int, str]] = field(default_factory=list)
    names: list[str] | None = None
    queries: int = 1
    seconds: float = 0.0


class Asker(Protocol):
    """Queries at most `most` keys at a time over a connection."""

    most: int

    def learn(self, connection: Any) -> None:
        """Learn what must be known about the database before the first query."""

    def groups(self, keys: list[Key]) -> list[list[int]]:
        """Return groups of key numbers that can be queried together."""

    def ask(self, connection: Any, keys: list[Key], careful: bool) -> Answer:
        """Return the rows of keys of one group; `careful` is set on the second try, after a key failed.

        If one of several keys fails, raise `KeyFaultError` or the driver's `DataError`.
        """

    def reads(self, connection: Any, key: Key) -> bool:
        """Whether the database can read this key, as far as it can tell."""

    def columns(self, connection: Any) -> list[str] | None:
        """Return the columns of the rows, or None if only rows can tell."""


def put(answer: Answer, n: int, key: Key, fault: KeyFaultError, reads: bool = True) -> None:
    """Record why the key of number n has no row; only a text can be malformed."""
    text = any(isinstance(part, str | bytes) for part in key)
    if text and (fault.unreadable or not reads):
        answer.malformed.append(n)
    else:
        answer.failed.append((n, fault.reason))


class _Together:
    """Base for databases whose keys need no grouping."""

    def reads(self, connection: Any, key: Key) -> bool:
        """Always true: these databases cannot be asked."""
        return True

    def columns(self, connection: Any) -> list[str] | None:
        """Return the columns of a query without keys."""
        return self.ask(connection, [(None,)], False).names

    def ask(self, connection: Any, keys: list[Key], careful: bool) -> Answer:
        """Return the rows of some keys."""
        raise NotImplementedError

    def learn(self, connection: Any) -> None:
        """Nothing."""

    def groups(self, keys: list[Key]) -> list[list[int]]:
        """Return all keys as one group."""
        return [list(range(len(keys)))] if keys else []


class OneByOne(_Together):
    """Runs the statement once per key, over one connection."""

    most = 1_000

    def __init__(self, statement: OneKey) -> None:
        import sqlalchemy as sa

        self.statement = statement
        name = statement.names[0]
        self._select = (
            sa.text(statement.escaped_with(f"(:{name})"))
            if statement.is_text
            else statement.select_with((sa.bindparam(name, type_=statement.kinds[0]),))
        )

    def ask(self, connection: Any, keys: list[Key], careful: bool) -> Answer:
        """Return the rows of each key."""
        from sqlalchemy import exc

        answer = Answer(queries=len(keys))
        for n, key in enumerate(keys):
            try:
                found = connection.execute(
                    self._select, {self.statement.names[0]: self._sent(key[0], n, connection)}
                )
                answer.names = list(found.keys())
                answer.rows += [(n, dict(row)) for row in found.mappings()]
            except exc.DataError as error:
                connection.rollback()
                put(answer, n, key, fault_of(error))
        return answer

    def _sent(self, value: Any, at: int, connection: Any) -> Any:
        """Convert a value for the driver if SQLAlchemy does not know its type."""
        from sqlalchemy import types

        untyped = self.statement.is_text or isinstance(self.statement.kinds[0], types.NullType)
        return sqlite_value(value, at) if untyped and connection.dialect.name == "sqlite" else value


class Union(_Together):
    """Combines the SELECTs of a table for all keys by UNION ALL into one statement, for any database."""

    def __init__(self, statement: OneKey, most: int) -> None:
        self.statement, self.most = statement, min(most, 100)

    def ask(self, connection: Any, keys: list[Key], careful: bool) -> Answer:
        """Return the rows of many keys."""
        import sqlalchemy as sa

        parts, sent = [], {}
        for n, key in enumerate(keys):
            places = []
            for i, (part, kind) in enumerate(zip(key, self.statement.kinds, strict=True)):
                places.append(sa.bindparam(f"penstock_{n}_{i}", type_=kind))
                sent[f"penstock_{n}_{i}"] = part
            one = self.statement.select_with(tuple(places))
            parts.append(one.add_columns(sa.literal_column(str(n)).label("penstock_n")))
        found = connection.execute(sa.union_all(*parts), sent).mappings()
        rows = [dict(row) for row in found]
        return Answer([(int(row.pop("penstock_n")), row) for row in rows])


class _SQLite(_Together):
    """Common base of both ways to query SQLite."""

    def _run(self, connection: Any, sql: str, values: tuple[Any, ...]) -> Any:
        """Return the cursor of a statement. Errors that depend on the values are attributed to the keys."""
        from sqlalchemy import exc

        try:
            cursor = connection.exec_driver_sql(sql, values)
            return list(cursor.keys()), cursor.all()
        except exc.DBAPIError as error:
            # SQLITE_ERROR, SQLITE_TOOBIG and SQLITE_MISMATCH; other errors are about the database, not keys.
            if getattr(error.orig, "sqlite_errorcode", None) not in (1, 18, 20):
                raise
            connection.exec_driver_sql(
                "EXPLAIN " + sql, (None,) * len(values)
            )  # raises if the statement itself is wrong
            fault = fault_of(error)
        raise fault  # outside `except`: SQLite's errors may contain values


class SQLiteSelect(_SQLite):
    """Runs a SELECT text once per key. SQLite runs in this process, so a key takes microseconds."""

    most = 1_000

    def __init__(self, statement: OneKey) -> None:
        self._sql, self._uses = statement.text_with("?"), len(statement.pieces) - 1

    def ask(self, connection: Any, keys: list[Key], careful: bool) -> Answer:
        """Return the rows of each key."""
        answer = Answer(queries=len(keys))
        cursor, failure = connection.connection.cursor(), connection.dialect.loaded_dbapi.Error
        for n, key in enumerate(keys):
            values = (sqlite_value(key[0], n),) * self._uses
            try:
                try:  # the driver's own cursor: SQLAlchemy's takes ten times as long as SQLite
                    rows = cursor.execute(self._sql, values).fetchall()
                    if cursor.description is None:
                        raise FetchError("The statement returns no rows; a lookup needs a SELECT.")
                    names = [column[0] for column in cursor.description]
                except failure:
                    names, rows = self._run(connection, self._sql, values)  # classifies the failure
            except KeyFaultError as fault:
                put(answer, n, key, fault)
            else:
                answer.names = names
                answer.rows += [(n, dict(zip(names, row, strict=True))) for row in rows]
        return answer


class SQLiteTable(_SQLite):
    """Joins a table with a relation of keys; column = value uses the column's affinity and collation."""

    def __init__(self, columns: list[Any], values: list[Any], dialect: Any, most: int) -> None:
        self.most = most
        self._kinds = [column.type for column in columns]
        self._dialect = dialect
        self._names = [value.name for value in values]
        self._readers = [value.type.dialect_impl(dialect).result_processor(dialect, None) for value in values]
        quote = dialect.identifier_preparer
        table, count = quote.format_table(columns[0].table), len(columns)
        wanted = "".join(f", penstock_table.{quote.quote(value.name)}" for value in values)
        equal = " AND ".join(
            f"penstock_table.{quote.quote(column.name)} = penstock_keys.k{i}"
            for i, column in enumerate(columns)
        )
        self._head = f"WITH penstock_keys(n{''.join(f', k{i}' for i in range(count))}) AS (VALUES "
        self._one = f"(?{', ?' * count})"
        self._tail = (
            f") SELECT penstock_keys.n{wanted} FROM penstock_keys "
            f"CROSS JOIN {table} AS penstock_table ON {equal}"
        )

    def ask(self, connection: Any, keys: list[Key], careful: bool) -> Answer:
        """Return the rows of many keys."""
        sent: list[Any] = []
        for n, key in enumerate(keys):
            spelt: list[tuple[Any, ...]] = [()]
            for part, kind in zip(key, self._kinds, strict=True):
                ways = spellings(part, kind, self._dialect, n)
                spelt = [(*before, way) for before in spelt for way in ways]
            for values in spelt:
                sent += (n, *values)
        width = 1 + len(self._kinds)
        sql = self._head + ", ".join([self._one] * (len(sent) // width)) + self._tail
        _, found = self._run(connection, sql, tuple(sent))
        return Answer(
            [
                (
                    row[0],
                    {
                        name: value if read is None else read(value)
                        for name, read, value in zip(self._names, self._readers, row[1:], strict=True)
                    },
                )
                for row in found
            ]
        )


def sqlite_value(value: Any, at: int) -> Any:
    """Convert a key for SQLite's driver; numbers become what SQLite would read in a statement.

    >>> from decimal import Decimal
    >>> from penstock.lookup.ask import sqlite_value
    >>> sqlite_value(Decimal("1.5"), 0), sqlite_value(Decimal(7), 0), sqlite_value(True, 0)
    (1.5, 7, 1)
    """
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else _nearest(value)
    if isinstance(value, decimal.Decimal):
        whole = value.is_finite() and value == value.to_integral_value()
        return sqlite_value(int(value), at) if whole else float(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if value is None or isinstance(value, str | float | bytes):
        return value
    raise KeyRefusedError(
        at,
        "SQLite has no type for the key of {row}, which is of type "
        + type(value).__name__
        + "; convert the column "
        "of the stream to text.",
    )


def _nearest(value: int) -> float:
    """Return the float that SQLite makes of a whole number beyond 64 bits in a statement."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def spellings(value: Any, kind: Any, dialect: Any, at: int) -> list[Any]:
    """Return the forms that a key may have in SQLite, which stores times and UUIDs as text."""
    from sqlalchemy import types

    if isinstance(kind, types.DateTime) and isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            raise KeyRefusedError(
                at,
                "SQLite stores timestamps without a time zone, but the key of {row} has one; convert the "
                "column of the stream to timestamps without a zone, or to text.",
            )
        ways = [value.isoformat(" "), value.isoformat(), value.isoformat(" ", "microseconds")]
        return list(dict.fromkeys(ways))
    if isinstance(kind, types.Uuid):
        try:
            same = uuid.UUID(str(value))
        except ValueError:
            return [sqlite_value(value, at)]
        return list(dict.fromkeys([str(value), str(same), same.hex]))
    if isinstance(kind, types.TypeDecorator):
        process = kind.dialect_impl(dialect).bind_processor(dialect)
        return [value if process is None else process(value)]
    return [sqlite_value(value, at)]
