"""Import slow, optional modules on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Lazy:
    """A module that is imported on first use.

    >>> from penstock.lazy import Lazy
    >>> Lazy("math").sqrt(4.0)
    2.0
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value
