"""A batch that is refused leaves the state of a query as it was."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.errors import PenstockError

TEXT = "SELECT ?a ?b FROM STREAM w { ?a r ?x ?T . ?b r ?x ?U } CONTEXT ((?U - ?T) <= 5)"


def batch(start: Any, s: Any = "a", p: Any = "r", o: Any = 1) -> dict[str, Any]:
    return {"w": {"s": [s], "p": [p], "o": [o], "start": [start]}}


JUNK: dict[str, Any] = {
    "out of order": batch(3),
    "another kind of time": batch("2024-01-01"),
    "no time": batch(None),
    "a time that would be rounded": batch(2**53 + 1),
    "an infinite time": batch(float("inf")),
    "no subject": batch(20, s=None),
    "an object that is none": batch(20, o=[object()]),
    "a missing column": {"w": {"s": ["a"], "p": ["r"], "start": [20]}},
    "columns of different lengths": {"w": {"s": ["a", "b"], "p": ["r"], "o": [1], "start": [20]}},
    "another stream": {"v": {"s": ["a"], "p": ["r"], "o": [1], "start": [20]}},
    "no table": {"w": None},
    "no dict": 5,
}


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("junk", JUNK)
def test_a_refused_batch_changes_nothing(junk: str, first: int) -> None:
    """Whether it comes before anything has matched or after."""
    refused, plain = (ps.StreamQuery.parse(TEXT).start(budget=ps.Tuples(100)) for _ in range(2))
    for state in (refused, plain)[: 2 * first]:
        state.process(batch(10))
    if junk == "out of order" and not first:
        return  # nothing came before it
    with pytest.raises(PenstockError):
        refused.process(JUNK[junk])
    assert refused.latest == plain.latest
    assert refused.offsets.tolist() == plain.offsets.tolist()
    for state in (refused, plain):
        state.rows = state.process(batch(11, s="b")).solutions.tolist()
    assert refused.rows == plain.rows
    assert refused.totals == plain.totals
