"""HEEB on TOWER: steps per second with a memory of 1,000 tuples."""

from __future__ import annotations

import statistics
from typing import Any

from rich.console import Console
from rich.table import Table

import penstock as ps
from benchmarks.growth import mark
from penstock import models
from penstock.workloads import tower

BAR = 50_000.0  # steps per second
BUFFER = 1_000


def run(console: Console, quick: bool) -> list[dict[str, Any]]:
    """With the models given, with alpha observed, and with everything learnt."""
    repetitions, steps = (1, 10_000) if quick else (5, 50_000)
    left, right = tower(steps=steps)
    of_left = models.LinearTrend(1, -1, models.BoundedNormal(1, 10))
    of_right = models.LinearTrend(1, 0, models.BoundedNormal(2, 15))
    policies = {
        "heeb, models and alpha given": ps.policies.Heeb(left=of_left, right=of_right, alpha=12),
        "heeb, models given": ps.policies.Heeb(left=of_left, right=of_right),
        "heeb": ps.policies.Heeb(),
        "heeb-hist": ps.policies.HeebHist(),
    }
    table = Table(title=f"TOWER, memory for {BUFFER:,} tuples, steps per second, median of {repetitions}")
    for heading in ("policy", "steps/s", "bar"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    rows = []
    for name, policy in policies.items():
        join = ps.WindowJoin(
            within=10**9, budget=ps.Tuples(BUFFER), policy=policy, step="tick", allocation="unified"
        )
        pace = statistics.median(
            steps / join.run(left, right, on="key", time="ts").stats.seconds for _ in range(repetitions)
        )
        table.add_row(name, f"{pace:,.0f}", mark(pace >= BAR, f"{BAR:,.0f}"))
        rows.append({"policy": name, "steps_per_second": pace})
    console.print(table)
    return rows
