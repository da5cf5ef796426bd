"""Key counts: the exact table against a Counter, the sketch against what space-saving guarantees."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.structures.key_counts import (
    count_key,
    counted,
    new_counts,
    new_sketch,
    reserve,
    sketch_bytes_per_key,
)

KEYS = st.one_of(
    st.integers(0, 8), st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, -1, 2**63 - 1, -(2**63)])
)
ARRIVALS = st.lists(st.tuples(st.integers(0, 1), KEYS), max_size=200)


@given(arrivals=ARRIVALS)
def test_exact_counts(arrivals: list[tuple[int, int]]) -> None:
    counts, model = new_counts(), Counter[tuple[int, int]]()
    for stream, key in arrivals:
        counts = reserve(counts, 1)
        assert counted(counts, stream, key) == model[stream, key]
        count_key(counts, stream, key)
        model[stream, key] += 1
    for _, key in arrivals:
        assert [counted(counts, s, key) for s in (0, 1)] == [model[s, key] for s in (0, 1)]
    assert counted(counts, 0, 123_456_789) == model[0, 123_456_789]


def test_the_exact_table_grows() -> None:
    counts = new_counts(16)
    for batch in range(20):
        counts = reserve(counts, 1_000)
        for key in range(1_000 * batch, 1_000 * (batch + 1)):
            count_key(counts, 0, key * 7_919)
            count_key(counts, 1, key * 7_919)
    assert all(counted(counts, s, key * 7_919) == 1 for key in range(20_000) for s in (0, 1))
    assert counted(counts, 0, 1) == 0


@given(arrivals=ARRIVALS, size=st.integers(1, 12))
def test_sketch_guarantees(arrivals: list[tuple[int, int]], size: int) -> None:
    """It reports no more than a key had, misses at most n / size, and holds at most `size` keys."""
    sketch, model = new_sketch(size), Counter[tuple[int, int]]()
    seen = Counter[int]()
    for stream, key in arrivals:
        count_key(sketch, stream, key)
        model[stream, key] += 1
        seen[stream] += 1
    for stream in (0, 1):
        mine = {key: n for (s, key), n in model.items() if s == stream}
        for key, n in mine.items():
            assert counted(sketch, stream, key) <= n
            # A key that came more often than n / size is among those kept, with at most that error.
            assert counted(sketch, stream, key) >= n - seen[stream] / size
        if len(mine) <= size:
            assert all(counted(sketch, stream, key) == n for key, n in mine.items())
        assert sum(counted(sketch, stream, key) > 0 for key in mine) <= size
        assert counted(sketch, stream, 987_654_321) == mine.get(987_654_321, 0)


@given(arrivals=ARRIVALS, size=st.integers(1, 12))
def test_sketch_is_a_heap_of_counts_that_add_up(arrivals: list[tuple[int, int]], size: int) -> None:
    sketch, seen = new_sketch(size), [0, 0]
    for stream, key in arrivals:
        count_key(sketch, stream, key)
        seen[stream] += 1
    for stream in (0, 1):
        filled = int(sketch.meta[stream])
        heap, counts = sketch.heap[stream, :filled], sketch.tally[stream]
        assert counts[:filled].sum() == seen[stream], "space-saving: the counts of all keys are all arrivals"
        assert sorted(heap.tolist()) == list(range(filled))
        assert all(counts[heap[(i - 1) // 2]] <= counts[heap[i]] for i in range(1, filled))
        assert all(sketch.place[stream, heap[i]] == i for i in range(filled))
        assert len(set(sketch.key[stream, :filled].tolist())) == filled


def test_heavy_keys_are_found_in_a_long_tail() -> None:
    random = np.random.default_rng(5)
    sketch = new_sketch(100)
    keys = np.where(
        random.random(50_000) < 0.3, random.integers(0, 5, 50_000), random.integers(10, 10**9, 50_000)
    )
    for key in keys.tolist():
        count_key(sketch, 0, key)
    exact = Counter(keys.tolist())
    for key in range(5):
        assert exact[key] - 500 <= counted(sketch, 0, key) <= exact[key]


def test_bytes_per_key_is_an_upper_bound() -> None:
    for size in (1, 2, 3, 63, 64, 65, 1_000, 4_097):
        sketch = new_sketch(size)
        assert sum(array.nbytes for array in sketch) <= size * sketch_bytes_per_key() + sketch.meta.nbytes
