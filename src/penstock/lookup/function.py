"""A user's fetch function as a lookup source: for REST services and key-value stores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa

from penstock.errors import FetchError
from penstock.lookup.retry import Retry
from penstock.lookup.source import Fetched, Key, to_rows


@dataclass
class Function:
    """Calls a function with lists of at most `most` keys: plain values, or tuples for composite keys.

    It returns a mapping from key to row, or a list with a row per key. A row is a mapping, or None.
    """

    call: Callable[[list[Any]], Any]
    key: tuple[str, ...]
    schema: pa.Schema | None = None
    most: int = 1_000
    retry: Retry = field(default_factory=Retry)
    temporary: tuple[type[BaseException], ...] = (OSError, TimeoutError)

    whole: ClassVar[bool] = True

    def fetch(self, keys: list[Key], failed: Any) -> Fetched:
        """Call the function for these keys.

        >>> from penstock.lookup.function import Function
        >>> found = Function(lambda keys: {1: {"name": "a"}}, ("id",)).fetch([(1,), (2,)], print)
        >>> found.rows.to_pylist(), found.place.tolist()
        ([{'name': 'a'}], [0, -1])
        """
        rows: list[dict[str, Any]] = []
        place = np.full(len(keys), -1, np.int64)
        seconds = np.zeros(len(keys))
        queries = 0
        for start in range(0, len(keys), self.most):
            part = keys[start : start + self.most]
            plain = [key[0] for key in part] if len(self.key) == 1 else list(part)
            began = time.perf_counter()
            answer = self.retry.call(
                lambda plain=plain: self.call(list(plain)),  # type: ignore[misc]
                lambda error: isinstance(error, self.temporary),
                failed,
            )
            seconds[start : start + len(part)] = (time.perf_counter() - began) / len(part)
            queries += 1
            for i, row in enumerate(_aligned(answer, plain, self.key)):
                if row is not None:
                    place[start + i] = len(rows)
                    rows.append({str(name): row[name] for name in row if name not in self.key})
        return Fetched(to_rows(rows, self.schema), place, seconds, queries)

    def close(self) -> None:
        """Do nothing: a function holds no resources."""


def _aligned(answer: Any, keys: list[Any], names: tuple[str, ...]) -> list[Mapping[str, Any] | None]:
    """Return a row or None per key, whatever the form of the answer."""
    if isinstance(answer, pa.Table | pa.RecordBatch):
        answer = answer.to_pylist()
    elif isinstance(answer, pd.DataFrame):
        answer = answer.to_dict("records")
    elif isinstance(answer, Mapping):
        found = [answer.get(key) for key in keys]
        _check_asked(len(answer) - sum(key in answer for key in set(keys)), keys)
        return [_row(row) for row in found]
    elif not isinstance(answer, Iterable) or isinstance(answer, str | bytes):
        raise FetchError(_wrong(answer))
    else:
        answer = list(answer)
        if len(answer) == len(keys) and not all(
            isinstance(row, Mapping) and set(names) <= set(row) for row in answer
        ):
            return [_row(row) for row in answer]
    by_key: dict[Any, Mapping[str, Any]] = {}
    for row in answer:
        if not (isinstance(row, Mapping) and set(names) <= set(row)):
            raise FetchError(
                f"The fetch function returned {len(answer):,} rows for {len(keys):,} keys, and some lack "
                f"the key ({', '.join(names)}); {_wrong(row)}"
            )
        parts = tuple(row[name] for name in names)
        one = parts[0] if len(parts) == 1 else parts
        if one in by_key:
            raise FetchError(
                "The fetch function returned several rows for one key; a lookup needs a unique key."
            )
        by_key[one] = row
    _check_asked(len(by_key.keys() - set(keys)), keys)
    return [by_key.get(key) for key in keys]


def _check_asked(strange: int, keys: list[Any]) -> None:
    """Reject rows for keys that were not requested: they may be requested keys in another spelling."""
    if strange:
        raise FetchError(
            f"The fetch function returned {strange:,} rows for keys that were not requested "
            f"({len(keys):,} were). A row must have the requested key, in the same spelling and "
            "type. Omit the rows of other keys, or return a list with a row or None per key if the table "
            "spells keys differently."
        )


def _row(row: Any) -> Mapping[str, Any] | None:
    if row is None or isinstance(row, Mapping):
        return row
    raise FetchError(_wrong(row))


def _wrong(given: Any) -> str:
    return (
        "A fetch function returns a mapping from key to row, a list with a row or None per key, or a table "
        f"with the key columns; a row is a mapping. This one returned a {type(given).__name__}."
    )
