"""Snapshots with a right checksum in which a value is another or missing: every error is a PenstockError."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.states import snapshot as snapshots
from tests.snapshots.operators import names, operators

VALUES = [None, -1, 0, 1.5, float("nan"), "x", b"", b"no table", (), [], {}, True, np.zeros(0), np.arange(3)]


def replaced(value: Any, rng: np.random.Generator, depth: int = 0) -> Any:
    """The same with something else in one place, or without one entry of a mapping."""
    if depth and rng.random() < 0.3:
        return VALUES[rng.integers(len(VALUES))]
    if isinstance(value, dict) and value:
        name = list(value)[rng.integers(len(value))]
        if rng.random() < 0.2:
            return {key: each for key, each in value.items() if key != name}
        return value | {name: replaced(value[name], rng, depth + 1)}
    if isinstance(value, tuple | list) and value:
        at = int(rng.integers(len(value)))
        parts = [replaced(each, rng, depth + 1) if n == at else each for n, each in enumerate(value)]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and dataclasses.fields(value):
        other = copy.copy(value)
        field = dataclasses.fields(value)[rng.integers(len(dataclasses.fields(value)))].name
        object.__setattr__(other, field, replaced(getattr(value, field), rng, depth + 1))
        return other
    return VALUES[rng.integers(len(VALUES))]


def try_values(name: str, cases: int) -> None:
    refused = 0
    for number, operator in enumerate(operators(name)):
        state = operator.fed()
        data = operator.store(state)
        for case in range(cases):
            rng = np.random.default_rng([number, case])
            content = operator.seal.load(data, snapshots._accepted)
            try:
                operator.again(state, operator.seal.dump(replaced(content, rng)))
            except PenstockError:
                refused += 1
    assert refused


@pytest.mark.parametrize("name", ["join lru", "many gdj", "query lru", "lookup lru", "pattern semantic"])
def test_altered_values(name: str) -> None:
    try_values(name, 60)


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in names() if not name.startswith("cache")])
def test_many_altered_values(name: str) -> None:
    try_values(name, 3_000)
