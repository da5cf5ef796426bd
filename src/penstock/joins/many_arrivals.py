"""The arrivals of many streams in processing order, and the joins they take part in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.columns import Table, codes_of, column, column_names, times_of
from penstock.engine.many_index import new_scheme
from penstock.errors import ColumnError, PenstockError, hint
from penstock.payload import row_bytes

Member = tuple[str, tuple[str, ...]]  # a stream and the columns of its key
Joins = tuple[tuple[Member, ...], ...]
LINKS = "a chain takes links such as ('a.x', 'b.x')"


@dataclass(frozen=True, init=False)
class Chain:
    """One join of many streams over different columns: each link says what is equal in two of them.

    A member of a link is `"stream.column"`, or `(stream, column)` or `(stream, [column, ...])` where a name
    has dots or the key several columns. All links together must connect all streams.

    >>> import penstock as ps
    >>> ps.Chain(("orders.customer", "customers.id"), ("orders.item", "items.id"))
    Chain(('orders.customer', 'customers.id'), ('orders.item', 'items.id'))
    """

    links: tuple[Any, ...]

    def __init__(self, *links: Any) -> None:
        if not links:
            raise ColumnError(f"Chain() has no links; {LINKS}.")
        for link in links:
            if isinstance(link, str) or not isinstance(link, list | tuple) or len(link) != 2:
                raise ColumnError(f"{link!r} is no link of two members; {LINKS}.")
        object.__setattr__(self, "links", tuple(tuple(link) for link in links))

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(repr, self.links))})"

    def joins(self, streams: Mapping[str, Any]) -> Joins:
        """Return the links as joins of two streams each; they must connect all."""
        found = []
        for link in self.links:
            members = tuple(_chain_member(member, streams) for member in link)
            found.append(_join(streams, members))
        together = {found[0][0][0]}
        for _ in found:
            for (one, _), (other, _) in found:
                if one in together or other in together:
                    together |= {one, other}
        apart = set(streams) - together
        if apart:
            raise PenstockError(
                f"The links of a chain must connect all streams, but none leads from {_list(together)} to "
                f"{_list(apart)}. Add a link, leave the stream out, or give on=[...] for joins of their own."
            )
        return tuple(found)


def _chain_member(member: Any, streams: Mapping[str, Any]) -> Any:
    """Return a member of a link as (stream, columns)."""
    if not isinstance(member, str):
        return member
    fitting = [name for name in streams if isinstance(name, str) and member.startswith(f"{name}.")]
    if not fitting:
        name = member.partition(".")[0]
        raise ColumnError(
            f"{member!r} is no column of a stream, such as 'a.x'{hint(name, [str(each) for each in streams])}"
        )
    name = max(fitting, key=len)
    return name, member[len(name) + 1 :]


@dataclass(frozen=True)
class ManyArrivals:
    """Arrivals in the order (time, stream, row), without rows that have no key in any of their joins."""

    stream: np.ndarray
    key: np.ndarray  # a column per join of the stream: dense codes of each join, -1 for null
    time: np.ndarray
    row: np.ndarray
    joins: tuple[tuple[int, ...], ...]  # the streams that take part in each
    keys: tuple[int, ...]  # distinct keys of each join
    unit: str
    nulls: tuple[int, ...]
    stamped: bool = False  # times are timestamps, not numbers in an assumed unit
    size: np.ndarray | None = None  # bytes of each row, if the budget counts them
    null_rows: np.ndarray | None = None  # of the first stream

    def __len__(self) -> int:
        return len(self.stream)

    @property
    def numbers(self) -> tuple[float, float] | None:
        """The first and the last time if their unit was assumed, else None."""
        return None if self.stamped or not len(self.time) else (self.time[0].item(), self.time[-1].item())

    @property
    def per_stream(self) -> np.ndarray:
        """Arrivals of each stream."""
        return np.bincount(self.stream, minlength=len(self.nulls))

    @property
    def span(self) -> Any:
        """Time between the first and the last arrival."""
        return self.time[-1].item() - self.time[0].item() if len(self) else 0


def joins_of(streams: Mapping[str, Table], on: Any) -> Joins:
    """Parse `on`: one join over all streams on a shared key, a list of joins, or the links of a `Chain`.

    >>> from penstock.joins.many_arrivals import joins_of
    >>> joins_of({"a": {}, "b": {}}, "key")
    ((('a', ('key',)), ('b', ('key',))),)
    """
    if not isinstance(streams, Mapping) or len(streams) < 2:
        raise PenstockError(
            f"streams takes a dict of name to table with at least two streams; {_brief(streams)} was given."
        )
    for table in streams.values():
        column_names(table)
    if isinstance(on, str):
        return (tuple((name, (on,)) for name in streams),)
    if isinstance(on, Chain):
        return on.joins(streams)
    if not isinstance(on, list | tuple) or not on:
        raise ColumnError(
            "on takes a column name, a list of joins, each like (('a', 'key'), ('b', 'key')), or a Chain; "
            f"{on!r} was given."
        )
    if all(isinstance(part, str) for part in on):
        return (tuple((name, tuple(on)) for name in streams),)
    joins = tuple(_join(streams, join) for join in on)
    idle = set(streams) - {name for join in joins for name, _ in join}
    if idle:
        raise PenstockError(
            f"Every stream must take part in a join, but {_list(idle)} does not. Leave it out."
        )
    return joins


def _join(streams: Mapping[str, Table], join: Any) -> tuple[Member, ...]:
    """Check one join of a list."""
    if not isinstance(join, list | tuple) or len(join) < 2:
        raise ColumnError(f"A join has at least two members, each (stream, column); {join!r} was given.")
    members = []
    for member in join:
        if not (isinstance(member, list | tuple) and len(member) == 2 and isinstance(member[0], str)):
            raise ColumnError(f"A member of a join is (stream, column); {member!r} was given.")
        name, columns = member
        if name not in streams:
            raise ColumnError(f"There is no stream {name!r}{hint(name, streams)}")
        columns = (columns,) if isinstance(columns, str) else tuple(columns)
        members.append((name, columns))
    names = [name for name, _ in members]
    if len(set(names)) < len(names):
        raise PenstockError(
            f"A stream may be in a join only once; this one names {_list(names)}. To join a stream with "
            "itself, pass it under two names."
        )
    if len({len(columns) for _, columns in members}) > 1:
        raise ColumnError(f"All members of a join need the same number of key columns; {join!r} was given.")
    return tuple(members)


def many_arrivals_of(
    streams: Mapping[str, Table],
    joins: Joins,
    time: Any,
    unit: str,
    *,
    linked: bool = False,
    sized: bool = False,
) -> ManyArrivals:
    """Bring the streams into processing order, with keys coded per join and times on one scale.

    `linked` says that the joins are the links of a chain, so that a row needs all of its keys.
    """
    names = list(streams)
    number = {name: s for s, name in enumerate(names)}
    times = times_of([column(streams[n], time_column(time, n), n) for n in names], names, unit)
    members = tuple(tuple(number[name] for name, _ in join) for join in joins)
    scheme = new_scheme(members, len(names))
    codes = [np.full((len(array), scheme.join.shape[1]), -1, np.int64) for array in times.arrays]
    sizes = []
    for j, join in enumerate(joins):
        columns = [[column(streams[name], part, name) for part in parts] for name, parts in join]
        coded, size = codes_of(columns, [name for name, _ in join])
        sizes.append(size)
        for p, s in enumerate(members[j]):
            codes[s][:, scheme.place[j, p]] = coded[p]
    stream = np.repeat(np.arange(len(names)), [len(array) for array in times.arrays])
    row = np.concatenate([np.arange(len(array)) for array in times.arrays])
    key, merged = np.concatenate(codes), np.concatenate(times.arrays)
    some = np.asarray((key >= 0).any(axis=1))
    if linked:
        some = np.asarray(((key >= 0) | (scheme.join[stream] < 0)).all(axis=1))
    order = np.argsort(merged, kind="stable")
    order = order[some[order]]
    nulls = np.bincount(stream[~some], minlength=len(names))
    return ManyArrivals(
        stream=stream[order],
        key=key[order],
        time=merged[order],
        row=row[order],
        joins=members,
        keys=tuple(sizes),
        unit=times.unit,
        nulls=tuple(int(count) for count in nulls),
        stamped=times.stamped,
        size=np.concatenate([row_bytes(table) for table in streams.values()])[order] if sized else None,
        null_rows=row[(stream == 0) & ~some],
    )


def time_column(time: Any, name: str) -> str:
    """Return the time column of a stream: one name for all, or from a dict."""
    found = time.get(name) if isinstance(time, Mapping) else time
    if not isinstance(found, str):
        raise ColumnError(
            "time takes a column name, or a dict with the column of every stream; "
            f"{time!r} has none for {name!r}."
        )
    return found


def _list(names: Any) -> str:
    return ", ".join(repr(name) for name in sorted(names))


def _brief(value: Any) -> str:
    return f"a dict of {len(value)}" if isinstance(value, Mapping) else type(value).__name__
