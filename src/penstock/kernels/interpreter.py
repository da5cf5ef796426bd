"""Kernels as plain Python: the twin of a kernel calls the twins of all kernels and hooks that it calls.

A twin computes what the compiled code computes, to the last bit, provided that kernels keep to `math` and to
loops over scalars where they compute scores: NumPy's `exp`, `log`, `power` and its sums over arrays round
otherwise than Numba's.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

_OURS = ("penstock.kernels.", "penstock.policies.")
_twins: dict[Callable[..., Any], Callable[..., Any]] = {}


def interpret(kernel: Any, arguments: tuple[Any, ...]) -> Any:
    """What a kernel gives, without compiling it. Integers wrap around; division by zero gives infinities."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return interpreted(kernel)(*arguments)


def interpreted(kernel: Any) -> Callable[..., Any]:
    """The plain-Python twin of a kernel, of a hook, or of a function that kernels call."""
    function = kernel.py_func if isinstance(kernel, Dispatcher) else kernel
    twin = _twins.get(function)
    if twin is None:
        table = getattr(function, "implementations", None)
        twin = _twins[function] = _twin_of_hook(table) if table is not None else _twin_of_function(function)
    return twin


def _twin_of_hook(implementations: Any) -> Callable[..., Any]:
    """A hook: what it does depends on the class of its first argument."""
    known: dict[type, Callable[..., Any]] = {}

    def twin(state: Any, *arguments: Any) -> Any:
        chosen = known.get(type(state))
        if chosen is None:
            chosen = known[type(state)] = interpreted(implementations.of(type(state)))
        return chosen(state, *arguments)

    return twin


def _twin_of_function(function: Any) -> Callable[..., Any]:
    names = dict(function.__globals__)
    twin = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    _twins[function] = twin  # before its names are replaced: it may call itself
    for name in set(_names(function.__code__)):
        if name in names:
            names[name] = _replacement(names[name])
    return twin


def _replacement(value: Any) -> Any:
    if isinstance(value, types.ModuleType):
        return _ModuleTwin(value) if value.__name__.startswith(_OURS) else value
    if isinstance(value, Dispatcher):
        return interpreted(value)
    if isinstance(value, types.FunctionType) and f"{value.__module__}.".startswith(_OURS):
        return interpreted(value)
    return value


class _ModuleTwin:
    """A module of kernels that was imported as a whole."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = _replacement(getattr(self._module, name))
        setattr(self, name, value)
        return value


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
