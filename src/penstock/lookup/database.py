"""A table of a database, or a SELECT, reached through SQLAlchemy. Keys are always bound parameters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import ColumnError, FetchError, PenstockError, hint
from penstock.lookup.retry import Retry
from penstock.lookup.source import Fetched, Key, to_rows
from penstock.lookup.statement import Bound, bound_of
from penstock.lookup.types import NEVER, arrow_type, arrow_value, as_key

MOST_PARAMETERS = 30_000  # of one query; SQLite takes 32,766
_PASSING = ("locked", "busy", "unable to open", "disk i/o")  # what may pass, of SQLite's errors


class Database:
    """Fetches the rows of keys in queries for at most `most` keys, over at most `connections` connections.

    `what` is the name of a table (with its schema before a dot), a SQLAlchemy `Table`, or a SELECT with one
    bound key, as text or as SQLAlchemy has it. Nothing is opened before the first query.
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
        self._own = self._engine is None  # a pool that was given is not ours to close
        self._url = url.url if self._engine is not None else _url(url)
        self._what, self._given, self._columns = what, schema, columns
        self._table: Any = what if isinstance(what, sqlalchemy.Table) else None
        self._bound: Bound | None = None
        if self._table is None and not (isinstance(what, str) and " " not in what.strip()):
            if len(key) > 1:
                raise PenstockError(
                    "A SELECT for lookups has one bound key; give a table for composite keys."
                )
            self._bound = bound_of(what, key[0])
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
            "_own": True,
            "_url": self._url.render_as_string(hide_password=False),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, "_url": _url(state["_url"])})

    @property
    def engine(self) -> Any:
        """The pool of connections; each has a time limit for connecting and for statements."""
        if self._engine is None:
            name, limit = self._url.get_backend_name(), self.retry.timeout
            options: dict[str, Any] = {"pool_pre_ping": False}
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
        """The columns of the table without its key; of a SELECT only if they were given."""
        if self._given is not None or self._bound is not None:
            return self._given
        return pa.schema([(c.name, arrow_type(c.type)) for c in self._values()])

    @property
    def table(self) -> Any:
        """The table, read from the database's catalogue when it was given by name."""
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

    def fetch(self, keys: list[Key], failed: Any) -> Fetched:
        """The rows of these keys; a key with several rows is refused."""
        asked = list(self._asked(keys))
        parts = [asked[i : i + self._size] for i in range(0, len(asked), self._size)]
        threads = 1 if self.engine.dialect.name == "sqlite" else min(self.connections, len(parts))
        if threads > 1:
            with ThreadPoolExecutor(threads) as pool:
                answers = list(pool.map(lambda part: self._query([key for _, key in part], failed), parts))
        else:
            answers = [self._query([key for _, key in part], failed) for part in parts]
        place, seconds = np.full(len(keys), -1, np.int64), np.zeros(len(keys))
        rows: list[dict[str, Any]] = []
        for part, (found, took) in zip(parts, answers, strict=True):
            for at, key in part:
                seconds[at] = took / len(part)
                if key in found:
                    place[at] = len(rows)
                    rows.append(found[key])
        return Fetched(to_rows(rows, self.schema), place, seconds, len(parts))

    @property
    def _size(self) -> int:
        return self.most if self._bound is None or self._bound.many else 1

    def _asked(self, keys: list[Key]) -> Iterator[tuple[int, Key]]:
        """The keys that can be there, as the database compares them, with their number."""
        if self._bound is not None:
            yield from enumerate(keys)
            return
        kinds = [self.table.columns[name].type for name in self.key]
        for at, key in enumerate(keys):
            parts = tuple(
                as_key(part, kind, name) for part, kind, name in zip(key, kinds, self.key, strict=True)
            )
            if NEVER not in parts:
                yield at, parts

    def _query(self, keys: list[Key], failed: Any) -> tuple[dict[Key, dict[str, Any]], float]:
        """One round trip: the rows by key, and what it took."""
        statement, parameters = self._statement(keys)
        began = time.perf_counter()

        def ask() -> list[Any]:
            with self.engine.connect() as connection:
                return [dict(row) for row in connection.execute(statement, parameters).mappings()]

        answer = self._try(ask, failed)
        return self._by_key(answer, keys), time.perf_counter() - began

    def _by_key(self, answer: list[dict[str, Any]], keys: list[Key]) -> dict[Key, dict[str, Any]]:
        schema, found = self.schema, {}
        for row in answer:
            if self._bound is not None and not self._bound.many:
                key = keys[0]
            else:
                if self.key[0] not in row:
                    raise ColumnError(
                        f"The SELECT does not have the key {self.key[0]!r} among its columns"
                        f"{hint(self.key[0], row)}"
                    )
                key = tuple(row[name] for name in self.key)
            if key in found:
                told = key[0] if len(key) == 1 else key
                raise ColumnError(
                    f"The table has several rows for the key {told!r}; a lookup needs a key that is unique."
                )
            values = {name: value for name, value in row.items() if name not in self.key}
            if schema is not None:
                values = {field.name: arrow_value(values.get(field.name), field.type) for field in schema}
            found[key] = values
        return found

    def _statement(self, keys: list[Key]) -> tuple[Any, dict[str, Any]]:
        sa = _sqlalchemy()
        if self._bound is not None:
            plain = [key[0] for key in keys]
            return self._bound.statement, {self._bound.parameter: plain if self._bound.many else plain[0]}
        columns = [self.table.columns[name] for name in self.key]
        wanted = sa.select(*columns, *self._values())
        if len(columns) > 1:
            bound = sa.bindparam("keys", expanding=True)
            return wanted.where(sa.tuple_(*columns).in_(bound)), {"keys": keys}
        plain = [key[0] for key in keys]
        if self.engine.dialect.name == "postgresql":
            kind = columns[0].type
            if isinstance(kind, sa.Integer):
                kind = sa.BigInteger()  # a key beyond a column of 32 bits is no error
            return wanted.where(columns[0] == sa.any_(sa.bindparam("keys", type_=sa.ARRAY(kind)))), {
                "keys": plain
            }
        return wanted.where(columns[0].in_(sa.bindparam("keys", expanding=True))), {"keys": plain}

    def _try(self, action: Any, failed: Any = lambda error: None) -> Any:
        def told(error: Exception) -> None:
            failed(error)
            if self._own and self._passing(error):
                self.engine.dispose()  # what is left of lost connections

        try:
            return self.retry.call(action, self._passing, told)
        except _sqlalchemy().exc.SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise FetchError(f"The database refuses the query: {reason}") from error

    def _passing(self, error: Exception) -> bool:
        """Whether an error may be gone at the next attempt."""
        exc = _sqlalchemy().exc
        if isinstance(error, exc.TimeoutError | exc.InterfaceError | OSError):
            return True
        if not isinstance(error, exc.DBAPIError):
            return False
        if self._url.get_backend_name() == "sqlite":
            return any(word in str(error.orig).lower() for word in _PASSING)
        return isinstance(error, exc.OperationalError) or error.connection_invalidated

    def close(self) -> None:
        """Give back the connections."""
        if self._own and self._engine is not None:
            self._engine.dispose()


