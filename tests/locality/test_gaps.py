"""Gaps between references to the same key."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.locality import inter_arrival


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 50)), min_size=1, max_size=150))
def test_gaps_equal_those_of_a_dictionary(references: list[tuple[int, int]]) -> None:
    keys = [key for key, _ in references]
    times = np.cumsum([step for _, step in references])
    for at, found in (
        (times, inter_arrival(keys, times)),
        (np.arange(len(keys)), inter_arrival(keys)),
    ):
        last: dict[int, int] = {}
        expected = []
        for key, time in zip(keys, at.tolist(), strict=True):
            if key in last:
                expected.append(time - last[key])
            last[key] = time
        assert found.tolist() == expected


def test_times_may_be_of_many_kinds() -> None:
    seconds = [0, 3, 5]
    stamps = pd.Series(pd.to_datetime(seconds, unit="s"))
    assert inter_arrival("aaa", pa.array(seconds)).tolist() == [3, 2]
    assert inter_arrival("aaa", np.array(seconds, dtype=np.uint8)).tolist() == [3, 2]
    assert inter_arrival("aaa", [0.0, 0.5, 2.0]).tolist() == [0.5, 1.5]
    for times in (stamps, pa.array(stamps)):
        assert (inter_arrival("aaa", times) == np.array([3, 2], dtype="timedelta64[s]")).all()


def test_keys_that_never_return_have_no_gaps() -> None:
    assert inter_arrival("abc").tolist() == []


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([1, 2], r"shape \(2,\) were given for 3 keys"),
        ([3, 2, 1], "never decrease"),
        ([1.0, float("nan"), 2.0], "none may be missing"),
        (["a", "b", "c"], "numbers or datetimes.*to_datetime"),
    ],
)
def test_errors_say_what_is_allowed(times, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        inter_arrival("aba", times)
