"""Keys in the order of their last match: per pool a linked list, least recently matched first.

The tuples of a key and side share a row, number `2 * entry + side`. A row of the pool's own closes its list
to a ring. A row that is not in the list has no newer one.

Cost: O(1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.compiler.jit import jit
from penstock.structures.tables import new_table

OLDER = 0
NEWER = 1  # 0: not in the list
LAST = 2  # when the last match was, in whatever the policy counts
NOTED = 3  # an index for the policy
COLUMNS = 4


class Recency(NamedTuple):
    """The rows of all keys and sides, then those of the pools."""

    rows: np.ndarray
    ends: np.ndarray  # the row of each pool

    def grown(self, capacities: tuple[int, ...]) -> Recency:
        """Return the same lists with rows for more keys; those of the pools stay behind all others."""
        keys, pools = sum(capacities) + 2, len(self.ends)
        first = int(self.ends[0])
        rows, ends = new_table((2 * keys + pools, COLUMNS), np.int64), self.ends + 2 * keys - first
        rows[:first] = self.rows[:first]
        rows[ends] = self.rows[self.ends]
        linked = rows[:, OLDER : NEWER + 1]
        linked[linked >= first] += 2 * keys - first
        return Recency(rows, ends)


Recency.widths = {"rows": COLUMNS}  # type: ignore[attr-defined]
Recency.tables = ("rows",)  # type: ignore[attr-defined]


def new_recency(keys: int, pools: int) -> Recency:
    """Empty lists for keys in rows below `keys`."""
    rows = new_table((2 * keys + pools, COLUMNS), np.int64)
    ends = np.arange(2 * keys, 2 * keys + pools, dtype=np.int64)
    for end in ends:
        rows[end, OLDER] = rows[end, NEWER] = end
    return Recency(rows, ends)


@jit
def touch(recency, pool, row, now):
    """A key is matched: it becomes the newest."""
    rows, end = recency.rows, recency.ends[pool]
    rows[row, LAST] = now
    if rows[row, NEWER] == end:
        return
    forget(recency, row)
    last = rows[end, OLDER]
    rows[last, NEWER] = row
    rows[row, OLDER] = last
    rows[row, NEWER] = end
    rows[end, OLDER] = row


@jit
def forget(recency, row):
    """Take a key out, if it is in."""
    rows = recency.rows
    older, newer = rows[row, OLDER], rows[row, NEWER]
    if newer != 0:
        rows[older, NEWER] = newer
        rows[newer, OLDER] = older
        rows[row, NEWER] = 0


@jit
def oldest(recency, pool):
    """The row whose last match was longest ago, 0 if the list is empty."""
    end = recency.ends[pool]
    row = recency.rows[end, NEWER]
    return row if row != end else np.int64(0)