def database_of(given: Any, url: Any, name: str | None, key: tuple[str, ...], **options: Any) -> Database:
    """The database behind what a user gives as a table: see `LookupCache`."""
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
            f"{given!r:.60} is not a table that can be reached; give (URL, table name), 'URL#table', a Table "
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
    """The name of the one table of a database."""
    names = database._try(lambda: _sqlalchemy().inspect(database.engine).get_table_names())
    database.close()
    if len(names) != 1:
        raise PenstockError(
            f"The database has {len(names)} tables ({', '.join(names[:20])}); say which: (URL, table name)."
        )
    return str(names[0])


def _url(given: Any) -> Any:
    sqlalchemy = _sqlalchemy()
    try:
        url = sqlalchemy.make_url(given)
    except sqlalchemy.exc.ArgumentError as error:
        raise PenstockError(
            f"{given!r:.60} is not the URL of a database, such as sqlite:///file.db or "
            "postgresql://user@host/name."
        ) from error
    # psycopg 3 is the driver that Penstock installs; without a driver SQLAlchemy may look for another.
    return url.set(drivername="postgresql+psycopg") if url.drivername in ("postgresql", "postgres") else url


def _sqlalchemy() -> Any:
    try:
        import sqlalchemy
    except ImportError as error:
        raise PenstockError("Tables of databases need SQLAlchemy: pip install 'penstock[lookup]'.") from error
    return sqlalchemy
