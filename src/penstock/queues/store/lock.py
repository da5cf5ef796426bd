"""A lock file that lets one process open a queue; the system releases it when the process dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from penstock.errors import QueueLockedError


class Lock:
    """A held lock of a folder.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.queues.store.lock import Lock
    >>> folder = Path(tempfile.mkdtemp())
    >>> held = Lock(folder)
    >>> Lock(folder)
    Traceback (most recent call last):
    ...
    penstock.errors.QueueLockedError: The queue in '...' is open in process ...; close it there first...
    >>> held.release()
    """

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise QueueLockedError(
                f"The queue in '{folder}' is open in process {holder}; close it there first. "
                "Only one process can open a queue; `penstock queues serve` shares one."
            ) from error
        with contextlib.suppress(OSError):  # only informative, and a full disk may reject it
            os.pwrite(self._file, str(os.getpid()).encode().ljust(32), 0)
            os.ftruncate(self._file, 32)

    def release(self) -> None:
        """Let others open the queue."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
