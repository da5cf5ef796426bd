"""State in the store: damaged or foreign, it is refused; what a batch writes follows the batch."""

from __future__ import annotations

import os
import random
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

import penstock as ps
from penstock.errors import SnapshotError
from penstock.spark import bounded_join
from penstock.spark.runtime import output_files
from penstock.spark.runtime import state_log as state_log
from penstock.spark.runtime.join_bucket import JoinBucket
from penstock.spark.runtime.join_spec import JoinSpec
from penstock.spark.runtime.packer import PackedBatch
from penstock.spark.runtime.state_log import SEAL
from tests.spark.conftest import write_files
from tests.spark.packed import divided, packed, spec_of
from tests.spark.support import START, figures, pieces

SPEC = spec_of()


@pytest.fixture(scope="module")
def bucket() -> bytes:
    """A bucket that has seen a few batches."""
    bucket = JoinBucket(SPEC)
    for seed in range(5):
        for _ in bucket.process(packed(seed)):
            pass
    return bucket.snapshot()


def damaged(data: bytes, times: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """The data with a bit flipped, cut short, made longer, or with a stretch overwritten."""
    rng = random.Random(seed)
    for _ in range(times):
        at = rng.randrange(len(data))
        kind = rng.choice(["flipped", "cut", "longer", "overwritten", "moved"])
        if kind == "flipped":
            changed = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        elif kind == "cut":
            changed = data[:at]
        elif kind == "longer":
            changed = data + rng.randbytes(1 + at % 64)
        elif kind == "overwritten":
            changed = data[:at] + rng.randbytes(16) + data[at + 16 :]
        else:
            changed = data[at:] + data[:at]
        if changed != data:
            yield f"{kind} at {at}", changed


def refused(read: Callable[[bytes], Any], data: bytes, what: str) -> None:
    """Reading must end in a SnapshotError and nothing else."""
    try:
        read(data)
    except SnapshotError:
        return
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    raise AssertionError(f"{what}: accepted")


READERS: dict[str, Callable[[bytes], Any]] = {
    "bucket": lambda data: JoinBucket.restore(SPEC, data),
    "batch": PackedBatch.from_bytes,
}


def stored(kind: str, bucket: bytes) -> bytes:
    """What a reader reads."""
    return bucket if kind == "bucket" else packed(1).to_bytes()


def test_what_is_read_back_goes_on_as_the_original(bucket: bytes) -> None:
    one, other = (JoinBucket.restore(SPEC, SEAL.unseal(SEAL.seal(bucket))) for _ in range(2))
    for seed in range(5, 9):
        other = JoinBucket.restore(SPEC, SEAL.unseal(SEAL.seal(other.snapshot())))
        entry = packed(seed)
        again = PackedBatch.from_bytes(SEAL.unseal(SEAL.seal(entry.to_bytes())))
        assert again == entry
        results, gone = divided(one.process(entry))
        results_again, gone_again = divided(other.process(again))
        assert [table.to_pylist() for table in results] == [table.to_pylist() for table in results_again]
        assert [table.to_pylist() for table in gone] == [table.to_pylist() for table in gone_again]
        assert one.figures == other.figures
        assert one.figures.results > 0


@pytest.mark.parametrize("kind", READERS)
def test_damaged_values_are_refused(kind: str, bucket: bytes) -> None:
    read, data = READERS[kind], stored(kind, bucket)
    sealed = SEAL.seal(data)
    read(SEAL.unseal(sealed))
    for what, changed in damaged(sealed, 2_000):
        refused(lambda value: read(SEAL.unseal(value)), changed, what)
    for at in range(len(SEAL.seal(b"")) + 1):  # every byte of the header
        for bit in range(8):
            changed = sealed[:at] + bytes([sealed[at] ^ (1 << bit)]) + sealed[at + 1 :]
            refused(lambda value: read(SEAL.unseal(value)), changed, f"bit {bit} of byte {at}")


@pytest.mark.parametrize("kind", READERS)
def test_foreign_values_are_refused(kind: str, bucket: bytes) -> None:
    read, other = READERS[kind], stored("batch" if kind == "bucket" else "bucket", bucket)
    foreign = {
        "empty": b"",
        "text": b'{"identity": "of something else"}',
        "a pickle": b"\x80\x05K\x01.",
        "zeros": bytes(100),
        "the other kind": other,
        "a length beyond the end": struct.pack("<QQQq", 1 << 40, 1 << 40, 1 << 40, -1) + bytes(100),
        "a head of nothing": struct.pack("<Q", 2) + b"{}" + bytes(100),
    }
    for what, data in foreign.items():
        refused(lambda value: read(SEAL.unseal(SEAL.seal(value))), data, what)
        refused(lambda value: read(SEAL.unseal(value)), data, f"unsealed: {what}")


@pytest.mark.parametrize("kind", READERS)
def test_cut_contents_are_refused(kind: str, bucket: bytes) -> None:
    """A value that was cut before it was sealed is damaged too."""
    read, data = READERS[kind], stored(kind, bucket)
    for end in range(0, len(data), 7):
        refused(read, data[:end], f"cut at {end}")


class Values:
    """State variables as Spark hands them out, in memory."""

    def __init__(self) -> None:
        self.one: Any = None
        self.many: dict[Any, Any] = {}

    def get(self) -> Any:
        return self.one

    def update(self, value: Any) -> None:
        self.one = value

    def getValue(self, key: Any) -> Any:  # noqa: N802
        return self.many.get(key)

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802
        self.many[key] = value

    def removeKey(self, key: Any) -> None:  # noqa: N802
        del self.many[key]

    def clear(self) -> None:
        self.many.clear()


def handle() -> Any:
    """Spark's handle, with what it may be asked for, which gives out such variables."""
    made = create_autospec(StatefulProcessorHandle, instance=True)
    made.getValueState.side_effect = made.getMapState.side_effect = lambda *_: Values()
    return made


def variables() -> tuple[Values, Values, Values]:
    """The state variables of a bucket."""
    return Values(), Values(), Values()


def test_workers_forget_the_buckets_of_queries_that_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers live on from query to query; the state of one that has ended must not."""
    now = [0.0]
    monkeypatch.setattr(state_log.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(state_log.StateLog, "remembered", {})
    ended, going = (state_log.StateLog(*variables()) for _ in range(2))
    for number, (each, after) in enumerate([(ended, 0), (going, 1), (going, 30), (going, 30), (going, 30)]):
        now[0] += after
        opened = each.open(SPEC)
        for _ in opened.bucket.process(packed(number)):
            pass
        each.commit(opened, packed(number))
    assert len(going.remembered) == 1
    assert going.open(SPEC).read == 0
    opened = ended.open(SPEC)  # it is there all the same, from the store
    assert opened.read > 0
    assert opened.bucket.state.totals()["arrivals"] > 0


def test_workers_forget_the_buckets_that_others_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark gives buckets to whichever worker is idle: one that was missed twice is not kept."""
    monkeypatch.setattr(state_log.StateLog, "remembered", {})
    stores = [variables() for _ in range(6)]
    most = 0
    for number in range(12):
        for which in (number % 6, (number + 1) % 6):  # this worker has two buckets, others have the rest
            log = state_log.StateLog(*stores[which], ("query", number))
            opened = log.open(SPEC)
            list(opened.bucket.process(packed(number)))
            log.commit(opened, packed(number))
        most = max(most, len(log.remembered))
    assert 2 <= most <= 4
    remembered = dict(log.remembered)
    state_log.StateLog(*variables(), ("another query", 99)).forget_passed_on()
    assert log.remembered == remembered
    state_log.StateLog(*variables(), ("query", 99)).forget_passed_on()
    assert not log.remembered


def test_values_are_made_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "PART", 7)
    for sizes in ([], [0], [7], [3, 4, 14], [20, 1, 0, 6], [6, 1, 1]):
        parts = [bytes([65 + i]) * size for i, size in enumerate(sizes)]
        cut = list(state_log._cut(parts))
        assert b"".join(cut) == b"".join(parts)
        assert all(len(each) == 7 for each in cut[:-1])
        assert all(cut)


