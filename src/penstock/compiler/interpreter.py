"""Run kernels as plain Python: the twin of a kernel calls the twins of all kernels and hooks it uses.

A twin computes what the compiled code computes, to the last bit, provided that kernels keep to `math` and to
loops over scalars where they compute scores: NumPy's `exp`, `log`, `power` and its sums over arrays round
otherwise than Numba's.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from penstock.compiler.hook import Hook

_OURS = "penstock."
_twins: dict[Callable[..., Any], Callable[..., Any]] = {}


def interpret(kernel: Any, arguments: tuple[Any, ...]) -> Any:
    """What a kernel gives, without compiling it. Integers wrap around; division by zero gives infinities.

    >>> import numpy as np
    >>> from penstock.structures.age_curves import best_age
    >>> from penstock.compiler.interpreter import interpret
    >>> print(interpret(best_age, (np.array([1.0, 5.0, 0.0]), 2.0)))
    4.0
    """
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return _twin(kernel)(*map(_typed, arguments))


def interpreted(kernel: Any) -> Callable[..., Any]:
    """The plain-Python twin of a kernel, for policies that are ordinary Python objects.

    >>> import numpy as np
    >>> from penstock.structures.age_curves import best_age
    >>> from penstock.compiler.interpreter import interpreted
    >>> print(interpreted(best_age)(np.array([1.0, 5.0, 0.0]), 2.0))
    4.0
    """
    return lambda *arguments: interpret(kernel, arguments)


def _typed(argument: Any) -> Any:
    """A number of the type that compiled code would take it for, which wraps around and divides by zero."""
    if type(argument) is int:
        return np.int64(argument)
    return np.float64(argument) if type(argument) is float else argument


def _twin(kernel: Any) -> Callable[..., Any]:
    """The twin of a kernel, of a hook, or of a function that kernels call."""
    function = kernel.py_func if isinstance(kernel, Dispatcher) else kernel
    twin = _twins.get(function)
    if twin is None:
        make = _twin_of_hook if isinstance(function, Hook) else _twin_of_function
        twin = _twins[function] = make(function)
    return twin


def _twin_of_hook(hook: Hook) -> Callable[..., Any]:
    """A hook: what it does depends on the class of its first argument."""
    known: dict[type, Callable[..., Any]] = {}

    def twin(state: Any, *arguments: Any) -> Any:
        chosen = known.get(type(state))
        if chosen is None:
            chosen = known[type(state)] = _twin(hook.of(type(state)))
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
    if value is math:
        return _MATH
    if isinstance(value, types.ModuleType):
        return _ModuleTwin(value) if value.__name__.startswith(_OURS) else value
    if isinstance(value, Dispatcher | Hook):
        return _twin(value)
    if isinstance(value, types.FunctionType) and f"{value.__module__}.".startswith(_OURS):
        return _twin(value)
    return value


def _total(function: Callable[[float], float], beyond: Callable[[float], float]) -> Callable[[float], Any]:
    """A function of `math` that gives what compiled code gives where Python raises an error."""

    def total(number: float) -> Any:
        try:
            return np.float64(function(number))
        except (OverflowError, ValueError):
            return np.float64(beyond(number))

    return total


def _log_beyond(number: float) -> float:
    return -math.inf if number == 0.0 else math.nan


_MATH = types.SimpleNamespace(
    **vars(math)
    | {
        "exp": _total(math.exp, lambda _: math.inf),
        "log": _total(math.log, _log_beyond),
        "log1p": _total(math.log1p, lambda number: _log_beyond(number + 1.0)),
        "sqrt": _total(math.sqrt, lambda _: math.nan),
    }
)


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
