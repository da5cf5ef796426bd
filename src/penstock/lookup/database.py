"""A database table or SELECT as a lookup source, via SQLAlchemy. Keys are always bound parameters."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from penstock.errors import ColumnError, FetchError, PenstockError, hint
from penstock.extras import require
from penstock.lookup.ask import Answer, Asker, OneByOne, SQLiteSelect, SQLiteTable, Union, put
from penstock.lookup.postgres import Lateral
from penstock.lookup.refusals import KeyFaultError, fault_of, reason_of
from penstock.lookup.retry import Retry
from penstock.lookup.source import Fetched, Key, KeyRefusedError, to_rows
from penstock.lookup.statement import OneKey, of_table, one_key
from penstock.lookup.types import NEVER, arrow_type, arrow_value, as_key, refuse_nanoseconds

MOST_PARAMETERS = 4_000  # keys of one query; SQLite allows 32,766 values, and a key may have six
Result = TypeVar("Result")
_PASSING = ("locked", "busy", "unable to open", "disk i/o")  # SQLite errors that may be temporary


class Database:
    """Fetches the rows of keys in queries of at most `most` keys, over at most `connections` connections.

    `what` is the name of a table (optionally with its schema and a dot), a SQLAlchemy `Table`, or a SELECT
    with one bound key, as text or as a SQLAlchemy object. Nothing is opened before the first query.
    """

    def __init__(
        self,
        url: Any,
        what: Any,
        key: tuple[str, ...],
        *,
        schema: pa.Schema | None = None,
        columns: tuple[str, ...] | None = None,
        most: int = 1_000,
        connections: int = 2,
        retry: Retry | None = None,
    ) -> None:
        sqlalchemy = _sqlalchemy()
        self.key = key
        self.most = max(1, min(most, MOST_PARAMETERS // len(key)))
        self.connections = connections
        self.retry = retry or Retry()
        self._engine = url if hasattr(url, "connect") else None
        self._own = self._engine is None  # a pool passed by the user is not closed here
        self._url = url.url if self._engine is not None else _url(url)
        self._what, self._given, self._columns = what, schema, columns
        self._table: Any = what if isinstance(what, sqlalchemy.Table) else None
        self._one: OneKey | None = None  # of a SELECT
        self._asker: Asker | None = None
        self._seen: list[str] | None = None  # the columns of a SELECT, once known from a cursor
        if self._table is None and not (isinstance(what, str) and " " not in what.strip()):
            if len(key) > 1:
                raise PenstockError(
                    "A SELECT for lookups has exactly one bound key; give a table for composite keys."
                )
            self._one = one_key(what)
        if self._table is not None:
            self._check_columns()

    def __getstate__(self) -> dict[str, Any]:
        if self._url.get_backend_name() == "sqlite" and self._url.database in (None, "", ":memory:"):
            raise PenstockError(
                "A SQLite database in memory cannot be reached from other processes; use a file."
            )
        return {
            **vars(self),
            "_engine": None,
            "_asker": None,
            "_own": True,
            "_url": self._url.render_as_string(hide_password=False),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, "_url": _url(state["_url"])})

    @property
    def engine(self) -> Any:
        """The connection pool; connecting and statements have a time limit."""
        if self._engine is None:
            name, limit = self._url.get_backend_name(), self.retry.timeout
            options: dict[str, Any] = {"pool_pre_ping": False, "hide_parameters": True}
            if name == "postgresql":
                options["connect_args"] = {
                    "connect_timeout": max(2, int(limit)),
                    "options": f"-c statement_timeout={max(1, int(1000 * limit))}",
                }
            elif name == "sqlite":
                options["connect_args"] = {"timeout": limit}
            if name != "sqlite":
                options |= {"pool_size": self.connections, "pool_timeout": limit}
            self._engine = _sqlalchemy().create_engine(self._url, **options)
        return self._engine

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the table without its key; for a SELECT, only if they were given."""
        if self._given is not None or self._one is not None:
            return self._given
        return pa.schema([(c.name, arrow_type(c.type)) for c in self._values()])

    @property
    def table(self) -> Any:
        """The table, read from the database's catalogue if it was given by name."""
        if self._table is None:
            self._table = self._try(self._reflected)
            self._check_columns()
        return self._table

    def _reflected(self) -> Any:
        sa = _sqlalchemy()
        namespace, _, name = str(self._what).rpartition(".")
        inspector = sa.inspect(self.engine)
        if not inspector.has_table(name, schema=namespace or None):
            names = [*inspector.get_table_names(schema=namespace or None), *inspector.get_view_names()]
            raise PenstockError(f"The database has no table {self._what!r}{hint(name, names or ['(none)'])}")
        return sa.Table(name, sa.MetaData(), autoload_with=self.engine, schema=namespace or None)

    def _check_columns(self) -> None:
        names = [column.name for column in self._table.columns]
        for name in (*self.key, *(self._columns or ())):
            if name not in names:
                raise ColumnError(f"The table {self._table.name} has no column {name!r}{hint(name, names)}")

    def _values(self) -> list[Any]:
        wanted = self._columns
        return [
            c for c in self.table.columns if c.name not in self.key and (wanted is None or c.name in wanted)
        ]

    @property
    def whole(self) -> bool:
        """Whether whole floats may be requested as whole numbers, because keys are only compared by `=`.

        Not for a SELECT on SQLite, where 1 and 1.0 are two texts in a text column and one number elsewhere;
        nor for decimals, which databases compare with floats as floats, and with whole numbers exactly.
        """
        if self._one is None:
            from sqlalchemy import types

            kinds = [self.table.columns[name].type for name in self.key]
            return all(not isinstance(k, types.Numeric) or isinstance(k, types.Float) for k in kinds)
        if not self._one.compares or self.engine.dialect.name == "sqlite":
            return False
        asker = self.asker
        if not isinstance(asker, Lateral):
            return True
        self._try(lambda: self._learn(asker))
        return not asker.has_decimals

    @property
    def asker(self) -> Asker:
        """The way this database is queried for many keys."""
        if self._asker is None:
            dialect, most = self.engine.dialect, self.most
            if self._one is None:
                columns, values = [self.table.columns[name] for name in self.key], self._values()
                if dialect.name == "sqlite":
                    self._asker = SQLiteTable(columns, values, dialect, most)
                else:
                    one = of_table(columns, values)
                    self._asker = Lateral(one, most) if dialect.name == "postgresql" else Union(one, most)
            elif dialect.name == "postgresql":
                self._asker = Lateral(self._one, most)
            elif dialect.name == "sqlite" and self._one.is_text:
                self._asker = SQLiteSelect(self._one)
            else:
                self._asker = OneByOne(self._one)
        return self._asker

    def fetch(self, keys: list[Key], failed: Any) -> Fetched:
        """Return the rows of these keys; raise an error if a key has several rows."""
        asked, asker = self._asked(keys), self.asker
        self._try(lambda: self._learn(asker), failed)
        parts: list[list[tuple[int, Key]]] = []
        for group in _rebased(lambda: asker.groups([key for _, key in asked]), asked):
            ranges = range(0, len(group), asker.most)
            parts += [[asked[i] for i in group[start : start + asker.most]] for start in ranges]
        threads = 1 if self.engine.dialect.name == "sqlite" else min(self.connections, len(parts))
        if threads > 1:
            with ThreadPoolExecutor(threads) as pool:
                answers = list(pool.map(lambda part: self._query(part, failed), parts))
        else:
            answers = [self._query(part, failed) for part in parts]
        place, seconds = np.full(len(keys), -1, np.int64), np.zeros(len(keys))
        rows: list[dict[str, Any]] = []
        schema = self.schema
        for part, answer in zip(parts, answers, strict=True):
            seconds[[at for at, _ in part]] = answer.seconds / len(part)
            for at, row in answer.rows:
                if place[at] >= 0:
                    raise KeyRefusedError(
                        at,
                        "The table has several rows for the key of {row}; a lookup needs a unique key.",
                    )
                place[at] = len(rows)
                rows.append(self._value(row, schema))
        known = () if schema is not None else self._known(answers, failed)
        return Fetched(
            to_rows(rows, schema, known),
            place,
            seconds,
            sum(answer.queries for answer in answers),
            tuple(at for answer in answers for at in answer.malformed),
            tuple(fault for answer in answers for fault in answer.failed),
        )

    def _known(self, answers: list[Answer], failed: Any) -> list[str]:
        """Return the columns of a SELECT from its cursor, so that they are known if it finds nothing."""
        if self._seen is None:
            self._seen = next((answer.names for answer in answers if answer.names is not None), None)
        if self._seen is None:
            self._seen = self._try(self._described, failed)
        return [name for name in self._seen or () if name not in self.key]

    def _described(self) -> list[str] | None:
        try:
            with self.engine.connect() as connection:
                return self.asker.columns(connection)
        except (_sqlalchemy().exc.DataError, KeyFaultError):
            return None

    @property
    def key_types(self) -> dict[str, str] | None:
        """The types of the key columns as the database names them; None for a SELECT, whose are not known."""
        if self._one is not None:
            return None
        return {name: str(self.table.columns[name].type) for name in self.key}

    def _asked(self, keys: list[Key]) -> list[tuple[int, Key]]:
        """Return the keys that the table may contain, converted for the database, with their numbers."""
        for at, key in enumerate(keys):
            for part, name in zip(key, self.key, strict=True):
                refuse_nanoseconds(part, name, at)
        if self._one is not None:
            return list(enumerate(keys))
        kinds = [self.table.columns[name].type for name in self.key]
        dialect, found = self.engine.dialect.name, []
        for at, key in enumerate(keys):
            parts = tuple(
                as_key(part, kind, name, dialect, at)
                for part, kind, name in zip(key, kinds, self.key, strict=True)
            )
            if NEVER not in parts:
                found.append((at, parts))
        return found

    def _learn(self, asker: Asker) -> None:
        with self.engine.connect() as connection:
            asker.learn(connection)

    def _query(self, part: list[tuple[int, Key]], failed: Any) -> Answer:
        """Return the rows of some keys: in one query, or in several that isolate the keys that fail."""
        whole, began = Answer(queries=0), time.perf_counter()
        waiting = [(part, False)]
        while waiting:
            some, careful = waiting.pop()
            found = _rebased(lambda: self._try(lambda: self._ask(some, careful), failed), some)  # noqa: B023
            if found is not None:
                whole.rows += [(some[n][0], row) for n, row in found.rows]
                whole.malformed += [some[n][0] for n in found.malformed]
                whole.failed += [(some[n][0], reason) for n, reason in found.failed]
                whole.names = found.names or whole.names
                whole.queries += found.queries
                continue
            whole.queries += 1
            half = len(some) // 2
            if not careful:
                waiting.append((some, True))
            else:
                waiting += [(some[:half], True), (some[half:], True)]
        whole.seconds = time.perf_counter() - began
        return whole

    def _ask(self, part: list[tuple[int, Key]], careful: bool) -> Answer | None:
        """Return the answer for some keys, or None if one of several fails."""
        try:
            with self.engine.connect() as connection:
                return self.asker.ask(connection, [key for _, key in part], careful)
        except _sqlalchemy().exc.DataError as error:
            fault = fault_of(error)
        except KeyFaultError as error:
            fault = error
        if len(part) > 1 or not careful:
            return None
        answer, key = Answer(), part[0][1]
        with self.engine.connect() as connection:
            put(answer, 0, key, fault, self.asker.reads(connection, key))
        return answer

    def _value(self, row: dict[str, Any], schema: pa.Schema | None) -> dict[str, Any]:
        """Convert a row without its key to Arrow's types."""
        if schema is None:
            return {name: value for name, value in row.items() if name not in self.key}
        return {field.name: arrow_value(row.get(field.name), field.type) for field in schema}

    def _try(self, action: Any, failed: Any = lambda error: None) -> Any:
        def count_failure(error: Exception) -> None:
            failed(error)
            if self._own and self._passing(error):
                self.engine.dispose()  # drop lost connections

        try:
            return self.retry.call(action, self._passing, count_failure, reason_of)
        except _sqlalchemy().exc.SQLAlchemyError as error:
            reason = reason_of(error)
        raise FetchError(f"The database rejects the query: {reason}")  # not chained: its error contains keys

    def _passing(self, error: Exception) -> bool:
        """Whether an error may be temporary."""
        exc = _sqlalchemy().exc
        if isinstance(error, exc.TimeoutError | exc.InterfaceError | OSError):
            return True
        if not isinstance(error, exc.DBAPIError):
            return False
        if self._url.get_backend_name() == "sqlite":
            return any(word in str(error.orig).lower() for word in _PASSING)
        return isinstance(error, exc.OperationalError) or error.connection_invalidated

    def close(self) -> None:
        """Close the connections."""
        if self._own and self._engine is not None:
            self._engine.dispose()


