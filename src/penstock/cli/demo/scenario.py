"""What the demo runs: two streams with a burst, and the machine that both sides get."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

KEY, TIME = "product", "at"
WITHIN = "10 minutes"
SUFFIXES = ("_view", "_buy")
SIDES = ("views", "buys")
TEXTS = ("page", "basket")  # a text column of each side
MINUTE = 60_000_000  # microseconds
MIB = 2**20


@dataclass(frozen=True)
class Scenario:
    """Sizes of the streams, and what each side may use.

    >>> from penstock.cli.demo.scenario import Scenario
    >>> Scenario(rows=100, factor=10, files=4, bursts=(1, 2)).rows_of(1)
    1000
    """

    rows: int = 12_500  # per file and stream; a file has a minute of the stream
    factor: int = 6  # how many times that a minute in a burst has
    files: int = 15
    bursts: tuple[int, ...] = (3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
    text: int = 150  # characters of the text column of a row
    keys: int = 2_000_000
    late: float = 0.001  # share of the rows that come a file or more too late
    limit: int = 1_536 * MIB  # of memory, for all processes of a side
    spark_heap: int = 1_088 * MIB  # Spark's own join needs no Python workers, so its JVM gets nearly all
    penstock_heap: int = 528 * MIB
    budget: str = "32 MiB"
    policy: str = "prob"
    patience: float = 85.0  # seconds after which a side that still runs is stopped
    seed: int = 7

    def rows_of(self, file: int) -> int:
        """The rows of each stream in a file."""
        return self.rows * (self.factor if file in self.bursts else 1)

    @property
    def total(self) -> int:
        """The rows of both streams together."""
        return 2 * sum(self.rows_of(file) for file in range(self.files))


QUICK = Scenario(rows=300, files=4, bursts=(1,), text=60, keys=3_000, budget="600 tuples", policy="lru")


def write_streams(folder: Path, scenario: Scenario) -> None:
    """Write two streams to Parquet files, one per minute, in the folders `views` and `buys`.

    Some products are far more popular than others. A few rows come late: they are in a later file.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.cli.demo.scenario import QUICK, write_streams
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_streams(Path(folder), QUICK)
    ...     len(list(Path(folder, "views").iterdir()))
    4
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    sizes = [scenario.rows_of(file) for file in range(scenario.files)]
    for name, text, seed in zip(SIDES, TEXTS, (scenario.seed, scenario.seed + 1), strict=True):
        rng = np.random.default_rng(seed)
        (folder / name).mkdir()
        minute = np.repeat(np.arange(scenario.files), sizes)
        at = np.sort(minute + rng.random(len(minute)))
        delay = np.where(rng.random(len(minute)) < scenario.late, 1 + rng.integers(0, 3, len(minute)), 0)
        file_of = np.minimum(minute + delay, scenario.files - 1)
        product = (rng.random(len(minute)) ** 2 * scenario.keys).astype(np.int64)
        texts = pa.array([rng.bytes(scenario.text // 2).hex() for _ in range(256)])
        table = pa.table(
            {
                KEY: product,
                TIME: pa.array(
                    (at * MINUTE).astype(np.int64) + 1_767_225_600_000_000, pa.timestamp("us", "UTC")
                ),
                f"{name[:-1]}_id": np.arange(len(minute)),
                text: texts.take(pa.array(rng.integers(0, 256, len(minute)))),
            }
        )
        for file in range(scenario.files):
            path = folder / name / f"{file:02}.parquet"
            pq.write_table(table.take(pa.array(np.flatnonzero(file_of == file))), path)
            os.utime(path, (1_700_000_000 + file,) * 2)  # the order in which Spark reads them
