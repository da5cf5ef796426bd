"""Partitions of a pattern: each finds what it finds alone, and is released when nothing of it can matter."""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import EventLimitError, SnapshotError
from penstock.patterns import STRATEGIES
from penstock.patterns.partitioned import PartitionedEvents, PartitionedSearch
from penstock.spark import match_pattern
from penstock.spark.runtime.arrow_blobs import to_blob
from penstock.spark.runtime.event_store import EventStore
from penstock.spark.runtime.keyed_streams import KeyedStreams
from penstock.spark.runtime.packer import PackedBatch
from penstock.spark.runtime.pattern_bucket import PatternBucket, PatternSpec
from penstock.spark.runtime.pattern_partitions import AXIS
from tests.patterns.agreement import Case, random_case
from tests.patterns.test_agreement import LARGE
from tests.spark.conftest import write_files
from tests.spark.test_match import events, pairs

KEYS = [None, float("nan"), 0.0, -0.0, 1.0]


def spec_of(pattern: ps.Pattern, strategy: str = "columnar", **given_: Any) -> PatternSpec:
    dtype = given_.pop("dtype", "int64")
    return PatternSpec(pattern, "type", "ts", dtype, "ms", 0, ("n",), ("k",), strategy, **given_)


def batch(table: pa.Table) -> PackedBatch:
    return PackedBatch([(0, to_blob(table))])


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(LARGE, max_examples=50)
@given(random=st.randoms(use_true_random=False))
def test_each_partition_finds_what_the_oracle_finds_in_it(strategy: str, random: Random) -> None:
    """Streamed with snapshots, and sorted as in a batch; keys come again after they were released."""
    case = random_case(random, size=24)
    spread = [random.choice([0, 0, 0, 3, 30]) for _ in case.events]
    late = np.cumsum(spread).tolist()
    stream = [(kind, at + more, row) for (kind, at, row), more in zip(case.events, late, strict=True)]
    keys = [random.choice(KEYS) for _ in stream]
    expected: Counter[Any] = Counter()
    for key in (None, "nan", 0.0, 1.0):
        mine = [i for i, k in enumerate(keys) if ("nan" if k is not None and k != k else k) == key]
        found = Case(case.pattern, [stream[i] for i in mine]).expected()
        for match, times in found.items():
            expected[tuple(None if at is None else mine[at] for at in match)] += times
    shown = [f"{name}.n AS n{i}" for i, name in enumerate(case.pattern.variables)]
    pattern = ps.Pattern(case.pattern.expression, case.pattern.within, shown)
    times = [at for _, at, _ in stream]
    table = pa.table(
        {
            "type": [kind for kind, _, _ in stream],
            "ts": times,
            "n": list(range(len(stream))),
            "k": pa.array(keys, pa.float64()),
            **{name: [row[name] for _, _, row in stream] for name in "xy"},
            "s": [row["s"] for _, _, row in stream],
        },
        schema=pa.schema(
            [
                ("type", pa.string()),
                ("ts", pa.float64() if isinstance(times[0], float) else pa.int64()),
                ("n", pa.int64()),
                ("k", pa.float64()),
                ("x", pa.int64()),
                ("y", pa.int64()),
                ("s", pa.string()),
            ]
        ),
    )
    spec = spec_of(pattern, strategy, dtype=str(table["ts"].type).replace("double", "float64"))
    cuts = [0, *sorted(random.randint(0, len(stream)) for _ in range(5)), len(stream)]
    parts = [table.slice(a, b - a) for a, b in pairwise(cuts) if b > a]
    streamed, ordered = PatternBucket(spec), PatternBucket(spec)
    got: list[list[pa.Table]] = [[], []]
    for part in parts:
        got[0] += streamed.process(batch(part))
        got[1] += ordered.process_sorted(part)
        for each in (streamed, ordered):
            each.partitions.check()
            if not pattern.within.events:
                windows = spec.plain.start().backend.windows[0]
                reach = part["ts"].to_numpy()[-1] - spec.width * windows
                assert all(last >= reach for last in last_times(each))
        if random.random() < 0.4:
            streamed = PatternBucket.restore(spec, streamed.snapshot())
    got[0] += streamed.finish()
    got[1] += ordered.finish()
    for tables in got:
        rows = [row for each in tables for row in each.drop_columns(["match_start", "match_end"]).to_pylist()]
        assert Counter(tuple(row.values()) for row in rows) == expected, f"{pattern} over {stream}, {keys}"


def last_times(matcher: PatternBucket) -> list[Any]:
    """The time of the last event that is kept of each partition."""
    partitions = matcher.partitions
    if isinstance(partitions, KeyedStreams):
        return [stream.state.backend.axis(False)[-1] for stream in partitions.streams.values()]
    last = np.array([np.frombuffer(each, np.int64)[-1] for each in partitions.numbers.values()], np.int64)
    return partitions.store.take(last, [AXIS])[AXIS].to_pylist() if len(last) else []


