"""The forms in which kernels run, each on demand."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.compiler.binding import bind
from penstock.compiler.driver import Driver
from penstock.compiler.interpreter import interpret
from penstock.compiler.tiers import Kernel, only

FORMS = ("interpreted", "bound", "inlined")


@contextlib.contextmanager
def in_form(form: str) -> Iterator[None]:
    """Within this block all kernels run in one form, whatever code is in this process already."""
    with pytest.MonkeyPatch.context() as patch, only("inlined" if form == "inlined" else "compiled"):
        if form == "interpreted":
            for kind in (Kernel, Driver):
                patch.setattr(kind, "__call__", _interpreted, raising=False)
        elif form == "bound":
            patch.setattr(Driver, "__call__", _bound)
        yield


def _interpreted(kernel: Any, *given: Any) -> Any:
    return interpret(kernel, given)


def _bound(driver: Any, *given: Any) -> Any:
    """Code for any policy; drivers without one have no such code."""
    if len(given) > 1 and hasattr(type(given[1]), "hooks"):
        return driver.late(bind(*given[:2]), *given[1:])
    return Kernel.__call__(driver, *given)
