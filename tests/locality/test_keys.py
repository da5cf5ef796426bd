"""Every kind of stream of keys is understood alike."""

from __future__ import annotations

from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.locality import inter_arrival, popularity, stack_distance, summary

LETTERS = ["x", "y", "x", "z", "y", "x"]


@pytest.mark.parametrize(
    "keys",
    [
        LETTERS,
        tuple(LETTERS),
        "xyxzyx",
        iter(LETTERS),
        (letter for letter in LETTERS),
        np.array(LETTERS),
        np.array(LETTERS, dtype=object),
        pd.Series(LETTERS, index=[9, 9, 3, 2, 1, 0]),
        pd.Series(LETTERS, dtype="category"),
        pd.Series(LETTERS, dtype="string"),
        pd.Index(LETTERS),
        pa.array(LETTERS),
        pa.array(LETTERS).dictionary_encode(),
        pa.chunked_array([LETTERS[:2], LETTERS[2:]]),
        [("a", 1), ("b", 2), ("a", 1), ("c", 3), ("b", 2), ("a", 1)],
        [1, "1", 1, date(2024, 1, 1), "1", 1],
        np.array([1.5, -2.0, 1.5, 0.0, -2.0, 1.5]),
        pd.to_datetime(pd.Series([1, 2, 1, 3, 2, 1]), unit="s"),
        pa.array([1, 2, 1, 3, 2, 1], pa.int64()),
    ],
    ids=lambda keys: type(keys).__name__,
)
def test_distances_do_not_depend_on_the_kind(keys) -> None:
    assert stack_distance(keys).distances.tolist() == [-1, -1, 1, -1, 2, 2]


def test_keys_come_back_as_they_were() -> None:
    assert popularity([("a", 1), ("b", 2), ("a", 1)]).keys.tolist() == [("a", 1), ("b", 2)]
    assert popularity(pa.array([7, 7, 5])).keys.tolist() == [7, 5]


@pytest.mark.parametrize("function", [popularity, stack_distance, inter_arrival, summary])
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([], "empty stream"),
        (np.zeros((2, 2)), r'a ndarray was given as keys; .*frame\["key"\]'),
        (pd.DataFrame({"key": [1]}), "a DataFrame was given as keys"),
        ({"key": [1]}, "a dict was given as keys"),
        ([[1], [2]], "hashable"),
        (3, "iterable"),
        ([1, None, 2, None], r"2 of 4 keys are missing; .*dropna"),
        ([1.0, float("nan")], "1 of 2 keys are missing"),
        (pd.Series([1, None]), "1 of 2 keys are missing"),
        (pa.array(["a", None]), "1 of 2 keys are missing"),
    ],
)
def test_what_is_no_stream_of_keys_is_refused(function, keys, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        function(keys)
