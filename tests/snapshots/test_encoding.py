"""Values as bytes and back: equal, of the same types, shared where they were shared; damage is an error."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from penstock.errors import SnapshotError
from penstock.snapshots.encoding import DEEPEST, decode, encode


class Pair(NamedTuple):
    """A record that cannot change."""

    first: Any
    second: Any


@dataclass
class Box:
    """A record that can."""

    content: Any


@dataclass(frozen=True)
class Positive:
    """A record that checks itself."""

    number: int

    def __post_init__(self) -> None:
        if self.number <= 0:
            raise ValueError("not positive")


def accept(kind: type) -> bool:
    return kind in (Pair, Box, Positive)


ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(codec=None)),
    st.binary(),
    st.builds(np.float32, st.floats(width=32)),
    st.builds(np.int64, st.integers(-(2**63), 2**63 - 1)),
    st.sampled_from([np.dtype(np.int64), np.dtype("M8[ns]"), np.dtype("U3")]),
    arrays.arrays(
        arrays.scalar_dtypes() | arrays.unicode_string_dtypes(), arrays.array_shapes(min_dims=0, max_dims=3)
    ),
)
KEYS = st.one_of(st.integers(), st.text(), st.tuples(st.integers(), st.text()), st.none())
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(st.integers(-5, 5)),
        st.lists(st.floats()),
        st.tuples(inner, inner),
        st.dictionaries(KEYS, inner),
        st.sets(KEYS),
        st.frozensets(KEYS),
        st.builds(Pair, inner, inner),
        st.builds(Box, inner),
    ),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    """Equal values of equal types, to the last bit of every float."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return one == other if not math.isnan(one) else math.isnan(other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one), list(other)) and same(list(one.values()), list(other.values()))
    if isinstance(one, Box):
        return same(one.content, other.content)
    return one == other


@given(value=VALUES)
def test_values_come_back(value: Any) -> None:
    assert same(decode(encode(value, accept), accept), value)


@given(value=VALUES, data=st.data())
def test_damage_is_an_error_or_another_value(value: Any, data: st.DataObject) -> None:
    whole = bytearray(encode(value, accept))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    for each in (bytes(whole), cut):
        # `Seal.load` makes one error of them.
        with contextlib.suppress(SnapshotError, ValueError, TypeError, OverflowError, ImportError):
            decode(each, accept)


def test_what_is_shared_stays_shared() -> None:
    array, box = np.arange(3), Box(None)
    one, other, same_box, held, itself = decode(
        encode([array, Pair(array, box), box, {"box": box}, []], accept), accept
    )
    assert one is other.first
    assert same_box is other.second is held["box"]
    one[0] = 7
    assert other.first[0] == 7
    assert itself == []


def test_cycles() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    back = decode(encode(loop))
    assert back[1] is back
    box = Box(None)
    box.content = [box]
    assert (again := decode(encode(box, accept), accept)).content[0] is again


def test_arrays_can_be_written_to_and_keep_their_order() -> None:
    rows, columns = np.zeros((3, 4)), np.zeros((3, 4), order="F")
    back = decode(encode([rows, columns, rows[::2, 1:]]))
    assert [each.flags.f_contiguous for each in back] == [False, True, False]
    for each in back:
        each[:] = 1


def test_arrays_of_objects() -> None:
    given = np.array([["a", None], [(1, 2), 3.5]], dtype=object)
    back = decode(encode(given))
    assert back.dtype == object
    assert back.tolist() == given.tolist()


def test_records_are_checked_as_when_they_are_made() -> None:
    good = encode(Positive(5), accept)
    assert decode(good, accept) == Positive(5)
    bad = good.replace(b"i" + (5).to_bytes(8, "little"), b"i" + (0).to_bytes(8, "little"))
    assert bad != good
    with pytest.raises(ValueError, match="not positive"):
        decode(bad, accept)


def test_records_must_be_accepted_both_ways() -> None:
    with pytest.raises(SnapshotError, match="cannot hold"):
        encode(Box(1))
    with pytest.raises(SnapshotError, match="no place"):
        decode(encode(Box(1), accept))


@pytest.mark.parametrize(
    "value", [object(), print, Box, range(3), 1j, iter([])], ids=lambda value: type(value).__name__
)
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(SnapshotError, match="cannot hold"):
        encode([value], accept)


def test_depth_is_limited() -> None:
    deep: Any = 1
    for _ in range(DEEPEST):
        deep = [deep]
    with pytest.raises(SnapshotError, match="deep"):
        decode(encode((deep,)))
