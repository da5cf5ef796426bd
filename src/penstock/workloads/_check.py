"""Checks of generator parameters: each returns the value, or raises an error with the allowed range."""

from __future__ import annotations

import math
from numbers import Integral, Real

from penstock.errors import PenstockError

MOST = 2**31 - 1  # of whatever is generated
FARTHEST = 1e15  # spans of time and rates


def whole(name: str, value: object, least: int = 1, advice: str = "") -> int:
    """`value` as an int that is at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise PenstockError(f"{name}={value!r} was given; whole numbers from {least} on are allowed.{advice}")
    if int(value) > MOST:
        raise PenstockError(f"{name}={value!r} was given; whole numbers up to {MOST} are allowed.{advice}")
    return int(value)


def number(
    name: str, value: object, least: float = -math.inf, most: float = FARTHEST, advice: str = ""
) -> float:
    """`value` as a finite float between `least` and `most`, both included."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise PenstockError(f"{name}={value!r} was given; a finite number is needed.{advice}")
    if not least <= float(value) <= most:
        limit = f"at least {least:g}" if most >= FARTHEST else f"between {least:g} and {most:g}"
        raise PenstockError(f"{name}={value!r} was given; a number {limit} is allowed.{advice}")
    return float(value)


def positive(name: str, value: object, advice: str = "") -> float:
    """`value` as a finite float above zero."""
    if number(name, value, advice=advice) <= 0:
        raise PenstockError(f"{name}={value!r} was given; a number above 0 is allowed.{advice}")
    return float(value)  # type: ignore[arg-type]