def keys_of(matcher: PatternBucket) -> list[Any]:
    """The keys of which anything is kept."""
    partitions = matcher.partitions
    return sorted(partitions.streams if isinstance(partitions, KeyedStreams) else partitions.numbers)


SHORT = "PATTERN SEQ(A a, B b) WITHIN 50 RETURN a.n AS first, b.n AS last"


def newcomers(number: int, size: int) -> pa.Table:
    """A batch of keys that were never there: an A and a B of each."""
    keys = np.repeat(np.arange(number * size, (number + 1) * size), 2)
    at = number * 100 + np.repeat(np.arange(size), 2)
    return pa.table({"type": ["A", "B"] * size, "ts": at, "k": [f"k{i}" for i in keys], "n": keys})


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("how", ["process", "ordered"])
def test_keys_that_are_past_cost_nothing(strategy: str, how: str) -> None:
    """Before, every key ever seen was visited in every batch, and kept in the state."""
    matcher = PatternBucket(spec_of(ps.Pattern.parse(SHORT), strategy))
    took, kept, found = [], [], 0
    for number in range(60):
        table = newcomers(number, 8)
        began = time.process_time()
        tables = matcher.process(batch(table)) if how == "process" else matcher.process_sorted(table)
        took.append(time.process_time() - began)
        found += sum(each.num_rows for each in tables)
        waiting = getattr(matcher.partitions, "queue", ())
        kept.append((len(matcher.partitions), matcher.figures.held, len(waiting)))
    assert found == 60 * 8
    assert np.max(kept, axis=0).tolist() == [8, 16, 0 if strategy == "columnar" else 8]
    assert len(matcher.snapshot()) < 10_000
    # 20 and 60 batches after the start; it was three times as long.
    assert np.median(took[-15:]) < 2 * np.median(took[10:25])


@pytest.mark.parametrize("strategy", ["columnar", "iterative"])
def test_a_window_of_events_keeps_a_key_until_its_own_events_push_the_others_out(strategy: str) -> None:
    pattern = ps.Pattern.parse("PATTERN SEQ(A a, B b) WITHIN 3 EVENTS RETURN a.n AS first, b.n AS last")
    matcher = PatternBucket(spec_of(pattern, strategy))
    rows = [("A", 0, "x"), ("A", 1, "y"), ("D", 2, "x"), ("D", 3, "x"), ("D", 9_000, "y"), ("B", 9_001, "y")]
    found = []
    for n, (kind, at, key) in enumerate(rows):
        table = pa.table({"type": [kind], "ts": [at], "k": [key], "n": [n]})
        found += [each.to_pylist()[0] for each in matcher.process(batch(table))]
        matcher = PatternBucket.restore(matcher.spec, matcher.snapshot())
        kept = [*(["x"] if n < 3 else []), *(["y"] if n > 0 else [])]
        assert keys_of(matcher) == ([f"['{key}']" for key in kept] if strategy == "iterative" else kept)
    assert [(row["first"], row["last"]) for row in found] == [(1, 5)]


