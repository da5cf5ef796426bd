"""The columns of a batch that a condition names: what a bucket turns them into, and what it need not keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


class ConditionColumns:
    """The columns of the batch at hand, for joins with a condition; for others this does nothing."""

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self.argument: dict[str, Any] = {}  # of the state's `process`
        self._tables: list[pa.Table | None] = []

    def begin(self) -> None:
        """A batch begins."""
        self._tables = [None] * len(self.spec.sides)

    def take(self, side: int, table: pa.Table, program: Any) -> tuple[pa.Table, pa.Table | None]:
        """Note the columns of a side; return the rest, and columns of which the condition keeps values."""
        names, sources = self.spec.asked(side), self.spec.sides[side].columns
        self._tables[side] = pa.table([table[name] for name in names.values()], names=list(names))
        table = table.drop_columns([name for name in names.values() if name not in sources])
        texts = [names[name] for name in program.ranked_names(side) if names[name] in sources]
        return table, table.select(texts) if texts else None

    def prepare(self, state: Any, stream: np.ndarray, counts: list[int], order: np.ndarray) -> None:
        """Compute what the condition needs of the arrivals, in their order."""
        if not self.spec.conditional:
            return
        place = np.concatenate([np.arange(count) for count in counts])[order]
        tables = [
            pa.schema(list(self.spec.where_types[side])).empty_table() if table is None else table
            for side, table in enumerate(self._tables)
        ]
        self.argument = {"columns": state.leaves_of(tables, stream, place)}

    def end(self) -> None:
        """The batch has been processed."""
        self.argument, self._tables = {}, []
