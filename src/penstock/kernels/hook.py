"""A hook: a function of which every policy may have an implementation of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

HOOKS: list[Hook] = []  # all that there are


class Hook:
    """A function with one implementation per policy state class, and a default.

    The implementations are plain functions; Numba makes them parts of the driver that calls the hook.
    """

    def __init__(self, default: Callable[..., Any]) -> None:
        functools.update_wrapper(self, default)
        self.default = default
        self.table: dict[type, Callable[..., Any]] = {}
        self.kernels: dict[Callable[..., Any], Any] = {}  # of the implementations that have been compiled
        HOOKS.append(self)

    def __call__(self, policy: Any, *arguments: Any) -> Any:
        """What the hook does for this policy, interpreted."""
        return self.of(type(policy))(policy, *arguments)

    def __reduce__(self) -> str:
        """Pickled by name: a copy would not hear of what is registered."""
        return self.default.__qualname__

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
