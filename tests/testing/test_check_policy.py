"""A policy of one file and one line passes `check_policy`; policies with planted bugs fail and learn why."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import penstock as ps
from penstock.engine import arrival_ring
from penstock.engine.hooks import overdue
from penstock.policies.base import Setting
from penstock.testing import check_policy

SOURCE = Path(__file__).parents[2] / "src"

# The one file: the tuple with the fewest matches is evicted, and the first match counts thrice.
FILE = '''
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from penstock.engine.cache_loop import Heap, entered, gone, new_heap, push, remove, used, worst
from penstock.engine.cache_loop import raise_to, score_of
from penstock.engine.hooks import enter, lowest, match_key, match_one, score
from penstock.engine.score_queue import Queue, file_newcomer, front, new_queue
from penstock.engine.store import BASE, ENTRY, SIDE, STREAM, USE
from penstock.policies.base import CacheSetting, Policy, Setting
from penstock.snapshots.array_checks import check_same


class ProvenState(NamedTuple):
    queue: Queue
    bonus: np.ndarray

    def check_restored(self, store, fresh):
        check_same(self.bonus, fresh.bonus, "the bonus")


class ProvenCache(NamedTuple):
    heap: Heap
    bonus: np.ndarray

    def check_restored(self, cache, fresh):
        check_same(self.bonus, fresh.bonus, "the bonus")


@dataclass(frozen=True)
class Proven(Policy):
    """Evict the tuple with the fewest matches, of which the first has a bonus."""

    bonus: int = 2

    name: ClassVar[str] = "proven"
    summary: ClassVar[str] = "evicts the tuple with the fewest matches; the first match has a bonus"
    paper: ClassVar[str] = "none"
    caches: ClassVar[bool] = True
    candidate_for: ClassVar[Mapping[str, int]] = {"join": 9, "cache": 9, "query": 9}

    def __post_init__(self):
        self.require(self.bonus >= 0, "bonus", "a number from 0 up")

    def build(self, setting: Setting):
        return ProvenState(new_queue(setting.capacities), np.array([self.bonus]))

    def build_cache(self, setting: CacheSetting):
        return ProvenCache(new_heap(setting.capacity), np.array([self.bonus]))


@match_key.on(ProvenState)
def _match_key(policy, store, entry, stream, arrival):
    store.k64[entry, USE + stream] += 1


@match_one.on(ProvenState)
def _match_one(policy, store, slot, arrival):
    store.t64[slot, BASE] -= 1


@enter.on(ProvenState)
def _enter(policy, store, slot):
    store.t64[slot, BASE] = store.k64[store.t32[slot, ENTRY], USE + store.t32[slot, SIDE]]
    file_newcomer(policy.queue, store, store.pool_of[store.t32[slot, STREAM]], slot, 0.0)


@score.on(ProvenState)
def _score(policy, store, slot):
    matches = store.k64[store.t32[slot, ENTRY], USE + store.t32[slot, SIDE]] - store.t64[slot, BASE]
    return np.float64(matches + policy.bonus[0] if matches > 0 else 0)


@lowest.on(ProvenState)
def _lowest(policy, store, pool):
    return front(policy, policy.queue, store, pool)


@entered.on(ProvenCache)
def _entered(policy, cache, slot):
    push(policy.heap, cache, slot, 0.0)


@used.on(ProvenCache)
def _used(policy, cache, slot):
    raise_to(policy.heap, cache, slot, score_of(policy.heap, cache, slot) + 1.0 + policy.bonus[0])


@gone.on(ProvenCache)
def _gone(policy, cache, slot):
    remove(policy.heap, cache, slot)


@worst.on(ProvenCache)
def _worst(policy, cache):
    return policy.heap.slot[0]
'''

# The one line is the call of `register`.
PACKAGE = """
from mine.proven import Proven
from penstock import policies

policies.register(Proven)
"""

USE = """
import mine
import penstock as ps
from penstock.cli.policies import entries
from penstock.testing import check_policy, random_streams

checks = check_policy(mine.Proven)
assert {"check_tiers", "check_bytes", "check_many", "check_cache_operations"} <= set(checks)
check_policy(mine.Proven(bonus=7), operators=["cache"])
assert "proven" in ps.policies.names() and "proven" in ps.policies.caching_names()
assert "proven" in str(entries())
for operator in ("join", "cache", "query"):
    assert ps.policies.Auto().among(operator)[-1] == mine.Proven()
