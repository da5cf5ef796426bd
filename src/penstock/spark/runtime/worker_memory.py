"""The memory of a Python worker as the system counts it, and giving back what it no longer needs."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from functools import cache
from typing import Any
from zlib import crc32

import pyarrow as pa

ROLLUP = "/proc/self/smaps_rollup"
RECENT = 0.5  # seconds


def private_bytes() -> int | None:
    """Return the bytes of memory that this process has to itself; None if the system does not say.

    >>> from penstock.spark.runtime.worker_memory import private_bytes
    >>> found = private_bytes()
    >>> found is None or found > 2**20
    True
    """
    try:
        with open(ROLLUP, "rb") as lines:
            return sum(int(line.split()[1]) for line in lines if line.startswith(b"Private_")) << 10
    except (OSError, ValueError, IndexError):
        return None


_weighed: tuple[float, int | None] = (-1.0, None)  # when, and what was found


def recent_private_bytes() -> int | None:
    """Return the same, not older than half a second: to find out takes a millisecond per 100 MiB.

    >>> from penstock.spark.runtime.worker_memory import recent_private_bytes
    >>> recent_private_bytes() == recent_private_bytes()
    True
    """
    global _weighed
    now = time.monotonic()
    if _weighed[0] < 0 or now - _weighed[0] > RECENT:
        _weighed = (now, private_bytes())
    return _weighed[1]


def worker_number() -> int:
    """Return a number by which the workers of a cluster can be told apart.

    >>> from penstock.spark.runtime.worker_memory import worker_number
    >>> worker_number() == worker_number()
    True
    """
    host = os.uname().nodename if hasattr(os, "uname") else ""
    return crc32(host.encode()) % 2**20 << 22 | os.getpid() % 2**22  # small: Spark adds up all figures


def give_back() -> None:
    """Give freed memory back to the system: Arrow and the C library keep what a batch has used.

    >>> from penstock.spark.runtime.worker_memory import give_back
    >>> give_back()
    """
    pa.default_memory_pool().release_unused()
    trim = _trim()
    if trim is not None:
        trim(0)


def keep_pandas_out() -> None:
    """Let Arrow believe, until something needs pandas, that there is none.

    When Arrow makes an array of a list, it imports pandas to find out whether the list is something of it.
    Spark makes an array of our output. That costs 21 MiB in every worker that holds state. Whatever needs
    pandas later imports it, and so does Arrow then.

    >>> import pyarrow as pa
    >>> from penstock.spark.runtime.worker_memory import keep_pandas_out
    >>> keep_pandas_out()
    >>> pa.chunked_array([[1, 2]]).to_pandas().tolist(), pa.array(pa.array([3]).to_pandas()).to_pylist()
    ([1, 2], [3])
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _Refusal)
    try:
        pa.array([])  # Arrow tries the import once
    finally:
        sys.meta_path.remove(_Refusal)


class _Refusal:
    """An importer that finds everything as always, but no pandas."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("not now", name=name)


@cache
def _trim() -> Any:
    """The C library's `malloc_trim`, where there is one."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
