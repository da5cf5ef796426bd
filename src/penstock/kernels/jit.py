"""The one place that sets Numba's options, and the hooks through which a driver calls a policy.

`jit` compiles and caches on disk. Numba checks only the file of the function itself when it decides
whether a cached machine code is still good; a driver also contains the code of the policy it was
compiled for, so the stamp used here covers the source of all kernels and policies.

`hook` makes a function whose implementation depends on the type of its first argument, at compile
time under Numba and at run time in plain Python. `interpreted` gives the plain-Python twin of a driver,
for policies that are ordinary Python objects.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import types as pytypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core.dispatcher import Dispatcher
from numba.extending import overload


@functools.cache
def _stamp() -> str:
    """A digest of the source of everything that can end up inside a compiled kernel."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for folder in ("kernels", "policies"):
        for path in sorted((root / folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def jit(function: Callable[..., Any]) -> Any:
    """Compile a kernel, cached on disk so that a new process loads it instead of compiling again."""
    kernel = numba.njit(cache=True)(function)
    index = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
    if index is not None and hasattr(index, "_source_stamp"):
        index._source_stamp = _stamp()
    return kernel


class Hook:
    """A function with one implementation per policy state class, and a default.

    The implementation is a plain function; Numba compiles it into the driver that calls the hook.
    """

    def __init__(self, default: Callable[..., Any]) -> None:
        functools.update_wrapper(self, default)
        self.default = default
        self.table: dict[type, Callable[..., Any]] = {}

    def of(self, state_class: type) -> Callable[..., Any]:
        """The implementation for a state class: its own, an ancestor's, or the default."""
        for ancestor in state_class.__mro__:
            if ancestor in self.table:
                return self.table[ancestor]
        return self.default

    def on(self, *state_classes: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: this is what the hook does for these state classes."""

        def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
            for state_class in state_classes:
                self.table[state_class] = implementation
            return implementation

        return register


def hook(default: Callable[..., Any]) -> Any:
    """Make `default` a function that each policy state class may implement anew (see `Hook`)."""
    registered = Hook(default)

    @functools.wraps(default)
    def dispatch(policy: Any, *arguments: Any) -> Any:
        return registered.of(type(policy))(policy, *arguments)

    @overload(dispatch, strict=False)
    def typed(policy: Any, *arguments: Any) -> Any:
        if isinstance(policy, types.NamedTuple | types.NamedUniTuple):
            return registered.of(policy.instance_class)
        return None

    dispatch.on = registered.on  # type: ignore[attr-defined]
    return dispatch


@functools.cache
def interpreted(kernel: Any) -> Callable[..., Any]:
    """The plain-Python twin of a kernel: all that takes a policy is interpreted, the rest stays compiled.

    A function takes a policy if its first parameter is called `policy`.
    """
    function = kernel.py_func if isinstance(kernel, Dispatcher) else kernel
    names = dict(function.__globals__)
    for name in function.__code__.co_names:
        value = names.get(name)
        if isinstance(value, Dispatcher) and value is not kernel and _takes_policy(value.py_func):
            names[name] = interpreted(value)
    twin = pytypes.FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    return functools.wraps(function)(twin)


def _takes_policy(function: Callable[..., Any]) -> bool:
    return next(iter(inspect.signature(function).parameters), None) == "policy"
