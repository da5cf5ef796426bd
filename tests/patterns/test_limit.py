"""`limit=n` gives the first n rows of the result and ends the search there."""

from __future__ import annotations

import resource
import time
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.compiler.tiers import only
from penstock.errors import PatternError
from penstock.patterns.columnar import search
from tests.patterns.agreement import random_case
from tests.patterns.test_agreement import LARGE, every_strategy


def in_batches(case: Any, cuts: list[int], **options: Any) -> tuple[list[Any], Any]:
    state, rows = case.pattern.start(**options), []
    for start, stop in zip([0, *cuts], [*cuts, len(case.events)], strict=True):
        rows += state.process(case.table(start, stop)).to_pylist()
        state.check()
        state = ps.patterns.PatternState.restore(state.snapshot())
    rows += state.finish().to_pylist()
    return rows, state.stats


@every_strategy
@pytest.mark.parametrize("one_event", [1, search.ONE_EVENT])
@settings(LARGE, max_examples=40)
@given(random=st.randoms(use_true_random=False), limit=st.integers(0, 12))
def test_the_first_matches_come_out(strategy: str, one_event: int, limit: int, random: Random) -> None:
    """Those of the result without a limit, whole and in batches; the one after them ends the search."""
    case = random_case(random, size=14)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "ONE_EVENT", one_event)  # 1: events with more matches go by columns
        patch.setattr(search, "ROOM", 2)
        every = case.pattern.run(case.table(), strategy=strategy).matches.to_pylist()
        run = case.pattern.run(case.table(), strategy=strategy, limit=limit)
        said = f"{case.pattern} over {case.events}, limit {limit}"
        assert run.matches.to_pylist() == every[:limit], said
        more = int(len(every) > limit)
        assert (run.stats.matches, run.stats.cut) == (min(len(every), limit) + more, more), said
        cuts = sorted(random.randint(0, len(case.events)) for _ in range(3))
        whole, _ = in_batches(case, cuts, strategy=strategy)
        some, stats = in_batches(case, cuts, strategy=strategy, limit=limit)
        assert some == whole[:limit], said
        assert stats.cut == more, said


@every_strategy
@settings(LARGE, max_examples=20)
@given(random=st.randoms(use_true_random=False), limit=st.integers(0, 6))
def test_a_set_has_a_limit_for_each_pattern(strategy: str, limit: int, random: Random) -> None:
    first, second = (random_case(random, size=12) for _ in range(2))
    group = ps.PatternSet([first.pattern, second.pattern, first.pattern])
    every = group.run(first.table(), strategy=strategy)
    for name, run in group.run(first.table(), strategy=strategy, limit=limit).items():
        assert run.matches.to_pylist() == every[name].matches.to_pylist()[:limit]
        assert run.stats.cut == (every[name].stats.matches > limit)


SIZE = 500
CROWD = {"type": ["A"] * SIZE + ["B"] * SIZE + ["C"] * SIZE, "ts": list(range(3 * SIZE))}


@every_strategy
@pytest.mark.parametrize(
    "text",
    [
        "SEQ(A a, B b, C c)",  # 125 million matches
        "SEQ(A a, OR(B b, C d), C c)",
        "SEQ(A a, B b, C c, !D)",  # all wait for the end
    ],
)
def test_the_search_ends_with_the_limit(strategy: str, text: str) -> None:
    ends_soon(strategy, text)


def test_the_search_ends_with_the_limit_in_any_order() -> None:
    """The other strategies pair events before there is a third one, which takes as long without a limit."""
    ends_soon("columnar", "AND(A a, B b, C c)")


def ends_soon(strategy: str, text: str) -> None:
    pattern = ps.Pattern.parse(f"PATTERN {text} WITHIN 1000000")
    with only("compiled"):
        pattern.run({"type": list("ABBCC"), "ts": [0, 1, 2, 3, 4]}, strategy=strategy, limit=1)
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = pattern.run(CROWD, strategy=strategy, limit=10)
    # To visit all matches takes 20 seconds and more.
    assert time.process_time() - began < 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # kilobytes
    assert (run.matches.num_rows, run.stats.matches, run.stats.cut) == (10, 11, 1)
    assert run.matches.to_pylist()[0]["a"] == 0


