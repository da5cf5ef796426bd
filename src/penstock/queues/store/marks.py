"""The progress of a queue in a small memory-mapped file, which survives a killed process.

After a crash it says which items existed, so that lost ones can be named. Its numbers are not synced while
the queue is open: after a power loss they may be outdated, in which case they say less, but nothing wrong.

A process can be killed between two stores, which would invalidate a checksum over several numbers. Instead,
each number checks itself: it is stored as a multiple of `CHECK`, in a single store. A word that is not a
multiple is damage. A closed queue also has a checksum over all numbers.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

import google_crc32c

from penstock.queues.store.disk import Disk
from penstock.queues.store.scan import Flaw

MAGIC = 0x534B52414D4B50  # "PKMARKS", far from the others in bits
_UNCHECKED = 0x32514D4B50  # "PKMQ2": files from before numbers checked themselves
_WITHOUT_COMMITS = 0x31514D4B50  # "PKMQ1": files from before confirmations were marked
# A prime above 2^16 of which 2 is a primitive root: any change within 16 adjacent bits, and any of two bits,
# is noticed. Numbers may reach 2^47.
CHECK = 65_539
_WORDS = 8  # per queue; the first row is the file's own
PUT, GOT, PUT_ROWS, _UNUSED, COMMITTED, COMMITTED_ROW = range(6)
_NUMBERS = (PUT, GOT, PUT_ROWS, COMMITTED, COMMITTED_ROW)


class QueueMarks:
    """The mapped numbers of some queues. The file is read when this is made, and changed from `open` on.

    `known` says whether there are numbers, `clean` whether the queue was closed, `flaw` what is damaged.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.queues.store.marks import GOT, PUT, QueueMarks
    >>> path = Path(tempfile.mkdtemp()) / "marks"
    >>> marks = QueueMarks(path, 1)
    >>> marks.known, marks.clean
    (False, False)
    >>> marks.open()
    >>> marks.set(0, PUT, 7)
    >>> marks.close(clean=True)
    >>> again = QueueMarks(path, 1)
    >>> again.clean, again.get(0, PUT), again.get(0, GOT)
    (True, 7, 0)
    >>> raw = path.read_bytes()
    >>> _ = path.write_bytes(raw[:64] + b"!" + raw[65:])
    >>> print(QueueMarks(path, 1).flaw)
    damage: marks at offset 0, 128 bytes: the numbers of the closed queue have a wrong checksum
    """

    def __init__(self, path: Path, queues: int) -> None:
        self.path, self.queues = path, queues
        self.size = 8 * _WORDS * (queues + 1)
        self.exists = path.exists()
        raw = path.read_bytes() if self.exists else b""
        self._map: mmap.mmap | None = None
        self.words: memoryview = memoryview(raw.ljust(self.size, b"\0")[: self.size]).cast("Q")
        self.known = self.clean = False
        # Only zeros: a loss of power came before the first numbers were on disk.
        reason = self._reason(len(raw)) if raw.strip(b"\0") else ""
        self.flaw = Flaw(path.name, 0, len(raw), False, reason) if reason else None
        if raw and not reason and self.words[0]:
            self.known, self.clean = True, self.words[1] == 1
        self.has_commits = self.known and self.words[0] != _WITHOUT_COMMITS
        self._check = CHECK if self.words[0] == MAGIC else 1

    def _reason(self, size: int) -> str:
        """What is wrong with the file, if anything is."""
        if size != self.size:
            return f"it should have {self.size} bytes"
        if self.words[0] not in (MAGIC, _UNCHECKED, _WITHOUT_COMMITS):
            return "these are not the marks of a queue"
        if self.words[1] not in (0, 1):
            return "the queue is marked neither open nor closed"
        if self.words[1] == 1 and self.words[2] != self._checksum():
            return "the numbers of the closed queue have a wrong checksum"
        if self.words[0] == MAGIC:
            for lane in range(self.queues):
                row = self.words[_WORDS * (lane + 1) : _WORDS * (lane + 2)]
                if any(row[word] % CHECK if word in _NUMBERS else row[word] for word in range(_WORDS)):
                    return f"a number of queue {lane} was changed"
            if any(self.words[3:_WORDS]):
                return "unused words are not zero"
        return ""

    def _checksum(self) -> int:
        return int(google_crc32c.value(struct.pack(f"<{len(self.words) - 3}Q", *self.words[3:])))

    def open(self) -> None:
        """Map the file; from now on it is that of a queue at work."""
        if not self.known or self.words[0] != MAGIC:
            self._write_anew()
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file, 0, self.size)  # a full disk raises an error here, not a signal later
            self._map = mmap.mmap(file, self.size)
        finally:
            os.close(file)
        self.words, self._check = memoryview(self._map).cast("Q"), CHECK
        self.words[1] = 0
        # On disk before any number changes: a loss of power might leave "closed" with other numbers.
        self._map.flush()

    def _write_anew(self) -> None:
        """A new file, or one in place of that of an earlier version; a crash leaves one of the two."""
        fresh = memoryview(bytearray(self.size)).cast("Q")
        fresh[0] = MAGIC
        for lane in range(self.queues if self.known else 0):
            for word in _NUMBERS:
                fresh[_WORDS * (lane + 1) + word] = self.get(lane, word) * CHECK
        Disk().replace(self.path, fresh.tobytes())

    def get(self, lane: int, word: int) -> int:
        """One number of a queue."""
        return int(self.words[_WORDS * (lane + 1) + word]) // self._check

    def set(self, lane: int, word: int, value: int) -> None:
        """Change one number of a queue."""
        self.words[_WORDS * (lane + 1) + word] = value * CHECK

    def place(self, lane: int) -> int:
        """Where in `words` the numbers of a queue begin, for those who write them often, times `CHECK`."""
        return _WORDS * (lane + 1)

    def close(self, clean: bool) -> None:
        """Unmap the file; `clean` says that nothing is in memory only."""
        if self._map is None:
            return
        if clean:
            self.words[2] = self._checksum()
            self._map.flush()
            self.words[1] = 1
            self._map.flush()
        self.words.release()
        self._map.close()
        self._map = None
