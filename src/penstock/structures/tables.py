"""Tables that grow: arrays of zeros that cost nothing until they are touched, and go back to the system at once.

The allocator of the C library keeps what is freed for later, up to 64 MiB of it. A table that grows leaves
its smaller predecessors behind, so large tables get pages of their own instead, which the system takes back.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

LARGE = 1 << 18  # bytes from which a table has pages of its own
HUGE = 1 << 22  # bytes from which large pages pay, as NumPy has it


def new_table(shape: int | tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """Return an array of zeros.

    >>> from penstock.structures.tables import new_table
    >>> new_table((2, 3), int).sum()
    0
    """
    shape = (shape,) if isinstance(shape, int) else shape
    count = int(np.prod(shape, dtype=object))
    size = count * np.dtype(dtype).itemsize
    if not LARGE <= size < 2**62:
        return np.zeros(shape, dtype)
    try:
        # Shared with a forked process otherwise.
        private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
        pages = mmap.mmap(-1, size, **private)
    except OSError as error:
        raise MemoryError(f"no room for a table of {size:,} bytes") from error
    if size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            pages.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a system without large pages
    return np.frombuffer(pages, dtype, count).reshape(shape)


def enlarged(table: np.ndarray, shape: int | tuple[int, ...], fill: Any = 0) -> np.ndarray:
    """Return a table of a larger shape that begins with this one, axis by axis; the rest is `fill`.

    >>> import numpy as np
    >>> from penstock.structures.tables import enlarged
    >>> enlarged(np.array([[1, 2], [3, 4]]), (2, 3)).tolist()
    [[1, 2, 0], [3, 4, 0]]
    """
    larger = new_table(shape, table.dtype)
    if fill:
        larger[:] = fill
    larger[tuple(map(slice, table.shape))] = table
    return larger


def unroll(ring: np.ndarray, first: int, into: np.ndarray) -> None:
    """Copy a ring into a larger one, so that its entries from `first` on are at the beginning, in order.

    >>> import numpy as np
    >>> from penstock.structures.tables import unroll
    >>> larger = np.zeros(5, int)
    >>> unroll(np.array([3, 1, 2]), 1, larger)
    >>> larger.tolist()
    [1, 2, 3, 0, 0]
    """
    into[: len(ring) - first] = ring[first:]
    into[len(ring) - first : len(ring)] = ring[:first]
