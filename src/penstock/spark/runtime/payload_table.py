"""The payload of the buffered tuples of one stream: Arrow columns, addressed by row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError

FAMILIES = (  # types that Arrow casts to later ones of the same line without a loss
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
    (pa.string(), pa.large_string()),
    (pa.binary(), pa.large_binary()),
)


def appended(table: pa.Table | None, more: pa.Table) -> pa.Table:
    """A table and the rows that come after it, whose columns may be wider since a query was restarted.

    >>> import pyarrow as pa
    >>> from penstock.spark.runtime.payload_table import appended
    >>> appended(pa.table({"a": pa.array([1], pa.int32())}), pa.table({"a": [2]}))["a"].to_pylist()
    [1, 2]
    """
    if table is None:
        return more
    if table.schema.equals(more.schema):
        return pa.concat_tables([table, more])
    if table.column_names != more.column_names:
        raise PenstockError(
            "The columns of a query cannot change when it is restarted from its checkpoint: the rows that it "
            "has kept have others. Change them back, or start with a new checkpoint."
        )
    for before, now in zip(table.schema, more.schema, strict=True):
        if not _is_wider(before.type, now.type):
            raise PenstockError(
                "The types of columns cannot change when a query is restarted from its checkpoint: one was "
                f"{before.type} and is now {now.type}. Change it back, or start with a new checkpoint."
            )
    return pa.concat_tables([table.cast(more.schema), more])


def _is_wider(before: pa.DataType, now: pa.DataType) -> bool:
    if before == now or (pa.types.is_timestamp(before) and pa.types.is_timestamp(now)):
        stamps = pa.types.is_timestamp(before)  # of whichever zone, they are counted in UTC
        return not stamps or (before.unit, before.tz is None) == (now.unit, now.tz is None)
    return any(
        before in family and now in family and family.index(before) < family.index(now) for family in FAMILIES
    )


class PayloadTable:
    """Rows that come at the end, and are packed when many have left.

    >>> import pyarrow as pa
    >>> from penstock.spark.runtime.payload_table import PayloadTable
    >>> payload_table = PayloadTable()
    >>> payload_table.append(pa.table({"name": ["a", "b", "c"]}))
    0
    >>> payload_table.take([2, 0])["name"].to_pylist()
    ['c', 'a']
    >>> payload_table.keep([2]).tolist(), payload_table.rows
    ([0], 1)
    """

    def __init__(self, table: pa.Table | None = None) -> None:
        self.table = table

    @property
    def rows(self) -> int:
        """Rows there are, of those that left too."""
        return 0 if self.table is None else int(self.table.num_rows)

    @property
    def nbytes(self) -> int:
        """What the rows take."""
        return 0 if self.table is None else int(self.table.nbytes)

    def append(self, table: pa.Table) -> int:
        """Add rows; the number of the first."""
        first = self.rows
        # Not cast: Arrow does not cast structs of which some are null and no field may be, as variants are.
        table = pa.table(table.columns, schema=pa.schema([each.with_nullable(True) for each in table.schema]))
        self.table = appended(self.table, table)
        return first

    def take(self, rows: np.ndarray | list[int]) -> pa.Table:
        """These rows, in this order."""
        assert self.table is not None, "nothing was ever appended"
        return self.table.take(pa.array(rows, pa.int64()))

    def keep(self, rows: np.ndarray | list[int]) -> np.ndarray:
        """Forget all other rows; the new numbers of these."""
        kept = np.asarray(rows, np.int64)
        order = np.argsort(kept, kind="stable")
        if self.table is not None:
            # Column by column, so that no more than one is there twice.
            names, columns = self.table.schema.names, []
            wanted = pa.array(kept[order])
            for name in names:
                column = self.table[name].take(wanted)
                columns.append(pa.chunked_array([pa.concat_arrays(column.chunks)], type=column.type))
                self.table = self.table.drop_columns([name])
            self.table = pa.table(columns, names=names)
        renumbered = np.empty(len(kept), np.int64)
        renumbered[order] = np.arange(len(kept))
        return renumbered
