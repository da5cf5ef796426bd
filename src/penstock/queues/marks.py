"""How far a queue has come, in a small mapped file: it costs no call, and survives a killed process.

After a crash it tells which items there were, so that what is lost can be named. It is never synced while the
queue is open: after a loss of power it may be older than the truth, and then it says less, not something
wrong.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

import google_crc32c

MAGIC = 0x31514D4B50  # "PKMQ1"
_WORDS = 8  # per queue; the first row is the file's own
PUT, GOT, PUT_ROWS, GOT_ROWS = range(4)


class Marks:
    """The mapped numbers of some queues.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.queues.marks import GOT, PUT, Marks
    >>> path = Path(tempfile.mkdtemp()) / "marks"
    >>> marks = Marks(path, 1)
    >>> marks.known, marks.clean
    (False, False)
    >>> marks.set(0, PUT, 7)
    >>> marks.close(clean=True)
    >>> again = Marks(path, 1)
    >>> again.clean, again.get(0, PUT), again.get(0, GOT)
    (True, 7, 0)
    >>> again.close(clean=True)
    """

    def __init__(self, path: Path, queues: int) -> None:
        size = 8 * _WORDS * (queues + 1)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            was = os.fstat(file).st_size
            if was != size:
                os.ftruncate(file, size)
            self._map = mmap.mmap(file, size)
        finally:
            os.close(file)
        self.words = memoryview(self._map).cast("Q")
        self.queues = queues
        self.known = was == size and self.words[0] == MAGIC
        # Only a clean close leaves a checksum; a file from a crash is believed as it is.
        self.clean = self.known and self.words[1] == 1 and self.words[2] == self._checksum()
        if self.known and self.words[1] == 1 and not self.clean:
            self.known = False
        self.words[0] = MAGIC

    def _checksum(self) -> int:
        return int(google_crc32c.value(struct.pack(f"<{len(self.words) - 3}Q", *self.words[3:])))

    def open(self) -> None:
        """From now on the file is that of a queue at work."""
        self.words[1] = 0

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
        if clean:
            self.words[2] = self._checksum()
            self.words[1] = 1
            self._map.flush()
        self.words.release()
        self._map.close()


def read_marks(path: Path, queues: int) -> tuple[list[tuple[int, ...]] | None, bool]:
    """The numbers of each queue, if they are known, and whether it was closed; the file stays as it is.

    >>> from pathlib import Path
    >>> from penstock.queues.marks import read_marks
    >>> read_marks(Path("nowhere"), 1)
    (None, False)
    """
    raw = path.read_bytes() if path.exists() else b""
    if len(raw) != 8 * _WORDS * (queues + 1):
        return None, False
    words = struct.unpack(f"<{len(raw) // 8}Q", raw)
    checksum = google_crc32c.value(raw[24:])
    if words[0] != MAGIC or (words[1] == 1 and words[2] != checksum):
        return None, False
    rows = [words[_WORDS * (lane + 1) : _WORDS * (lane + 2)] for lane in range(queues)]
    return rows, words[1] == 1
