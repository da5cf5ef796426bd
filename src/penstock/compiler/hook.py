"""Hooks: functions that every policy may implement in its own way."""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

HOOKS: list[Hook] = []  # all that there are


class Hook:
    """A function with one implementation per policy state class, and a default.

    The implementations are plain functions. They become parts of the driver that calls the hook, or are bound
    to it late, by address; for the latter the default says of which types arguments and result are.
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

    @functools.cached_property
    def declared(self) -> tuple[str, ...]:
        """The types of the result and of all arguments but the first two, as the default is annotated.

        Nothing if it is not: then the hook cannot be bound late.
        """
        found = dict(self.default.__annotations__)
        result = found.pop("return", None)
        return () if result is None else (result, *found.values())

    def idle_for(self, state_class: type) -> bool:
        """Whether there is nothing to do for a state class: no result, and an empty function."""
        if self.declared[0] != "None":
            return False
        steps = [each.opname for each in dis.get_instructions(self.of(state_class))]
        return steps == [each.opname for each in dis.get_instructions(_nothing)]


def _nothing() -> None:
    """Does nothing."""


def family(module: str) -> list[Hook]:
    """The hooks of a module that can be bound late, in the order of their definition."""
    return [each for each in HOOKS if each.default.__module__ == module and each.declared]


class Bound(NamedTuple):
    """A policy as a driver knows it that is compiled for all of them (see `binding`)."""

    table: np.ndarray  # the address of its state, then that of each hook; 0: there is nothing to do
    memory: np.ndarray  # its state as compiled code sees it


Bound.points_at = "table"  # type: ignore[attr-defined]
