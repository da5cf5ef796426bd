"""Arrays for kernels: whatever a caller gives becomes an array of one type, exactly, or is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import index
from typing import Any

import numpy as np

from penstock.errors import ColumnError, PenstockError

LARGEST = 2**63 - 1
FARTHEST = 1e300  # of fractions
EXACT = 2**53  # floats tell whole numbers apart up to here


def whole_numbers(
    values: Any, what: str, dtype: Any = np.int64, instead: str = "", dimensions: int = 1
) -> np.ndarray:
    """Whole numbers as a contiguous array, without rounding or wrapping; `instead` says what helps.

    >>> from penstock.arrays import whole_numbers
    >>> whole_numbers([1, 2.0], "key").tolist()
    [1, 2]
    >>> whole_numbers(["a"], "key")
    Traceback (most recent call last):
        ...
    penstock.errors.ColumnError: key takes whole numbers; 'a' was given.
    """
    given = _array(values, what, dimensions)
    limits = np.iinfo(dtype)
    kind = given.dtype.kind
    if kind == "f" and given.size:
        fine = (given == np.floor(given)) & (given >= -(2.0**63)) & (given < 2.0**63)
        _refuse(given, ~fine, f"{what} takes whole numbers", instead)
        given = given.astype(np.int64)
    elif kind == "O":
        given = _from_objects(given, what, instead)
    elif kind not in "iub" and given.size:
        raise ColumnError(f"{what} takes whole numbers; {_shown(given)} was given.{_more(instead)}")
    if given.size and given.dtype.kind in "iu" and not limits.min <= given.min() <= given.max() <= limits.max:
        outside = (given < limits.min) | (given > limits.max)
        _refuse(given, outside, f"{what} takes whole numbers from {limits.min} to {limits.max}", instead)
    return np.ascontiguousarray(given, dtype)


def time_numbers(values: Any, dtype: np.dtype, instead: str = "") -> np.ndarray:
    """Times as an array of int64 or float64, without rounding.

    >>> import numpy as np
    >>> from penstock.arrays import time_numbers
    >>> time_numbers([1, 2.5], np.dtype(np.float64)).tolist()
    [1.0, 2.5]
    """
    if dtype == np.int64:
        return whole_numbers(values, "time", np.int64, instead)
    given = _array(values, "time")
    if given.dtype.kind == "f":
        given = given.astype(np.float64)
        _refuse(given, ~np.isfinite(given), "time takes finite numbers")
        return np.ascontiguousarray(given)
    if given.dtype.kind == "O" and given.size and all(isinstance(value, float) for value in given):
        return time_numbers(given.astype(np.float64), dtype)
    return exact_floats(whole_numbers(given, "time"), "time")


def exact_floats(numbers: np.ndarray, what: str) -> np.ndarray:
    """Whole numbers as floats, refused where these would round them.

    >>> import numpy as np
    >>> from penstock.arrays import exact_floats
    >>> exact_floats(np.array([2**53 + 1]), "ts")
    Traceback (most recent call last):
        ...
    penstock.errors.ColumnError: ts has 9007199254740993, which is beyond 2^53 and would be rounded where \
times are fractions; give whole numbers throughout, or a coarser unit.
    """
    if numbers.dtype.kind in "iu" and numbers.size and max(-int(numbers.min()), int(numbers.max())) > EXACT:
        beyond = (numbers > EXACT) | (numbers < -EXACT)
        raise ColumnError(
            f"{what} has {numbers[beyond][0]}, which is beyond 2^53 and would be rounded where times are "
            "fractions; give whole numbers throughout, or a coarser unit."
        )
    return numbers.astype(np.float64)


def check_reach(first: Any, last: Any, horizons: Sequence[Any]) -> None:
    """Refuse times whose differences, or whose sum with a window, their numbers cannot hold.

    >>> from penstock.arrays import check_reach
    >>> check_reach(-(2**62), 2**62, (10, 10))
    Traceback (most recent call last):
        ...
    penstock.errors.ColumnError: The times reach from -4611686018427387904 to 4611686018427387904, too far \
apart for 64-bit numbers and a window of 10; give times in a coarser unit.
    """
    if isinstance(first, float):
        if first < -FARTHEST or last > FARTHEST:
            raise ColumnError(f"The times reach from {first:g} to {last:g}; allowed are +-{FARTHEST:g}.")
        return
    window = int(max(horizons))
    # A tuple's end is its time plus the window, and what is left of it is a difference to that.
    if last - first + window > LARGEST or last + window > LARGEST or first - window < -LARGEST:
        raise ColumnError(
            f"The times reach from {first} to {last}, too far apart for 64-bit numbers and a window of "
            f"{window}; give times in a coarser unit."
        )


def _array(values: Any, what: str, dimensions: int = 1) -> np.ndarray:
    """Values as a NumPy array of the expected dimensions."""
    if values is None or isinstance(values, str | bytes | dict | set):
        raise ColumnError(f"{what} takes an array of numbers; {values!r} was given.")
    if np.ma.is_masked(values):
        raise ColumnError(f"{what} takes an array without missing values; leave out rows that have none.")
    try:
        given = np.asarray(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise ColumnError(f"{what} takes an array of numbers; {error}") from error
    given = given[None] if given.ndim == 0 else given
    if not 1 <= given.ndim <= dimensions:
        raise ColumnError(f"{what} takes one number per arrival; an array of shape {given.shape} was given.")
    return given


def _from_objects(given: np.ndarray, what: str, instead: str) -> np.ndarray:
    found = np.empty(given.shape, np.int64)
    for at, value in enumerate(given.flat):
        try:
            whole = int(value) if isinstance(value, float) and value.is_integer() else index(value)
            found.flat[at] = whole
        except OverflowError as error:
            raise ColumnError(f"{what} takes numbers of 64 bits; {value!r} was given.") from error
        except (TypeError, ValueError) as error:
            raise ColumnError(f"{what} takes whole numbers; {value!r} was given.{_more(instead)}") from error
    return found


def _refuse(given: np.ndarray, wrong: np.ndarray, rule: str, instead: str = "") -> None:
    if wrong.any():
        raise ColumnError(f"{rule}; {given[wrong].flat[0]} was given.{_more(instead)}")


def _shown(given: np.ndarray) -> str:
    value = given.flat[0]
    return repr(value.item() if given.dtype.kind in "US" else value)


def _more(instead: str) -> str:
    return f" {instead}" if instead else ""


def time_dtype(given: Any) -> np.dtype:
    """The type in which times are kept: whole or floating-point numbers of 64 bits.

    >>> from penstock.arrays import time_dtype
    >>> time_dtype("int32"), time_dtype(float)
    (dtype('int64'), dtype('float64'))
    """
    try:
        kind = np.dtype(given).kind
    except TypeError:
        kind = "?"
    if kind not in "iuf":
        raise PenstockError(
            f"dtype={given!r} is not allowed; times of a state are int or float. Convert timestamps to whole "
            "numbers in one unit first."
        )
    return np.dtype(np.float64 if kind == "f" else np.int64)


def table_bytes(*parts: Any) -> int:
    """Bytes of all arrays in nested tuples, views counted once."""
    seen: dict[int, int] = {}
    for array in _arrays(parts):
        owner: Any = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        seen[id(owner)] = owner.nbytes
    return sum(seen.values())


def _arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _arrays(part)
