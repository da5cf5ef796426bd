"""Tables that grow: arrays of zeros that cost nothing until they are touched, and that leave nothing behind.

The allocator of the C library keeps what is freed for later, up to 64 MiB of it. A table that grows leaves
its smaller predecessors behind, so large tables get pages of their own instead, which the system takes back.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

LARGE = 1 << 18  # bytes from which a table has pages of its own
HUGE = 1 << 22  # bytes from which large pages pay, as NumPy has it
PIECE = 1 << 20  # bytes that are moved at a time


def new_table(
    shape: int | tuple[int, ...], dtype: Any = np.float64, *, scattered: bool = False
) -> np.ndarray:
    """Return an array of zeros.

    One that is filled in no order, as hash tables are, is `scattered`: on large pages, a few entries would
    take the memory of all.

    >>> from penstock.structures.tables import new_table
    >>> new_table((2, 3), int).tolist()
    [[0, 0, 0], [0, 0, 0]]
    """
    shape = (shape,) if isinstance(shape, int) else shape
    count = int(np.prod(shape, dtype=object))
    size = count * np.dtype(dtype).itemsize
    if not LARGE <= size < 2**62:
        return np.zeros(shape, dtype)
    try:
        # Shared with a forked process otherwise.
        private = {"flags": mmap.MAP_PRIVATE} if hasattr(mmap, "MAP_PRIVATE") else {}
        pages = mmap.mmap(-1, size, **private)
    except OSError as error:
        raise MemoryError(f"no room for a table of {size:,} bytes") from error
    if size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            pages.madvise(mmap.MADV_NOHUGEPAGE if scattered else mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a system without large pages
    return np.frombuffer(pages, dtype, count).reshape(shape)


def enlarged(table: np.ndarray, shape: int | tuple[int, ...], fill: Any = 0) -> np.ndarray:
    """Return a table of a larger shape that begins with this one, axis by axis; the rest is `fill`.

    What was in the smaller one is gone: its memory is given back while it is copied.

    >>> import numpy as np
    >>> from penstock.structures.tables import enlarged
    >>> enlarged(np.array([[1, 2], [3, 4]]), (2, 3)).tolist()
    [[1, 2, 0], [3, 4, 0]]
    """
    larger = new_table(shape, table.dtype)
    if fill:
        larger[:] = fill
    if table.ndim == 1 or table.shape[1:] == larger.shape[1:]:
        move(table, larger[: len(table)])
    else:
        for old, new in zip(table, larger, strict=False):
            into = new[tuple(map(slice, old.shape))]
            if into.flags.c_contiguous:
                move(old, into)
            else:
                into[:] = old
    return larger


def unroll(ring: np.ndarray, first: int, into: np.ndarray) -> None:
    """Move a ring into a larger one, so that its entries from `first` on are at the beginning, in order.

    >>> import numpy as np
    >>> from penstock.structures.tables import unroll
    >>> larger = np.zeros(5, int)
    >>> unroll(np.array([3, 1, 2]), 1, larger)
    >>> larger.tolist()
    [1, 2, 3, 0, 0]
    """
    move(ring[first:], into[: len(ring) - first])
    move(ring[:first], into[len(ring) - first : len(ring)])


def move(source: np.ndarray, target: np.ndarray) -> None:
    """Copy a part of a table to another one piece by piece, and give back the memory of what is copied.

    So a table that grows is never there twice. Both are contiguous; what was in the source is gone.
    """
    pages, start = _pages_of(source)
    if pages is None:
        target[:] = source
        return
    old, new = source.reshape(-1).view(np.uint8), target.reshape(-1).view(np.uint8)
    done = 0
    while done < len(old):
        size = min(PIECE - (start + done) % PIECE, len(old) - done)
        new[done : done + size] = old[done : done + size]
        if size == PIECE:
            pages.madvise(mmap.MADV_DONTNEED, start + done, size)
        done += size


def _pages_of(table: np.ndarray) -> tuple[mmap.mmap | None, int]:
    """Return the pages in which a table lies, None if they are not its own, and where it begins there."""
    owner: Any = table
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    pages = owner.base.obj if isinstance(owner.base, memoryview) else owner.base
    if not isinstance(pages, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return None, 0
    return pages, table.ctypes.data - owner.ctypes.data
