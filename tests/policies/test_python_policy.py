"""Policies as a user writes them, in plain Python: they work wherever a built-in one does."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.testing import Feed, random_feed, trajectory
from tests.joins.agreement import Case, cases


class MyLru(ps.policies.PythonPolicy):
    """Last use, kept with the item."""

    name = "my-lru"
    summary = "the last match counts"

    def start(self) -> Any:
        return {"arrivals": 0}

    def arrived(self, stream: int, key: int, memory: Any, now: Any) -> None:
        memory["arrivals"] += 1

    def entered(self, item: ps.policies.Item, memory: Any) -> None:
        item.data = item.arrival

    def matched(self, item: ps.policies.Item, memory: Any, now: Any) -> None:
        item.data = memory["arrivals"] - 1  # the number of the arrival that matches

    def score(self, item: ps.policies.Item, now: Any) -> float:
        return item.data


class MyLfu(ps.policies.PythonPolicy):
    """Use count, kept with the item."""

    name = "my-lfu"

    def entered(self, item: ps.policies.Item, memory: Any) -> None:
        item.data = 0

    def matched(self, item: ps.policies.Item, memory: Any, now: Any) -> None:
        item.data += 1

    def score(self, item: ps.policies.Item, now: Any) -> float:
        return item.data


class MyProb(ps.policies.PythonPolicy):
    """Key counts in the policy's memory; items point at them."""

    name = "my-prob"
    selective = True

    def start(self) -> Any:
        return ({}, {})

    def arrived(self, stream: int, key: int, memory: Any, now: Any) -> None:
        count = memory[stream].setdefault(key, [0])
        count[0] += 1

    def entered(self, item: ps.policies.Item, memory: Any) -> None:
        item.data = memory[1 - item.stream].setdefault(item.key, [0])

    def score(self, item: ps.policies.Item, now: Any) -> float:
        return item.data[0]


@dataclass(frozen=True)
class MyLife(ps.policies.PythonPolicy):
    """A policy with an option of its own, that uses the time."""

    horizon: float = 20.0
    name: ClassVar[str] = "my-life"

    def score(self, item: ps.policies.Item, now: Any) -> float:
        return item.time + self.horizon - now


MINE = [MyLru, MyLfu, MyProb, MyLife]
IMITATED = {"my-lru": "lru", "my-lfu": "lfu", "my-prob": "prob"}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    for policy in MINE:
        ps.policies.register(policy)
    yield
    for policy in MINE:
        ps.policies.unregister(policy.name)


def test_a_registered_policy_is_known_by_name() -> None:
    assert set(IMITATED) <= set(ps.policies.names())
    assert ps.policies.get("my-life:horizon=3") == MyLife(horizon=3)
    assert ps.policies.get(MyLife(horizon=3).spell()) == MyLife(horizon=3)
    with pytest.raises(ps.PenstockError, match="did you mean 'my-lru'"):
        ps.policies.get("my-lur")
    ps.policies.unregister("my-lru")
    with pytest.raises(ps.PenstockError, match="no policy"):
        ps.policies.get("my-lru")


# In tick steps all arrivals of a tick have come before the first match is told, so "the number of the arrival
# that matches" is nothing this LRU can know; the others do not need it.
IMITATIONS = [
    (mine, step) for mine in IMITATED for step in ("arrival", "tick") if (mine, step) != ("my-lru", "tick")
]


@pytest.mark.parametrize(("mine", "step"), IMITATIONS)
@settings(max_examples=40)
@given(data=st.data())
def test_an_imitation_does_what_it_imitates(mine: str, step: str, data: st.DataObject) -> None:
    case: Case = data.draw(cases(step, size=40))
    first, second = case.run(mine), case.run(IMITATED[mine])
    assert first.pairs.equals(second.pairs)
    assert first.events.equals(second.events)
    names = ("results", "evicted", "refused", "expired", "buffered", "peak_tuples", "same_tick", "exact")
    assert [getattr(first.stats, n) for n in names] == [getattr(second.stats, n) for n in names]


@pytest.mark.interpreted
@pytest.mark.parametrize("allocation", ["equal", "unified"])
@pytest.mark.parametrize("step", ["arrival", "tick"])
@pytest.mark.parametrize("mine", [policy.name for policy in MINE])
def test_batches_snapshots_and_invariants(mine: str, step: str, allocation: str) -> None:
    join = ps.WindowJoin(within=20, budget=ps.Tuples(7), policy=mine, step=step, allocation=allocation)
    arrivals = random_feed(90, 2, keys=5)
    whole = trajectory(join.start(), arrivals, [])
    assert trajectory(join.start(), arrivals, [11, 12, 50]) == whole
    state = join.start()
    state.process(*arrivals.cut(0, 43))
    state.check()
    copy = ps.JoinState.restore(state.snapshot())
    copy.check()
    rest = Feed(*arrivals.cut(43, 90))
    assert trajectory(copy, rest, [7]) == trajectory(state, rest, [])
    copy.check()
    assert copy.totals()["peak_tuples"] <= 7
    assert copy.totals() == whole[2]


