"""Tables grow with the tuples: it changes no decision, and a budget in bytes holds as many as it can."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.arrays import table_bytes
from penstock.engine.store import P_BYTES, P_LIMIT, P_USED
from penstock.errors import BudgetError
from penstock.joins import growth
from tests.joins.agreement import online

KIB = 1024
SPECS = [*online(bytes_too=True), "gdj:method=2", "gdj:initial=auto", "clock-exp:rho=auto"]
GROWING = [spec for spec in SPECS if ps.policies.get(spec).grows]
Batch = tuple[np.ndarray, ...]


def arrivals(n: int, seed: int, largest: int, late: int = 0) -> Batch:
    """Streams, keys, times, rows and sizes; popular keys, some of whose chains get long."""
    random = np.random.default_rng(seed)
    time = np.arange(n) - random.integers(0, late + 1, n)
    key, size = random.zipf(1.4, n) % 60, random.integers(0, largest + 1, n)
    return random.integers(0, 2, n).astype(np.int8), key, time, np.arange(n), size


def outcome(state: Any, batch: Batch, cuts: list[int], again: bool = False) -> tuple[Any, ...]:
    """All that a state says of a batch in parts, with a restart after each part if wanted."""
    counts, pairs, log = [], [], []
    n = len(batch[0])
    for start, stop in pairwise([0, *cuts, n]):
        out = state.process(*(part[start:stop] for part in batch), collect=True, log=True)
        counts += out.counts.tolist()
        pairs += out.pairs.tolist()
        log += out.log[:, :3].tolist()
        state.check()
        if again:
            state = type(state).restore(state.snapshot())
            state.check()
    return counts, pairs, log, state.totals(), state.peak_bytes, state.store.pools[:, :4].tolist()


@pytest.mark.interpreted
@pytest.mark.parametrize("allocation", ["unified", "equal"])
@pytest.mark.parametrize("late", [None, 8])
@pytest.mark.parametrize("spec", GROWING)
def test_growth_changes_no_decision(
    spec: str, late: int | None, allocation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables that begin with room for 3 tuples a pool decide as those that have room for all at once."""
    if allocation == "unified" and not ps.policies.get(spec).unified:
        return
    batch = arrivals(500, 4, 0, late or 0)
    join = ps.WindowJoin(within=300, budget=ps.Tuples(90), policy=spec, allocation=allocation, seed=3)
    found = []
    for first in (3, 10**6):
        monkeypatch.setattr(growth, "FIRST", first)
        state = join.start(lateness=late)
        assert state.store.pools[:, P_LIMIT].max() == min(first, 90 // len(state.store.pools))
        found.append(outcome(state, batch, [250]))
        assert state.store.pools[:, P_LIMIT].sum() == 90
    assert found[0][:4] == found[1][:4]


@pytest.mark.interpreted
@pytest.mark.parametrize("spec", GROWING)
@settings(max_examples=4)
@given(seed=st.integers(0, 1_000), largest=st.sampled_from([0, 100, 3_000]), late=st.sampled_from([None, 8]))
def test_decisions_do_not_depend_on_batches_or_restarts(
    spec: str, seed: int, largest: int, late: int | None
) -> None:
    batch = arrivals(300, seed, largest, late or 0)
    join = ps.WindowJoin(within=250, budget=ps.Bytes(80 * KIB), policy=spec, seed=seed)
    try:
        whole = outcome(join.start(lateness=late, sketch_bytes=4_096), batch, [])
    except BudgetError:
        return
    cuts = sorted(np.random.default_rng(seed).integers(0, 300, 5).tolist())
    assert outcome(join.start(lateness=late, sketch_bytes=4_096), batch, cuts, again=True) == whole


@pytest.mark.parametrize("spec", GROWING)
def test_a_row_costs_what_is_reserved_for_it(spec: str) -> None:
    """However many tuples there are, tables are no larger than what their rows cost."""
    for allocation in ("unified", "equal"):
        if allocation == "unified" and not ps.policies.get(spec).unified:
            continue
        join = ps.WindowJoin(10, ps.Bytes("4 MiB"), policy=spec, allocation=allocation)
        config = join.start(rates=(1, 1)).config
        policies = config.policy.among() if config.policy.chooses else [config.policy]
        for room in [*range(2, 70), 683, 2_047, 2_731, 4_096, 5_000]:
            rooms = (room,) * len(config.capacities)
            for policy, cost in zip(policies, config.costs, strict=True):
                limit = cost.fixed + cost.per_tuple * sum(rooms)
                assert table_bytes(config.build(policy=policy, rooms=rooms)) <= limit, (policy.name, room)


def kept(spec: str, budget: int, size: int, hint: float | None, late: float | None) -> tuple[int, int]:
    """How many rows of a size a join keeps whose window never ends, and which candidate runs."""
    join = ps.WindowJoin(within=10**12, budget=ps.Bytes(budget), policy=spec)
    options = {} if hint is None else {"row_bytes": hint}
    state = join.start(lateness=late, **options)
    n = int(1.5 * budget / (size + 100)) + 50
    stream, key, time, row, _ = arrivals(n, 1, 0)
    state.process(stream, key, time, row, np.full(n, size))
    assert state.totals()["evicted"] > 0
    assert state.peak_bytes <= budget
    state.check()
    copy = type(state).restore(state.snapshot())
    assert copy.store.pools.tolist() == state.store.pools.tolist()
    running = 0 if state.follower is None else state.follower.race.running
    return state.buffered, running


@pytest.mark.parametrize("late", [None, 0])
@pytest.mark.parametrize("size", [50, 2_000, 100_000])
@pytest.mark.parametrize("spec", ["fifo", "gdj", "auto"])
def test_what_fits_is_kept(spec: str, size: int, late: float | None) -> None:
    """At least nine tenths of the rows that fit under the policy that runs, whatever `row_bytes` is."""
    budget = 4 << 20
    config = ps.WindowJoin(10, ps.Bytes(budget), policy=spec).start(lateness=late, row_bytes=size).config
    fitting = [sum(cost.pool_bytes) / (cost.per_tuple + size) for cost in config.costs]
    for hint in (None, 10, size, 100_000):
        found, running = kept(spec, budget, size, hint, late)
        assert found >= int(0.9 * fitting[running]), hint


@pytest.mark.parametrize("spec", ["fifo", "gdj"])
def test_rows_that_change_their_size(spec: str) -> None:
    """Large rows first leave all rows to small ones; the tables that small rows needed stay."""
    join = ps.WindowJoin(within=10**12, budget=ps.Bytes(1 << 20), policy=spec)
    stream, key, time, row, _ = arrivals(12_000, 1, 0)
    for sizes in ((2_000, 20), (20, 2_000)):
        state = join.start()
        state.process(stream, key, time, row, np.repeat(sizes, 6_000))
        state.check()
        assert state.peak_bytes <= 1 << 20
        resident = table_bytes(state.store, state.policy) + int(state.store.pools[:, P_USED].sum())
        assert 0.9 * (1 << 20) < resident <= 1 << 20


def test_a_row_larger_than_what_the_tables_leave_is_refused_and_counted() -> None:
    state = ps.WindowJoin(within=10**9, budget=ps.Bytes(64 * KIB), policy="fifo").start()
    large = int(state.store.pools[0, P_BYTES])
    state.process([0], [1], [0], [0], [large])
    state.process([0], [1], [1], [1], [large + 1])
    assert (state.buffered, state.totals()["oversize"]) == (1, 1)


def test_tables_are_there_as_they_fill() -> None:
    """Under a large budget, in tuples or in bytes, a few tuples take few bytes, in a snapshot too."""
    for budget in (ps.Tuples(2_000_000), ps.Bytes("1 GiB")):
        for spec in ("fifo", "gdj", "lru", "clock-exp"):
            state = ps.WindowJoin(within=10**9, budget=budget, policy=spec).start(lateness=0)
            stream, key, time, row, _ = arrivals(5_000, 1, 0)
            state.process(stream, key, time, row, np.full(5_000, 20))
            assert state.buffered == 5_000
            fixed = 2_000_000 * 16 if spec == "clock-exp" and budget.n == 2_000_000 else 0  # its logs
            assert state.table_bytes - fixed <= 5_000 * 1_200 + (1 << 20), spec
            assert len(state.snapshot()) <= 5_000 * 300 + (1 << 17), spec


def test_small_joins_of_auto_have_all_their_room() -> None:
    state = ps.WindowJoin(within=10**9, budget=ps.Bytes("1 MiB"), policy="auto").start()
    assert state.follower is not None
    assert state.follower.small
    for small in state.follower.small:
        assert sum(small.config.capacities) >= sum(growth.rooms_of(small.store))
        assert not small.config.costs


def test_a_machine_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that says what to do, not a crash."""
    state = ps.WindowJoin(within=10**9, budget=ps.Tuples(9_000), policy="fifo").start()

    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("penstock.joins.state.grow", fail)
    stream, key, time, row, _ = arrivals(5_000, 1, 0)
    with pytest.raises(BudgetError, match="no memory left to keep 9,000 tuples"):
        state.process(stream, key, time, row)


# What the process really takes.

MEASURED = """
import sys, threading, time
import numpy as np
import penstock as ps

budget, size, spec = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

def private():
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024

def batch(start, n):
    rows = np.arange(start, start + n)
    return rows % 2, rows * 7_919 % 20_000, rows, rows, np.full(n, size)

join = ps.WindowJoin(within=10**12, budget=ps.Bytes(budget), policy=spec)
warm = ps.WindowJoin(within=10**12, budget=ps.Bytes(1 << 20), policy=spec).start()
warm.process(*batch(0, 60_000))  # enough to compile the kernels, if they are not there yet
del warm
before, most, over = private(), 0, threading.Event()

def watch():
    global most
    while not over.is_set():
        most = max(most, private())
        time.sleep(0.002)

watcher = threading.Thread(target=watch)
watcher.start()
state = join.start()
# What a caller keeps of the buffered rows: as many bytes as the budget counts for them, and where they are.
payload = np.zeros((budget // size + 1, size), np.uint8)
place, free, high = np.zeros(budget // size * 4, np.int32), np.empty(0, np.int64), 1
step, start = 5_000, 0
while state.totals()["evicted"] < 2 * step:
    part = batch(start, step)
    gone = state.process(*part, log=True).log[:, 2]
    free = np.concatenate([free, place[gone[place[gone] > 0]]])
    rows = np.setdiff1d(part[3], gone)
    more = max(0, len(rows) - len(free))
    places = np.concatenate([free, np.arange(high, high + more)])[: len(rows)]
    free, high = free[len(rows):], high + more
    place[rows] = places
    payload[places] = 1
    start += step
most = max(most, private())
over.set()
watcher.join()
print(budget, most - before, state.peak_bytes)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
@pytest.mark.parametrize("spec", ["fifo", "gdj"])
@pytest.mark.parametrize("size", [50, 2_000])
@pytest.mark.parametrize("budget", [32 << 20, 256 << 20])
def test_the_process_takes_what_the_budget_says(budget: int, size: int, spec: str) -> None:
    """Its private memory grows by at most 1.2 times the budget, at every moment, and the batch."""
    command = [sys.executable, "-c", MEASURED, str(budget), str(size), spec]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    given_bytes, taken, peak = map(int, told.split())
    batch = 5_000 * 5 * 8
    assert peak <= given_bytes
    assert 0.8 * given_bytes <= taken <= 1.2 * given_bytes + 10 * batch


FEW_ROWS = """
import sys
import numpy as np
import penstock as ps

spec, rows = sys.argv[1], int(sys.argv[2])

def private():
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) * 1024

def batch(start, n):
    rows = np.arange(start, start + n)
    return rows % 2, rows * 7_919 % 1_000_003, rows, rows

def start(tuples):
    return ps.WindowJoin(within=10**12, budget=ps.Tuples(tuples), policy=spec).start(rates=(1, 1))

warm = start(5_000)
warm.warm()
warm.process(*batch(0, 9_000))  # the tables grow, too
before = private()
state = start(720_000)
for at in range(0, rows, 20_000):
    state.process(*batch(at, min(rows, 20_000)))
print(private() - before, state.buffered)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
@pytest.mark.parametrize("spec", ["fifo", "age", "learned", "auto"])
@pytest.mark.parametrize(("rows", "most"), [(1_000, 8 << 20), (240_000, 115_000_000)])
def test_memory_follows_the_rows_and_not_the_budget(spec: str, rows: int, most: int) -> None:
    """With a budget of 720,000 tuples; 115 MB are what Spark's state in memory takes for 240,000 rows."""
    command = [sys.executable, "-c", FEW_ROWS, spec, str(rows)]
    told = []
    for _ in range(4 if rows == 1_000 else 2):  # the first may compile, which takes memory, too
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        told.append(tuple(map(int, done.stdout.split())))
    assert {buffered for _, buffered in told} == {rows}
    # How many large pages a table reaches into depends on where it lies: that is up to 2 MB per table.
    taken = min(taken for taken, _ in told)
    assert taken <= most, f"{taken / 2**20:.1f} MiB"
