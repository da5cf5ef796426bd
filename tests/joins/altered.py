"""Restores altered snapshots and goes on with them: run as a process of its own, since it may crash.

`python altered.py POLICY LATENESS FIRST LAST` prints the number of each case when it is done.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import penstock as ps
from penstock.errors import PenstockError
from penstock.joins import snapshot as snapshots

BATCH = 60


def fed(policy: str, lateness: int | None) -> Any:
    """A state that is full."""
    state = ps.WindowJoin(within=30, budget=ps.Tuples(24), policy=policy, seed=1).start(lateness=lateness)
    rng = np.random.default_rng(0)
    for number in range(4):
        feed(state, rng, number)
    return state


def feed(state: Any, rng: np.random.Generator, number: int) -> None:
    time = np.sort(rng.integers(40 * number, 40 * number + 40, BATCH))
    state.process(rng.integers(0, 2, BATCH), rng.integers(0, 9, BATCH), time, np.arange(BATCH))


def arrays_of(value: Any) -> list[np.ndarray]:
    """All arrays of whole numbers, wherever they are."""
    if isinstance(value, np.ndarray):
        return [value] if value.size and value.dtype.kind in "iu" else []
    if isinstance(value, dict):
        value = tuple(value.values())
    return [array for part in value for array in arrays_of(part)] if isinstance(value, tuple | list) else []


def altered(data: bytes, rng: np.random.Generator) -> bytes:
    """The snapshot with some numbers changed, and a right checksum."""
    content = snapshots.SEAL.load(data, snapshots._accepted)
    _, store, policy, extra = content
    arrays = arrays_of((store, policy, extra))
    for _ in range(int(rng.integers(1, 4))):
        array = arrays[rng.integers(len(arrays))]
        flat = array.reshape(-1)
        words = flat.view(np.int32) if rng.random() < 0.5 and flat.dtype.itemsize == 8 else flat
        limits = np.iinfo(words.dtype)
        value = [limits.max, limits.min, -1, int(rng.integers(0, 100)), int(rng.integers(0, 2**30)), 0]
        value[1] = max(value[1], limits.min)
        chosen = value[rng.integers(len(value))]
        words[rng.integers(len(words))] = min(max(chosen, limits.min), limits.max)
    return snapshots.SEAL.dump(content)


def main(policy: str, lateness: str, first: str, last: str) -> None:
    state = fed(policy, None if lateness == "None" else int(lateness))
    data = state.snapshot()
    for case in range(int(first), int(last)):
        rng = np.random.default_rng(case)
        try:
            again = type(state).restore(altered(data, rng))
            for number in (4, 5):
                feed(again, rng, number)
        except PenstockError:
            pass
        print(case, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
