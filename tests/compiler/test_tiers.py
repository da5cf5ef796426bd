"""Interpreted and compiled kernels: the same results, whenever one takes over from the other."""

from __future__ import annotations

import ast
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.compiler.interpreter import interpret, interpreted
from penstock.compiler.jit import jit
from penstock.compiler.tiers import FEW, expecting
from penstock.joins.state import JoinState
from penstock.structures.age_curves import best_age
from tests.compiler.forms import FORMS, in_form

SOURCE = Path(__file__).parents[2] / "src"
PART = 40  # arrivals between two changes of tier

# What a new process runs: `n` arrivals under a policy, then how many kernels were compiled in it.
JOIN = """
import numpy as np, penstock as ps
from penstock.engine.join_loop import drive
n = {n}
stream = dict(k=np.arange(n // 2) * 7 % 50, ts=np.arange(n // 2))
join = ps.WindowJoin(within=100, budget=ps.Tuples(60), policy={policy!r})
run = join.run(stream, stream, on="k", time="ts")
print(run.stats.results, len(drive.late.overloads), len(drive.overloads))
"""


def run(code: str, cache: Path, **environment: str) -> list[str]:
    """The words that a new process with a cache of its own prints."""
    given = {name: value for name, value in os.environ.items() if name != "PENSTOCK_TIER"}
    given |= {"PYTHONPATH": str(SOURCE), "PENSTOCK_CACHE_DIR": str(cache)} | environment
    done = subprocess.run(
        [sys.executable, "-c", code], env=given, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TIER", "compiled")


def arrivals(seed: int, n: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    stream = rng.integers(0, 2, n).astype(np.int8)
    key = np.minimum(rng.geometric(0.15, n), 12)
    return stream, key, np.sort(rng.integers(0, n, n)), np.arange(n)


def in_parts(state: JoinState, forms: list[str], batch: tuple[np.ndarray, ...]) -> tuple[Any, Any]:
    """Pairs and events of a join that runs part by part, with its kernels in these forms."""
    parts = []
    for i, form in enumerate(forms):
        part = [array[i * PART : (i + 1) * PART] for array in batch]
        with in_form(form):
            parts.append(state.process(*part, collect=True, log=True))
    parts.append(state.finish(collect=True, log=True))
    return np.concatenate([each.pairs for each in parts]), np.concatenate([each.log for each in parts])


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("policy", ["fifo", "gdj", "gdj:method=2", "clock-exp", "learned", "rand"])
@given(st.integers(0, 10**6), st.lists(st.sampled_from(FORMS), min_size=2, max_size=8))
@settings(max_examples=20)
def test_tiers_change_in_mid_stream(policy: str, seed: int, forms: list[str]) -> None:
    batch = arrivals(seed, PART * len(forms))
    join = ps.WindowJoin(within=60, budget=ps.Tuples(20), policy=policy)
    pairs, log = in_parts(join.start(), ["interpreted"] * len(forms), batch)
    mixed_pairs, mixed_log = in_parts(join.start(), forms, batch)
    assert mixed_pairs.tolist() == pairs.tolist()
    assert mixed_log.tolist() == log.tolist()


@pytest.mark.usefixtures("compiled")
@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_snapshots_are_the_same(seed: int) -> None:
    """To the last bit of every score."""
    batch = arrivals(seed, 200)
    join = ps.WindowJoin(within=60, budget=ps.Tuples(20), policy="gdj")
    stored = []
    for form in FORMS:
        state = join.start()
        in_parts(state, [form] * 5, batch)
        stored.append([np.asarray(array).tobytes() for array in (*state.store, *_arrays(state.policy))])
    assert stored[0] == stored[1] == stored[2]


def _arrays(parts: Any) -> list[np.ndarray]:
    if isinstance(parts, tuple):
        return [array for part in parts for array in _arrays(part)]
    return [np.asarray(parts)]


@pytest.mark.parametrize("policy", ["fifo", "gdj", "auto"])
def test_little_work_compiles_nothing(tmp_path: Path, policy: str) -> None:
    found, kernels, _ = run(JOIN.format(n=400, policy=policy), tmp_path)
    assert kernels == "0"
    assert not list(tmp_path.iterdir())
    assert int(found) > 0


def test_much_work_is_compiled_at_once(tmp_path: Path) -> None:
    found, *kernels = run(JOIN.format(n=FEW + 2, policy="fifo"), tmp_path)
    assert kernels == ["1", "0"]  # for any policy, and with this one inside
    assert any(path.name.startswith("penstock.engine.join_loop.drive-") for path in tmp_path.iterdir())
    again, *_ = run(JOIN.format(n=FEW + 2, policy="fifo"), tmp_path, PENSTOCK_TIER="interpreted")
    assert again == found


def test_what_is_on_disk_is_used_for_little_work_too(tmp_path: Path) -> None:
    run(JOIN.format(n=400, policy="fifo"), tmp_path, PENSTOCK_TIER="compiled")
    assert run(JOIN.format(n=400, policy="fifo"), tmp_path)[1] == "1"


def test_another_process_compiles_meanwhile(tmp_path: Path) -> None:
    """Small batches go on and on: compiled code comes in without a batch that waits for it."""
    code = """
import time
import numpy as np, penstock as ps
from penstock.engine.join_loop import drive
from penstock.compiler import background, tiers
tiers.PATIENCE = tiers.SOON = 0.0
tiers.MOST = tiers.FEW = background.LONGEST = 1e9  # on a busy machine the other process takes its time
state = ps.WindowJoin(within=100, budget=ps.Tuples(60), policy="fifo").start()
began, at, longest = time.monotonic(), 0, 0.0
while not drive.late.overloads and time.monotonic() - began < 240:
    rows = np.arange(at, at + 20)
    before = time.thread_time()
    state.process(rows % 2, rows % 7, rows, rows)
    longest = max(longest, time.thread_time() - before)
    at += 20
    time.sleep(0.02)
compiled = sum(drive.late.stats.cache_misses.values())
print(len(drive.late.overloads), compiled, longest < 1.0)
"""
    assert run(code, tmp_path) == ["1", "0", "True"]


def test_the_compiling_process_ends_with_the_one_that_asked(tmp_path: Path) -> None:
    code = """
from penstock.compiler import background
from penstock.engine.join_loop import drive
import numpy as np, penstock as ps
from penstock.compiler.tiers import ahead
with ahead():
    ps.WindowJoin(within=100, budget=ps.Tuples(60), policy="gdj").start().warm()
print(background._process.pid)
"""
    _await_end(int(run(code, tmp_path)[0]))


def test_the_compiling_process_does_not_wait_for_forks(tmp_path: Path) -> None:
    """It ends with the process that asked, however that ended, while a fork of that one lives on."""
    code = """
import os, signal, sys
import penstock as ps
from penstock.compiler import background
from penstock.compiler.tiers import ahead
with ahead():
    ps.WindowJoin(within=100, budget=ps.Tuples(60), policy="gdj").start().warm()
compiling = background._process.pid
if os.fork():
    os.kill(os.getpid(), signal.SIGKILL)
print(compiling, background._process, flush=True)
sys.stdin.read()
"""
    given = {name: value for name, value in os.environ.items() if name != "PENSTOCK_TIER"}
    given |= {"PYTHONPATH": str(SOURCE), "PENSTOCK_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as asked:
        assert asked.stdout is not None
        pid, known = asked.stdout.readline().split()
        assert known == "None"
        _await_end(int(pid))
        assert asked.wait(20) == -signal.SIGKILL


def _await_end(pid: int) -> None:
    deadline = time.monotonic() + 20
    while b"penstock" in _command(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert b"penstock" not in _command(pid)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.usefixtures("compiled")
def test_division_by_zero_and_overflow_are_as_compiled() -> None:
    curve = np.array([0.0, 0.0, 0.0])
    assert interpreted(best_age)(curve, 2.0) == best_age(curve, 2.0)
    biggest = np.array([2**63 - 1], np.int64)

    with np.errstate(over="raise"):
        from penstock.engine.triple_index import mixed

        assert interpret(mixed, (biggest[0], 3)) == mixed(biggest[0], 3)


@pytest.mark.usefixtures("compiled")
def test_functions_beyond_their_domain_are_as_compiled() -> None:
    for number in (800.0, 0.0, -1.0, -2.0, np.inf, -np.inf, np.nan):
        assert np.array_equal(interpret(outcomes, (number,)), outcomes(number), equal_nan=True), number


@jit
def outcomes(number):  # type: ignore[no-untyped-def]
    """All of `math` that kernels use and that has no value somewhere."""
    return math.exp(number), math.log(number), math.log1p(number), math.sqrt(number)


def test_scores_are_computed_by_what_rounds_alike() -> None:
    """NumPy's functions differ from Numba's in the last bit; sums over arrays do too; not checked."""
    apart = re.compile(r"np\.(exp|log|log1p|log2|power|sqrt|mean|dot|prod|cumsum)\b")
    for path in (SOURCE / "penstock").rglob("*.py"):
        for name in _kernels_in(ast.parse(path.read_text())):
            assert not apart.search(ast.unparse(name)), f"{path.name}: {name.name}"


def _kernels_in(tree: ast.Module) -> list[ast.FunctionDef]:
    """Functions that are compiled: those with a decorator of ours, a hook's included."""
    return [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(
            ast.unparse(each) in ("jit", "driver", "hook") or ".on(" in ast.unparse(each)
            for each in node.decorator_list
        )
    ]


def test_a_tier_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TIER", "compild")
    with pytest.raises(ValueError, match="'compild'; allowed: interpreted, compiled"):
        outcomes(np.float32(1))


def test_expectations_nest() -> None:
    from penstock.compiler.tiers import _work

    with expecting(10):
        inner = _work.get()
        assert inner is not None
        with expecting(5):
            assert _work.get() is inner
        with expecting(5, apart=True):
            assert _work.get().items == 5  # type: ignore[union-attr]
        with expecting(50):
            assert _work.get().items == 50  # type: ignore[union-attr]
    assert _work.get() is None
