"""What consumers have confirmed: a small file of checked records, each synced before it counts."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import google_crc32c

from penstock.queues.disk import Disk

_RECORD = struct.Struct("<IIQQI")  # crc, queue, item, row, length of the producers' table behind it
_LONGEST = 1 << 20


class Commits:
    """The confirmed item and row of each queue, and the last number each producer has sent.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.queues.commits import Commits
    >>> from penstock.queues.disk import Disk
    >>> path = Path(tempfile.mkdtemp()) / "commits"
    >>> commits = Commits(path, 1, Disk())
    >>> commits.confirm(0, 7, 70, {"a": 3})
    >>> commits.close()
    >>> again = Commits(path, 1, Disk())
    >>> again.items, again.rows, again.producers
    ([7], [70], [{'a': 3}])
    >>> again.close()
    """

    def __init__(self, path: Path, queues: int, disk: Disk) -> None:
        self.path, self.disk = path, disk
        self.items, self.rows = [0] * queues, [0] * queues
        self.producers: list[dict[str, int]] = [{} for _ in range(queues)]
        self.torn = 0
        self._load()
        self._rewrite()

    def _load(self) -> None:
        raw = self.path.read_bytes() if self.path.exists() else b""
        at = 0
        while at + _RECORD.size <= len(raw):
            crc, lane, item, row, length = _RECORD.unpack_from(raw, at)
            end = at + _RECORD.size + length
            if end > len(raw) or google_crc32c.value(raw[at + 4 : end]) != crc or lane >= len(self.items):
                break
            self.items[lane], self.rows[lane] = item, row
            if length:
                self.producers[lane] = json.loads(raw[at + _RECORD.size : end])
            at = end
        self.torn = len(raw) - at

    def _rewrite(self) -> None:
        """One record per queue, as a new file."""
        records = [
            _record(lane, item, row, table)
            for lane, (item, row, table) in enumerate(zip(self.items, self.rows, self.producers, strict=True))
        ]
        content = b"".join(records)
        self.disk.replace(self.path, content)
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self._size = len(content)

    def confirm(self, lane: int, item: int, row: int, producers: dict[str, int] | None = None) -> None:
        """Everything before this item and row is confirmed, for good when this returns."""
        self.items[lane], self.rows[lane] = item, row
        if producers is not None:
            self.producers[lane] = dict(producers)
        if self._size > _LONGEST:
            os.close(self._file)
            self._rewrite()
            return
        record = _record(lane, item, row, producers)
        self.disk.append(self._file, self.path, [record])
        self.disk.sync(self._file, self.path)
        self._size += len(record)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_commits(path: Path, queues: int) -> list[int]:
    """The confirmed item of each queue; the file stays as it is.

    >>> from pathlib import Path
    >>> from penstock.queues.commits import read_commits
    >>> read_commits(Path("nowhere"), 2)
    [0, 0]
    """
    found = Commits.__new__(Commits)
    found.path, found.items, found.rows = path, [0] * queues, [0] * queues
    found.producers = [{} for _ in range(queues)]
    found._load()
    return found.items


def _record(lane: int, item: int, row: int, producers: dict[str, int] | None) -> bytes:
    table = json.dumps(producers).encode() if producers else b""
    checked = struct.pack("<IQQI", lane, item, row, len(table)) + table
    return struct.pack("<I", google_crc32c.value(checked)) + checked
