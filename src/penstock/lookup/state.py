"""The state of a lookup: the cached keys and their rows, and how a batch of events is answered.

A batch is answered in two steps. First all missing rows are fetched; if that fails, nothing has changed. Then
the requests pass through the cache one by one, whatever was fetched together. Rows are stored in an Arrow
table, and every cache entry has the number of its row. Rows without an entry are removed when they make up a
fifth of the table.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.budget import Bytes
from penstock.columns import Table
from penstock.engine.cache_loop import CacheEntries
from penstock.errors import (
    ColumnError,
    FetchError,
    MissingKeyError,
    SnapshotError,
)
from penstock.lookup.budgeted_cache import COUNTS_SHARE, ENTRY_BYTES, SLACK, new_cache_for
from penstock.lookup.events import to_events
from penstock.lookup.keys import RequestedKeys, keys_of
from penstock.lookup.source import Fetched, KeyRefusedError
from penstock.lookup.stats import LookupStats
from penstock.payload import row_bytes
from penstock.states.checks import check_shapes, check_within, looked_over
from penstock.states.snapshot import pack, unpack

if TYPE_CHECKING:
    from penstock.lookup.cache import LookupCache

CHUNKS = 16  # Arrow pieces of the rows

ABSENT = -1  # row number of a key that is not in the table
UNLOADED = -2  # row number of a key whose row was not in the snapshot


@dataclass(frozen=True)
class LookupIdentity:
    """Identifies the lookup that a snapshot belongs to."""

    key: tuple[str, ...]
    policy: str
    budget: str


class LookupState:
    """A cache in use; `LookupCache.start` makes one.

    >>> import penstock as ps
    >>> names = {1: "tea", 2: "milk"}
    >>> fetch = lambda keys: [{"name": names[key]} for key in keys]
    >>> state = ps.LookupCache(fetch, key="id", budget=2, policy="lru").start()
    >>> state.process({"id": [1, 2, 1]}, on="id")["name"].to_pylist()
    ['tea', 'milk', 'tea']
    >>> state.process({"id": [2]}, on="id")["name"].to_pylist(), state.stats.queries
    (['milk'], 1)
    """

    def __init__(self, spec: LookupCache, requests: Any = None) -> None:
        self.spec = spec
        self._cache = new_cache_for(spec, requests)
        size = self._cache.capacity + 1
        self._place = np.full(size, ABSENT, np.int64)
        self._check = np.zeros(size, np.int64)
        self._since = np.zeros(size)  # when it was fetched
        self._cost = np.zeros(size)
        self._rows: pa.Table | None = None
        self._counts = LookupStats()  # counts that the cache itself does not keep
        self._guard = threading.Lock()  # fetches may run concurrently

    def process(self, events: Table, on: str | tuple[str, ...]) -> pa.Table:
        """Return the events of a batch with the columns of the table. If it fails, nothing has changed.

        >>> import penstock as ps
        >>> lookup = ps.LookupCache(lambda keys: {}, key="id", budget=2, policy="lru", missing="error")
        >>> lookup.start().process({"id": [5]}, on="id")
        Traceback (most recent call last):
        penstock.errors.MissingKeyError: No row for the key of row 0 of the batch (missing="error").
        """
        table = to_events(events)
        keys = keys_of(table, (on,) if isinstance(on, str) else tuple(on), self.spec.source.whole)
        now = float(self.spec.clock())
        slot, aside = self._known(keys)
        stale = np.zeros(keys.count, bool)
        if self.spec.ttl is not None:
            stale = (slot > 0) & (now - self._since[slot] > self.spec.ttl)
        at_hand = (slot > 0) & ~stale & (self._place[slot] != UNLOADED)
        wanted = np.flatnonzero(~at_hand)
        self._refuse_values(keys)
        fetched = self._fetch(keys, wanted)
        rows, first = self._with(fetched)
        place = np.where(at_hand, self._place[slot], ABSENT)
        if fetched is not None:
            place[wanted] = np.where(fetched.place >= 0, fetched.place + first, ABSENT)
        self._refuse_missing(keys, place)

        # Nothing fails from here on.
        since, cost = np.where(at_hand, self._since[slot], now), np.where(at_hand, self._cost[slot], 0.0)
        if fetched is not None:
            cost[wanted] = fetched.seconds
        for key in keys.ids[stale].tolist():
            self._cache.forget(key)
        if not self.spec.negative:
            aside = aside | (place == ABSENT)
        self._rows = rows
        self._answer(keys, aside, place, since, self._costs(keys, cost))
        self._counts.nulls += int(np.count_nonzero(keys.code < 0))
        self._counts.absent += int(np.count_nonzero(place[keys.code[keys.code >= 0]] == ABSENT))
        out = self._joined(table, keys, place, rows)
        self._sweep()
        return out

    def _known(self, keys: RequestedKeys) -> tuple[np.ndarray, np.ndarray]:
        """Return the slot of each key, and whether to bypass the cache because another key has its id."""
        slot = self._cache.slots(keys.ids)
        aside = (slot > 0) & (self._check[slot] != keys.checks)
        slot = np.where(aside, 0, slot)
        _, earliest = np.unique(keys.ids, return_index=True)
        if len(earliest) < keys.count:
            twin = np.ones(keys.count, bool)
            twin[earliest] = False
            slot, aside = np.where(twin, 0, slot), aside | twin
        return slot, aside

    def _fetch(self, keys: RequestedKeys, wanted: np.ndarray) -> Fetched | None:
        unknown = (
            self._rows is None and self.spec.source.schema is None
        )  # the columns, before the first fetch
        if not len(wanted) and not unknown:
            return None

        def failed(error: Exception) -> None:
            with self._guard:
                self._counts.load_failures += 1

        try:
            fetched = self.spec.source.fetch([keys.keys[i] for i in wanted.tolist()], failed)
        except KeyRefusedError as error:
            refused = error.text.format(row=_row(keys, int(wanted[error.at])))
        else:
            return self._counted(fetched, keys, wanted)
        raise ColumnError(refused)

    def _counted(self, fetched: Fetched, keys: RequestedKeys, wanted: np.ndarray) -> Fetched:
        if fetched.malformed:
            self._tell_malformed(len(fetched.malformed), _row(keys, int(wanted[min(fetched.malformed)])))
        if fetched.failed:
            first, reason = min(fetched.failed)
            self._tell_failed(len(fetched.failed), _row(keys, int(wanted[first])), reason)
        self._counts.malformed += len(fetched.malformed)
        self._counts.failed_keys += len(fetched.failed)
        self._counts.queries += fetched.queries
        self._counts.loads += len(wanted)
        self._counts.load_seconds += float(fetched.seconds.sum())
        return fetched

    def _tell_failed(self, count: int, where: str, reason: str) -> None:
        problem = f"The query fails for {count:,} of the keys, the first in {where}: {reason}"
        if self.spec.malformed == "error":
            raise FetchError(
                f'{problem} (malformed="error"). Change the SELECT to avoid it, '
                "for example by NULLIF or CASE."
            )
        if not self._counts.failed_keys:
            warnings.warn(
                f"{problem}. They have no row and are counted as `failed_keys`. Change the SELECT to avoid "
                'it, for example by NULLIF or CASE; malformed="error" stops the run instead.',
                stacklevel=5,
            )

    def _tell_malformed(self, count: int, where: str) -> None:
        problem = (
            f"The table cannot read {count:,} of the requested keys, the first in {where}: "
            f"no value of {self._key_types()}"
        )
        if self.spec.malformed == "error":
            raise FetchError(f'{problem} (malformed="error").')
        if not self._counts.malformed:
            warnings.warn(
                f"{problem}. They have no row and are counted as `malformed`; "
                'malformed="error" rejects them.',
                stacklevel=5,
            )

    def _key_types(self) -> str:
        """The types of the key columns in words, if the source knows them."""
        types = getattr(self.spec.source, "key_types", None) or {}
        named = " and ".join(f"{name!r} ({kind})" for name, kind in types.items())
        return (
            f"the type of the key column{'s' * (len(types) > 1)} {named}" if named else "the type of the key"
        )

    def _with(self, fetched: Fetched | None) -> tuple[pa.Table | None, int]:
        """Append fetched rows to the existing ones; return them and the number of the first new row."""
        if self._rows is None:
            schema = self.spec.source.schema
            self._rows = None if schema is None else schema.empty_table()
        if fetched is None or (fetched.rows.num_rows == 0 and self._rows is not None):
            return self._rows, 0
        if self._rows is None:
            return fetched.rows, 0
        return pa.concat_tables([self._rows, fetched.rows], promote_options="permissive"), self._rows.num_rows

    def _refuse_values(self, keys: RequestedKeys) -> None:
        if self.spec.policy.needs_whole_stream and np.isnan(keys.values).any():
            raise ColumnError(
                f"{self.spec.policy.name}: the model is for numbers, but some keys are not "
                "numbers. Use Stationary, or no model."
            )

    def _refuse_missing(self, keys: RequestedKeys, place: np.ndarray) -> None:
        if self.spec.missing != "error":
            return
        if (keys.code < 0).any():
            raise MissingKeyError(f'Row {int(np.argmax(keys.code < 0))} has no key (missing="error").')
        lost = np.flatnonzero(place == ABSENT)
        if len(lost):
            where = _row(keys, int(lost[0]))
            raise MissingKeyError(f'No row for the key of {where} (missing="error").')

    def _costs(self, keys: RequestedKeys, measured: np.ndarray) -> np.ndarray | None:
        """Return the cost of a miss of each key."""
        cost = self.spec.cost
        if cost is None:
            return None
        if isinstance(cost, str):
            return measured
        plain = [key[0] if len(key) == 1 else key for key in keys.keys]
        if isinstance(cost, Mapping):
            return np.array([float(cost.get(key, 1.0)) for key in plain])
        assert callable(cost)
        return np.array([float(cost(key)) for key in plain])

    def _answer(
        self,
        keys: RequestedKeys,
        aside: np.ndarray,
        place: np.ndarray,
        since: np.ndarray,
        costs: np.ndarray | None,
    ) -> None:
        """Pass every request through the cache, and update the entries."""
        code = keys.code[keys.code >= 0]
        asked = code[~aside[code]]
        self._counts.misses += len(code) - len(asked)
        sizes = self._sizes(keys, place)[asked] if isinstance(self.spec.budget, Bytes) else None
        found = self._cache.request(
            keys.ids[asked],
            sizes,
            None if costs is None else costs[asked],
            keys.values[asked] if self.spec.policy.reads_values else None,
        )
        slots, last = np.unique(found.slot[::-1], return_index=True)
        holds = asked[len(asked) - 1 - last]  # the last request that used a slot has the key now in it
        slots, holds = slots[slots > 0], holds[slots > 0]
        self._place[slots], self._check[slots] = place[holds], keys.checks[holds]
        self._since[slots] = since[holds]
        if costs is not None:
            self._cost[slots] = costs[holds]

    def _sizes(self, keys: RequestedKeys, place: np.ndarray) -> np.ndarray:
        """Return the bytes of each key's entry."""
        sizes = np.full(keys.count, ENTRY_BYTES, np.int64)
        there = np.flatnonzero(place >= 0)
        if len(there) and self._rows is not None and self._rows.num_columns:
            sizes[there] += row_bytes(self._rows.take(pa.array(place[there])))
        return sizes

    def _joined(
        self, table: pa.Table, keys: RequestedKeys, place: np.ndarray, rows: pa.Table | None
    ) -> pa.Table:
        """Return the events with their rows."""
        at = np.append(place, ABSENT)[keys.code]  # a null key takes the last one
        if self.spec.missing == "drop":
            kept = np.flatnonzero(at >= 0)
            table, at = table.take(pa.array(kept)), at[kept]
        if rows is None:
            return table
        values = rows.take(pa.array(at, mask=at < 0))
        for name in values.column_names:
            new = name
            while new in table.column_names:
                new += self.spec.suffix
            table = table.append_column(new, values[name])
        return table

    def _sweep(self) -> None:
        """Remove the rows of evicted keys."""
        if self._rows is None:
            return
        live = self._cache.live
        mine = live[self._place[live] >= 0]
        pieces = max((column.num_chunks for column in self._rows.columns), default=0)
        budget = self.spec.budget
        full = isinstance(budget, Bytes) and self.stats.cached_bytes > (1 - COUNTS_SHARE) * budget.n
        if full or self._rows.num_rows > SLACK * len(mine) + 64 or pieces > CHUNKS:
            rows = self._rows.take(pa.array(self._place[mine]))
            self._rows = rows.combine_chunks()
            self._place[mine] = np.arange(len(mine))

    @property
    def stats(self) -> LookupStats:
        """The counts so far."""
        counts, cache = self._counts, self._cache
        rows = 0 if self._rows is None else self._rows.nbytes
        choosing = 0 if cache.follower is None else cache.follower.bytes
        return LookupStats(
            hits=cache.hits,
            misses=cache.misses + counts.misses,
            queries=counts.queries,
            nulls=counts.nulls,
            absent=counts.absent,
            malformed=counts.malformed,
            failed_keys=counts.failed_keys,
            evicted=cache.evicted,
            refused=cache.refused,
            loads=counts.loads,
            load_failures=counts.load_failures,
            load_seconds=counts.load_seconds,
            cached_records=len(cache),
            cached_bytes=rows + ENTRY_BYTES * len(cache) + choosing,
            choice=cache.choice,
        )

    def snapshot(self, rows: bool = True) -> bytes:
        """Return the state as bytes; without rows, only keys and scores, since rows can be fetched again.

        >>> import penstock as ps
        >>> lookup = ps.LookupCache(lambda keys: {1: {"name": "tea"}}, key="id", budget=9, policy="lru")
        >>> state = lookup.start()
        >>> _ = state.process({"id": [1]}, on="id")
        >>> again = lookup.start().restore(state.snapshot())
        >>> again.process({"id": [1]}, on="id")["name"].to_pylist(), again.stats.hits, again.stats.queries
        (['tea'], 1, 1)
        """
        entries, policy, room = self._cache.parts
        extra = {
            "room": room,
            "check": self._check,
            "since": self._since,
            "cost": self._cost,
            "told": vars(self._counts),
            "place": self._place if rows else np.where(self._place >= 0, UNLOADED, self._place),
            "rows": _to_bytes(self._rows) if rows and self._rows is not None else None,
        }
        return pack(self._identity, entries, policy, extra)

    def restore(self, data: bytes) -> LookupState:
        """Continue from a snapshot of the same lookup; the current content is replaced."""
        identity, entries, policy, extra = unpack(data, LookupIdentity, CacheEntries)
        with looked_over():
            if identity != self._identity:
                raise SnapshotError(f"The snapshot is of another lookup: {identity}, not {self._identity}.")
            kept = [extra[name] for name in ("place", "check", "since", "cost")]
            fresh = [self._place, self._check, self._since, self._cost]
            check_shapes(tuple(kept), tuple(fresh), "the entries")
            rows = None if extra["rows"] is None else _from_bytes(extra["rows"])
            counts = LookupStats(**extra["told"])
            self._cache.parts = (entries, policy, extra["room"])
            last = -1 if rows is None else rows.num_rows - 1
            check_within(kept[0][self._cache.live], UNLOADED, last, "the row of an entry")
        self._place, self._check, self._since, self._cost = kept
        self._counts, self._rows = counts, rows
        return self

    @property
    def _identity(self) -> LookupIdentity:
        spec = self.spec
        return LookupIdentity(spec.key, spec.policy.spell(), repr(spec.budget))

    def check(self) -> None:
        """Assert the invariants: those of the cache, and that every entry's row exists."""
        self._cache.check()
        live = self._cache.live
        rows = 0 if self._rows is None else self._rows.num_rows
        assert (self._place[live] < rows).all(), "an entry points behind the rows"
        known = self._place[live][self._place[live] >= 0]
        assert len(np.unique(known)) == len(known), "two entries have one row"
        if isinstance(self.spec.budget, Bytes):
            assert self.stats.cached_bytes <= self.spec.budget.n, "the budget is exceeded"


def _row(keys: RequestedKeys, number: int) -> str:
    """Describe where a key is first requested, without the key itself, since logs have many readers."""
    return f"row {int(np.argmax(keys.code == number))} of the batch"


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _from_bytes(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
