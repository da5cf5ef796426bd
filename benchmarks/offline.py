"""The offline optimum and the caches: a flow for 10,000 tuples, and a Zipf trace of a million requests."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import penstock as ps
from benchmarks.growth import mark
from penstock.caching import Cache
from penstock.workloads import zipf_probabilities

OPTIMUM = 10.0  # bar, seconds
REQUESTS = {"lru": 8.0, "lfu": 4.0, "lfd": 3.0}  # bars, millions per second
CACHE, OBJECTS = 1_000, 100_000


def pair(keys: int, window: int, rows: int = 5_000, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two streams in turn; a window holds ten partners of a tuple."""
    rng = np.random.default_rng(seed)
    left, right = ({"key": rng.integers(0, keys, rows), "ts": 2 * np.arange(rows) + lag} for lag in (0, 1))
    assert window // 2 // keys == 10
    return left, right


def zipf_requests(n: int, seed: int = 0) -> np.ndarray:
    """Independent requests for objects whose popularity follows Zipf's law."""
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(zipf_probabilities(OBJECTS, 1.0))
    ranks = np.searchsorted(cumulative, rng.random(n) * cumulative[-1])
    return rng.permutation(OBJECTS)[ranks].astype(np.int64)


def run(console: Console, quick: bool) -> list[dict[str, Any]]:
    """Seconds of the optimum, millions of requests per second of each cache policy."""
    return [*_optimum(console, quick), *_caches(console, quick)]


def _optimum(console: Console, quick: bool) -> list[dict[str, Any]]:
    rows = []
    table = Table(title="The optimum for 10,000 tuples with ten matches each, budget 100")
    for heading in ("keys", "exact", "optimum", "seconds", "bar"):
        table.add_column(heading, justify="right")
    for keys in (50,) if quick else (10, 50, 200):
        left, right = pair(keys, 20 * keys)
        options: dict[str, Any] = {"on": "key", "time": "ts", "within": 20 * keys, "budget": ps.Tuples(100)}
        ps.optimal_join({"key": [1], "ts": [0]}, {"key": [1], "ts": [1]}, **options)  # compiles
        best = ps.optimal_join(left, right, **options)
        seconds = best.seconds
        table.add_row(
            f"{keys}",
            f"{best.exact:,}",
            f"{best.results:,}",
            f"{seconds:.2f}",
            mark(seconds <= OPTIMUM, f"{OPTIMUM:g}"),
        )
        rows.append({"what": "optimum", "keys": keys, "results": best.results, "seconds": seconds})
    console.print(table)
    return rows


def _caches(console: Console, quick: bool) -> list[dict[str, Any]]:
    repetitions = 1 if quick else 5
    requests = zipf_requests(1_000_000)
    rows = []
    table = Table(
        title=f"Caches of {CACHE:,}, {len(requests):,} requests for {OBJECTS:,} objects, millions per "
        f"second, median of {repetitions}"
    )
    for heading in ("policy", "hit ratio", "requests", "bar"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for policy in ("fifo", "rand", "lru", "lfu", "prob", "heeb", "lfd", "lfd:bypass=true"):
        speeds = []
        Cache(policy, CACHE, requests=requests[:1]).warm()
        for _ in range(repetitions):
            began = time.perf_counter()
            cache = Cache(policy, CACHE, requests=requests)  # for lfd this looks through the whole trace
            cache.request(requests)
            speeds.append(len(requests) / (time.perf_counter() - began) / 1e6)
        speed = statistics.median(speeds)
        bar = REQUESTS.get(policy)
        table.add_row(
            policy,
            f"{cache.hits / cache.requests:.3f}",
            f"{speed:.1f}",
            mark(speed >= bar, f"{bar:g}") if bar else "",
        )
        rows.append(
            {"what": "cache", "policy": policy, "hits": cache.hits, "requests_per_second": speed * 1e6}
        )
    console.print(table)
    return rows
