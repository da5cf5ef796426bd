"""The leaves of a condition for arrivals: what kernels see of columns, in rows of 64-bit words.

Values that are compared by rank, such as texts, get their rank among all values that are buffered or arrive.
A new value moves the ranks of others, so that the buffered tuples are renumbered when one comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns import row_count
from penstock.engine.pair_condition import PairCondition
from penstock.engine.store import ARRIVAL, HIGH_TUPLE, STREAM, Store
from penstock.errors import PenstockError, SnapshotError
from penstock.joins.conditions.cells import Evaluated, as_arrow
from penstock.joins.conditions.evaluate import ranks
from penstock.joins.conditions.program import ConditionProgram

Holder = tuple[PairCondition, Store]  # of buffered tuples


class Leaves:
    """Turns columns into the leaves of arrivals, and knows the values behind ranks."""

    def __init__(self, program: ConditionProgram) -> None:
        self.program = program
        self.values: list[pa.Array | None] = [None] * program.groups

    def of_tables(
        self,
        tables: Sequence[Any],
        stream: np.ndarray,
        rows: np.ndarray | None,
        holders: Iterable[Holder] = (),
    ) -> np.ndarray:
        """Return the leaves of arrivals.

        `rows` are the arrivals' rows in the tables of their streams; by default, the tables have a row per
        arrival of the stream, in order. `holders` keep tuples whose ranks may have to be renumbered.
        """
        cells = [self.program.cells(side, table) for side, table in enumerate(tables)]
        cells = self._ranked(cells, list(holders))
        found = np.zeros((len(stream), 1 + self.program.width), np.int64)
        for side, mine in enumerate(cells):
            places = np.flatnonzero(stream == side)
            if rows is None and mine and len(places) != row_count(tables[side]):
                raise PenstockError(
                    f"columns must have a row per arrival of its stream: {row_count(tables[side])} rows were "
                    f"given for {len(places)} arrivals of the {('left', 'right')[side]} stream."
                )
            taken = np.arange(len(places)) if rows is None else rows[places]
            for number, each in enumerate(mine):
                values = each.values.astype(np.float64) if each.values.dtype.kind == "f" else each.values
                found[places, 1 + number] = values.view(np.int64)[taken]
                found[places, 0] |= each.state.astype(np.int64)[taken] << (2 * number)
        return found

    def _ranked(self, cells: list[list[Evaluated]], holders: list[Holder]) -> list[list[Evaluated]]:
        """Replace values that are compared by rank by their ranks."""
        for group in range(self.program.groups):
            places = [
                (side, number)
                for side, numbers in enumerate(self.program.ranked)
                for number, mine in enumerate(numbers)
                if mine == group
            ]
            arrays = [cells[side][number].values for side, number in places]
            codes = self._codes(group, arrays, places, holders)
            for (side, number), code in zip(places, codes, strict=True):
                cells[side][number] = cells[side][number]._replace(values=code)
        return cells

    def _codes(
        self,
        group: int,
        arrays: list[pa.Array],
        places: list[tuple[int, int]],
        holders: list[Holder],
    ) -> list[np.ndarray]:
        codes, fresh = ranks(arrays)
        known = self.values[group]
        if known is None:
            self.values[group] = fresh
            return codes
        found = pc.index_in(fresh, known)
        if found.null_count:  # new values: those that nobody has any more are forgotten
            columns = [list(self._columns_of(holder, places)) for holder in holders]
            used = np.zeros(len(known), bool)
            for mine in columns:
                for condition, slots, column in mine:
                    used[condition.kept[slots, column]] = True
            kept = np.flatnonzero(used)
            both, merged = ranks([known.take(as_arrow(kept)), fresh])
            moved = np.zeros(len(known), np.int64)
            moved[kept] = both[0]
            for mine in columns:
                for condition, slots, column in mine:
                    condition.kept[slots, column] = moved[condition.kept[slots, column]]
            self.values[group], place = merged, both[1]
        else:
            place = found.to_numpy().astype(np.int64)
        return [place[code] if len(place) else code for code in codes]

    def _columns_of(self, holder: Holder, places: list[tuple[int, int]]) -> Iterable[Any]:
        """The columns of the kept tuples that have ranks of a group."""
        condition, store = holder
        high = int(store.meta[HIGH_TUPLE]) + 1
        live = store.t64[:high, ARRIVAL] >= 0
        live[0] = False
        for side, number in places:
            slots = np.flatnonzero(live & (store.t32[:high, STREAM] == side))
            known = (condition.kept[slots, 0] >> (2 * number)) & 3 == 0
            yield condition, slots[known], 1 + number

    @property
    def nbytes(self) -> int:
        """Bytes of the values behind ranks."""
        return sum(0 if values is None else values.nbytes for values in self.values)

    def pack(self) -> list[bytes | None]:
        """Pack the values for a snapshot."""
        return [None if values is None else _to_bytes(values) for values in self.values]

    def unpack(self, packed: Any) -> None:
        """The counterpart."""
        if not isinstance(packed, list) or len(packed) != len(self.values):
            raise SnapshotError("The snapshot has no values for the condition.")
        self.values = [None if data is None else _from_bytes(data) for data in packed]


def _to_bytes(values: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([values], names=["values"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _from_bytes(data: Any) -> pa.Array:
    try:
        with pa.ipc.open_stream(data) as reader:
            values = reader.read_next_batch().column(0)
        values.validate(full=True)
        return values
    except Exception as error:
        raise SnapshotError(f"The values of the condition cannot be read: {error}") from error
