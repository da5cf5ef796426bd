"""The byte budget of the pattern caches: what they say they take is what they take."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

import penstock as ps

pytestmark = pytest.mark.interpreted

TEXTS = [
    "PATTERN SEQ(A, SEQ(B, C, D), E) WITHIN 60",
    "PATTERN SEQ(A a, SEQ(B b, C, D), E, a.k = b.k) WITHIN 60",
    "PATTERN SEQ(A a, !SEQ(B b, C c), E e, a.k = b.k = c.k) WITHIN 90",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("strategy", ["object", "semantic"])
def test_caches_take_no_more_than_they_say(text: str, strategy: str) -> None:
    rng = np.random.default_rng(1)
    state = ps.Pattern.parse(text).start(strategy=strategy, budget=40_000, count_only=True)
    gc.collect()
    tracemalloc.start()
    try:
        for at in range(0, 360, 120):
            types, keys = rng.choice(list("ABCDE"), 120), rng.integers(0, 20, 120)
            state.process({"type": types, "ts": np.arange(at, at + 120), "k": keys})
            assert state.stats.cache_bytes <= 40_000
        caches = state.backend.caches
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for held in (getattr(caches, name, {}) for name in ("partitions", "indexes", "flags")):
            held.clear()
        caches.pool.check()
        caches.pool = None
        for each in state.backend.evaluations:
            each.pool = None
        gc.collect()
        taken = before - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken <= 1.1 * state.stats.cache_bytes + 2_000  # tables of entries have room to grow
    assert state.stats.peak_bytes <= 40_000
