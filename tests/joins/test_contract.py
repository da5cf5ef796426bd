"""What holds for every policy of the registry, built in or not: found there and tried one by one."""

from __future__ import annotations

import ast
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import PenstockError
from tests.joins.agreement import online

STEPS = ("arrival", "tick")


def specs(found: list[str]) -> list[str]:
    """Policies, and those variants that run other code."""
    more = [
        "gdj:method=2",
        "gdj:method=3",
        "gdj:initial=auto",
        "age:k=5",
        "clock-exp:rho=0.5",
        "clock-exp:rho=auto",
    ]
    return found + [spec for spec in more if spec.partition(":")[0] in found]


every_policy = pytest.mark.parametrize("spec", specs(online()))
every_spec = pytest.mark.parametrize("spec", specs(ps.policies.names()))
every_run = pytest.mark.parametrize("spec", [*specs(online()), "opt"])  # with the whole input at hand
every_step = pytest.mark.parametrize("step", STEPS)


@dataclasses.dataclass(frozen=True)
class Feed:
    """Arrivals in processing order."""

    stream: np.ndarray
    key: np.ndarray
    time: np.ndarray
    row: np.ndarray
    size: np.ndarray

    def cut(self, start: int, stop: int) -> tuple[np.ndarray, ...]:
        return tuple(getattr(self, field.name)[start:stop] for field in dataclasses.fields(self))

    def __len__(self) -> int:
        return len(self.key)


def feed(n: int, seed: int, keys: int = 12, largest: int = 40) -> Feed:
    random = np.random.default_rng(seed)
    time = np.cumsum(random.choice([0, 0, 1, 1, 2, 5], n))
    stream = random.integers(0, 2, n).astype(np.int8)
    order = np.lexsort((stream, time))
    popular = 1 / np.arange(1, keys + 1)
    return Feed(
        stream[order],
        random.choice(keys, n, p=popular / popular.sum()),
        time[order],
        np.arange(n),
        random.integers(0, largest + 1, n),
    )


def join(spec: str, step: str, budget: Any = None, **options: Any) -> ps.WindowJoin:
    return ps.WindowJoin(within=25, budget=budget or ps.Tuples(10), policy=spec, step=step, **options)


def trajectory(
    state: ps.JoinState, arrivals: Feed, cuts: list[int]
) -> tuple[list[Any], list[Any], dict[str, int]]:
    """Pairs, log and totals when the arrivals come in batches that end at the cuts."""
    outputs = [
        state.process(*arrivals.cut(start, stop), collect=True, log=True)
        for start, stop in zip([0, *cuts], [*cuts, len(arrivals)], strict=True)
    ]
    outputs.append(state.finish(collect=True, log=True))
    pairs = [pair for out in outputs for pair in out.pairs.tolist()]
    log = [entry for out in outputs for entry in out.log.tolist()]
    return pairs, log, state.totals()


def spread(cuts: list[float], n: int) -> list[int]:
    return sorted(int(cut * n) for cut in cuts)


# Specs.


@every_spec
def test_spec_survives_pickle_repr_and_spelling(spec: str) -> None:
    policy = ps.policies.get(spec)
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert ps.policies.get(policy.spell()) == policy
    assert ps.policies.get(policy) is policy
    assert hash(policy) == hash(ps.policies.get(spec))
    call = ast.parse(repr(policy), mode="eval").body
    assert isinstance(call, ast.Call)
    again = type(policy)(**{word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg})
    assert again == policy


# A pair of ages has a comma in it.
@pytest.mark.parametrize(
    "policy",
    [
        ps.policies.Age(k=7),
        ps.policies.Age(k=2.5),
        ps.policies.Age(k=(3, 4)),
        ps.policies.Age(curve="trace"),
        ps.policies.Age(curve=(0.1, 0.5, 0.2)),
        ps.policies.Age(curve=((0.1, 0.5), (0.2, 0.0))),
        ps.policies.GreedyDualJoin(initial=0.25, method=2),
        ps.policies.GreedyDualJoin(initial="auto"),
        ps.policies.Clock(w0=3),
        ps.policies.ClockExp(w0=2, rho=1 / 3, threshold=1e-9),
    ],
    ids=repr,
)
def test_options_survive_spelling(policy: ps.policies.Policy) -> None:
    assert ps.policies.get(policy.spell()) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy


@every_spec
def test_spec_is_documented(spec: str) -> None:
    policy = ps.policies.get(spec)
    texts = (policy.name, policy.summary, policy.wins, policy.loses, policy.cost, policy.paper)
    for text in (*texts, type(policy).__doc__):
        assert text


@every_spec
def test_join_itself_survives_pickle(spec: str) -> None:
    assert pickle.loads(pickle.dumps(join(spec, "tick"))) == join(spec, "tick")


# Batches and snapshots.


