"""Checks of arguments: each returns the value, or raises an error with what is allowed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.errors import PenstockError

Floats = NDArray[np.float64]


class ModelError(PenstockError):
    """A model cannot work with these parameters, values or history."""


def values(values: ArrayLike) -> Floats:
    """A sequence of numbers as an array."""
    found = np.atleast_1d(np.asarray(values, np.float64))
    if found.ndim != 1:
        raise ModelError(f"values is a sequence of numbers; an array of shape {found.shape} was given.")
    return found


def steps(ahead: ArrayLike) -> NDArray[np.int64]:
    """Whole numbers of steps from 1 up, as an array."""
    found = np.atleast_1d(np.asarray(ahead))
    if found.ndim != 1 or found.dtype.kind not in "iu" or (len(found) and found.min() < 1):
        raise ModelError(f"ahead={ahead!r} is not allowed; it has whole numbers of steps from 1 up.")
    return found.astype(np.int64)


def whole(name: str, value: Any, least: int = 1) -> int:
    """`value` as an int that is at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ModelError(f"{name}={value!r} is not allowed; it is a whole number from {least} up.")
    return int(value)


def number(name: str, value: Any, above: float = -math.inf, most: float = math.inf) -> float:
    """`value` as a finite float above a limit, and up to another."""
    fine = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not fine or not math.isfinite(value) or not above < value <= most:
        limit = "a finite number" if above == -math.inf else f"a finite number above {above:g}"
        limit += "" if most == math.inf else f" and up to {most:g}"
        raise ModelError(f"{name}={value!r} is not allowed; it is {limit}.")
    return float(value)


def series(series: ArrayLike, least: int = 2) -> Floats:
    """A series of at least `least` finite numbers as an array."""
    try:
        found = np.asarray(series, np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(f"A series is a sequence of numbers; this one is not: {error}") from error
    if found.ndim != 1 or len(found) < least or not np.isfinite(found).all():
        raise ModelError(
            f"A series has at least {least} finite numbers in a row; one of shape {found.shape} was given."
        )
    return found
