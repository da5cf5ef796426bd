"""All file operations of a queue in one place, so that a test can record their order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

Buffer = bytes | bytearray | memoryview


class Disk:
    """The operating system's files.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.queues.store.disk import Disk
    >>> disk, path = Disk(), Path(tempfile.mkdtemp()) / "file"
    >>> file = disk.create(path)
    >>> disk.append(file, path, [b"one", b"two"])
    >>> disk.close(file)
    >>> path.read_bytes()
    b'onetwo'
    """

    def create(self, path: Path) -> int:
        """A new file; its number."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def append(self, file: int, path: Path, parts: Sequence[Buffer]) -> None:
        """Write at the end, all of it."""
        total = sum(map(len, parts))
        done = os.writev(file, parts)
        if done < total:
            rest = memoryview(b"".join(parts))[done:]
            while rest:
                rest = rest[os.write(file, rest) :]

    def sync(self, file: int, path: Path) -> None:
        """What was written survives a loss of power."""
        os.fdatasync(file)

    def sync_folder(self, folder: Path) -> None:
        """The names in a folder survive a loss of power."""
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink(missing_ok=True)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file, for good."""
        with path.open("r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())

    def replace(self, path: Path, content: bytes) -> None:
        """Give a file another content: all of it or none, for good."""
        fresh = path.with_name(path.name + ".new")
        fresh.unlink(missing_ok=True)
        file = self.create(fresh)
        try:
            self.append(file, fresh, [content])
            self.sync(file, fresh)
        except OSError:
            fresh.unlink(missing_ok=True)  # a full disk needs the space
            raise
        finally:
            self.close(file)
        self.rename(fresh, path)
        self.sync_folder(path.parent)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name."""
        old.rename(new)

    def close(self, file: int) -> None:
        """Close a file."""
        os.close(file)
