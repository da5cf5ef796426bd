"""How the cost of an arrival grows with the buffer: Zipf 0.75 over a million keys, counting only."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import penstock as ps
from benchmarks.naive import seconds_per_arrival
from penstock.joins import Arrivals
from penstock.workloads import zipf_probabilities

BUFFERS = (10_000, 100_000, 1_000_000)
MIDDLE = 100_000
GROWTH = 5.0
# At the middle buffer, millions of arrivals per second.
BARS = {
    "fifo": 5.0,
    "rand": 5.0,
    "lru": 5.0,
    "lfu": 5.0,
    "clock": 2.0,
    "clock-exp": 1.0,
    "gdj": 1.0,
    "prob": 1.0,
    "life": 0.2,
    "learned": 0.3,
    "auto": 0.0,  # measured against its candidates instead
}


def zipf_arrivals(arrivals: int, keys: int = 1_000_000, seed: int = 0) -> Arrivals:
    """Two stationary streams in turn at random, one arrival per millisecond."""
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(zipf_probabilities(keys, 0.75))
    ranks = np.searchsorted(cumulative, rng.random(arrivals) * cumulative[-1])
    return Arrivals(
        stream=(rng.random(arrivals) < 0.5).astype(np.int8),
        key=rng.permutation(keys)[ranks].astype(np.int64),
        time=np.arange(arrivals, dtype=np.int64),
        row=np.arange(arrivals, dtype=np.int64),
        size=np.empty(0, np.int64),
        keys=keys,
        unit="ms",
        nulls=(0, 0),
    )


def run(console: Console, quick: bool) -> list[dict[str, Any]]:
    """Measure every policy at every buffer; the median of five runs."""
    arrivals = zipf_arrivals(1_000_000 if quick else 5_000_000)
    repetitions = 1 if quick else 5
    rows: list[dict[str, Any]] = []
    table = Table(
        title=f"Millions of arrivals per second, {len(arrivals):,} arrivals, median of {repetitions}"
    )
    table.add_column("policy")
    for buffer in BUFFERS:
        table.add_column(f"{buffer:,}", justify="right")
    for heading in ("bar", "growth", "allowed", "matches per arrival"):
        table.add_column(heading, justify="right")
    for policy, bar in BARS.items():
        rates, matches = {}, 0.0
        for buffer in BUFFERS:
            join = ps.WindowJoin(within=10**12, budget=ps.Tuples(buffer), policy=policy)
            seconds = []
            for _ in range(repetitions):
                state = join.start().warm()
                state.process(arrivals.stream, arrivals.key, arrivals.time, arrivals.row)
                seconds.append(state.seconds)
                if buffer == MIDDLE:
                    matches = state.totals()["results"] / len(arrivals)
            rates[buffer] = len(arrivals) / statistics.median(seconds) / 1e6
            rows.append({"policy": policy, "buffer": buffer, "seconds": seconds, "rate": rates[buffer] * 1e6})
        growth = rates[BUFFERS[0]] / rates[BUFFERS[-1]]
        table.add_row(
            policy,
            *(f"{rates[buffer]:.2f}" for buffer in BUFFERS),
            mark(rates[MIDDLE] >= bar, f"{bar:g}"),
            mark(growth < GROWTH, f"{growth:.1f}x"),
            f"<{GROWTH:g}x",
            f"{matches:.0f}",
        )
        rows.append({"policy": policy, "growth": growth, "bar": bar, "reached": rates[MIDDLE] >= bar})
    rows.append(_reference(table, arrivals, _rate(rows, "gdj", MIDDLE), quick))
    console.print(table)
    rows.append(_choosing(console, rows))
    return rows


def _rate(rows: list[dict[str, Any]], policy: str, buffer: int) -> float:
    return next(r["rate"] for r in rows if r["policy"] == policy and r.get("buffer") == buffer)


def _choosing(console: Console, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What it costs to choose: the time of auto, relative to that of its slowest candidate."""
    candidates = ps.policies.Auto().candidates
    times = {
        buffer: min(_rate(rows, policy, buffer) for policy in candidates) / _rate(rows, "auto", buffer)
        for buffer in BUFFERS
    }
    mean = statistics.mean(times.values())
    shown = ", ".join(f"{buffer:,}: {factor:.2f}" for buffer, factor in times.items())
    console.print(
        f"auto takes {mark(mean <= 2, f'{mean:.2f}')} times as long as its slowest candidate on average "
        f"(at most 2; {shown})"
    )
    return {"policy": "auto", "times_slowest_candidate": times, "mean": mean}


def _reference(table: Table, arrivals: Arrivals, rate: float, quick: bool) -> dict[str, Any]:
    """The O(buffer) algorithm at the middle buffer, and how much faster gdj is."""
    seconds = seconds_per_arrival(arrivals.stream, arrivals.key, MIDDLE, 500 if quick else 2_000)
    factor = rate * seconds
    shown = f"{1e-6 / seconds:.4f}"
    table.add_row(
        "gdj, O(buffer)", "", shown, "", mark(factor >= 300, f"gdj {factor:,.0f}x"), "", ">=300x", ""
    )
    return {"policy": "gdj, O(buffer)", "buffer": MIDDLE, "rate": 1 / seconds, "factor": factor}


def mark(reached: bool, text: str) -> str:
    """A figure in green if its bar is reached, in red if not."""
    return f"[green]{text}[/]" if reached else f"[red]{text} ![/]"
