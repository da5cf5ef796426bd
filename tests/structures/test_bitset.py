"""The set of small integers against Python's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.structures.bitset import bit_add, bit_next, bit_remove, new_bitset

# Around the widths at which a further level begins.
SIZES = st.sampled_from([1, 2, 63, 64, 65, 4095, 4096, 4097, 300_000])


@given(size=SIZES, data=st.data())
def test_members_and_the_next_one(size: int, data: st.DataObject) -> None:
    member = st.one_of(st.integers(0, size - 1), st.sampled_from([0, size - 1, size // 2]))
    bitset, model = new_bitset(2, size), [set[int](), set[int]()]
    for which, put, at in data.draw(
        st.lists(st.tuples(st.integers(0, 1), st.booleans(), member), max_size=60)
    ):
        if put:
            bit_add(bitset, which, at)
            model[which].add(at)
        else:
            bit_remove(bitset, which, at)
            model[which].discard(at)
        for one in (0, 1):
            for start in (0, at, min(at + 1, size - 1), size - 1):
                expected = min((m for m in model[one] if m >= start), default=-1)
                assert bit_next(bitset, one, start) == expected


def test_all_members_in_order() -> None:
    bitset = new_bitset(1, 70_000)
    for member in range(0, 70_000, 613):
        bit_add(bitset, 0, member)
    found, at = [], bit_next(bitset, 0, 0)
    while at >= 0:
        found.append(at)
        at = bit_next(bitset, 0, at + 1)
    assert found == list(range(0, 70_000, 613))


def test_the_search_may_start_behind_the_end() -> None:
    for size in (1, 64, 65, 4096):
        bitset = new_bitset(1, size)
        bit_add(bitset, 0, size - 1)
        assert bit_next(bitset, 0, size) == -1