def test_a_log_is_replaced_before_it_outgrows_its_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Live values of the state store are on average at most 1.3 times what the bucket holds."""
    monkeypatch.setattr(state_log.StateLog, "remembered", {})
    stored = variables()
    shares = []
    for number in range(60):
        log = state_log.StateLog(*stored)
        opened = log.open(spec_of(ps.Tuples(4_000)))
        batch = packed(number, rows=300, span=100)
        list(opened.bucket.process(batch))
        log.commit(opened, batch)
        live = sum(len(value[0]) for variable in stored[1:] for value in variable.many.values())
        shares.append(live / opened.bucket.figures.peak_bytes)
    assert np.mean(shares[20:]) <= 1.3


def test_a_bucket_that_is_remembered_starts_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh state has tables for the whole budget, which a small batch should not pay for."""
    monkeypatch.setattr(state_log.StateLog, "remembered", {})
    started: list[Any] = []
    start = JoinSpec.start
    monkeypatch.setattr(JoinSpec, "start", lambda spec: started.append(spec) or start(spec))
    log = state_log.StateLog(*variables())
    for number in range(3):
        opened = log.open(SPEC)
        list(opened.bucket.process(packed(number)))
        log.commit(opened, packed(number))
    assert len(started) == 1
    other = replace(SPEC, join=replace(SPEC.join, budget=ps.Tuples(20)))
    assert log.open(other).changed
    assert len(started) > 1