@pytest.mark.parametrize("text", [SHORT, SHORT.replace("50 ", "1000000 "), SHORT.replace("50 ", "3 EVENTS ")])
def test_a_batch_costs_what_its_events_do_and_not_what_is_kept(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One search for all partitions of a batch, over their events alone; there was a search for each."""
    searches = []
    search = PartitionedSearch.process

    def counted(self: PartitionedSearch, events: PartitionedEvents) -> Any:
        searches.append(len(events))
        return search(self, events)

    monkeypatch.setattr(PartitionedSearch, "process", counted)
    matcher = PatternBucket(spec_of(ps.Pattern.parse(text)))
    partitions: Any = matcher.partitions
    for number in range(40):
        matcher.process(batch(newcomers(number, 50)))
    stays = "50 " not in text.split("WITHIN")[1]
    assert len(partitions) == (40 * 50 if stays else 50)
    assert len(searches) == 40
    # Each batch brings 100 events, and takes along those that leave their window.
    assert max(searches) <= (100 if stays else 200)
    searches.clear()
    copied = partitions.store.copied
    for number in range(200):
        key = f"k{number % 20 + 1_960}"
        row = {"type": ["B"], "ts": [4_000 + number], "k": [key], "n": [number]}
        matcher.process(batch(pa.table(row)))
    partitions.check()
    assert sum(searches) <= 200 * 15
    # Up to 4,000 are kept. Those that came were merged with each other, each about log2(200) times.
    assert partitions.store.copied - copied <= 200 * 10


def test_events_are_stored_and_fetched_by_number() -> None:
    rng = np.random.default_rng(3)
    store, kept, columns = EventStore(), {}, ["n", "s"]
    for _ in range(400):
        size = int(rng.integers(0, 6))
        values = rng.integers(0, 100, size)
        numbers = store.append(pa.table({"n": values, "s": [f"v{v}" for v in values]}))
        kept |= dict(zip(numbers.tolist(), values.tolist(), strict=True))
        gone = [number for number in kept if rng.random() < 0.1]
        store.remove(np.array(sorted(gone), np.int64))
        for number in gone:
            del kept[number]
        store.check()
        assert len(store) == len(kept)
        if kept:
            some = rng.permutation(list(kept))[:5]
            taken = store.take(some, columns)
            assert taken["n"].to_pylist() == [kept[number] for number in some.tolist()]
            assert taken["s"].to_pylist() == [f"v{kept[number]}" for number in some.tolist()]
        assert len(store.segments) <= 10


def test_the_limit_of_events_is_for_each_partition() -> None:
    limited = spec_of(ps.Pattern.parse(SHORT), max_events=3)
    crowd = {"type": ["A"] * 8, "ts": list(range(8)), "k": ["x", "y"] * 4, "n": list(range(8))}
    table = pa.table(crowd)
    matcher = PatternBucket(limited)
    matcher.process(batch(table.slice(0, 6)))
    with pytest.raises(EventLimitError, match="The window contains 4 events, but max_events is 3"):
        matcher.process(batch(table.slice(6)))


def test_state_of_a_version_that_kept_partitions_apart_is_refused() -> None:
    spec = spec_of(ps.Pattern.parse(SHORT))
    old = PatternBucket(spec_of(ps.Pattern.parse(SHORT), "iterative"))
    old.process(batch(newcomers(0, 3)))
    with pytest.raises(SnapshotError, match="another version"):
        PatternBucket.restore(spec, old.snapshot())


def test_keys_of_any_type_tell_partitions_apart() -> None:
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    columns = {
        "text": (pa.string(), ["a\0b", "a\0c", None]),
        "whole": (pa.int64(), [2**60, 2**60 + 1, None]),
        "bytes": (pa.binary(), [b"a", b"", None]),
        "truth": (pa.bool_(), [True, False, None]),
        "day": (pa.date32(), [moment.date(), dt.date(1960, 1, 1), None]),
        "stamp": (pa.timestamp("us", "UTC"), [moment, moment + dt.timedelta(microseconds=1), None]),
        "exact": (pa.decimal128(20, 2), [Decimal("1.00"), Decimal("1.01"), None]),
        "struct": (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": None}, None]),
        "list": (pa.list_(pa.string()), [["a"], [], None]),
        "float": (pa.float64(), [float("nan"), 0.5, None]),
    }
    for name, (kind, values) in columns.items():
        pair = np.array([0, 1, 2, 0, 1, 2])
        array = pa.array([values[i] for i in pair], kind)
        rows = {"type": ["A"] * 3 + ["B"] * 3, "ts": np.arange(6), "k": array, "n": np.arange(6)}
        matcher = PatternBucket(spec_of(ps.Pattern.parse(SHORT)))
        matcher.process(batch(pa.table(rows).slice(0, 3)))
        matcher = PatternBucket.restore(matcher.spec, matcher.snapshot())
        (found,) = matcher.process(batch(pa.table(rows).slice(3)))
        got = sorted((row["first"], row["last"]) for row in found.to_pylist())
        assert got == [(0, 3), (1, 4), (2, 5)], name


def test_streams_and_batches_on_spark(spark: Any, stream_of: Any, collected: Any, tmp_path: Path) -> None:
    frame = events(500, seed=8)
    frame["k"] = frame["n"] // 40 * 3 + frame["n"] % 3  # keys come, stay for a while and are past
    text = "PATTERN SEQ(A a, !B, C c) WITHIN 5 s RETURN a.n AS first, c.n AS last"
    expected: Counter[Any] = Counter()
    for _, part in frame.groupby("k"):
        found = ps.Pattern.parse(text).run(part.reset_index(drop=True)).matches.to_pandas()
        expected += pairs(found)
    assert expected.total() > 30
    linked = text.replace("C c)", "C c, a.k = c.k = B.k)")
    assert pairs(ps.Pattern.parse(linked).run(frame).matches.to_pandas()) == expected
    end = frame.tail(1).assign(type="D", ts=frame.ts.max() + pd.Timedelta("1 hour"), n=-1)
    folder = write_files(tmp_path / "in", [*(frame.iloc[i : i + 100] for i in range(0, 500, 100)), end])
    whole = match_pattern(spark.read.parquet(str(folder)), text, partition_by="k").toPandas()
    assert pairs(whole) == expected
    got, query = collected(match_pattern(stream_of(folder), text, partition_by="k"))
    assert pairs(got) == expected
    told = [each["observedMetrics"]["penstock"] for each in query.recentProgress]
    assert told[-1]["held"] == 0
