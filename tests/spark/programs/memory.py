"""A query whose Python processes are weighed while it runs, described by a JSON file.

It writes a file: the most private memory that all of them had at once, the most that each had, those that
have mapped pandas, and what the workers that hold state had after each batch by their own account.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import psutil

from penstock.spark import PipelineMonitor, bounded_join
from tests.spark.programs.frame import main, stream_of
from tests.spark.programs.join import options_of


def private(pid: int) -> int:
    """The bytes of memory that a process has to itself."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) << 10


class Scales(threading.Thread):
    """Weighs the Python processes that Spark has started."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.done = threading.Event()
        self.most: dict[int, int] = {}
        self.together: dict[int, int] = {}
        self.maps: dict[int, str] = {}

    def run(self) -> None:
        """Weigh until there is nothing more to weigh."""
        while not self.done.wait(0.05):
            now = {}
            for one in psutil.Process(os.getpid()).children(recursive=True):
                with contextlib.suppress(psutil.Error, OSError):
                    if "pyspark.daemon" in one.cmdline():
                        now[one.pid] = private(one.pid)
                        self.maps[one.pid] = Path(f"/proc/{one.pid}/maps").read_text()
            for pid, size in now.items():
                self.most[pid] = max(size, self.most.get(pid, 0))
            if sum(now.values()) > sum(self.together.values()):
                self.together = now


def run(spark: Any, plan: dict[str, Any]) -> None:
    """Run the query until it has read all files."""
    left, right = (stream_of(spark, folder) for folder in (plan["left"], plan["right"]))
    scales = Scales()
    with PipelineMonitor(spark, console=False) as monitor:
        joined = bounded_join(left, right, **options_of(plan))
        scales.start()
        writer = joined.writeStream.format("noop").option("checkpointLocation", plan["checkpoint"])
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    scales.done.set()
    scales.join()
    holding = [pid for pid, text in scales.maps.items() if "llvmlite" in text]
    weights = {
        "together": sum(scales.together.values()),
        "holding": {pid: scales.most[pid] for pid in holding},
        "others": {pid: size for pid, size in scales.most.items() if pid not in holding},
        "pandas": [pid for pid, text in scales.maps.items() if "/pandas/" in text],
        "told": [each["worker_most_bytes"] for each in monitor.history],
        "batches": len(monitor.history),
        "state": [each["memoryUsedBytes"] for each in query.lastProgress["stateOperators"]],
    }
    Path(plan["weights"]).write_text(json.dumps(weights))


if __name__ == "__main__":
    main(run)
