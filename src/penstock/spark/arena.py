"""The payload of the buffered tuples of one stream: Arrow columns, of which a tuple knows its row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


class Arena:
    """Rows that come at the end, and are packed when many have left.

    >>> import pyarrow as pa
    >>> from penstock.spark.arena import Arena
    >>> arena = Arena()
    >>> arena.append(pa.table({"name": ["a", "b", "c"]}))
    0
    >>> arena.take([2, 0])["name"].to_pylist()
    ['c', 'a']
    >>> arena.keep([2]).tolist(), arena.rows
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
        table = table.cast(pa.schema([each.with_nullable(True) for each in table.schema]))
        self.table = table if self.table is None else pa.concat_tables([self.table, table])
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
