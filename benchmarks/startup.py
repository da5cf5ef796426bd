"""How long a process waits: import of penstock, and the first call of a kernel from the disk cache."""

from __future__ import annotations

import statistics
import subprocess
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.growth import mark

BAR = 1.0
IMPORT = """
import time
t = time.perf_counter()
import penstock as ps
ps.WindowJoin
print(time.perf_counter() - t)
"""
KERNEL = """
import time, penstock as ps
state = ps.WindowJoin(within=10, budget=ps.Tuples(100), policy={policy!r}).start()
t = time.perf_counter()
state.process([0, 1], [1, 1], [0, 1], [0, 0])
print(time.perf_counter() - t)
"""


def run(console: Console, quick: bool) -> list[dict[str, Any]]:
    """Each in a process of its own, the median of five; the first one fills the cache."""
    repetitions = 1 if quick else 5
    cases = {"import penstock": IMPORT} | {
        f"first call, {policy}": KERNEL.format(policy=policy)
        for policy in ("fifo", "gdj", "clock-exp", "life")
    }
    table = Table(title=f"Seconds, median of {repetitions}")
    for heading in ("what", "seconds", "bar"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    rows = []
    for what, code in cases.items():
        _seconds(code)
        median = statistics.median(_seconds(code) for _ in range(repetitions))
        table.add_row(what, f"{median:.2f}", mark(median < BAR, f"<{BAR:g}"))
        rows.append({"what": what, "seconds": median})
    console.print(table)
    return rows


def _seconds(code: str) -> float:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)
