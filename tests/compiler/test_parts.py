"""Kernels as parts of kernels, and hooks whose implementations do not look at the policy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from pyspark import cloudpickle

from penstock.compiler.hook_calls import hook
from penstock.compiler.jit import jit
from penstock.compiler.references import borrow
from penstock.engine.hooks import score
from penstock.models.kernels import benefit
from penstock.structures import key_counts

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TIER", "compiled")


class One(NamedTuple):
    values: np.ndarray


class Two(NamedTuple):
    values: np.ndarray


class Three(NamedTuple):
    values: np.ndarray


@hook
def told(policy: Any, number: int) -> int:
    """The default: nothing."""
    return 0


@told.on(One)
def _told_one(policy: Any, number: int) -> int:
    return number + 1


@told.on(Two)
def _told_two(policy: Any, number: int) -> int:
    return number + len(policy.values)


@jit
def _halved(number: int) -> int:
    if number < 0:
        raise ValueError("negative")
    return number // 2


@jit
def _threefold(number: int) -> int:
    return 3 * number


@jit
def _sixfold(number: int) -> int:
    return 2 * _threefold(number)


@jit
def both(first: Any, second: Any, number: int) -> Any:
    first, second = borrow(first), borrow(second)
    return told(first, number), told(second, number), _halved(number)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(One, Two, (9, 13, 4)), (One, Three, (9, 0, 4)), (Three, One, (0, 9, 4)), (Two, Two, (13, 13, 4))],
)
def test_each_state_has_its_own_implementation(first: type, second: type, expected: tuple[int, ...]) -> None:
    """Those that do not read the policy have one signature, and are told apart nevertheless."""
    values = np.zeros(5)
    assert both(first(values), second(values), 8) == expected
    assert both.py_func(first(values), second(values), 8) == expected


def test_a_part_is_no_machine_code_until_python_calls_it() -> None:
    for kernel in (_sixfold, _threefold):
        kernel._cache.disable()  # from which the whole would come without its parts
    assert _sixfold(4) == 24
    assert _threefold.part.overloads
    assert not _threefold.overloads
    assert _threefold(4) == 12
    assert _threefold.overloads


COUNTS = key_counts.new_counts()
ROW = np.zeros(8)


@pytest.mark.parametrize(
    ("kernel", "given"),
    [
        (key_counts._refill, (COUNTS, COUNTS)),
        (benefit._sum_walk, (ROW, 0, ROW, 0, ROW, np.zeros(64))),
    ],
)
def test_no_kernel_brings_numbas_text_functions_along(kernel: Any, given: tuple[Any, ...]) -> None:
    """One array assigned to a part of another does, for a message on shapes: 2 s of compiling."""
    anew = jit(kernel.py_func)
    anew._cache.disable()
    anew(*given)
    assert "unicode" not in "".join(anew.inspect_llvm().values())


def test_an_error_in_a_part_reaches_python() -> None:
    with pytest.raises(ValueError, match="negative"):
        both(One(np.zeros(1)), One(np.zeros(1)), -1)


def test_what_hooks_do_is_interpreted_alike() -> None:
    assert [told(kind(np.zeros(3)), 4) for kind in (One, Two, Three)] == [5, 7, 0]


def test_kernels_and_hooks_can_be_pickled() -> None:
    """As part of what a Spark program sends to its workers."""
    assert cloudpickle.loads(cloudpickle.dumps(score)) is score
    assert cloudpickle.loads(cloudpickle.dumps(_sixfold))(5) == 30


POLICY = """
import sys
import penstock as ps

ps.WindowJoin(within=9, budget=ps.Tuples(4), policy=sys.argv[1]).start().warm()
"""


def test_another_policy_in_another_process_adds_its_own_functions_only(tmp_path: Path) -> None:
    given = os.environ | {"PYTHONPATH": str(SOURCE), "PENSTOCK_CACHE_DIR": str(tmp_path)}
    given["PENSTOCK_TIER"] = "compiled"

    def added(policy: str) -> set[str]:
        before = set(tmp_path.iterdir())
        subprocess.run([sys.executable, "-c", POLICY, policy], env=given, capture_output=True, check=True)
        return {path.name.rpartition("-")[0] for path in set(tmp_path.iterdir()) - before}

    first = added("fifo")
    assert "penstock.engine.join_loop.drive" in first
    assert "penstock.engine.store.find_key.part" in first
    second = added("rand")
    own = ("penstock.policies.rand.", "penstock.engine.hooks.", "penstock.structures.random.")
    assert second - first
    assert all(name.startswith(own) for name in second - {"penstock.compiler.binding.bind_at"}), second
    assert added("fifo") == set()
