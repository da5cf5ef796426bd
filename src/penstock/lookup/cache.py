"""`LookupCache`: enriches a stream from a table, with a bounded part of the table in memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.arguments import one_of, shown, whole
from penstock.budget import Bytes, Tuples, budget_of
from penstock.caching.arguments import caching_policy, weighing_names
from penstock.columns import Table, column_names, row_count
from penstock.errors import BudgetError, ColumnError, PenstockError, UnknownPolicyError, hint
from penstock.lookup.events import to_events
from penstock.lookup.function import Function
from penstock.lookup.keys import keys_of
from penstock.lookup.retry import Retry
from penstock.lookup.source import Source
from penstock.lookup.state import LookupState
from penstock.lookup.stats import LookupRun
from penstock.policies import Policy
from penstock.units import duration

MISSING = ("null", "drop", "error")
MALFORMED = ("missing", "error")


class LookupCache:
    """A bounded cache between a stream and a table.

    Parameters
    ----------
    table
        `(URL, table name)`, the text `"URL#table"`, a SQLAlchemy `Table` or a SELECT with one bound key and
        `url=` (a URL or an engine), or a function from a list of keys to their rows.
    key
        The key of the table: a column name, or several.
    budget
        `Tuples(n)`, a whole number of entries, or `Bytes(...)` for keys, rows, index and scores.
    policy
        One of `penstock.policies.caching_names()`, optionally with options.
    ttl
        The maximum age of an entry, in seconds or as a text such as `"10 minutes"`; default: no limit. An
        older entry is fetched again when it is requested, which counts as a miss.
    missing
        What to do with events whose key is not in the table: `"null"` (a left join, the default), `"drop"`
        (an inner join) or `"error"`.
    malformed
        What to do with keys that the table cannot read, such as `"abc"` in a UUID column, and with keys for
        which the SELECT fails, for example by a division by zero: `"missing"` (treat them as keys without a
        row, count them as `malformed` or `failed_keys`, and warn once) or `"error"`.
    negative
        Whether keys that are not in the table are cached too.
    cost
        The cost of a miss: `"measured"`, or a function of the key or a mapping; only `gdj` uses it.
    columns, schema
        The columns to fetch from a table; the Arrow types of the rows of a SELECT or function.
    batch
        Requests that are answered together: their misses are fetched at once, each key once.
    query_keys, connections, timeout, backoff
        Maximum keys per query; connections of the pool; seconds before a fetch fails; seconds before the
        first retry.
    retry_on
        The exceptions of a function after which it is called again.

    Examples
    --------
    >>> import sqlite3, tempfile
    >>> import penstock as ps
    >>> folder = tempfile.TemporaryDirectory()
    >>> database = sqlite3.connect(folder.name + "/shop.db")
    >>> _ = database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)")
    >>> _ = database.execute("INSERT INTO items VALUES (1, 'tea'), (2, 'milk')")
    >>> database.commit()
    >>> database.close()
    >>> url = "sqlite:///" + folder.name + "/shop.db"
    >>> lookup = ps.LookupCache((url, "items"), key="id", budget=ps.Tuples(2), policy="lru")
    >>> run = lookup.run({"item": [1, 2, 1, 3], "n": [5, 1, 2, 4]}, on="item")
    >>> run.table["name"].to_pylist()
    ['tea', 'milk', 'tea', None]
    >>> run.stats.hits, run.stats.misses, run.stats.queries
    (1, 3, 1)
    >>> folder.cleanup()
    """

    def __init__(
        self,
        table: Any,
        *,
        key: str | Sequence[str],
        budget: Any,
        policy: str | Policy = "auto",
        ttl: float | str | None = None,
        missing: str = "null",
        malformed: str = "missing",
        negative: bool = True,
        cost: str | Mapping[Any, float] | Callable[[Any], float] | None = None,
        url: Any = None,
        name: str | None = None,
        columns: Sequence[str] | None = None,
        schema: Any = None,
        batch: int = 10_000,
        query_keys: int = 1_000,
        connections: int = 2,
        timeout: float = 30.0,
        backoff: float = 0.05,
        retry_on: tuple[type[BaseException], ...] = (OSError, TimeoutError),
        suffix: str = "_table",
        seed: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.key = _names("key", key)
        self.policy = caching_policy(policy)
        self.budget = _budget(budget)
        self.ttl = _seconds(ttl)
        one_of("missing", missing, MISSING)
        one_of("malformed", malformed, MALFORMED)
        if not isinstance(negative, bool):
            raise PenstockError(f"negative={negative!r} is not allowed; it must be true or false.")
        if self.policy.needs_future and not negative:
            raise PenstockError(
                f"{self.policy.name} plans with the whole trace of requests, so it cannot omit keys that "
                "are not in the table. Use negative=True, or another policy."
            )
        if cost is not None:
            if (
                not (isinstance(cost, str) and cost == "measured")
                and not callable(cost)
                and not isinstance(cost, Mapping)
            ):
                raise PenstockError(
                    f"cost={cost!r} is not known; give 'measured', a mapping from key to cost, or a function."
                )
            if not self.policy.weighs_costs:
                raise UnknownPolicyError(
                    f"{self.policy.name} does not support costs{hint(self.policy.name, weighing_names())}"
                )
        for what, value in (("batch", batch), ("query_keys", query_keys), ("connections", connections)):
            whole(what, value, least=1)
        for what, number in (("timeout", timeout), ("backoff", backoff)):
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
                raise PenstockError(
                    f"{what}={number!r} is not allowed; it must be a number of seconds above 0."
                )
        if not callable(clock):
            raise PenstockError(f"clock={shown(clock)} is not allowed; it is a function such as time.time.")
        self.missing, self.malformed, self.negative, self.cost = missing, malformed, negative, cost
        self.batch, self.suffix, self.seed, self.clock = batch, suffix, seed, clock
        shape = None if schema is None else _schema(schema, self.key)
        retry = Retry(float(timeout), float(backoff))
        self.source: Source
        if callable(table) and not hasattr(table, "connect"):
            self.source = Function(table, self.key, shape, query_keys, retry, _errors_of(retry_on))
        else:
            from penstock.lookup.database import database_of

            self.source = database_of(
                table,
                url,
                name,
                self.key,
                schema=shape,
                columns=None if columns is None else _names("columns", columns),
                most=query_keys,
                connections=connections,
                retry=retry,
            )

    def start(self, requests: Any = None) -> LookupState:
        """Return an empty cache that processes batches; `requests` are all coming ids, for `lfd`.

        >>> import penstock as ps
        >>> lookup = ps.LookupCache(lambda keys: {}, key="id", budget=10, policy="lru")
        >>> lookup.start().process({"id": [1, 1]}, on="id").num_rows
        2
        """
        return LookupState(self, requests)

    def run(self, stream: Table, on: str | Sequence[str] | None = None) -> LookupRun:
        """Enrich a whole stream: pandas, Arrow or a dict of arrays. `on` names its key columns, by default
        those of the table.

        Hits are counted as if requests came one by one, whatever the batch size.

        >>> import penstock as ps
        >>> lookup = ps.LookupCache(
        ...     lambda keys: {1: {"name": "tea"}}, key="id", budget=9, policy="lru", missing="drop"
        ... )
        >>> lookup.run({"id": [2, 1]}).table.to_pylist()
        [{'id': 1, 'name': 'tea'}]
        """
        names = self.key if on is None else _names("on", on)
        if len(names) != len(self.key):
            raise ColumnError(
                f"on has {len(names)} columns ({', '.join(names)}) and the table's key has {len(self.key)} "
                f"({', '.join(self.key)}); they must correspond one to one."
            )
        given = column_names(stream)
        for column in names:
            if column not in given:
                raise ColumnError(f"The stream has no column {column!r}{hint(column, given)}")
        row_count(stream)
        began = time.perf_counter()
        events = to_events(stream)
        trace = None
        if self.policy.needs_future:
            every = keys_of(events, names, self.source.whole)
            trace = every.ids[every.code[every.code >= 0]]
        state = self.start(trace)
        try:
            parts = [
                state.process(events.slice(start, self.batch), names)
                for start in range(0, max(1, events.num_rows), self.batch)
            ]
        finally:
            self.source.close()
        table = pa.concat_tables(parts, promote_options="permissive")
        stats = state.stats
        stats.seconds = time.perf_counter() - began
        return LookupRun(table, stats)


def _names(what: str, given: Any) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list | tuple) else ()
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ColumnError(f"{what}={given!r} is not allowed; give a column name or several different ones.")
    return names


def _budget(given: Any) -> Tuples | Bytes:
    whole = isinstance(given, int) and not isinstance(given, bool)
    found = budget_of(Tuples(given) if whole else given)
    if not isinstance(found, Tuples | Bytes):
        raise BudgetError(
            f"A lookup's budget is a number of entries or of bytes; {given!r} was given. Give Tuples(200) or "
            "Bytes('64 MiB')."
        )
    return found


def _seconds(ttl: Any) -> float | None:
    if ttl is None:
        return None
    found = duration(ttl, "s") if isinstance(ttl, str) else ttl
    if isinstance(found, bool) or not isinstance(found, int | float) or not found > 0:
        raise PenstockError(
            f"ttl={ttl!r} is not allowed; give seconds above 0 or a text such as '10 minutes'."
        )
    return float(found)


def _schema(given: Any, key: tuple[str, ...]) -> pa.Schema:
    try:
        found = given if isinstance(given, pa.Schema) else pa.schema(given)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise ColumnError(
            f"schema={given!r:.80} is not a schema; give a pyarrow.schema or a dict of names and Arrow types."
        ) from error
    return pa.schema([field for field in found if field.name not in key])


def _errors_of(given: Any) -> tuple[type[BaseException], ...]:
    """Return the exception classes after which a function is retried: one or several."""
    kinds = given if isinstance(given, tuple | list) else (given,)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise PenstockError(
            f"retry_on takes exception classes, such as (OSError, TimeoutError); {given!r} was given."
        )
    return tuple(kinds)
