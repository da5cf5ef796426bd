"""The distinct keys of a batch, and the numbers by which a cache identifies them."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from penstock.columns import codes_of, column
from penstock.lookup.events import to_events
from penstock.lookup.source import Key

_HALVES = struct.Struct("<qq")


@dataclass(frozen=True)
class RequestedKeys:
    """`code` has the number of each row's key in this batch, or -1 if any part of the key is null.

    `keys` are the distinct keys. A cache identifies a key by `ids`: the key itself if it is one whole number,
    else half of a digest. `checks` is the other half, which distinguishes two keys with the same id.
    """

    code: np.ndarray
    keys: list[Key]
    ids: np.ndarray
    checks: np.ndarray

    @property
    def values(self) -> np.ndarray:
        """Return the numeric values of the keys, NaN for keys that are not numbers."""
        return np.array([_number(key) for key in self.keys], np.float64)

    @property
    def count(self) -> int:
        """Number of distinct keys."""
        return len(self.keys)


def keys_of(table: Any, names: tuple[str, ...], whole: bool = True) -> RequestedKeys:
    """Return the keys of a table in these columns; `whole` converts whole floats to whole numbers.

    Without it, 0.0 and -0.0 are two keys: a query may show them as texts, so the database decides.

    >>> from penstock.lookup.keys import keys_of
    >>> found = keys_of({"id": [7, 9, 7]}, ("id",))
    >>> found.code.tolist(), found.keys, found.ids.tolist()
    ([0, 1, 0], [(7,), (9,)], [7, 9])
    """
    events = to_events(table)
    columns = [column(events, name, "requesting") for name in names]
    if not whole:
        columns += [_minus_zeros(each) for each in columns if each.dtype.kind == "f"]
    (code,), count = codes_of([columns], ["requesting"])
    first = np.full(count, -1, np.int64)
    rows = np.flatnonzero(code >= 0)[::-1]
    first[code[rows]] = rows  # the earliest row is written last
    parts = [events[name].take(pa.array(first)).to_pylist() for name in names]
    if whole:
        parts = [[_whole(value) for value in part] for part in parts]
    keys = list(zip(*parts, strict=True)) if count else []
    ids, checks = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for i, key in enumerate(keys):
        ids[i], checks[i] = _id_and_check(key)
    return RequestedKeys(code, keys, ids, checks)


def _minus_zeros(values: pd.Series) -> pd.Series:
    """Return where a column has a zero with a sign."""
    numbers = values.to_numpy(np.float64, na_value=np.nan)
    return pd.Series((numbers == 0) & np.signbit(numbers))


def id_of(value: Any) -> int:
    """Return the number by which a cache identifies a key of one part.

    >>> from penstock.lookup.keys import id_of
    >>> id_of(7), id_of(7.0), id_of("7") == id_of("7")
    (7, 7, True)
    """
    if isinstance(value, np.generic):
        value = value.item()
    return _id_and_check((_whole(value),))[0]


def _id_and_check(key: Key) -> tuple[int, int]:
    if len(key) == 1 and type(key[0]) is int and -(2**63) <= key[0] < 2**63:
        return key[0], 0
    first, second = _HALVES.unpack(hashlib.blake2b(repr(key).encode(), digest_size=16).digest())
    return first, second


def _number(key: Key) -> float:
    plain = len(key) == 1 and isinstance(key[0], int | float) and not isinstance(key[0], bool)
    return float(key[0]) if plain else np.nan


def _whole(value: Any) -> Any:
    """Convert whole floats to whole numbers, since nulls turn numbers into floats; not beyond 2^53."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
