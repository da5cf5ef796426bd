"""What may stand in a table of events, and in which order batches may come."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import ColumnError, EventLimitError, PatternError
from penstock.patterns import STRATEGIES

pytestmark = pytest.mark.interpreted

each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


def rows(text: str, events: Any, **options: Any) -> list[tuple[Any, ...]]:
    run = ps.Pattern.parse(f"PATTERN {text}").run(events, **options)
    return [tuple(row.values()) for row in run.matches.to_pylist()]


@each_strategy
def test_truth_values_may_be_missing(strategy: str) -> None:
    events = {"type": list("AAB"), "ts": [0, 1, 2], "ok": [True, None, True]}
    assert rows("SEQ(A a, B b, a.ok = b.ok) WITHIN 5", events, strategy=strategy) == [(0, 2)]


@each_strategy
def test_types_are_compared_whole(strategy: str) -> None:
    events = {"type": ["A", "A\0z", "B"], "ts": [0, 1, 2]}
    assert rows("SEQ(A, B) WITHIN 5", events, strategy=strategy) == [(0, 2)]
    with pytest.raises(ColumnError, match="cannot be types"):
        rows("SEQ(A, B) WITHIN 5", {"type": [["A"], ["B"]], "ts": [0, 1]}, strategy=strategy)


@each_strategy
@pytest.mark.parametrize("within", ["1e300", "99999999999999999999999 EVENTS", "1000000000 w", 10**30])
def test_a_window_may_be_wider_than_any_stream(strategy: str, within: Any) -> None:
    stamps = pd.to_datetime(["2024-05-01", "2024-05-02"])
    for times in ([0, 1], [0.5, 1.5], stamps):
        events = {"type": ["A", "B"], "ts": times}
        assert rows(f"SEQ(!C, A, !D, B, !E) WITHIN {within}", events, strategy=strategy) == [(0, 1)]
        run = ps.Pattern.parse(f"PATTERN SEQ(A, B) WITHIN {within}").run(events, count_only=True)
        assert run.stats.matches == 1


@pytest.mark.parametrize("times", [[-(2**63), 2**63 - 1], [-1e308, 1e308]])
def test_times_must_leave_room_for_their_difference(times: list[float]) -> None:
    with pytest.raises(ColumnError, match="are out of range"):
        rows("SEQ(A, B) WITHIN 5", {"type": ["A", "B"], "ts": times})


def test_timestamps_of_other_ages_are_refused() -> None:
    ages = [datetime.datetime(1, 1, 1), datetime.datetime(9999, 1, 1)]
    with pytest.raises(ColumnError, match="timestamps"):
        rows("SEQ(A, B) WITHIN 5", {"type": ["A", "B"], "ts": ages})


@each_strategy
def test_an_empty_batch_has_no_unit(strategy: str) -> None:
    stamps = pd.to_datetime(["2024-05-01T00:00:00", "2024-05-01T00:00:09"])
    state = ps.Pattern.parse("PATTERN SEQ(A, B) WITHIN 10 s").start(strategy=strategy)
    state.process({"type": ["A"], "ts": stamps[:1]})
    state.process({"type": [], "ts": []})
    assert state.process({"type": ["B"], "ts": stamps[1:]}).to_pylist() == [{"A": 0, "B": 1}]


@each_strategy
def test_a_refused_batch_leaves_no_trace(strategy: str) -> None:
    pattern = ps.Pattern.parse("PATTERN SEQ(A a, B b, a.x < b.y) WITHIN 5 RETURN a, b, a.note")
    state = pattern.start(strategy=strategy, max_events=3)
    state.process({"type": ["A"], "ts": [0], "x": [1], "y": [None], "note": ["n"]})
    good = {"type": ["B"], "ts": [1], "x": [None], "y": [2], "note": ["m"]}
    for wrong, said in [
        ({"x": ["t"]}, "was a number and is now a text"),
        ({"y": ["t"]}, "compares a number with a text"),
        ({"note": [pa.scalar(1)]}, "has changed its type"),
        ({"ts": [-1]}, "sort the events by time"),
        ({"ts": [None]}, "missing values"),
        ({name: values * 4 for name, values in good.items()}, "max_events is 3"),
    ]:
        with pytest.raises((ColumnError, EventLimitError), match=said):
            state.process(good | wrong)
    assert state.process(good).to_pylist() == [{"a": 0, "b": 1, "a.note": "n"}]
    state.check()


@each_strategy
def test_columns_of_return_may_turn_into_fractions(strategy: str) -> None:
    state = ps.Pattern.parse("PATTERN SEQ(A a, B b) WITHIN 5 RETURN a.x, b.x AS y").start(strategy=strategy)
    state.process(pd.DataFrame({"type": ["A"], "ts": [0], "x": [1]}))
    found = state.process(pd.DataFrame({"type": ["B"], "ts": [1], "x": [1.5]}))
    assert found.to_pylist() == [{"a.x": 1, "y": 1.5}]


@each_strategy
def test_max_events_holds_at_every_event(strategy: str) -> None:
    pattern = ps.Pattern.parse("PATTERN SEQ(A, B) WITHIN 2")
    burst = {"type": list("AAAABxxx"), "ts": [0, 10, 10, 11, 12, 20, 20, 20]}  # four of A and B from 10 to 12
    assert pattern.run(burst, strategy=strategy, max_events=4).stats.matches == 3
    with pytest.raises(EventLimitError, match="The window contains 4 events"):
        pattern.run(burst, strategy=strategy, max_events=3)
    state = pattern.start(strategy=strategy, max_events=3)
    state.process({name: values[:3] for name, values in burst.items()})
    with pytest.raises(EventLimitError, match="The window contains 4 events"):
        state.process({name: values[3:] for name, values in burst.items()})
    back = ps.Pattern.parse("PATTERN SEQ(!C, A, !B) WITHIN 2")  # looks back and ahead: two windows
    with pytest.raises(EventLimitError):
        back.run({"type": list("CAA"), "ts": [0, 2, 4]}, strategy=strategy, max_events=2)


@each_strategy
def test_only_times_advance_a_stream(strategy: str) -> None:
    state = ps.Pattern.parse("PATTERN SEQ(A, !B) WITHIN 2").start(strategy=strategy)
    for wrong in (None, "3", float("nan"), float("inf"), True, pd.Timestamp("2024-05-01")):
        with pytest.raises(PatternError, match="advance takes a finite time"):
            state.advance(wrong)
    assert state.advance(np.int64(1)).num_rows == 0
    with pytest.raises(ColumnError, match="sort the events by time"):
        state.process({"type": ["A"], "ts": [0]})
    state.process({"type": ["A"], "ts": [1]})
    assert state.advance(4).to_pylist() == [{"A": 0}]


@pytest.mark.parametrize(
    "option", [{"seed": "x"}, {"seed": 1.5}, {"count_only": "yes"}, {"count_only": None}]
)
def test_options_are_of_their_kind(option: dict[str, Any]) -> None:
    with pytest.raises(PatternError, match="is not allowed"):
        rows("SEQ(A, B) WITHIN 5", {"type": ["A"], "ts": [0]}, **option)


@each_strategy
def test_a_hundred_parts_in_any_order_cost_nothing_where_events_are_few(strategy: str) -> None:
    text = f"AND({', '.join(f'A a{i}' for i in range(100))}) WITHIN 5"
    assert rows(text, {"type": list("AAB"), "ts": [0, 1, 2]}, strategy=strategy) == []


@each_strategy
def test_a_stream_ends_once(strategy: str) -> None:
    state = ps.Pattern.parse("PATTERN SEQ(A, !B) WITHIN 2").start(strategy=strategy)
    state.process({"type": ["A"], "ts": [0]})
    assert state.finish().to_pylist() == [{"A": 0}]
    state = ps.patterns.PatternState.restore(state.snapshot())
    for more in (state.finish, lambda: state.advance(9), lambda: state.process({"type": ["A"], "ts": [9]})):
        with pytest.raises(PatternError, match="has ended"):
            more()
