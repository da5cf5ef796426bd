"""Nested patterns over a day of stock trades: the four strategies side by side, as in figure 11 of the paper.

The trades are `stock_trades.parquet` in the directory that `PENSTOCK_DATA` names, or in `shared/data` beside
the repository; where they are absent, a generated day of the same shape takes their place. The plain
iterative evaluation of the whole day takes minutes, so it has a tenth of the day in `--quick`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import penstock as ps
from benchmarks.growth import mark

DATA = Path(os.environ.get("PENSTOCK_DATA") or Path(__file__).parents[2] / "shared" / "data")
SYMBOLS = ["IPIX", "QQQ", "INTC", "MSFT", "CSCO", "RIMM", "AMAT", "ORCL", "DELL", "YHOO"]
QUERY = "PATTERN SEQ(YHOO y, SEQ(QQQ q, AMAT a, DELL d), ORCL o, IPIX i) WITHIN {}"
STRATEGIES = ("columnar", "semantic", "object", "iterative")


def trades() -> tuple[pd.DataFrame, str]:
    """A day of trades, and where it is from."""
    path = DATA / "stock_trades.parquet"
    if path.exists():
        return pd.read_parquet(path), "stock_trades"
    rng = np.random.default_rng(1)
    n = 224_473
    gaps = np.where(rng.random(n) < 0.5, rng.integers(0, 3, n), rng.exponential(400, n).astype(int))
    symbol = rng.choice(SYMBOLS, n, p=np.array([20, 13, 12, 10, 9, 8, 8, 7, 7, 6]) / 100)
    price = 30 + np.cumsum(rng.choice([-0.01, 0, 0, 0.01], n))
    return pd.DataFrame({"ms": np.cumsum(gaps), "symbol": symbol, "price": price}), "generated trades"


def with_moves(frame: pd.DataFrame) -> pd.DataFrame:
    """Trades with the move of the price since the symbol's previous trade: UP, DOWN or SAME."""
    change = frame.groupby("symbol").price.diff()
    return frame.assign(move=np.where(change > 0, "UP", np.where(change < 0, "DOWN", "SAME")))


def measured(text: str, frame: pd.DataFrame, strategy: str, **names: Any) -> dict[str, Any]:
    """One counting run: CPU seconds, per event and per match."""
    pattern = ps.Pattern.parse(text)
    began = time.process_time()
    run = pattern.run(frame, strategy=strategy, count_only=True, **names)
    seconds = time.process_time() - began
    return {
        "query": text,
        "strategy": strategy,
        "events": len(frame),
        "matches": run.stats.matches,
        "cpu_seconds": seconds,
        "us_per_event": 1e6 * seconds / len(frame),
        "us_per_match": 1e6 * seconds / max(1, run.stats.matches),
        "hits": run.stats.hits,
        "recomputations": run.stats.recomputations,
        "cache_bytes": run.stats.peak_bytes,
    }


def run(console: Console, quick: bool) -> list[dict[str, Any]]:
    """Windows growing over 10,000 events, then the whole day, then price moves."""
    frame, source = trades()
    names = {"type": "symbol", "time": "ms"}
    rows: list[dict[str, Any]] = []
    few = frame.iloc[:10_000]
    for strategy in STRATEGIES:  # kernels and caches of the process are warm before anything is timed
        for text in (QUERY, negated(QUERY)):
            measured(text.format("1 s"), few.iloc[:2_000], strategy, **names)
    for window in ("1 s", "2 s", "5 s", "10 s"):
        for text in (QUERY.format(window), negated(QUERY.format(window))):
            rows += [measured(text, few, strategy, **names) for strategy in STRATEGIES]
    _show(console, f"The first 10,000 events of {source}", rows)
    day = frame.iloc[::10] if quick else frame
    whole = [
        measured(text, day, strategy, **names)
        for text in (QUERY.format("10 s"), negated(QUERY.format("10 s")))
        for strategy in STRATEGIES
    ]
    _show(console, f"{len(day):,} events of {source}, 10 s", whole)
    _compare(console, whole)
    moves, spark = _moves(console, frame), _on_spark(console, frame, quick)
    return [*rows, *whole, *moves, spark, _many_keys(console, quick)]


def negated(text: str) -> str:
    """The same query with its inner SEQ negated."""
    return text.replace(" SEQ(QQQ", " !SEQ(QQQ")


def _compare(console: Console, rows: list[dict[str, Any]]) -> None:
    seconds = {(r["strategy"], "!" in r["query"]): r["cpu_seconds"] for r in rows}
    for text, slower, faster, form, bar in (
        ("semantic against iterative", "iterative", "semantic", False, 4),
        ("columnar against semantic", "semantic", "columnar", False, 5),
        ("negated: semantic against iterative", "iterative", "semantic", True, 10),
        ("object against iterative", "iterative", "object", False, 0),
    ):
        value = seconds[slower, form] / seconds[faster, form]
        console.print(f"{text}: {value:,.1f}x ({mark(value >= bar, f'at least {bar}x')})")