def test_shared_parts_of_a_snapshot_stay_shared() -> None:
    """The items of `my-prob` point into its memory, in the restored state as well."""
    join = ps.WindowJoin(within=50, budget=ps.Tuples(4), policy="my-prob")
    state = join.start()
    state.process([0, 0], [1, 2], [0, 1], [0, 1])
    copy = ps.JoinState.restore(state.snapshot())
    # Key 1 is now worth 2 and key 2 nothing: the third key displaces 2, and is refused if counts are stale.
    for one in (state, copy):
        out = one.process([1, 1, 1, 0], [1, 1, 3, 3], [2, 3, 4, 5], [0, 1, 2, 2], log=True)
        assert [0, 0, 1] in out.log[:, :3].tolist()


def test_a_budget_in_bytes() -> None:
    state = ps.WindowJoin(within=50, budget=ps.Bytes("16 KiB"), policy="my-lfu").start()
    arrivals = random_feed(400, 3, keys=60, largest=900)
    for start in range(0, 400, 20):
        state.process(*arrivals.cut(start, start + 20))
        state.check()
        assert state.peak_bytes <= 16 * 1024
    assert state.totals()["evicted"] > 0


def test_drops_and_warmup() -> None:
    left, right = ({"key": [t % 3 for t in range(60)], "ts": list(range(60))} for _ in range(2))
    for options in ({"drop_rate": 0.3}, {"warmup": 20}, {"drop_rate": 0.3, "drop_at": "arrival"}):
        runs = [
            ps.WindowJoin(within=9, budget=ps.Tuples(5), policy=policy, **options).run(
                left, right, on="key", time="ts", collect=True, log=True
            )
            for policy in ("my-lfu", "lfu")
        ]
        assert runs[0].pairs.equals(runs[1].pairs)
        assert runs[0].events.equals(runs[1].events)


def test_times_and_keys_as_a_policy_sees_them() -> None:
    seen: list[Any] = []

    class Watcher(ps.policies.PythonPolicy):
        name = "watcher"

        def entered(self, item: ps.policies.Item, memory: Any) -> None:
            seen.append((item.stream, item.time, item.arrival, item.row, type(item.time)))

        def score(self, item: ps.policies.Item, now: Any) -> float:
            return 0

    left, right = {"key": ["a", "b"], "ts": [0.5, 1.5]}, {"key": ["a"], "ts": [1.0]}
    join = ps.WindowJoin(within=9.0, budget=ps.Tuples(8), policy=Watcher())
    join.run(left, right, on="key", time="ts")
    assert seen == [(0, 0.5, 0, 0, float), (1, 1.0, 1, 0, float), (0, 1.5, 2, 1, float)]


def test_a_policy_without_a_score_says_so() -> None:
    class Idle(ps.policies.PythonPolicy):
        name = "idle"

    table = {"key": [1, 2, 3], "ts": [0, 1, 2]}
    with pytest.raises(ps.PenstockError, match=r"Idle has no score\(\)"):
        ps.WindowJoin(within=9, budget=ps.Tuples(2), policy=Idle()).run(table, table, on="key", time="ts")


@pytest.mark.parametrize("bad", [float("nan"), None, "high"])
def test_a_score_that_is_no_number_is_refused(bad: Any) -> None:
    """Otherwise the choice would depend on the order in which tuples happen to be compared."""

    class Odd(ps.policies.PythonPolicy):
        name = "odd"

        def score(self, item: ps.policies.Item, now: Any) -> float:
            return bad

    table = {"key": [1, 2, 3], "ts": [0, 1, 2]}
    with pytest.raises(ps.PenstockError, match="Odd"):
        ps.WindowJoin(within=9, budget=ps.Tuples(2), policy=Odd()).run(table, table, on="key", time="ts")


def test_an_unregistered_policy_is_not_restored() -> None:
    state = ps.WindowJoin(within=9, budget=ps.Tuples(4), policy="my-lfu").start()
    data = state.snapshot()
    ps.policies.unregister("my-lfu")
    with pytest.raises(ps.PenstockError, match="MyLfu"):
        ps.JoinState.restore(data)


def test_specs_survive_pickle() -> None:
    for policy in MINE:
        assert pickle.loads(pickle.dumps(policy())) == policy()
    assert pickle.loads(pickle.dumps(MyLife(horizon=7))) == MyLife(horizon=7)