def _rebased(action: Callable[[], Result], part: list[tuple[int, Key]]) -> Result:
    """Run an action; if it rejects a key, report the key's number among all keys."""
    try:
        return action()
    except KeyRefusedError as error:
        at, text = part[error.at][0], error.text
    raise KeyRefusedError(at, text)


def database_of(given: Any, url: Any, name: str | None, key: tuple[str, ...], **options: Any) -> Database:
    """Return the database for the user's argument `table`: see `LookupCache`."""
    sqlalchemy = _sqlalchemy()
    if isinstance(given, tuple | list) and len(given) == 2:
        url, given = given
    elif isinstance(given, str) and "://" in given and url is None:
        url, _, after = given.partition("#")
        given = name or after or None
    elif hasattr(given, "connect"):
        url, given = given, name
    if url is None:
        raise PenstockError(
            f"{given!r:.60} is not a supported table; give (URL, table name), 'URL#table', a Table "
            "or SELECT with url=, or a function."
        )
    if given is None:
        given = _only_table(Database(url, "?", key, **options))
    if not isinstance(given, str | sqlalchemy.Table | sqlalchemy.sql.Selectable | sqlalchemy.TextClause):
        raise PenstockError(
            f"A table is its name, a Table or a SELECT with one bound key; {type(given).__name__} was given."
        )
    if isinstance(given, sqlalchemy.TextClause):
        given = given.text
    return Database(url, given, key, **options)


def _only_table(database: Database) -> str:
    """Return the name of the only table of a database."""
    names = database._try(lambda: _sqlalchemy().inspect(database.engine).get_table_names())
    database.close()
    if len(names) != 1:
        raise PenstockError(
            f"The database has {len(names)} tables ({', '.join(names[:20])}); choose one: (URL, table name)."
        )
    return str(names[0])


def _url(given: Any) -> Any:
    sqlalchemy = _sqlalchemy()
    try:
        url = sqlalchemy.make_url(given)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        shown = re.sub(r"//.*@", "//***@", str(given))  # keep passwords out of logs
        raise PenstockError(
            f"{shown!r:.60} is not the URL of a database, such as sqlite:///file.db or "
            "postgresql://user@host/name; the port must be a number."
        ) from None
    # psycopg 3 is the driver that Penstock installs; without a driver SQLAlchemy may look for another.
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername == "postgresql+psycopg":
        require("psycopg", "A table of PostgreSQL")
    return url


def _sqlalchemy() -> Any:
    require("sqlalchemy", "A table of a database")
    import sqlalchemy

    return sqlalchemy
