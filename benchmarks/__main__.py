"""Run the benchmarks: all of them, or those named. `--quick` takes smaller inputs and fewer repetitions."""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

import numba
import numpy as np
from rich.console import Console

from benchmarks import (
    asof,
    growth,
    heeb,
    hot,
    kinds,
    linked,
    lookup,
    offline,
    patterns,
    queues,
    spark,
    startup,
)

SUITES = {
    "asof": asof.run,
    "growth": growth.run,
    "hot": hot.run,
    "heeb": heeb.run,
    "kinds": kinds.run,
    "linked": linked.run,
    "lookup": lookup.run,
    "offline": offline.run,
    "startup": startup.run,
    "patterns": patterns.run,
    "queues": queues.run,
    "spark": spark.run,
}
OUT = Path(__file__).parent / "out"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", help="which ones (default: all)")
    parser.add_argument("--quick", action="store_true", help="smaller and fewer")
    options = parser.parse_args()
    console = Console(width=max(Console().width, 110))
    OUT.mkdir(exist_ok=True)
    for name in options.suites or SUITES:
        rows = SUITES[name](console, quick=options.quick)
        report = {"suite": name, "quick": options.quick, "machine": machine(), "rows": rows}
        (OUT / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n")
        console.print(f"written: benchmarks/out/{name}.json\n")


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    return {
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }


if __name__ == "__main__":
    main()