def test_seals_say_what_is_wrong() -> None:
    sealed = SEAL.seal(b"state")
    cases = {
        b"": "no state of Penstock (0 bytes",
        b"PAR1" + bytes(40): "no state of Penstock (44 bytes",
        SEAL.magic + struct.pack("<H", SEAL.version + 1) + sealed[10:]: f"version {SEAL.version + 1}",
        sealed[:-1]: "damaged: 4 bytes instead of 5",
        sealed[:-1] + b"E": "wrong checksum",
    }
    for data, message in cases.items():
        with pytest.raises(SnapshotError) as caught:
            SEAL.unseal(data)
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("place", "message"), [("head", "This is no state of Penstock"), ("snapshot", "part (0,) is missing")]
)
def test_a_restart_on_foreign_state_is_refused(
    spark: Any,
    stream_of: Any,
    collected: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    message: str,
) -> None:
    from pyspark.errors import StreamingQueryException

    from penstock.spark.runtime import run
    from penstock.spark.runtime.processor import BucketProcessor

    class Scribbler(BucketProcessor):
        """Runs the join, and then leaves something else in a place of its state."""

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802
            yield from super().handleInputRows(key, rows, timerValues)
            self.state_log.remembered.clear()
            if place == "head":
                self.state_log.head.update((b"PAR1 this is something else",))
            else:
                self.state_log.snapshot.clear()

    left, right = (
        write_files(tmp_path / name, pieces(seed, 1, 50, name)) for seed, name in enumerate(("l", "r"))
    )

    def query() -> Any:
        options: dict[str, Any] = {"time": "ts", "within": "60 us", "budget": ps.Tuples(100), "buckets": 2}
        return bounded_join(stream_of(left), stream_of(right), on="k", **options)

    with monkeypatch.context() as patched:
        patched.setattr(run, "BucketProcessor", Scribbler)
        collected(query())
    for name, folder in zip("lr", (left, right), strict=True):
        write_files(folder, pieces(9, 2, 50, name))
    with pytest.raises(StreamingQueryException, match=re.escape(message)):
        collected(query())


@pytest.mark.soak
def test_what_a_batch_writes_follows_the_batch(spark: Any, tmp_path: Path) -> None:
    """At a budget of a million tuples and batches of 10,000 rows, under a tenth of the state is written."""
    budget, rows, batches = 1_000_000, 10_000, 100
    rng = np.random.default_rng(3)
    folders = []
    for name in ("left", "right"):
        frames, at = [], 0
        for count in [budget // 2] + [rows // 2] * batches:  # the first batch fills the budget
            times = START + pd.to_timedelta(at + np.arange(count), unit="ms")
            at += count
            frames.append(
                pd.DataFrame(
                    {
                        "k": rng.integers(0, 1_000_000, count),
                        "ts": times.astype("datetime64[us, UTC]"),
                        name: rng.random(count),
                    }
                )
            )
        folders.append(write_files(tmp_path / name, frames))
    left, right = (
        spark.readStream.schema(spark.read.parquet(str(one)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(one))
        for one in folders
    )
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(batches + 10))
    query = (
        bounded_join(
            left, right, on="k", time="ts", within="1 hour", budget=ps.Tuples(budget), buckets=2, policy="gdj"
        )
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "output"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    metrics = figures(query)[1:]
    assert len(metrics) == batches
    assert all(each["buffered_left"] + each["buffered_right"] == budget for each in metrics)
    written = [each["state_written"] for each in metrics]
    average, state = sum(written) / batches, max(each["peak_bytes"] for each in metrics)
    seconds = sorted(each["batchDuration"] / 1_000 for each in query.recentProgress[1:])
    read = sum(each["state_read"] for each in metrics) / batches
    print(
        f"state {state / 1e6:.1f} MB; written per batch {average / 1e6:.2f} MB on average "
        f"({average / state:.2%}), {min(written) / 1e6:.2f} to {max(written) / 1e6:.2f} MB; "
        f"snapshots in {sum(one > 10 * min(written) for one in written)} batches; read {read / 1e6:.2f} MB; "
        f"a batch took {seconds[len(seconds) // 2]:.2f} s (median), {seconds[-1]:.2f} s at most"
    )
    assert average < state / 10


def test_files_that_nobody_has_read_are_removed_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker is free for its next task while the last one still reads: only old files are leftovers."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(output_files, "_swept", {})
    large = pa.table({"a": np.arange(100_000)})
    (unread,) = output_files.hand_over([large])
    (other,) = output_files.hand_over([large])
    assert {each.parent for each in map(Path, (unread.file, other.file))} == {tmp_path}
    assert [len(batch) for batch in output_files.taken(other.file)]
    assert [each.name for each in tmp_path.iterdir()] == [Path(unread.file).name]
    os.utime(unread.file, (0, 0))
    monkeypatch.setattr(output_files, "_swept", {})
    (last,) = output_files.hand_over([large])
    assert [each.name for each in tmp_path.iterdir()] == [Path(last.file).name]
