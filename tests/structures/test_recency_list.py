"""The list of keys by last match against a plain list."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.structures.recency_list import LAST, forget, new_recency, oldest, touch


@pytest.mark.interpreted
def test_the_oldest_is_the_one_touched_longest_ago() -> None:
    random = np.random.default_rng(5)
    recency, expected = new_recency(6, 2), ([], [])
    for now in range(400):
        row = int(random.integers(1, 12))
        pool = row % 2
        if row in expected[pool]:
            expected[pool].remove(row)
        if random.random() < 0.7:
            touch(recency, pool, row, now)
            expected[pool].append(row)
            assert recency.rows[row, LAST] == now
        else:
            forget(recency, row)
        assert [oldest(recency, pool) for pool in (0, 1)] == [rows[0] if rows else 0 for rows in expected]
