"""Scan the segment files of a queue: every intact chunk, and every flaw."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from pathlib import Path

import google_crc32c

from penstock.queues.store.chunks import Chunk, check, search

NAME = re.compile(r"q(\d{5})-(\d{10})\.seg")
_HEAD = struct.Struct("<8sIII")
FILE_MAGIC = b"PENSTKQ1"
HEAD = _HEAD.size


def segment_name(lane: int, number: int) -> str:
    """The name of a segment file.

    >>> from penstock.queues.store.scan import segment_name
    >>> segment_name(0, 12)
    'q00000-0000000012.seg'
    """
    return f"q{lane:05d}-{number:010d}.seg"


def file_head(lane: int, number: int) -> bytes:
    """The first bytes of a segment file.

    >>> from penstock.queues.store.scan import HEAD, file_head
    >>> len(file_head(0, 1)) == HEAD
    True
    """
    checked = struct.pack("<II", lane, number & 0xFFFFFFFF)
    return FILE_MAGIC + checked + struct.pack("<I", google_crc32c.value(FILE_MAGIC + checked))


@dataclass(frozen=True)
class Flaw:
    """A place in a file that cannot be read: `torn` if nothing good follows, otherwise damage."""

    file: str
    offset: int
    bytes: int
    torn: bool
    reason: str

    def __str__(self) -> str:
        kind = "torn end" if self.torn else "damage"
        return f"{kind}: {self.file} at offset {self.offset}, {self.bytes} bytes: {self.reason}"


@dataclass
class ScannedQueue:
    """Chunks and flaws of one queue, segment numbers and file sizes."""

    chunks: list[Chunk] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)


def files_of(folder: Path) -> dict[int, list[tuple[int, Path]]]:
    """The segment files of a folder by queue, in the order of their numbers.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.queues.store.scan import files_of
    >>> files_of(Path(tempfile.mkdtemp()))
    {}
    """
    found: dict[int, list[tuple[int, Path]]] = {}
    for path in folder.iterdir():
        match = NAME.fullmatch(path.name)
        if match:
            found.setdefault(int(match[1]), []).append((int(match[2]), path))
    return {lane: sorted(files) for lane, files in sorted(found.items())}


def scan(files: list[tuple[int, Path]], lane: int) -> ScannedQueue:
    """Read and check all segment files of a queue.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.queues.store.scan import file_head, scan
    >>> path = Path(tempfile.mkdtemp()) / "q00000-0000000001.seg"
    >>> _ = path.write_bytes(file_head(0, 1) + b"rest")
    >>> print(scan([(1, path)], 0).flaws[0])
    torn end: q00000-0000000001.seg at offset 20, 4 bytes: no whole chunk
    """
    found = ScannedQueue()
    for position, (number, path) in enumerate(files):
        raw = path.read_bytes()
        found.sizes[number] = len(raw)
        last = position == len(files) - 1
        at = HEAD
        if raw[:HEAD] != file_head(lane, number):
            follows = any(check(raw, start, number) for start in search(raw, 0))
            whole = len(raw) if not follows else HEAD
            found.flaws.append(Flaw(path.name, 0, whole, last and not follows, "the file header is wrong"))
            if not follows:
                continue
        while at < len(raw):
            chunk = check(raw, at, number)
            if chunk is not None:
                found.chunks.append(chunk)
                at += chunk.length
                continue
            following = next((s for s in search(raw, at + 1) if check(raw, s, number)), None)
            end = len(raw) if following is None else following
            torn = last and following is None
            reason = (
                "no whole chunk" if torn else "a chunk with a wrong length or checksum, and good ones behind"
            )
            found.flaws.append(Flaw(path.name, at, end - at, torn, reason))
            at = end
    found.chunks.sort(key=lambda chunk: (chunk.first, chunk.segment, chunk.offset))
    return found


@dataclass(frozen=True)
class Gap:
    """Items that should be there and are not: from `first` up to but without `after`."""

    first: int
    after: int

    def __str__(self) -> str:
        return f"items {self.first:,} to {self.after - 1:,} are missing ({self.after - self.first:,})"


def gaps(chunks: list[Chunk], first: int, after: int) -> list[Gap]:
    """Which items between two numbers no chunk holds.

    >>> from penstock.queues.store.scan import gaps
    >>> [str(gap) for gap in gaps([], 3, 5)]
    ['items 3 to 4 are missing (2)']
    """
    found = []
    for chunk in chunks:
        if chunk.first > first and first < after:
            found.append(Gap(first, min(chunk.first, after)))
        first = max(first, chunk.first + chunk.count)
    if first < after:
        found.append(Gap(first, after))
    return found
