"""Keep the attributes that RETURN names, for the events in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.columns import Table, column_names
from penstock.errors import ColumnError, hint
from penstock.patterns.language.nodes import Attr, ReturnItem
from penstock.payload import to_arrow
from penstock.states.checks import sound


class Kept:
    """Rows of some columns; added with every batch, dropped when no match can need them."""

    def __init__(self, items: Sequence[ReturnItem]) -> None:
        self.names = sorted({item.what.name for item in items if isinstance(item.what, Attr)})
        self.table: pa.Table | None = None
        self.rows = np.empty(0, np.int64)

    def check(self, events: Table) -> None:
        """Reject a batch that lacks a column, or whose columns have another type than before."""
        names = column_names(events)
        for name in self.names:
            if name not in names:
                raise ColumnError(f"RETURN: the events have no column {name!r}{hint(name, names)}")
        if self.table is not None:
            new = to_arrow(events).select(self.names).schema
            try:
                pa.unify_schemas([self.table.schema, new], promote_options="permissive")
            except pa.ArrowException as error:
                raise ColumnError(f"RETURN: a column has changed its type ({error}).") from error

    def add(self, events: Table, rows: np.ndarray, first: int) -> None:
        """The rows of a batch that matter; `first` is the number of its first row."""
        if not self.names:
            return
        source = to_arrow(events)
        part = pa.table({name: source[name] for name in self.names}).take(pa.array(rows - first))
        self.table = (
            part if self.table is None else pa.concat_tables([self.table, part], promote_options="permissive")
        )
        self.rows = np.concatenate([self.rows, rows])

    def forget(self, live: np.ndarray) -> None:
        """Keep these rows, once they are less than half."""
        if self.table is None:
            return
        mine = np.isin(self.rows, live)
        if mine.sum() * 2 < len(mine):
            self.table, self.rows = self.table.filter(pa.array(mine)).combine_chunks(), self.rows[mine]

    def attribute(self, name: str, wanted: np.ndarray) -> pa.ChunkedArray:
        """A column of some rows, null where a row is -1."""
        if self.table is None:
            return pa.nulls(len(wanted))
        order = np.argsort(self.rows, kind="stable")
        at = np.searchsorted(self.rows, wanted, sorter=order)
        places = order[np.minimum(at, len(order) - 1)] if len(order) else np.zeros(len(wanted), np.int64)
        return self.table[name].take(pa.array(places, pa.int64(), mask=wanted < 0))

    def to_bytes(self) -> bytes | None:
        """The columns as an Arrow stream."""
        if self.table is None:
            return None
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        return sink.getvalue().to_pybytes()

    def load(self, data: bytes | None, rows: np.ndarray) -> None:
        """The counterpart."""
        self.rows = rows
        if data is not None:
            self.table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
        rows_kept = 0 if self.table is None else self.table.num_rows
        sound(rows.dtype == np.int64 and rows.shape == (rows_kept,), "rows are lost")
        sound((np.diff(rows) > 0).all() and (rows >= 0).all(), "rows are out of order")