left, right = random_streams(600, seed=1, keys=90)
choice = ps.WindowJoin(within=400, budget=ps.Tuples(200)).run(left, right, on="key", time="ts").stats.choice
assert "proven" in choice.estimates, choice
print("kept")
"""


def test_a_compiled_policy_is_one_file_and_one_line(tmp_path: Path) -> None:
    package, elsewhere = tmp_path / "site" / "mine", tmp_path / "elsewhere"
    package.mkdir(parents=True)
    elsewhere.mkdir()
    (package / "proven.py").write_text(FILE)
    (package / "__init__.py").write_text(PACKAGE)
    path = os.pathsep.join([str(SOURCE), str(package.parent)])
    given = {name: value for name, value in os.environ.items() if name != "PENSTOCK_TIER"}
    done = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=elsewhere,
        env=given | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "kept"


# Planted bugs.


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled for checks that fail before that."""
    monkeypatch.setenv("PENSTOCK_TIER", "interpreted")


class Plain(ps.policies.PythonPolicy):
    """Evict the oldest tuple."""

    name = "plain"
    summary = "evicts the oldest tuple"

    def score(self, item: ps.policies.Item, now: Any) -> float:
        return item.arrival


class Restless(Plain):
    """Score by a number that no seed determines."""

    name = "restless"
    numbers: ClassVar[Iterator[int]] = itertools.count()

    def score(self, item: ps.policies.Item, now: Any) -> float:
        return hash((next(self.numbers), item.arrival)) % 1_000


@dataclass
class Memory:
    """Has a number that is not a field, so that no snapshot has it."""

    counts: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arrivals = 0


class Forgetful(Plain):
    """Keep something that snapshots leave out."""

    name = "forgetful"

    def start(self) -> Memory:
        return Memory()

    def arrived(self, stream: int, key: int, memory: Any, now: Any) -> None:
        memory.arrivals += 1

    def entered(self, item: ps.policies.Item, memory: Any) -> None:
        item.data = memory.arrivals

    def score(self, item: ps.policies.Item, now: Any) -> float:
        return (item.data * 7) % 11


class EagerState(NamedTuple):
    """Nothing to remember."""

    nothing: np.ndarray


@dataclass(frozen=True)
class Eager(ps.policies.Policy):
    """Evict all tuples of a stream at each of its arrivals, whether or not there is room."""

    name: ClassVar[str] = "eager"
    summary: ClassVar[str] = "evicts too much"
    paper: ClassVar[str] = "none"

    def build(self, setting: Setting) -> EagerState:
        return EagerState(np.zeros(1))


@overdue.on(EagerState)
def _overdue(policy, store, stream):
    return arrival_ring.oldest(store, stream)


class Silent(Plain):
    """Say nothing for lists."""

    name = "silent"
    summary = ""


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Restless, "check_deterministic: two runs over the same input with the same seed differ"),
        (Forgetful, r"check_snapshot: a snapshot after \d+ arrivals changes the "),
        (Silent, "check_spec_is_documented: Silent.summary is not set"),
        (Eager, r"check_exact: \d+ tuples are evicted although there is room for all"),
    ],
)
def test_planted_bugs_are_found(policy: Any, message: str) -> None:
    ps.policies.register(policy)
    try:
        with pytest.raises(AssertionError, match=f"^{policy.name}, {message}"):
            check_policy(policy)
    finally:
        ps.policies.unregister(policy.name)


def test_a_sound_policy_passes() -> None:
    ps.policies.register(Plain)
    try:
        assert {"check_exact", "check_snapshot", "check_many"} <= set(check_policy("plain"))
        with pytest.raises(AssertionError, match=r"plain: .* the operator 'cache'"):
            check_policy(Plain, operators=["cache"])
    finally:
        ps.policies.unregister("plain")


def test_what_is_refused() -> None:
    with pytest.raises(AssertionError, match="there is no policy 'plain'; decorate its class with register"):
        check_policy(Plain)
    with pytest.raises(ps.PenstockError, match="no operator 'joins' to check; did you mean 'join'"):
        check_policy("fifo", operators=["joins"])
