"""Query PostgreSQL for many keys at once: the one-key SELECT, LATERAL to a relation of keys with ordinals.

Keys are sent as text and cast on the server: texts to the type that the server infers for the one-key
statement, any other value to its own type in PostgreSQL. So the server compares as it would for one key, and
a row belongs to the ordinal it comes with.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

from penstock.lookup.ask import Answer
from penstock.lookup.source import Key, KeyRefusedError
from penstock.lookup.statement import OneKey

_INTEGERS = {'"pg_catalog"."int2"': 15, '"pg_catalog"."int4"': 31, '"pg_catalog"."int8"': 63}
_INFERRED = """
    SELECT quote_ident(n.nspname) || '.' || '"' || replace(t.typname, '"', '""') || '"'
    FROM pg_prepared_statements AS s, unnest(s.parameter_types) WITH ORDINALITY AS p(kind, at)
    JOIN pg_type AS t ON t.oid = p.kind JOIN pg_namespace AS n ON n.oid = t.typnamespace
    WHERE s.name = :name ORDER BY p.at
"""


class Lateral:
    """Queries PostgreSQL for many keys in one statement."""

    def __init__(self, statement: OneKey, most: int) -> None:
        self.statement, self.most = statement, most
        self._inferred: tuple[str | None, ...] | None = None

    def learn(self, connection: Any) -> None:
        """Ask the server once which types it infers for the parts of the key."""
        if self._inferred is None:
            self._inferred = self._infer(connection)

    @property
    def has_decimals(self) -> bool:
        """Whether a part of the key is compared with a decimal."""
        return self._inferred is not None and 'pg_catalog."numeric"' in self._inferred

    def _infer(self, connection: Any) -> tuple[str | None, ...]:
        import sqlalchemy as sa
        from sqlalchemy.dialects import postgresql

        count, name = len(self.statement.names), f"penstock_{uuid.uuid4().hex}"
        try:
            if self.statement.is_text:
                sql = self.statement.text_with("($1)")
            else:
                places: tuple[Any, ...] = tuple(sa.literal_column(f"(${i + 1})") for i in range(count))
                plain = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]
                sql = str(
                    self.statement.select_with(places).compile(
                        dialect=plain, compile_kwargs={"literal_binds": True}
                    )
                )
            bare = connection.execution_options(no_parameters=True)
            bare.exec_driver_sql(f"PREPARE {name} AS {sql}")
            found = connection.execute(sa.text(_INFERRED), {"name": name}).scalars().all()
            bare.exec_driver_sql(f"DEALLOCATE {name}")
        except (sa.exc.ProgrammingError, sa.exc.NotSupportedError, sa.exc.CompileError):
            connection.rollback()  # the server cannot infer types; the query itself will report the error
            return (None,) * count
        return tuple(found) if len(found) == count else (None,) * count

    def groups(self, keys: list[Key]) -> list[list[int]]:
        """Return groups of key numbers that can be queried together: keys of one type."""
        found: dict[tuple[str, ...], list[int]] = {}
        for at, key in enumerate(keys):
            found.setdefault(self._types(key, at), []).append(at)
        return list(found.values())

    def _types(self, key: Key, at: int = 0) -> tuple[str, ...]:
        assert self._inferred is not None
        return tuple(_type_of(part, inferred, at) for part, inferred in zip(key, self._inferred, strict=True))

    def columns(self, connection: Any) -> list[str] | None:
        """Return the columns of the statement without keys."""
        return self.ask(connection, [], False).names

    def reads(self, connection: Any, key: Key) -> bool:
        """Whether the server can cast a key to the types in the statement."""
        import sqlalchemy as sa

        casts = ", ".join(f"CAST(CAST(:k{i} AS text) AS {kind})" for i, kind in enumerate(self._types(key)))
        try:
            connection.execute(
                sa.text(f"SELECT {casts}"), {f"k{i}": _text_of(part) for i, part in enumerate(key)}
            )
        except sa.exc.DataError:
            connection.rollback()
            return False
        return True

    def ask(self, connection: Any, keys: list[Key], careful: bool) -> Answer:
        """Return the rows of keys of one group.

        If `careful`, the statement is run separately for each key. Otherwise the server may choose any join
        order, and evaluate failing expressions for rows that no key requests.
        """
        import sqlalchemy as sa

        assert self._inferred is not None
        types = self._types(keys[0]) if keys else tuple(kind or "text" for kind in self._inferred)
        columns = [f"penstock_key_{i}" for i in range(len(types))]
        casts = [f"CAST(penstock_keys.{c} AS {t})" for c, t in zip(columns, types, strict=True)]
        if self.statement.is_text:
            inner = self.statement.escaped_with(f"({casts[0]})")
            if careful:
                inner = f"SELECT * FROM (\n{inner}\n) AS penstock_one OFFSET 0"
            statement: Any = sa.text(
                "SELECT penstock_keys.penstock_n, penstock_found.* "
                "FROM unnest(CAST(:penstock_key_0 AS text[])) WITH ORDINALITY "
                "AS penstock_keys(penstock_key_0, penstock_n) "
                f"CROSS JOIN LATERAL (\n{inner}\n) AS penstock_found"
            )
        else:
            arrays = [sa.bindparam(column, type_=sa.ARRAY(sa.Text())) for column in columns]
            relation = (
                sa.func.unnest(*arrays)
                .table_valued(*columns, with_ordinality="penstock_n")
                .render_derived(name="penstock_keys")
            )
            one = self.statement.select_with(tuple(sa.literal_column(cast) for cast in casts))
            if careful:
                one = sa.select(one.subquery("penstock_one")).offset(sa.literal_column("0"))
            found = one.lateral("penstock_found")
            statement = sa.select(relation.c.penstock_n, *found.c).select_from(
                relation.join(found, sa.true())
            )
        sent = {column: [_text_of(key[i]) for key in keys] for i, column in enumerate(columns)}
        result = connection.execute(statement, sent)
        names = list(result.keys())[1:]
        rows = [(row[0] - 1, dict(zip(names, row[1:], strict=True))) for row in result]
        return Answer(rows, names=names)


def _type_of(value: Any, inferred: str | None, at: int) -> str:
    """Return the PostgreSQL type of a key."""
    if isinstance(value, str):
        return inferred or "text"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        bits = (value if value >= 0 else -value - 1).bit_length()
        if inferred in _INTEGERS and bits <= _INTEGERS[inferred]:
            return inferred
        return "integer" if bits <= 31 else "bigint" if bits <= 63 else "numeric"
    if isinstance(value, datetime.datetime):
        return "timestamptz" if value.tzinfo is not None else "timestamp"
    if isinstance(value, datetime.time):
        return "timetz" if value.tzinfo is not None else "time"
    for kind, name in _TYPES.items():
        if isinstance(value, kind):
            return name
    raise KeyRefusedError(
        at,
        "PostgreSQL has no type for the key of {row}, which is of type "
        + type(value).__name__
        + "; convert the "
        "column of the stream.",
    )


_TYPES: dict[type, str] = {
    float: "double precision",
    decimal.Decimal: "numeric",
    datetime.date: "date",
    datetime.timedelta: "interval",
    bytes: "bytea",
    uuid.UUID: "uuid",
}


def _text_of(value: Any) -> str:
    """Return a key as the input function of its type reads it."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, datetime.timedelta):
        return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
    return str(value)
