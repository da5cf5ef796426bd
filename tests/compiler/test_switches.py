"""Every operator with kernels that change their form between batches: nothing else changes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.states import snapshot as snapshots
from tests.compiler.forms import FORMS, in_form
from tests.snapshots.operators import Operator, operators

NAMES = (
    "join gdj",
    "many gdj",
    "cache gdj",
    "query gdj",
    "lookup lru",
    "pattern columnar",
    "pattern semantic",
)
MORE = (  # each compiles kernels of its own in two forms
    *(f"many {name}" for name in ("lru", "clock-exp")),
    *(f"cache {name}" for name in ("lru", "lfu", "clock", "heeb", "auto")),
    *(f"query {name}" for name in ("clock-exp", "auto")),
    *(f"lookup {name}" for name in ("gdj", "auto")),
    *(f"pattern {name}" for name in ps.patterns.STRATEGIES),
)
NESTED = ps.Pattern.parse("PATTERN SEQ(A a, !SEQ(B b, C c, b.x = c.x), C d, a.x = d.x) WITHIN 20")
CACHES: dict[str, Any] = {"budget": 4_000, "policy": "gdj"}  # so little that they evict
BATCHES = st.lists(st.tuples(st.sampled_from(FORMS), st.booleans()), min_size=2, max_size=5)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TIER", "compiled")


@pytest.mark.usefixtures("compiled", "hasty")
@pytest.mark.parametrize(
    "name", [*NAMES, *(pytest.param(name, marks=pytest.mark.soak) for name in MORE if name not in NAMES)]
)
@given(seed=st.integers(0, 10**6), batches=BATCHES)
@settings(max_examples=10)
def test_kernels_change_their_form_between_batches(
    name: str, seed: int, batches: list[tuple[str, bool]]
) -> None:
    """Before some batches the state is stored and restored."""
    for operator in variants(name):
        mixed = outcome(operator, seed, batches)
        assert mixed == outcome(operator, seed, [("bound", again) for _, again in batches])


def variants(name: str) -> list[Operator]:
    """Those of the operator, and of patterns one with a sub-query whose answers are cached."""
    made = operators(name)
    kind, _, strategy = name.partition(" ")
    if kind == "pattern":
        given = CACHES if strategy in ("object", "semantic") else {}
        made.append(dataclasses.replace(made[0], start=lambda: NESTED.start(strategy=strategy, **given)))
    return made


def outcome(operator: Operator, seed: int, batches: list[tuple[str, bool]]) -> Any:
    """All that comes out, and the state after the last batch."""
    rng, state, out = np.random.default_rng(seed), operator.start(), []
    for number, (form, again) in enumerate(batches):
        with in_form(form):
            if again:
                state = operator.again(state, operator.store(state))
            out.append(operator.feed(state, rng, number, collect=True))
    with in_form(form):
        stored = operator.seal.load(operator.store(state), snapshots._accepted)
        if hasattr(state, "finish"):
            out.append(state.finish())
    return plain((out, stored))


def plain(value: Any) -> Any:
    """A value that is equal to another only if every bit is; how long something took is left out."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, pa.Table):
        return str(value.schema), value.to_pylist()
    if isinstance(value, bytes) and value.startswith(snapshots.SEAL.magic):  # a snapshot in a snapshot
        return plain(snapshots.SEAL.load(value, snapshots._accepted))
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        if "counters" in value:  # of a query; the last are seconds
            value = value | {"counters": value["counters"][:-1]}
        return {name: plain(part) for name, part in value.items() if "seconds" not in str(name)}
    if isinstance(value, tuple | list | np.ndarray):
        return [plain(part) for part in value]
    return value
