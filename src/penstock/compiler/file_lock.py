"""A lock between processes of one machine, by a file that only one of them can hold."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # no such locks here
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Within this block no other process is in one with the same file; it waits.

    Where there are no such locks, or no file can be written, nobody waits, and work is done twice.

    >>> import tempfile
    >>> from penstock.compiler.file_lock import locked
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder, "kernel.lock")):
    ...     pass  # what several processes should not do at the same time
    """
    file = _acquire(path)
    if file is None:
        yield
        return
    with file:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def is_locked(path: Path) -> bool:
    """Whether somebody is in such a block at this moment, this process included.

    >>> import tempfile
    >>> from penstock.compiler.file_lock import is_locked, locked
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "kernel.lock")
    ...     with locked(file):
    ...         print(is_locked(file))
    ...     print(is_locked(file))
    True
    False
    """
    if fcntl is None:
        return False
    try:
        with path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _acquire(path: Path) -> IO[str] | None:
    """Wait for the file; whoever has waited for one that was deleted since waits for the next."""
    while fcntl is not None:
        try:
            file = path.open("w")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            return None
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()
    return None
