"""What holds for every policy of the registry, built in or not: found there and tried one by one."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import PenstockError
from penstock.testing import Feed, random_feed, random_streams, trajectory
from penstock.testing.join_checks import (
    RUN_CHECKS,
    STEPS,
    check_batches,
    check_budget,
    check_bytes,
    check_shared_arrays,
    check_snapshot,
    check_snapshot_is_a_copy,
    check_tiers,
)
from penstock.testing.join_checks import make_join as join
from penstock.testing.many_checks import check_many
from penstock.testing.spec_checks import SPEC_CHECKS
from tests.joins.agreement import online


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
every_many = pytest.mark.parametrize("spec", [name for name in online() if ps.policies.get(name).many])
every_compiled = pytest.mark.parametrize(
    "spec", [spec for spec in specs(online()) if ps.policies.get(spec).compiled]
)
every_step = pytest.mark.parametrize("step", STEPS)


@pytest.fixture(autouse=True)
def only_steps_that_it_has(request: pytest.FixtureRequest) -> None:
    """Not every policy runs in ticks."""
    given = getattr(request.node, "callspec", None)
    given = given.params if given else {}
    if given.get("step") == "tick" and not ps.policies.get(given["spec"]).ticks:
        pytest.skip("it does not run in ticks")


# Specs.


@pytest.mark.parametrize("check", SPEC_CHECKS, ids=lambda check: check.__name__)
@every_spec
def test_spec(spec: str, check: Callable[[ps.policies.Policy], None]) -> None:
    check(ps.policies.get(spec))


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
def test_built_in_policies_say_when_they_win(spec: str) -> None:
    policy = ps.policies.get(spec)
    assert ps.policies.get(policy) is policy
    assert all((policy.wins, policy.loses, policy.cost))


@every_spec
def test_join_itself_survives_pickle(spec: str) -> None:
    step = STEPS[ps.policies.get(spec).ticks]
    assert pickle.loads(pickle.dumps(join(spec, step))) == join(spec, step)


# Batches and snapshots.


@every_step
@every_policy
@settings(max_examples=12)
@given(seed=st.integers(0, 99), cuts=st.lists(st.floats(0, 1), max_size=6))
def test_batch_boundaries_change_nothing(spec: str, step: str, seed: int, cuts: list[float]) -> None:
    check_batches(ps.policies.get(spec), step, seed, cuts)


@every_step
@every_policy
@settings(max_examples=10)
@given(seed=st.integers(0, 99), at=st.floats(0, 1))
def test_a_restored_state_goes_on_as_the_original(spec: str, step: str, seed: int, at: float) -> None:
    check_snapshot(ps.policies.get(spec), step, seed, at)


@every_policy
def test_a_snapshot_is_not_touched_by_what_comes_after(spec: str) -> None:
    policy = ps.policies.get(spec)
    check_snapshot_is_a_copy(policy, STEPS[policy.ticks])


@pytest.mark.interpreted
@every_step
@every_policy
def test_snapshots_and_batches_small(spec: str, step: str) -> None:
    arrivals = random_feed(40, 1, keys=4)
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


@every_step
@every_policy
@pytest.mark.parametrize("allocation", ["equal", "unified"])
def test_tuples_never_exceed_the_budget(spec: str, step: str, allocation: str) -> None:
    check_budget(ps.policies.get(spec), step, allocation, feed=random_feed(1_500, 5, keys=40))


@pytest.mark.interpreted
@every_step
@every_policy
def test_tuples_never_exceed_the_budget_small(spec: str, step: str) -> None:
    policy = ps.policies.get(spec)
    allocation = policy.default_allocation(rates_known=False)
    check_budget(policy, step, allocation, tuples=5, feed=random_feed(50, 5, keys=4), batch=3)


@every_step
@every_policy
def test_bytes_never_exceed_the_budget(spec: str, step: str) -> None:
    check_bytes(ps.policies.get(spec), step, rows=1_500)


# Whole runs.


def future(spec: str) -> list[str]:
    """The policy as it is, and as it is when it may look ahead."""
    return [spec, "age:k=tuple", "age:curve=trace"] if spec == "age" else [spec]


@every_step
@every_run
@pytest.mark.parametrize("check", RUN_CHECKS, ids=lambda check: check.__name__)
def test_run(spec: str, step: str, check: Callable[..., None]) -> None:
    for policy in future(spec):
        check(ps.policies.get(policy), step)


@every_many
@pytest.mark.parametrize("allocation", ["equal", "unified"])
def test_join_of_many_streams(spec: str, allocation: str) -> None:
    check_many(ps.policies.get(spec), allocation)


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
    left, right = random_streams(300, 9)
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
    arrivals = random_feed(300, 10)
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


@every_compiled
def test_arrays_that_share_memory_share_it_after_a_snapshot(spec: str) -> None:
    check_shared_arrays(ps.policies.get(spec))


@every_step
@every_compiled
def test_interpreted_and_compiled_hooks_agree(spec: str, step: str) -> None:
    check_tiers(ps.policies.get(spec), step)
