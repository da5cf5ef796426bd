"""How a check fails."""

from __future__ import annotations

from typing import Any


def expect(holds: Any, message: str) -> None:
    """Raise an `AssertionError` with the message unless something holds, with `python -O` too.

    >>> from penstock.testing.expectation import expect
    >>> expect(1 + 1 == 3, "sums are wrong")
    Traceback (most recent call last):
        ...
    AssertionError: sums are wrong
    """
    if not holds:
        raise AssertionError(message)