@every_step
@every_policy
@settings(max_examples=12)
@given(seed=st.integers(0, 99), cuts=st.lists(st.floats(0, 1), max_size=6))
def test_batch_boundaries_change_nothing(spec: str, step: str, seed: int, cuts: list[float]) -> None:
    arrivals = feed(150, seed)
    options = {"seed": seed, "drop_rate": 0.2 if seed % 3 == 0 else 0.0, "warmup": seed % 5}
    whole = trajectory(join(spec, step, **options).start(), arrivals, [])
    parts = trajectory(join(spec, step, **options).start(), arrivals, spread(cuts, len(arrivals)))
    assert parts == whole


@every_step
@every_policy
@settings(max_examples=10)
@given(seed=st.integers(0, 99), at=st.floats(0, 1))
def test_a_restored_state_goes_on_as_the_original(spec: str, step: str, seed: int, at: float) -> None:
    arrivals = feed(120, seed)
    options = {"seed": seed, "drop_rate": 0.2 if seed % 3 == 0 else 0.0, "warmup": seed % 5}
    cut = int(at * len(arrivals))
    original = join(spec, step, **options).start()
    original.process(*arrivals.cut(0, cut))
    copy = ps.JoinState.restore(original.snapshot())
    copy.check()
    assert copy.totals() == original.totals()
    assert copy.buffered == original.buffered
    assert copy.peak_bytes == original.peak_bytes
    rest = Feed(*arrivals.cut(cut, len(arrivals)))
    assert trajectory(copy, rest, [len(rest) // 2]) == trajectory(original, rest, [])
    copy.check()


@every_policy
def test_a_snapshot_is_not_touched_by_what_comes_after(spec: str) -> None:
    arrivals = feed(100, 3)
    state = join(spec, "tick").start()
    state.process(*arrivals.cut(0, 50))
    data = state.snapshot()
    rest = Feed(*arrivals.cut(50, 100))
    first = trajectory(state, rest, [])
    assert trajectory(ps.JoinState.restore(data), rest, []) == first
    assert trajectory(ps.JoinState.restore(data), rest, []) == first


@pytest.mark.interpreted
@every_step
@every_policy
def test_snapshots_and_batches_small(spec: str, step: str) -> None:
    arrivals = feed(40, 1, keys=4)
    whole = trajectory(join(spec, step, ps.Tuples(6)).start(), arrivals, [])
    state = join(spec, step, ps.Tuples(6)).start()
    state.process(*arrivals.cut(0, 17))
    state = ps.JoinState.restore(state.snapshot())
    state.check()
    rest = Feed(*arrivals.cut(17, 40))
    _, _, totals = trajectory(state, rest, [5, 9])
    assert totals == whole[2]
    state.check()


# Budgets.


def stress(state: ps.JoinState, arrivals: Feed, batch: int) -> None:
    for start in range(0, len(arrivals), batch):
        state.process(*arrivals.cut(start, start + batch))
        state.check()
    state.finish()
    state.check()


@every_step
@every_policy
@pytest.mark.parametrize("allocation", ["equal", "unified"])
def test_tuples_never_exceed_the_budget(spec: str, step: str, allocation: str) -> None:
    if allocation == "unified" and not ps.policies.get(spec).unified:
        with pytest.raises(PenstockError, match="one pool"):
            join(spec, step, allocation=allocation)
        return
    state = join(spec, step, ps.Tuples(23), allocation=allocation).start()
    stress(state, feed(1_500, 5, keys=40), 7)
    totals = state.totals()
    assert totals["peak_tuples"] <= 23
    assert totals["arrivals"] == 1_500
    assert (
        totals["arrivals"] == totals["buffered"] + totals["expired"] + totals["evicted"] + totals["dropped"]
    )
    assert totals["evicted"] > 0
    assert totals["refused"] <= totals["evicted"]


@pytest.mark.interpreted
@every_step
@every_policy
def test_tuples_never_exceed_the_budget_small(spec: str, step: str) -> None:
    state = join(spec, step, ps.Tuples(5)).start()
    stress(state, feed(50, 5, keys=4), 3)
    assert state.totals()["peak_tuples"] <= 5


@every_step
@every_policy
def test_bytes_never_exceed_the_budget(spec: str, step: str) -> None:
    state = join(spec, step, ps.Bytes("64 KiB")).start()
    arrivals = feed(1_500, 6, keys=40, largest=3_000)
    for start in range(0, len(arrivals), 25):
        state.process(*arrivals.cut(start, start + 25))
        state.check()
        assert state.peak_bytes <= 64 * 1024
    state.finish()
    assert state.peak_bytes <= 64 * 1024
    totals = state.totals()
    assert totals["evicted"] > 0
    assert totals["arrivals"] == totals["buffered"] + totals["expired"] + totals["evicted"]


# Whole runs.


def tables(n: int, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    arrivals = feed(n, seed)
    return tuple(  # type: ignore[return-value]
        {
            "key": [None if row % 17 == 0 else key for row, key in enumerate(arrivals.key[mine].tolist())],
            "ts": arrivals.time[mine],
        }
        for mine in (arrivals.stream == 0, arrivals.stream == 1)
    )


def future(spec: str) -> list[str]:
    """The policy as it is, and as it is when it may look ahead."""
    return [spec, "age:k=tuple", "age:curve=trace"] if spec == "age" else [spec]


@every_step
@every_run
def test_same_input_same_output(spec: str, step: str) -> None:
    left, right = tables(400, 8)
    for policy in future(spec):
        first, second = (
            join(policy, step, drop_rate=0.1).run(left, right, on="key", time="ts", collect=True, log=True)
            for _ in range(2)
        )
        assert first.pairs.equals(second.pairs)
        assert first.events.equals(second.events)
        assert dataclasses.replace(first.stats, seconds=0.0) == dataclasses.replace(second.stats, seconds=0.0)


@every_step
@every_run
def test_unsorted_input_is_sorted(spec: str, step: str) -> None:
    """The rows of one time keep their order, so a shuffle of distinct times gives the same join."""
    random = np.random.default_rng(4)
    times = np.arange(0, 900, 3)
    left = {"key": random.integers(0, 9, 300), "ts": times, "row": np.arange(300)}
    right = {"key": random.integers(0, 9, 300), "ts": times, "row": np.arange(300)}
    order = [random.permutation(300) for _ in range(2)]
    mixed = [
        {name: values[o] for name, values in table.items()}
        for table, o in zip((left, right), order, strict=True)
    ]
    for policy in future(spec):
        sorted_run = join(policy, step).run(left, right, on="key", time="ts", collect=True, log=True)
        mixed_run = join(policy, step).run(*mixed, on="key", time="ts", collect=True, log=True)
        for side, o in zip(("left_row", "right_row"), order, strict=True):
            back = o[mixed_run.pairs.column(side).to_numpy()]
            assert back.tolist() == sorted_run.pairs.column(side).to_pylist()
        assert mixed_run.stats.evicted == sorted_run.stats.evicted > 0


@every_step
@every_run
def test_null_keys_are_counted_and_nothing_else(spec: str, step: str) -> None:
    left, right = tables(300, 9)
    kept = [
        {
            "key": [key for key in table["key"] if key is not None],
            "ts": [t for t, key in zip(table["ts"].tolist(), table["key"], strict=True) if key is not None],
        }
        for table in (left, right)
    ]
    for policy in future(spec):
        with_nulls = join(policy, step).run(left, right, on="key", time="ts").stats
        without = join(policy, step).run(*kept, on="key", time="ts").stats
        assert with_nulls.null_keys == tuple(t["key"].count(None) for t in (left, right))
        assert dataclasses.replace(
            with_nulls, seconds=0.0, null_keys=(0, 0), peak_bytes=0
        ) == dataclasses.replace(without, seconds=0.0, peak_bytes=0)


@every_step
@every_policy
def test_run_and_start_are_one_join(spec: str, step: str) -> None:
    """`run` may know more (rates, the trace); where it uses none of it, both do the same."""
    if spec.startswith("age"):
        pytest.skip("it takes the rates from the whole input")
    arrivals = feed(300, 10)
    _, _, totals = trajectory(join(spec, step, seed=3).start(), arrivals, [])
    mine = [np.flatnonzero(arrivals.stream == s) for s in (0, 1)]
    left, right = ({"key": arrivals.key[rows], "ts": arrivals.time[rows]} for rows in mine)
    stats = join(spec, step, seed=3).run(left, right, on="key", time="ts").stats
    assert {name: getattr(stats, name) for name in totals} == totals


@every_spec
def test_looking_ahead_needs_a_whole_run(spec: str) -> None:
    for policy in future(spec):
        if ps.policies.get(policy).needs_future:
            with pytest.raises(PenstockError, match="whole stream"):
                join(policy, "arrival").start()


@every_policy
def test_arrays_that_share_memory_share_it_after_a_snapshot(spec: str) -> None:
    """Two views of one array, say as integers and as floats, must not come back as two arrays."""
    state = join(spec, "arrival").start()
    state.process(*feed(60, 2).cut(0, 60))
    copy = ps.JoinState.restore(state.snapshot())
    if not state.config.policy.compiled:
        return
    before, after = (list(_arrays((s.store, s.policy))) for s in (state, copy))
    assert len(before) == len(after)
    for i in range(len(before)):
        for j in range(i):
            assert np.shares_memory(before[i], before[j]) == np.shares_memory(after[i], after[j]), (i, j)


def _arrays(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _arrays(part)
