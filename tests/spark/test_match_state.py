"""The state of `match_pattern`: a snapshot and a log, which survive whatever happens to the query."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import PenstockError, SnapshotError
from penstock.spark import match_pattern
from penstock.spark.runtime.arrow_blobs import from_blob, to_blob
from penstock.spark.runtime.bucket_labels import labels
from penstock.spark.runtime.output_blobs import FIGURES, FILE, ROWS
from penstock.spark.runtime.packer import BUCKET, REGISTER, EventPacking, PackedBatch, packer
from penstock.spark.runtime.pattern_bucket import PatternBucket, PatternSpec
from penstock.spark.runtime.processor import BucketProcessor
from penstock.spark.runtime.state_log import StateLog
from tests.spark.conftest import write_files
from tests.spark.support import begun, committed, python_workers
from tests.spark.test_kill import run_with_kills
from tests.spark.test_match import TEXT, TRAILING, events, pairs
from tests.spark.test_state import handle, variables

SPEC = PatternSpec(
    ps.Pattern.parse(TRAILING), "type", "ts", "int64", "us", 2e6, ("k", "n", "type"), (), "columnar"
)


def batches(n: int, size: int) -> list[PackedBatch]:
    """Events in batches, each of them shuffled."""
    frame, rng = events(n, seed=11), np.random.default_rng(4)
    parts = [frame.iloc[at : at + size].sample(frac=1, random_state=rng) for at in range(0, n, size)]
    return [PackedBatch([(0, to_blob(pa.Table.from_pandas(part, preserve_index=False)))]) for part in parts]


def told(tables: list[pa.Table]) -> Counter[Any]:
    return Counter(str(row) for table in tables for row in table.to_pylist())


@pytest.mark.parametrize("strategy", ["columnar", "semantic"])
@pytest.mark.parametrize("keys", [(), ("k",)])
def test_a_bucket_goes_on_from_snapshot_and_log(
    strategy: str, keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StateLog, "remembered", {})
    spec = replace(SPEC, strategy=strategy, keys=keys)
    state_log, plain, written, replayed, found = StateLog(*variables()), PatternBucket(spec), [], 0, 0
    for number, batch in enumerate(batches(600, 50)):
        if number % 3 == 2:
            StateLog.remembered.clear()  # as another worker would, it reads the snapshot and replays the log
        opened = state_log.open(spec)
        assert (opened.read > 0) == (number % 3 == 2)
        replayed += opened.replayed
        got = told(opened.bucket.process(batch))
        assert got == told(plain.process(batch))
        assert opened.bucket.figures == plain.figures
        found += got.total()
        written.append(state_log.commit(opened, batch))
    assert found > 20
    assert replayed > 5
    with pytest.raises(PenstockError, match="the pattern cannot change"):
        state_log.open(replace(spec, pattern=ps.Pattern.parse(TEXT)))
    with pytest.raises(PenstockError, match="the number of buckets cannot change"):
        state_log.open(replace(spec, buckets=7))
    changed = {"lateness": 3e6} | ({"budget": 5_000} if strategy == "semantic" else {"max_events": 5_000})
    assert state_log.open(replace(spec, **changed)).bucket.spec == replace(spec, **changed)


def test_what_a_batch_writes_follows_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what windows hold: here all events, since the window is a day."""
    monkeypatch.setattr(StateLog, "remembered", {})
    wide = ps.Pattern.parse("PATTERN SEQ(A a, B b, a.n = b.n) WITHIN 1 day")
    spec, state_log, sizes, held = replace(SPEC, pattern=wide), StateLog(*variables()), [], []
    for batch in [*batches(40_000, 40_000), *late_batches()]:
        opened = state_log.open(spec)
        opened.bucket.process(batch)
        sizes.append(state_log.commit(opened, batch))
        held.append(opened.bucket.figures.held)
    assert held[-1] > 19_000
    assert max(sizes[1:]) < sizes[0] / 10


def late_batches() -> list[PackedBatch]:
    """Small ones that come after forty thousand events."""
    frame = events(40_400, seed=11).iloc[40_000:]
    parts = [frame.iloc[at : at + 100] for at in range(0, 400, 100)]
    return [PackedBatch([(0, to_blob(pa.Table.from_pandas(part, preserve_index=False)))]) for part in parts]