@pytest.mark.parametrize("parts", ["A a, B b, C c", "A a, B b, C d, C c"])
@pytest.mark.parametrize("mixed", [False, True], ids=["in blocks", "mixed"])
@pytest.mark.parametrize("options", [{"limit": 10}, {"count_only": True}], ids=["limit", "count"])
def test_what_early_parts_forbid_is_found_once(parts: str, mixed: bool, options: dict[str, Any]) -> None:
    """No A and B fit together; to try all pairs again for every C takes 6 seconds and more."""
    pattern = ps.Pattern.parse(f"PATTERN SEQ({parts}, a.x > b.x) WITHIN 1000000")
    size = 1_200
    types = list("ABC") * size if mixed else sorted(list("ABC") * size)
    events = {"type": types, "ts": list(range(3 * size)), "x": [int(each == "B") for each in types]}
    with only("compiled"):
        pattern.run({"type": list("ABCC"), "ts": [0, 1, 2, 3], "x": [0, 1, 0, 0]}, **options)
        began = time.process_time()
        run = pattern.run(events, **options)
    assert time.process_time() - began < 4
    assert run.stats.matches == 0


@pytest.mark.parametrize(
    "text",
    [
        "SEQ(A a, B b, C c, a.x > b.x)",
        "SEQ(A a, B b, A d, C c, a.x > b.x, b.x > d.x)",
        "SEQ(A a, B b, C c, a.x > b.x, c.x > a.x)",
        "SEQ(A a, !D, B b, C c, a.x > b.x)",
        "SEQ(A a, B b, !D, C c, a.x > b.x)",
        "AND(A a, B b, C c, a.x > b.x)",
        "SEQ(AND(A a, B b, a.x > b.x), C c)",
    ],
)
@settings(LARGE, max_examples=25)
@given(
    rows=st.lists(st.tuples(st.sampled_from("AABBCCD"), st.integers(0, 3), st.integers(0, 2)), max_size=40),
    width=st.integers(1, 12),
)
def test_pairs_that_fail_come_again_with_later_events(
    text: str, rows: list[tuple[str, int, int]], width: int
) -> None:
    """What was found barren for one last event does not hide what newer events bring, nor shorter windows."""
    types, values, steps = zip(*rows, strict=True) if rows else ((), (), ())
    events = {"type": list(types), "ts": [sum(steps[: i + 1]) for i in range(len(steps))], "x": list(values)}
    pattern = ps.Pattern.parse(f"PATTERN {text} WITHIN {width}")
    wanted = pattern.run(events, strategy="iterative").matches.to_pylist()
    assert pattern.run(events).matches.to_pylist() == wanted
    assert pattern.run(events, limit=2).matches.to_pylist() == wanted[:2]
    assert pattern.run(events, count_only=True).stats.matches == len(wanted)


@every_strategy
def test_a_stream_that_is_through_with_its_limit_searches_no_more(strategy: str) -> None:
    pattern = ps.Pattern.parse("PATTERN SEQ(A a, B b, C c, !D) WITHIN 1000000")
    state = pattern.start(strategy=strategy, limit=3)
    state.process(CROWD)
    assert state.advance(10_000_000).num_rows == 3
    began = time.process_time()
    assert state.process(CROWD | {"ts": [10_000_000] * 1_500}).num_rows == 0
    assert state.finish().num_rows == 0
    assert time.process_time() - began < 2
    assert (state.stats.matches, state.stats.cut) == (4, 1)
    state.check()


def test_a_limit_and_a_count_exclude_each_other() -> None:
    with pytest.raises(PatternError, match="give only one of them"):
        ps.Pattern.parse("PATTERN SEQ(A, B) WITHIN 5").run(CROWD, limit=3, count_only=True)
