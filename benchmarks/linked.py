"""Stream queries: listing 1 on a self-join of readings, counted, and listing 2 at the size of the paper.

The first line has about one match per triple and counts the encoding of its Arrow columns; the rate is per
core and second, of the median of several runs. `--quick` takes a fifth of the triples.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import penstock as ps
from penstock.reproduction.clock_queries import LISTING_1, LISTING_2
from penstock.workloads import viewers_and_guide

POLICIES = ("fifo", "lru", "prob", "life", "clock", "clock-exp", "gdj", "auto")


def readings(n: int) -> pa.Table:
    """Readings of 2,000 sensors, 100 in 200 ms, with so many speeds that a triple has about one match."""
    rng = np.random.default_rng(1)
    names = pa.array([f"http://example.org/sensor/{i}" for i in range(2_000)])
    return pa.table(
        {
            "s": names.take(pa.array(rng.integers(0, 2_000, n))),
            "p": pa.array(["reports"]).take(pa.array(np.zeros(n, np.int64))),
            "o": rng.integers(10, 210, n),
            "start": np.arange(n) * 2,
        }
    )


def viewing(viewers: int, programmes: int) -> dict[str, pa.Table]:
    """Viewers and the guide as triples."""
    log, guide = viewers_and_guide(viewers, programmes)

    def triples(frame: pd.DataFrame, s: str, verb: str, o: str) -> pa.Table:
        columns = {
            "s": s + frame[s].astype(str),
            "p": verb,
            "o": o + frame[o].astype(str),
            "start": frame.start,
            "end": frame.end,
        }
        return pa.Table.from_pandas(pd.DataFrame(columns), preserve_index=False)

    return {
        "Log": triples(log, "user", "watches", "channel"),
        "EPG": triples(guide, "channel", "plays", "programme"),
    }


def measured(query: str, streams: dict[str, pa.Table], repeat: int, **options: Any) -> dict[str, Any]:
    """Median seconds of whole counting runs, encoding included."""
    parsed, seconds, run = ps.StreamQuery.parse(query), [], None
    for _ in range(repeat + 1):
        began = time.process_time()
        run = parsed.run(streams, collect=False, exact=False, **options)
        seconds.append(time.process_time() - began)
    assert run is not None
    median = statistics.median(seconds[1:])
    return {
        "policy": options["policy"],
        "triples": run.stats.triples,
        "results": run.stats.results,
        "seconds": median,
        "triples_per_second": run.stats.triples / median,
    }


def run(console: Console, quick: bool = False) -> list[dict[str, Any]]:
    """Both listings under several policies."""
    n = 200_000 if quick else 1_000_000
    size = (377_451, 6_392) if quick else (1_887_256, 31_960)
    rows = []
    streams = {"windSpeed": readings(n)}
    for policy in POLICIES:
        found = measured(LISTING_1, streams, 3, policy=policy, budget=ps.Tuples(200))
        rows.append({"query": "listing 1"} | found)
    watched = viewing(*size)
    for policy in POLICIES:
        found = measured(LISTING_2, watched, 1, policy=policy, budget=ps.Fraction(0.5), object="iri")
        rows.append({"query": "listing 2"} | found)
    rows.append(_on_spark(quick))
    table = Table(title="stream queries, counting, from Arrow columns")
    for name in ("query", "policy", "triples", "results", "seconds", "triples/s"):
        table.add_column(name, justify="left" if name in ("query", "policy") else "right")
    for row in rows:
        table.add_row(
            row["query"],
            row["policy"],
            f"{row['triples']:,}",
            f"{row['results']:,}",
            f"{row['seconds']:.2f}",
            f"{row['triples_per_second']:,.0f}",
        )
    console.print(table)
    return rows


def _on_spark(quick: bool) -> dict[str, Any]:
    """Listing 1 as a streaming query, files of readings as batches, the first left out."""
    from benchmarks.spark import steady
    from penstock.spark import stream_query

    n, files = (100_000, 3) if quick else (1_000_000, 5)
    whole = readings(n * files)
    batches = [whole.slice(i * n, n) for i in range(files)]
    seconds, results = steady(
        batches,
        lambda triples: stream_query(
            LISTING_1, {"windSpeed": triples}, budget=ps.Tuples(400), policy="clock"
        ),
        "results",
    )
    return {
        "query": "listing 1",
        "policy": "clock, on Spark",
        "triples": n,
        "results": results,
        "seconds": seconds,
        "triples_per_second": n / seconds,
    }
