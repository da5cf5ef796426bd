"""What holds for every policy in the window join of two streams.

The checks that take a state batch by batch are for policies that can start without the whole input; those
that call `run` are for all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock.budget import Bytes, Tuples
from penstock.compiler.tiers import only
from penstock.errors import PenstockError
from penstock.joins import JoinRun, JoinState, WindowJoin
from penstock.policies import Policy
from penstock.testing.expectation import expect
from penstock.testing.sources import Feed, random_feed, random_streams

WITHIN = 25
STEPS = ("arrival", "tick")
TESTED_BYTES = 64 << 10

Trajectory = tuple[list[list[int]], list[list[int]], dict[str, int]]


def make_join(policy: Policy | str, step: str = "arrival", budget: Any = None, **options: Any) -> WindowJoin:
    """The join that the checks run: a window of 25 and by default memory for 10 tuples."""
    return WindowJoin(within=WITHIN, budget=budget or Tuples(10), policy=policy, step=step, **options)


def trajectory(state: JoinState, feed: Feed, cuts: Sequence[int] = ()) -> Trajectory:
    """Pairs, log and totals when the arrivals come in batches that end at the cuts.

    >>> import penstock as ps
    >>> from penstock.testing import random_feed, trajectory
    >>> join = ps.WindowJoin(within=25, budget=ps.Tuples(10), policy="lru")
    >>> feed = random_feed(60, seed=1)
    >>> trajectory(join.start(), feed) == trajectory(join.start(), feed, cuts=[11, 40])
    True
    """
    outputs = [
        state.process(*feed.cut(start, stop), collect=True, log=True)
        for start, stop in zip([0, *cuts], [*cuts, len(feed)], strict=True)
    ]
    outputs.append(state.finish(collect=True, log=True))
    pairs = [pair for out in outputs for pair in out.pairs.tolist()]
    log = [entry for out in outputs for entry in out.log.tolist()]
    return pairs, log, state.totals()


def _expect_same(found: Trajectory, expected: Trajectory, after: str) -> None:
    """The same results, the same fate of every tuple, the same counters."""
    for what, mine, other in zip(
        ("results", "evictions and expiries", "totals"), found, expected, strict=True
    ):
        expect(mine == other, f"{after} changes the {what}: {_difference(mine, other)}")


def _difference(mine: Any, other: Any) -> str:
    """The first place at which two lists or dicts differ."""
    if isinstance(mine, dict):
        return ", ".join(
            f"{key} {mine[key]} instead of {other[key]}" for key in mine if mine[key] != other[key]
        )
    at = next((i for i, both in enumerate(zip(mine, other, strict=False)) if both[0] != both[1]), None)
    if at is None:
        return f"there are {len(mine)} instead of {len(other)}"
    return f"number {at} is {mine[at]} instead of {other[at]}"


def _options(seed: int) -> dict[str, Any]:
    return {"seed": seed, "drop_rate": 0.2 if seed % 3 == 0 else 0.0, "warmup": seed % 5}


def check_deterministic(policy: Policy, step: str = "arrival", seed: int = 8) -> None:
    """The same input and the same seed give the same results, and the same fate of every tuple."""
    left, right = random_streams(400, seed)
    join = make_join(policy, step, drop_rate=0.1)
    first, second = (join.run(left, right, on="key", time="ts", collect=True, log=True) for _ in range(2))
    message = "two runs over the same input with the same seed differ in their"
    expect(_pairs(first) == _pairs(second), f"{message} results")
    expect(_events(first) == _events(second), f"{message} evictions and expiries")
    stats = [dataclasses.replace(run.stats, seconds=0.0) for run in (first, second)]
    expect(stats[0] == stats[1], f"{message} counters")


def check_exact(policy: Policy, step: str = "arrival", seed: int = 4) -> None:
    """With a budget that nothing exceeds, the results are those of the exact join, and nothing is evicted."""
    left, right = random_streams(300, seed)
    run = make_join(policy, step, Tuples(1_000)).run(left, right, on="key", time="ts", collect=True)
    expect(run.stats.evicted == 0, f"{run.stats.evicted} tuples are evicted although there is room for all")
    exact = {
        (i, j)
        for i, (key, time) in enumerate(zip(left["key"], left["ts"].tolist(), strict=True))
        for j, (other, at) in enumerate(zip(right["key"], right["ts"].tolist(), strict=True))
        if key is not None and key == other and abs(time - at) <= WITHIN
    }
    found = _pairs(run)
    expect(
        len(found) == len(set(found)) and set(found) == exact,
        f"there are {len(found)} results although the exact join has {len(exact)} and memory was enough",
    )


def check_run_accounts(policy: Policy, step: str = "arrival", seed: int = 9) -> None:
    """Every arrival of a run is buffered, expired, evicted or dropped; results are true and within memory."""
    left, right = random_streams(400, seed)
    stats = make_join(policy, step, drop_rate=0.1).run(left, right, on="key", time="ts").stats
    _expect_accounts({name: getattr(stats, name) for name in ACCOUNTS})
    exact = stats.exact or 0
    expect(stats.results <= exact, f"{stats.results} results, but the exact join has {exact}")
    expect(stats.peak_tuples <= 10, f"up to {stats.peak_tuples} tuples are buffered under a budget of 10")


ACCOUNTS = ("arrivals", "buffered", "expired", "evicted", "dropped")


def _expect_accounts(totals: dict[str, int]) -> None:
    arrivals, *fates = (totals[name] for name in ACCOUNTS)
    sums = " + ".join(f"{totals[name]} {name}" for name in ACCOUNTS[1:])
    expect(arrivals == sum(fates), f"{arrivals} arrivals are not {sums}")


def check_batches(
    policy: Policy, step: str = "arrival", seed: int = 0, cuts: Sequence[float] = (0.1, 0.1, 0.7)
) -> None:
    """Batch boundaries, given as shares of the input, change nothing."""
    feed = random_feed(150, seed)
    join = make_join(policy, step, **_options(seed))
    whole = trajectory(join.start(), feed)
    places = sorted(int(cut * len(feed)) for cut in cuts)
    _expect_same(trajectory(join.start(), feed, places), whole, f"cutting the input into batches at {places}")


def check_snapshot(policy: Policy, step: str = "arrival", seed: int = 0, at: float = 0.4) -> None:
    """A state that is restored in mid-stream continues exactly as the original."""
    feed = random_feed(120, seed)
    cut = int(at * len(feed))
    original = make_join(policy, step, **_options(seed)).start()
    original.process(*feed.cut(0, cut))
    copy = JoinState.restore(original.snapshot())
    copy.check()
    for what in ("totals", "buffered", "peak_bytes"):
        mine, other = (getattr(state, what) for state in (copy, original))
        mine, other = (value() if callable(value) else value for value in (mine, other))
        expect(mine == other, f"a restored state has {what} {mine}, the original {other}")
    rest = feed.after(cut)
    expected = trajectory(original, rest)
    _expect_same(trajectory(copy, rest, [len(rest) // 2]), expected, f"a snapshot after {cut} arrivals")
    copy.check()


def check_snapshot_is_a_copy(policy: Policy, step: str = "tick", seed: int = 3) -> None:
    """What comes after a snapshot does not change it."""
    feed = random_feed(100, seed)
    state = make_join(policy, step).start()
    state.process(*feed.cut(0, 50))
    data, rest = state.snapshot(), feed.after(50)
    expected = trajectory(state, rest)
    for _ in range(2):
        _expect_same(trajectory(JoinState.restore(data), rest), expected, "restoring a snapshot again")


def check_shared_arrays(policy: Policy, step: str = "arrival", seed: int = 2) -> None:
    """Two views of one array, as integers and as floats, do not come back from a snapshot as two arrays."""
    state = make_join(policy, step).start()
    state.process(*random_feed(60, seed).cut(0, 60))
    copy = JoinState.restore(state.snapshot())
    before, after = (list(_arrays((each.store, each.policy))) for each in (state, copy))
    expect(len(before) == len(after), "a restored state has another number of arrays")
    for i in range(len(before)):
        for j in range(i):
            shared = np.shares_memory(before[i], before[j])
            expect(shared == np.shares_memory(after[i], after[j]), "arrays no longer share their memory")


def check_budget(
    policy: Policy,
    step: str = "arrival",
    allocation: str = "equal",
    tuples: int = 23,
    feed: Feed | None = None,
    batch: int = 7,
) -> None:
    """Memory never holds more tuples than the budget, and the accounts and all invariants hold throughout."""
    if allocation == "unified" and not policy.unified:
        _expect_no_pool(policy, step)
        return
    feed = random_feed(600, 5, keys=40) if feed is None else feed
    state = make_join(policy, step, Tuples(tuples), allocation=allocation).start()
    _stress(state, feed, batch)
    totals = state.totals()
    peak = totals["peak_tuples"]
    expect(peak <= tuples, f"up to {peak} tuples are buffered under a budget of {tuples}")
    expect(totals["arrivals"] == len(feed), f"{totals['arrivals']} of {len(feed)} arrivals are counted")
    expect(totals["evicted"] > 0, "nothing is evicted although more arrives than the budget holds")
    expect(totals["refused"] <= totals["evicted"], "more arrivals are refused than evicted in all")


def _expect_no_pool(policy: Policy, step: str) -> None:
    try:
        make_join(policy, step, allocation="unified")
    except PenstockError as error:
        expect("one pool" in str(error), f"a unified allocation is refused for another reason: {error}")
        return
    expect(False, "a unified allocation is accepted although the policy cannot manage one pool")


def _stress(state: JoinState, feed: Feed, batch: int) -> None:
    for start in range(0, len(feed), batch):
        state.process(*feed.cut(start, start + batch))
        state.check()
        totals = state.totals()
        _expect_accounts(totals)
        expect(totals["buffered"] == state.buffered, "the number of buffered tuples is reported in two ways")
    state.finish()
    state.check()
    _expect_accounts(state.totals())


def check_bytes(policy: Policy, step: str = "arrival", limit: int = TESTED_BYTES, rows: int = 600) -> None:
    """Tables, scores, counts and payload together never exceed a budget in bytes."""
    feed = random_feed(rows, 6, keys=40, largest=8_000)  # several times what fits
    state = make_join(policy, step, Bytes(limit)).start()
    for start in range(0, len(feed), 25):
        state.process(*feed.cut(start, start + 25))
        state.check()
        expect(state.peak_bytes <= limit, f"{state.peak_bytes} bytes are in use under a budget of {limit}")
    state.finish()
    expect(state.peak_bytes <= limit, f"{state.peak_bytes} bytes are in use under a budget of {limit}")
    expect(state.totals()["evicted"] > 0, "nothing is evicted although more arrives than the budget holds")
    _expect_accounts(state.totals())


def check_tiers(policy: Policy, step: str = "arrival", seed: int = 1) -> None:
    """Compiled hooks do what they do when they are interpreted as plain Python, to the last bit."""
    feed = random_feed(150, seed)
    join = make_join(policy, step, seed=seed)
    plain = join.start().interpret()
    expected = trajectory(plain, feed)
    with only("compiled"):
        compiled = join.start()
        _expect_same(trajectory(compiled, feed), expected, "compiling the policy")
    both = (list(_arrays((state.store, state.policy))) for state in (compiled, plain))
    for mine, other in zip(*both, strict=True):
        same = mine.tobytes() == other.tobytes()
        expect(same, "compiling the policy changes the arrays of its state, though not yet the results")


def _arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _arrays(part)


def _pairs(run: JoinRun) -> list[tuple[int, int]]:
    assert run.pairs is not None
    left, right = (run.pairs.column(name).to_pylist() for name in ("left_row", "right_row"))
    return list(zip(left, right, strict=True))


def _events(run: JoinRun) -> list[Any]:
    assert run.events is not None
    return list(run.events.to_pylist())


RUN_CHECKS = (check_deterministic, check_run_accounts, check_exact)
STATE_CHECKS = (check_batches, check_snapshot, check_snapshot_is_a_copy)
