"""Every structure in a state that can be restored has its check, and the tools of the checks see damage."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest

import penstock.policies
from penstock.engine.store import Store
from penstock.errors import SnapshotError
from penstock.snapshots.array_checks import check_hash, check_lists, followed, hashed
from penstock.states import snapshot as snapshots
from penstock.states.checks import needs_check
from tests.snapshots.operators import names, operators


def structures(value: Any) -> set[type]:
    """The classes of all named tuples in a value."""
    found: set[type] = set()
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        if hasattr(value, "_fields"):
            found.add(type(value))
        for part in value:
            found |= structures(part)
    return found


@pytest.mark.parametrize("kind", ["join", "many", "cache", "query", "lookup"])
def test_every_structure_has_a_check(kind: str) -> None:
    met: set[type] = set()
    for name in names():
        if name.split()[0] == kind:
            for operator in operators(name):
                state = operator.fed() if kind == "query" else operator.start()
                met |= structures(snapshots.SEAL.load(operator.store(state), snapshots._accepted))
    assert met, "no state has been looked at"
    arrays = ("penstock.structures", "penstock.engine", "penstock.models.kernels", "penstock.policies")
    met = {each for each in met if each.__module__.startswith(arrays)}
    met -= {Store}  # which is looked at first, by a check of its own
    unchecked = sorted(each.__name__ for each in met if needs_check(each))
    assert unchecked == [], "structures of a snapshot that nobody looks at: give each a check_restored"


def test_every_state_of_a_policy_has_a_check() -> None:
    unchecked = []
    for module in pkgutil.walk_packages(penstock.policies.__path__, "penstock.policies."):
        for each in vars(importlib.import_module(module.name)).values():
            state = isinstance(each, type) and issubclass(each, tuple) and hasattr(each, "_fields")
            if state and each.__module__ == module.name and needs_check(each):
                unchecked.append(each.__name__)
    assert unchecked == []


def test_lists() -> None:
    links = np.array([0, 2, 0, 4, 0])  # 1 -> 2, 3 -> 4
    members = np.arange(1, 5)
    assert check_lists(np.array([1, 3]), links, members, "all").tolist() == [2, 2, 4, 4]
    assert followed(1, links, "all").tolist() == [1, 2]
    for heads, damaged in [
        ([1, 3], [0, 2, 1, 4, 0]),  # a circle, with a way in
        ([1, 3], [0, 2, 0, 4, 9]),  # out of range
        ([1, 3], [0, 2, 0, 2, 0]),  # two lead to one
        ([1], [0, 2, 0, 4, 3]),  # a circle apart
        ([1], [0, 2, 0, 4, 0]),  # one list is lost
        ([1, -3], [0, 2, 0, 4, 0]),
    ]:
        with pytest.raises(SnapshotError, match="damaged"):
            check_lists(np.array(heads), np.array(damaged), members, "all")
    for circle in ([0, 2, 1, 0, 0], [0, 2, 9, 0, 0], [0, 2, -7, 0, 0], [0, 1, 0, 0, 0]):
        with pytest.raises(SnapshotError, match="does not end"):
            followed(1, np.array(circle), "all")


def test_long_lists_take_few_steps() -> None:
    n = 200_000
    order = np.random.default_rng(0).permutation(n) + 1
    links = np.zeros(n + 1, np.int64)
    links[order[:-1]] = order[1:]
    assert (check_lists(order[:1], links, np.arange(1, n + 1), "all") == order[-1]).all()
    assert len(followed(int(order[0]), links, "all")) == n
    links[order[-1]] = order[n // 2]
    with pytest.raises(SnapshotError):
        followed(int(order[0]), links, "all")


def test_keys_in_their_buckets() -> None:
    keys = np.array([0, 7, 8, 9, 10])
    buckets, links = np.zeros(16, np.int32), np.zeros(5, np.int64)
    for row in (1, 2, 4):
        at = hashed(keys[[row]], 16)[0]
        links[row], buckets[at] = buckets[at], row
    assert check_hash(buckets, links, keys, 3, 4).tolist() == [1, 2, 4]
    for altered in (np.array([0, 7, 7, 9, 10]), np.array([0, 7, 8, 9, 11 << 40])):
        with pytest.raises(SnapshotError):
            check_hash(buckets, links, altered, 3, 4)
