"""Code a stream of keys as small integers, and find the previous reference of each key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import PenstockError

Keys = Iterable[Hashable]
"""A list, NumPy array, pandas Series or Index, Arrow array, or other iterable of hashable keys."""


class Coded(NamedTuple):
    """The references as codes 0, 1, ... in order of first appearance, and the key of each code."""

    codes: NDArray[np.int64]
    keys: Any


def encode(keys: Keys) -> Coded:
    """The keys as codes; an empty stream, missing keys and unhashable keys are refused."""
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        keys = keys.to_pandas()
    if getattr(keys, "ndim", 1) != 1 or isinstance(keys, dict):
        raise PenstockError(
            f"a {type(keys).__name__} was given as keys; one column of keys is allowed. "
            'Hint: pass frame["key"], or list(zip(frame["a"], frame["b"])) for a key of two columns.'
        )
    if isinstance(keys, np.ndarray | pd.Series | pd.Index | pd.api.extensions.ExtensionArray):
        codes, uniques = pd.factorize(cast(Any, keys))
        missing = int((codes < 0).sum())
    else:
        codes, uniques, missing = _encode_objects(keys)
    if len(codes) == 0:
        raise PenstockError("an empty stream of keys was given; at least one reference is needed.")
    if missing:
        raise PenstockError(f"{missing} of {len(codes)} keys are missing; drop them first: keys.dropna()")
    return Coded(codes.astype(np.int64, copy=False), uniques)


def _encode_objects(keys: Keys) -> tuple[NDArray[np.int64], NDArray[np.object_], int]:
    """Codes by Python's own equality, so that 1 and "1" stay apart and tuples are keys."""
    table: dict[Hashable, int] = {}
    try:
        codes = np.fromiter((table.setdefault(key, len(table)) for key in keys), dtype=np.int64)
    except TypeError as error:
        raise PenstockError(f"keys must be an iterable of hashable values: {error}") from error
    uniques = np.empty(len(table), dtype=object)
    for code, key in enumerate(table):
        uniques[code] = key
    missing = [code for code, key in enumerate(table) if key is None or key is pd.NA or key != key]
    return codes, uniques, int(np.isin(codes, missing).sum()) if missing else 0


def previous(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The position of each reference's previous one to the same key, -1 for the first."""
    order = np.argsort(codes, kind="stable")
    again = codes[order[1:]] == codes[order[:-1]]
    before = np.full(len(codes), -1, dtype=np.int64)
    before[order[1:][again]] = order[:-1][again]
    return before