def _moves(console: Console, frame: pd.DataFrame) -> list[dict[str, Any]]:
    """SEQ(UP, DOWN, UP) on one symbol over 200,000 events."""
    events = with_moves(frame).iloc[:200_000]
    rows = []
    for window, bar in (("2 minutes", 1e6), ("1 s", 0)):
        text = f"PATTERN SEQ(UP a, DOWN b, UP c, a.symbol = b.symbol = c.symbol) WITHIN {window}"
        found = [measured(text, events, "columnar", type="move", time="ms") for _ in range(4)][1:]
        row = min(found, key=lambda each: each["cpu_seconds"])
        rate = len(events) / row["cpu_seconds"]
        console.print(
            f"SEQ(UP, DOWN, UP) within {window}: {row['matches']:,} matches, {rate / 1e6:.2f} M events/s "
            f"counting ({mark(rate >= bar, f'at least {bar / 1e6:g}')})"
        )
        rows.append(row)
    return rows


def _on_spark(console: Console, frame: pd.DataFrame, quick: bool) -> dict[str, Any]:
    """The selective query as a streaming query: days of trades in files, the first batch left out."""
    from benchmarks.spark import steady
    from penstock.spark import match_pattern

    text = (
        "PATTERN SEQ(UP a, DOWN b, UP c, a.symbol = b.symbol = c.symbol) WITHIN 1 s "
        "RETURN a.symbol AS symbol, a.ms AS first, c.ms AS last"
    )
    day = with_moves(frame)[["ms", "symbol", "price", "move"]]
    days, files = (1, 3) if quick else (4, 5)
    batches = []
    for i in range(files):
        parts = [day.assign(ms=day.ms + (i * days + j) * 86_400_000) for j in range(days)]
        batches.append(pa.Table.from_pandas(pd.concat(parts), preserve_index=False))
    seconds, matches = steady(
        batches, lambda events: match_pattern(events, text, type="move", time="ms"), "matches"
    )
    rate = days * len(day) / seconds
    console.print(
        f"On Spark, local[2], within 1 s: {matches:,} matches, {seconds:.2f} s a batch of "
        f"{days * len(day):,} events, {rate:,.0f} events/s ({mark(rate >= 200_000, 'at least 200,000')})"
    )
    return {"query": text, "strategy": "columnar on Spark", "matches": matches, "events_per_second": rate}


def _many_keys(console: Console, quick: bool) -> dict[str, Any]:
    """A stream of its own for every user: all of them stay, and each batch brings others."""
    from benchmarks.spark import steady
    from penstock.spark import match_pattern

    text = "PATTERN SEQ(A a, B b) WITHIN 1 day RETURN a.n AS first, b.n AS last"
    keys, files = (5_000, 4) if quick else (20_000, 6)
    batches = [visits(i, keys) for i in range(files)]
    seconds, matches = steady(
        batches, lambda events: match_pattern(events, text, partition_by="user"), "matches"
    )
    rate = batches[0].num_rows / seconds
    console.print(
        f"On Spark, local[2], {keys:,} new keys a batch, {keys * files:,} in the end: {matches:,} matches, "
        f"{seconds:.2f} s a batch of {batches[0].num_rows:,} events, {rate:,.0f} events/s "
        f"({mark(rate >= 20_000 or quick, 'at least 20,000')})"
    )
    return {
        "query": text,
        "strategy": "columnar on Spark, by key",
        "keys": keys * files,
        "matches": matches,
        "events_per_second": rate,
    }


def visits(number: int, keys: int) -> pa.Table:
    """An A, a B and a C of each of so many users who were not there before, a second apart."""
    user = np.tile(np.arange(number * keys, (number + 1) * keys), 3)
    return pa.table(
        {
            "type": np.repeat(["A", "B", "C"], keys),
            "ts": number * 10_000 + np.repeat([0, 1_000, 2_000], keys),
            "user": [f"user-{each}" for each in user],
            "n": 3 * keys * number + np.arange(3 * keys),
        }
    )


def _show(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=title)
    for heading in ("window", "form", "strategy", "matches", "CPU s", "us/event", "us/match", "cache KiB"):
        left = heading in ("window", "form", "strategy")
        table.add_column(heading, justify="left" if left else "right")
    for row in rows:
        table.add_row(
            row["query"].split("WITHIN ")[1],
            "negated" if "!" in row["query"] else "positive",
            row["strategy"],
            f"{row['matches']:,}",
            f"{row['cpu_seconds']:.3f}",
            f"{row['us_per_event']:.1f}",
            f"{row['us_per_match']:.3f}",
            f"{row['cache_bytes'] / 1024:,.0f}",
        )
    console.print(table)
