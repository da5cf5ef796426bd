"""A hot stream: ten keys, so that every arrival matches a tenth of the other buffer."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import penstock as ps
from benchmarks.growth import mark

COUNTED, COLLECTED = 20.0, 5.0  # bars: millions of matches, of pairs per second
BUFFER = 10_000


def run(console: Console, quick: bool) -> list[dict[str, Any]]:
    """Matches per second counting, pairs per second collected, for every policy."""
    repetitions = 1 if quick else 5
    rng = np.random.default_rng(0)
    n = 50_000 if quick else 200_000
    few = 20_000
    stream, key = (rng.random(n) < 0.5).astype(np.int8), rng.integers(0, 10, n)
    number = np.arange(n)
    rows = []
    table = Table(
        title=f"Ten keys, buffer of {BUFFER:,} tuples, millions per second, median of {repetitions}"
    )
    for heading in ("policy", "matches counted", "bar", "pairs collected", "bar"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for policy in ("fifo", "rand", "lru", "lfu", "prob", "life", "gdj", "clock", "clock-exp"):
        join = ps.WindowJoin(within=10**9, budget=ps.Tuples(BUFFER), policy=policy)
        counted, collected = [], []
        for _ in range(repetitions):
            state = join.start().warm()
            state.process(stream, key, number, number)
            counted.append(state.totals()["results"] / state.seconds / 1e6)
            state = join.start().warm()
            out = state.process(stream[:few], key[:few], number[:few], number[:few], collect=True)
            collected.append(len(out.pairs) / state.seconds / 1e6)
        counts, pairs = statistics.median(counted), statistics.median(collected)
        table.add_row(
            policy,
            f"{counts:,.0f}",
            mark(counts >= COUNTED, f"{COUNTED:g}"),
            f"{pairs:,.0f}",
            mark(pairs >= COLLECTED, f"{COLLECTED:g}"),
        )
        rows.append({"policy": policy, "matches": counts * 1e6, "pairs": pairs * 1e6})
    console.print(table)
    return rows
