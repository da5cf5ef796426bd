"""Kinds of joins: the cost of outer, semi and anti joins beside the inner one, and one match per row."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import penstock as ps
from benchmarks.growth import mark

WHERE = "left.v < right.v"
KEYS = 50_000  # about one partner of an arrival is buffered
WHERE_BAR = 0.5  # of the arrivals per second without a condition
BAR = 0.7  # of the arrivals per second of the inner join
RECALL_BAR = 0.8  # of orders each paid once, in a fifth of the memory
HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")
POLICIES = ("fifo", "lru", "gdj")
BUFFER = 100_000
WINDOW = 300_000


def run(console: Console, quick: bool) -> list[dict[str, Any]]:
    """Arrivals per second of every kind, and the recall of joins with one match per row."""
    return _speeds(console, quick) + _conditions(console, quick) + _orders(console, quick)


def _speeds(console: Console, quick: bool) -> list[dict[str, Any]]:
    """In step, and out of step as on Spark; with a quarter of the memory that the exact join needs."""
    repetitions, n = (1, 100_000) if quick else (5, 1_000_000)
    rng = np.random.default_rng(0)
    stream = (rng.random(n) < 0.5).astype(np.int8)
    key = (rng.zipf(1.2, n) % 200_000).astype(np.int64)
    number = np.arange(n)
    rows = []
    table = Table(title=f"Million arrivals per second, {n:,} arrivals, median of {repetitions}")
    for heading in ("streams", "policy", *HOWS, f"bar {BAR:g}"):
        table.add_column(heading, justify="left" if heading in ("streams", "policy") else "right")
    for lateness in (None, 0):
        for policy in POLICIES:
            speeds: dict[str, list[float]] = {how: [] for how in HOWS}
            for _ in range(repetitions):
                for how in HOWS:  # one after the other, so that all have the same weather
                    join = ps.WindowJoin(within=WINDOW, budget=ps.Tuples(BUFFER), policy=policy, how=how)
                    state = join.start(lateness=lateness).warm()
                    state.process(stream, key, number, number)
                    speeds[how].append(n / state.seconds / 1e6)
            found = {how: statistics.median(each) for how, each in speeds.items()}
            worst = min(found[how] for how in HOWS[1:]) / found["inner"]
            way = "in step" if lateness is None else "each at its pace"
            table.add_row(
                way, policy, *(f"{found[how]:.2f}" for how in HOWS), mark(worst >= BAR, f"{worst:.2f}")
            )
            rows += [
                {"streams": way, "policy": policy, "how": how, "arrivals": 1e6 * found[how]} for how in HOWS
            ]
    console.print(table)
    return rows


def _conditions(console: Console, quick: bool) -> list[dict[str, Any]]:
    """Arrivals per second under a condition on two numeric columns, beside those without one."""
    repetitions, n = (1, 100_000) if quick else (5, 1_000_000)
    rng = np.random.default_rng(0)
    stream = (rng.random(n) < 0.5).astype(np.int8)
    key = rng.integers(0, KEYS, n)  # every pair of equal keys is asked: with hot keys that is all there is
    number, value = np.arange(n), rng.random(n)
    columns = tuple({"v": value[stream == side]} for side in (0, 1))
    types = ({"v": pa.float64()},) * 2
    rows = []
    table = Table(title=f"Million arrivals per second without and with {WHERE!r}, {n:,} arrivals")
    for heading in ("kind", "policy", "without", "with", f"bar {WHERE_BAR:g}"):
        table.add_column(heading, justify="left" if heading in ("kind", "policy") else "right")
    kinds = [*((how, "all") for how in HOWS), ("inner", "once"), ("inner", "one-to-one")]
    for how, matches in kinds:
        for policy in POLICIES:
            speeds: dict[str | None, list[float]] = {None: [], WHERE: []}
            for _ in range(repetitions):
                for where in speeds:
                    join = ps.WindowJoin(
                        within=WINDOW,
                        budget=ps.Tuples(BUFFER),
                        policy=policy,
                        how=how,
                        matches=matches,
                        where=where,
                    )
                    asked = None if where is None else columns
                    state = join.start(columns=None if where is None else types).warm()
                    state.process(stream, key, number, number, columns=asked)
                    speeds[where].append(n / state.seconds / 1e6)
            plain, passing = (statistics.median(each) for each in speeds.values())
            share = passing / plain
            name = how if matches == "all" else f"{how}, {matches}"
            shown = mark(share >= WHERE_BAR, f"{share:.2f}")
            table.add_row(name, policy, f"{plain:.2f}", f"{passing:.2f}", shown)
            rows.append({"kind": name, "policy": policy, "arrivals": 1e6 * plain, "where": 1e6 * passing})
    console.print(table)
    return rows


def orders(n: int, seed: int = 1) -> tuple[dict[str, Any], dict[str, Any]]:
    """Orders, each paid once after an exponential delay of 4 s on average."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, 20 * n, n))
    paid = at + rng.exponential(4_000, n).astype(np.int64)
    order = np.argsort(paid, kind="stable")
    return {"id": np.arange(n), "ts": at}, {"id": order, "ts": paid[order]}


def _orders(console: Console, quick: bool) -> list[dict[str, Any]]:
    """The recall of orders each paid once, with a fifth of the memory."""
    left, right = orders(20_000 if quick else 100_000)
    rows = []
    table = Table(title="Recall of orders each paid once, with 20 % of the memory")
    for heading in ("policy", "all", "once", "one-to-one", f"bar {RECALL_BAR:g}"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for policy in ("fifo", "lru", "learned", "auto"):
        recalls = {}
        for matches in ("all", "once", "one-to-one"):
            join = ps.WindowJoin(
                within=("0 s", "24 s"), budget=ps.Fraction(0.2), policy=policy, matches=matches
            )
            recalls[matches] = join.run(left, right, on="id", time="ts").stats.recall
        passed = min(recalls["once"], recalls["one-to-one"]) >= RECALL_BAR
        table.add_row(policy, *(f"{each:.2f}" for each in recalls.values()), mark(passed, f"{RECALL_BAR:g}"))
        rows.append({"policy": policy} | {f"recall {name}": each for name, each in recalls.items()})
    console.print(table)
    return rows