def test_damaged_state_is_refused() -> None:
    matcher = PatternBucket(SPEC)
    for batch in batches(100, 50):
        matcher.process(batch)
    data, rng = matcher.snapshot(), random.Random(1)
    assert PatternBucket.restore(SPEC, data).snapshot() == data
    for _ in range(300):
        at = rng.randrange(len(data))
        changed = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        for damaged in (changed, data[:at]):
            with pytest.raises(SnapshotError):
                PatternBucket.restore(SPEC, damaged)


def test_other_workers_go_on_exactly(spark: Any, stream_of: Any, collected: Any, tmp_path: Path) -> None:
    frame = events(400, seed=5)
    expected = pairs(ps.Pattern.parse(TEXT).run(frame).matches.to_pandas())
    parts = [frame.iloc[at : at + 100] for at in range(0, 400, 100)]
    folder = write_files(tmp_path / "in", parts[:2])
    first, _ = collected(match_pattern(stream_of(folder), TEXT))
    for worker in python_workers():  # idle ones; those that come next must restore the state
        worker.kill()
    write_files(folder, parts)
    second, query = collected(match_pattern(stream_of(folder), TEXT))
    assert pairs(first) + pairs(second) == expected
    metrics = [each["observedMetrics"]["penstock"] for each in query.recentProgress]
    assert sum(row["state_read"] for row in metrics) > 0
    assert sum(row["replayed"] for row in metrics) > 0


def check(spark: Any, folder: Path, files: int, rows: int, kills: int, longest: float) -> None:
    """Kill a query this often; in the end its matches are those of the run in process."""
    frame = events(files * rows, seed=9)
    parts = [frame.iloc[at : at + rows] for at in range(0, len(frame), rows)]
    (folder / "killed").mkdir()
    plan = {
        "program": "match",
        "events": str(write_files(folder / "events", parts)),
        "output": str(folder / "killed" / "output"),
        "checkpoint": str(folder / "killed" / "checkpoint"),
        "match": {"pattern": TEXT},
    }
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    inside = run_with_kills(folder / "killed", plan, kills, longest, seed)
    assert inside >= 1
    # Killed between the log of its source and its own, Spark reads the files of both in one batch.
    checkpoint = Path(plan["checkpoint"])
    assert files - kills <= committed(checkpoint) == begun(checkpoint) <= files
    got = spark.read.parquet(plan["output"]).toPandas()  # what was committed, not what a kill left behind
    assert pairs(got) == pairs(ps.Pattern.parse(TEXT).run(frame).matches.to_pandas())


def test_killed_twice(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, files=8, rows=150, kills=2, longest=2)


@pytest.mark.soak
def test_killed_twenty_times(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, files=60, rows=400, kills=20, longest=6)


def test_packed_events_go_through_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark does between packing and the operator is a shuffle: here it is done by hand."""
    monkeypatch.setattr(StateLog, "remembered", {})
    frame, tags = events(400, seed=5), tuple(labels(2))
    expected = pairs(ps.Pattern.parse(TEXT).run(frame).matches.to_pandas())
    spec = replace(SPEC, pattern=ps.Pattern.parse(TEXT), lateness=0.0, buckets=2)
    processors = {}
    for tag in (REGISTER, *tags):
        processors[tag] = BucketProcessor(spec, tags)
        processors[tag].init(handle())
    pack, total, told_events = packer(EventPacking(tags, time="ts")), Counter[Any](), 0
    for at in range(0, 400, 80):
        part = pa.Table.from_pandas(frame.iloc[at : at + 80], preserve_index=False)
        part = part.append_column(BUCKET, pa.array(frame["k"].iloc[at : at + 80] % 2, pa.int32()))
        rows = [row for batch in pack(iter(part.to_batches())) for row in batch.to_pylist()]
        assert {row["label"] for row in rows} == {REGISTER, *tags}
        for tag in sorted({row["label"] for row in rows}):
            mine = [row for row in rows if row["label"] == tag]
            for output in processors[tag].handleInputRows((tag,), iter(mine), None):
                assert output[FILE] is None, "so few matches need no file"
                if output[ROWS] is not None:
                    total += pairs(from_blob(output[ROWS]).to_pandas())
                if output[FIGURES] is not None:
                    told_events += json.loads(output[FIGURES])["events"]
    assert told_events == 400
    assert total == expected
    other = BucketProcessor(replace(spec, buckets=3), tags)
    other.variables = processors[REGISTER].variables
    with pytest.raises(PenstockError, match="the number of buckets cannot change"):
        list(other.handleInputRows((REGISTER,), iter(()), None))
