"""How far a queue has come, in a small mapped file: it costs no call, and survives a killed process.

After a crash it tells which items there were, so that what is lost can be named. Its numbers are not synced
while the queue is open: after a loss of power they may be older than the truth, and then they say less, not
something wrong. A closed queue leaves a checksum over them.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

import google_crc32c

from penstock.queues.scan import Flaw

MAGIC = 0x32514D4B50  # "PKMQ2"
_WITHOUT_COMMITS = 0x31514D4B50  # "PKMQ1": files from before confirmations were marked
_WORDS = 8  # per queue; the first row is the file's own
PUT, GOT, PUT_ROWS, _, COMMITTED, COMMITTED_ROW = range(6)


class Marks:
    """The mapped numbers of some queues. The file is read when this is made, and changed from `open` on.

    `known` says whether there are numbers, `clean` whether the queue was closed, `flaw` what is damaged.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.queues.marks import GOT, PUT, Marks
    >>> path = Path(tempfile.mkdtemp()) / "marks"
    >>> marks = Marks(path, 1)
    >>> marks.known, marks.clean
    (False, False)
    >>> marks.open()
    >>> marks.set(0, PUT, 7)
    >>> marks.close(clean=True)
    >>> again = Marks(path, 1)
    >>> again.clean, again.get(0, PUT), again.get(0, GOT)
    (True, 7, 0)
    >>> raw = path.read_bytes()
    >>> _ = path.write_bytes(raw[:64] + b"!" + raw[65:])
    >>> print(Marks(path, 1).flaw)
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
        self.has_commits = self.known and self.words[0] == MAGIC

    def _reason(self, size: int) -> str:
        """What is wrong with the file, if anything is."""
        if size != self.size:
            return f"{self.size} bytes are expected"
        if self.words[0] not in (MAGIC, _WITHOUT_COMMITS):
            return "these are no marks of a queue"
        if self.words[1] not in (0, 1):
            return "the queue is said to be neither open nor closed"
        if self.words[1] == 1 and self.words[2] != self._checksum():
            return "the numbers of the closed queue have a wrong checksum"
        return ""

    def _checksum(self) -> int:
        return int(google_crc32c.value(struct.pack(f"<{len(self.words) - 3}Q", *self.words[3:])))

    def open(self) -> None:
        """Map the file; from now on it is that of a queue at work."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(file, self.size)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file, 0, self.size)  # a full disk is told of here, not by a signal later
            self._map = mmap.mmap(file, self.size)
        finally:
            os.close(file)
        before, self.words = self.words, memoryview(self._map).cast("Q")
        self.words[1] = 0
        # On disk before any number changes: or a loss of power might leave "closed" beside other numbers.
        self._map.flush()
        for place in range(2, len(before)):
            self.words[place] = before[place] if self.known else 0
        self.words[0] = MAGIC

    def get(self, lane: int, word: int) -> int:
        """One number of a queue."""
        return self.words[_WORDS * (lane + 1) + word]

    def set(self, lane: int, word: int, value: int) -> None:
        """Change one number of a queue."""
        self.words[_WORDS * (lane + 1) + word] = value

    def place(self, lane: int) -> int:
        """Where in `words` the numbers of a queue begin, for those who write them often."""
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
