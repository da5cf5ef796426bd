"""How long a newcomer waits: import, first results with nothing compiled, and what compiling costs.

Every case runs in a process of its own. "Nothing cached" is a new folder for kernels; CPU spent compiling is
the CPU time of a run with nothing cached less that of the same run with all cached.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.growth import mark

SOURCE = Path(__file__).parents[1] / "src"

IMPORT = "import penstock as ps; ps.WindowJoin"
FIRST_CALL = """
import penstock as ps
state = ps.WindowJoin(within=10, budget=ps.Tuples(100), policy={policy!r}).start()
state.process([0, 1], [1, 1], [0, 1], [0, 0])
"""
JOIN = """
import numpy as np
import penstock as ps

rng = np.random.default_rng(0)
both = [{{"k": rng.zipf(1.2, {n} // 2) % 100_000, "ts": np.arange({n} // 2)}} for _ in range(2)]
for policy in {policies!r}:
    ps.WindowJoin(within=10_000, budget=ps.Tuples(10_000), policy=policy).run(*both, on="k", time="ts")
"""
SPARK = """
import time
import pandas as pd
from pyspark.sql import SparkSession
import penstock as ps
from penstock.spark import bounded_join

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
spark.conf.set("spark.sql.shuffle.partitions", "2")
table = pd.DataFrame({"k": [i % 97 for i in range(20_000)], "ts": range(20_000)})
left, right = spark.createDataFrame(table), spark.createDataFrame(table)
options = {"on": "k", "time": "ts", "within": 200, "budget": ps.Tuples(2_000), "policy": "gdj", "buckets": 2}
seconds = []
for _ in range(3):
    began = time.perf_counter()
    bounded_join(left, right, **options).count()
    seconds.append(time.perf_counter() - began)
print(seconds[0] - min(seconds[1:]))
spark.stop()
"""


STREAMS = """
import sys
import numpy as np, pandas as pd
rng, n, folder = np.random.default_rng(0), 200_000, sys.argv[1]
for name in ("left", "right"):
    pd.DataFrame({"k": rng.zipf(1.3, n) % 5_000, "ts": np.arange(n)}).to_parquet(f"{folder}/{name}.parquet")
pd.DataFrame({"type": rng.choice(list("ABCD"), n), "ts": np.arange(n)}).to_parquet(f"{folder}/events.parquet")
subjects = [f"n{i}" for i in rng.integers(0, 5_000, n)]
triples = {"s": subjects, "p": rng.choice(["r", "s"], n), "o": rng.integers(0, 500, n), "start": np.arange(n)}
pd.DataFrame(triples).to_parquet(f"{folder}/triples.parquet")
"""
TEXTS = {
    "pattern.neel": "PATTERN SEQ(A a, B b, C c, D d) WITHIN 400",
    "query.rq": "SELECT ?a ?b FROM STREAM w { ?a r ?x ?T . ?b s ?x ?U } CONTEXT ((?T - ?U) <= 900)",
}
COMMANDS = {
    "plan": "left.parquet right.parquet --on k --time ts --within 20000 --no-plot",
    "plan-lookup": "left.parquet --key k --no-plot",
    "match": "pattern.neel events.parquet",
    "query": "query.rq --stream w=triples.parquet --budget 20%",
    "reproduce": "all --quick --jobs 2",
}


def readme_example() -> str:
    """The first example of the README that does without Spark, as it stands there."""
    blocks = (SOURCE.parent / "README.md").read_text().split("```python\n")[1:]
    return next(block for block in blocks if "pyspark" not in block).split("```", 1)[0]


def run(console: Console, quick: bool) -> list[dict[str, Any]]:
    """All cases; `--quick` once and with fewer arrivals."""
    repetitions, large = (1, 100_000) if quick else (3, 5_000_000)

    def of(measure: Callable[[], float]) -> float:
        return statistics.median(measure() for _ in range(repetitions))

    cases: list[tuple[str, Callable[[], float], float, str]] = [
        ("import penstock", lambda: wall(IMPORT), 1.0, "s"),
        *(
            (
                f"first call from the cache, {policy}",
                lambda policy=policy: wall(FIRST_CALL.format(policy=policy)),
                2.0,
                "s",
            )
            for policy in ("fifo", "gdj")
        ),
        ("the README's example in process, nothing cached", lambda: fresh(wall, readme_example()), 3.0, "s"),
        (
            "auto on 5,000 arrivals, nothing cached",
            lambda: fresh(wall, JOIN.format(n=5_000, policies=["auto"])),
            5.0,
            "s",
        ),
        *(
            (
                f"CPU spent compiling, {policy}",
                lambda policy=policy: compiling(JOIN.format(n=large, policies=[policy])),
                bar,
                "s",
            )
            for policy, bar in (("fifo", 4.0), ("gdj", 8.0), ("auto", 25.0))
        ),
        ("next policy in the same process: lfu after lru", lambda: next_policy(large), 1.5, "s"),
        ("gdj compiled anew after a comment in flowexpect.py", after_a_comment, 0.0, "kernels"),
        *(
            (
                f"first word of `penstock {name}`, {cache}",
                lambda name=name, fresh=fresh: word(name, fresh),
                2.0,
                "s",
            )
            for name in COMMANDS
            for cache, fresh in (("nothing cached", True), ("from the cache", False))
        ),
        *(
            (f"end of `penstock {name}` after Ctrl-C, nothing cached", lambda name=name: end(name), 2.0, "s")
            for name in COMMANDS
        ),
        ("first Spark job on workers without a cache, beyond the second", lambda: first_job(), 10.0, "s"),
    ]
    table = Table(title=f"Median of {repetitions}")
    for heading in ("what", "measured", "bar"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    rows = []
    for what, measure, bar, unit in cases:
        found = of(measure)
        table.add_row(what, f"{found:.2f} {unit}", mark(found <= bar, f"<= {bar:g}"))
        rows.append({"what": what, "measured": found, "unit": unit, "bar": bar})
    console.print(table)
    return rows


def process(code: str, cache: str | None = None, source: Path = SOURCE) -> tuple[float, float, str]:
    """Wall and CPU seconds of a new process, and what it prints."""
    given = os.environ | {"PYTHONPATH": str(source)}
    if cache is not None:
        given["PENSTOCK_CACHE_DIR"] = cache
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-c", code], env=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, check=True,
    )  # fmt: skip
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return after.elapsed - before.elapsed, cpu, done.stdout


def wall(code: str, cache: str | None = None) -> float:
    """Seconds until a new process has ended."""
    return process(code, cache)[0]


def fresh(measure: Callable[[str, str], float], code: str) -> float:
    """A measure with nothing cached."""
    with tempfile.TemporaryDirectory() as cache:
        return measure(code, cache)


def compiling(code: str) -> float:
    """CPU seconds that a run with nothing cached takes beyond one that finds all it needs."""
    with tempfile.TemporaryDirectory() as cache:
        first = process(code, cache)[1]
        return first - process(code, cache)[1]


def next_policy(n: int) -> float:
    """CPU seconds of compiling for a policy after another."""
    return compiling(JOIN.format(n=n, policies=["lru", "lfu"])) - compiling(
        JOIN.format(n=n, policies=["lru"])
    )


def after_a_comment() -> float:
    """Kernels that gdj compiles again after an edit of a module that it does not use."""
    with tempfile.TemporaryDirectory() as folder:
        source, cache = Path(folder, "src"), Path(folder, "cache")
        shutil.copytree(SOURCE / "penstock", source / "penstock")
        code = JOIN.format(n=50_000, policies=["gdj"])
        process(code, str(cache), source)
        before = len(list(cache.iterdir()))
        with (source / "penstock" / "policies" / "flowexpect.py").open("a") as file:
            file.write("# a comment\n")
        process(code, str(cache), source)
        return float(len(list(cache.iterdir())) - before)


def first_job() -> float:
    """Seconds that the first job takes beyond the second."""
    with tempfile.TemporaryDirectory() as cache:
        return float(process(SPARK, cache)[2].split()[-1])


@contextlib.contextmanager
def command(name: str, fresh: bool) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """A command that has just said its first word into a pipe, and the seconds that it took to."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", STREAMS, folder], check=True)
        for file, text in TEXTS.items():
            Path(folder, file).write_text(text)
        given = os.environ | {"PYTHONPATH": str(SOURCE)}
        if fresh:
            given["PENSTOCK_CACHE_DIR"] = str(Path(folder, "cache"))
        began = time.monotonic()
        running = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", name, *COMMANDS[name].split()],
            cwd=folder, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            assert running.stdout is not None
            running.stdout.read(1)
            yield running, time.monotonic() - began
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.communicate()


def word(name: str, fresh: bool) -> float:
    """Seconds from the start of a command to its first word."""
    with command(name, fresh) as (_, seconds):
        return seconds


def end(name: str) -> float:
    """Seconds from Ctrl-C, two after its first word, to the end of a command."""
    with command(name, fresh=True) as (running, _):
        time.sleep(2)
        began = time.monotonic()
        os.killpg(running.pid, signal.SIGINT)
        running.wait()
        return time.monotonic() - began
