"""The file of confirmations by consumers: small checked records, each synced before it counts.

The file is created as a whole, with one record per queue, and appended to afterwards. So only the last record
can be incomplete, after a crash; anything else that cannot be read is damage.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

import google_crc32c

from penstock.queues.store.disk import Disk
from penstock.queues.store.scan import Flaw

_RECORD = struct.Struct("<IIQQI")  # crc, queue, item, row, length of the producers' table behind it
_LONGEST = 1 << 20


@dataclass
class Confirmed:
    """The confirmed item and row of each queue, the last number of each producer, and what cannot be read."""

    items: list[int]
    rows: list[int]
    producers: list[dict[str, int]]
    exists: bool = True
    size: int = 0
    flaws: list[Flaw] = field(default_factory=list)

    @classmethod
    def none(cls, queues: int) -> Confirmed:
        """Nothing is confirmed yet."""
        return cls([0] * queues, [0] * queues, [{} for _ in range(queues)], exists=False)


def read_commits(path: Path, queues: int) -> Confirmed:
    """What a file of confirmations says; the file stays as it is.

    >>> from pathlib import Path
    >>> from penstock.queues.store.commits import read_commits
    >>> found = read_commits(Path("nowhere"), 2)
    >>> found.items, found.exists
    ([0, 0], False)
    """
    found = Confirmed.none(queues)
    if not path.exists():
        return found
    raw = path.read_bytes()
    found.exists, found.size = True, len(raw)
    at, seen = 0, set()
    while at < len(raw):
        end = _record_end(raw, at, queues)
        if end:
            _, lane, item, row, length = _RECORD.unpack_from(raw, at)
            seen.add(lane)
            # Confirmations only grow; the largest is right even if records before it cannot be read.
            found.items[lane], found.rows[lane] = max(found.items[lane], item), max(found.rows[lane], row)
            if length:
                found.producers[lane] = json.loads(raw[end - length : end])
            at = end
            continue
        good = (place for place in range(at + 1, len(raw)) if _record_end(raw, place, queues))
        end = next(good, len(raw))
        torn = end == len(raw) and _is_torn(raw, at)
        reason = "the last record is incomplete" if torn else "a record with a wrong checksum"
        found.flaws.append(Flaw(path.name, at, end - at, torn, reason))
        at = end
    if len(seen) < queues and not any(not flaw.torn for flaw in found.flaws):
        absent = min(set(range(queues)) - seen)
        found.flaws = [Flaw(path.name, 0, len(raw), False, f"there is no record of queue {absent}")]
    return found


def _record_end(raw: bytes, at: int, queues: int) -> int:
    """Where the record at an offset ends, 0 if there is no right one."""
    if at + _RECORD.size > len(raw):
        return 0
    crc, lane, _, _, length = _RECORD.unpack_from(raw, at)
    end = at + _RECORD.size + int(length)
    good = lane < queues and end <= len(raw) and google_crc32c.value(raw[at + 4 : end]) == crc
    return end if good else 0


def _is_torn(raw: bytes, at: int) -> bool:
    """Whether a crash can have left this: the beginning of a record, or zeros for what was not written."""
    rest = raw[at:]
    if len(rest) < _RECORD.size or not rest.strip(b"\0"):
        return True
    crc, lane, item, row, length = _RECORD.unpack_from(rest)
    table = rest[_RECORD.size :]
    if length <= len(table):
        return False
    # A whole record whose length was altered looks like the beginning of a longer one.
    checked = struct.pack("<IQQI", lane, item, row, len(table)) + table
    return bool(google_crc32c.value(checked) != crc)


class Commits:
    """The file of confirmations of an open queue.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.queues.store.commits import Commits, read_commits
    >>> from penstock.queues.store.disk import Disk
    >>> path = Path(tempfile.mkdtemp()) / "commits"
    >>> commits = Commits(path, read_commits(path, 1), Disk())
    >>> commits.confirm(0, 7, 70, {"a": 3})
    >>> commits.close()
    >>> again = read_commits(path, 1)
    >>> again.items, again.rows, again.producers, again.flaws
    ([7], [70], [{'a': 3}], [])
    """

    def __init__(self, path: Path, confirmed: Confirmed, disk: Disk) -> None:
        self.path, self.disk = path, disk
        self.items, self.rows = list(confirmed.items), list(confirmed.rows)
        self.producers = [dict(table) for table in confirmed.producers]
        whole = confirmed.exists and not any(not flaw.torn for flaw in confirmed.flaws)
        self._file = -1
        if whole:
            # Nothing is written, so that a queue can be opened and consumed on a full disk.
            for flaw in confirmed.flaws:
                disk.truncate(path, flaw.offset)
            self._reopen()
        else:
            self._rewrite()

    def _rewrite(self) -> None:
        """One record per queue, as a new file."""
        records = [
            _record(lane, item, row, table)
            for lane, (item, row, table) in enumerate(zip(self.items, self.rows, self.producers, strict=True))
        ]
        try:
            self.disk.replace(self.path, b"".join(records))
        finally:
            if self.path.exists():
                self._reopen()

    def _reopen(self) -> None:
        before, self._file = self._file, os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self._size = os.fstat(self._file).st_size
        if before >= 0:
            os.close(before)

    def confirm(self, lane: int, item: int, row: int, producers: dict[str, int] | None = None) -> None:
        """Everything before this item and row is confirmed, for good when this returns."""
        record = _record(lane, item, row, producers)
        try:
            self.disk.append(self._file, self.path, [record])
            self.disk.sync(self._file, self.path)
        except OSError:
            # Whatever arrived of it must not stand between good records.
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(record)
        self.items[lane], self.rows[lane] = item, row
        if producers is not None:
            self.producers[lane] = dict(producers)
        if self._size > _LONGEST:
            with contextlib.suppress(OSError):  # it is shortened when there is space again
                self._rewrite()

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _record(lane: int, item: int, row: int, producers: dict[str, int] | None) -> bytes:
    table = json.dumps(producers).encode() if producers else b""
    checked = struct.pack("<IQQI", lane, item, row, len(table)) + table
    return struct.pack("<I", google_crc32c.value(checked)) + checked
