"""Partitions of a pattern: each finds what it finds alone, and is released when nothing of it can matter."""

from __future__ import annotations

import time
from collections import Counter
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
from penstock.patterns import STRATEGIES
from penstock.spark import match_pattern
from penstock.spark.runtime.join_bucket import Batch
from penstock.spark.runtime.packer import to_blob
from penstock.spark.runtime.pattern_bucket import Matcher
from penstock.spark.runtime.pattern_stream import MatchSpec
from tests.patterns.agreement import Case, random_case
from tests.patterns.test_agreement import LARGE
from tests.spark.conftest import write_files
from tests.spark.test_match import events, pairs

KEYS = [None, float("nan"), 0.0, -0.0, 1.0]


def spec_of(pattern: ps.Pattern, strategy: str = "columnar", **given_: Any) -> MatchSpec:
    dtype = given_.pop("dtype", "int64")
    return MatchSpec(pattern, "type", "ts", dtype, "ms", 0, ("n",), ("k",), strategy, **given_)


def batch(table: pa.Table) -> Batch:
    return Batch([(0, to_blob(table))])


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
    streamed, ordered = Matcher(spec), Matcher(spec)
    got: list[list[pa.Table]] = [[], []]
    for part in parts:
        got[0] += streamed.process(batch(part))
        got[1] += ordered.ordered(part)
        for each in (streamed, ordered):
            each.partitions.check()
            if not pattern.within.events:
                reach = part["ts"].to_numpy()[-1] - spec.width * (1 + any(_reaches(each)))
                assert all(stream.state.backend.axis(False)[-1] >= reach for stream in _streams(each))
        if random.random() < 0.4:
            streamed = Matcher.from_bytes(spec, streamed.to_bytes())
    got[0] += streamed.finish()
    got[1] += ordered.finish()
    for tables in got:
        rows = [row for each in tables for row in each.drop_columns(["match_start", "match_end"]).to_pylist()]
        assert Counter(tuple(row.values()) for row in rows) == expected, f"{pattern} over {stream}, {keys}"


def _streams(matcher: Matcher) -> list[Any]:
    return list(matcher.partitions.streams.values())


def _reaches(matcher: Matcher) -> list[bool]:
    return [stream.state.backend.windows[0] > 1 for stream in _streams(matcher)]


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
    matcher = Matcher(spec_of(ps.Pattern.parse(SHORT), strategy))
    took, kept, found = [], [], 0
    for number in range(60):
        table = newcomers(number, 8)
        began = time.process_time()
        tables = matcher.process(batch(table)) if how == "process" else matcher.ordered(table)
        took.append(time.process_time() - began)
        found += sum(each.num_rows for each in tables)
        kept.append((len(matcher.partitions), len(matcher.partitions.queue), matcher.figures.held))
    assert found == 60 * 8
    assert max(kept) == (8, 8, 16)
    assert len(matcher.to_bytes()) < 10_000
    # 20 and 60 batches after the start; it was three times as long.
    assert np.median(took[-15:]) < 2 * np.median(took[10:25])


def test_a_window_of_events_keeps_a_key_until_its_own_events_push_the_others_out() -> None:
    pattern = ps.Pattern.parse("PATTERN SEQ(A a, B b) WITHIN 3 EVENTS RETURN a.n AS first, b.n AS last")
    matcher = Matcher(spec_of(pattern))
    rows = [("A", 0, "x"), ("A", 1, "y"), ("D", 2, "x"), ("D", 3, "x"), ("D", 9_000, "y"), ("B", 9_001, "y")]
    found = []
    for n, (kind, at, key) in enumerate(rows):
        table = pa.table({"type": [kind], "ts": [at], "k": [key], "n": [n]})
        found += [each.to_pylist()[0] for each in matcher.process(batch(table))]
        matcher = Matcher.from_bytes(matcher.spec, matcher.to_bytes())
        assert sorted(matcher.partitions.streams) == [
            *(["['x']"] if n < 3 else []),
            *(["['y']"] if n > 0 else []),
        ]
    assert [(row["first"], row["last"]) for row in found] == [(1, 5)]


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
