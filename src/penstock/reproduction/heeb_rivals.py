"""RAND, PROB and LIFE as in section 8: they know the bounds of the noise and first evict tuples beyond.

A tuple is beyond once the other stream has moved past its value, which no window in time expresses; so these
three are simulated as the paper states them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

LASTS = (
    15,
    11,
)  # a left value v can come on the right until step v + 15, a right one on the left until v + 11


def from_memory_knowing(
    policy: str, left: Any, right: Any, memory: int, lasts: tuple[int, int] | None, seed: int
) -> int:
    """Results after a warm-up of four times the memory; `lasts` is `None` where there are no bounds.

    At every step the buffered tuples meet the newcomers, then all compete: `rand` draws, `prob` ranks by how
    often the other stream has had the value, `life` by that times the steps left.

    >>> from penstock.reproduction.heeb_rivals import LASTS, from_memory_knowing
    >>> from penstock.workloads import tower
    >>> left, right = tower(steps=400)
    >>> rand, life = (from_memory_knowing(p, left, right, 10, LASTS, 0) for p in ("rand", "life"))
    >>> rand > life > 0
    True
    """
    random = np.random.default_rng(seed)
    counts: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
    held: list[tuple[int, int, int]] = []  # stream, value, arrival
    results = 0
    pairs = zip(left["key"].tolist(), right["key"].tolist(), strict=True)
    for now, pair in enumerate(pairs):
        if now >= 4 * memory:
            results += sum(value == pair[1 - stream] for stream, value, _ in held)
        for stream in (0, 1):
            counts[stream][pair[stream]] += 1
            held.append((stream, pair[stream], 2 * now + stream))
        excess = len(held) - memory
        if excess <= 0:
            continue
        if lasts is not None:
            held.sort(key=lambda each: (each[1] + lasts[each[0]] > now, each[2]))
            beyond = sum(value + lasts[stream] <= now for stream, value, _ in held)
            held = held[min(excess, beyond) :]
            excess = len(held) - memory
        if policy == "rand":
            for _ in range(excess):
                held.pop(random.integers(len(held)))
            continue

        def worth(each: tuple[int, int, int], now: int = now) -> tuple[int, int]:
            stream, value, arrival = each
            count = counts[1 - stream][value]
            if policy == "life" and lasts is not None:
                count *= value + lasts[stream] - now
            return count, arrival

        held.sort(key=worth)
        held = held[excess:] if excess > 0 else held
    return results
