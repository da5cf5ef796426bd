"""The segment files of one queue: chunks are appended to the newest; unused files are deleted."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import QueueDamageError
from penstock.queues.store.chunks import Chunk, check
from penstock.queues.store.disk import Disk
from penstock.queues.store.scan import HEAD, file_head, segment_name


class SegmentFile:
    """One file: its size, and how many chunks in it are still needed."""

    def __init__(self, number: int, path: Path, file: int, size: int) -> None:
        self.number, self.path, self.file, self.size = number, path, file, size
        self.live = 0


class Segments:
    """The files of a queue, oldest first. Calls come under the lock of the queue, but for `sync`."""

    def __init__(self, folder: Path, lane: int, disk: Disk, longest: int, durable: bool) -> None:
        self.folder, self.lane, self.disk, self.longest, self.durable = folder, lane, disk, longest, durable
        self.files: dict[int, SegmentFile] = {}
        self.active: SegmentFile | None = None
        self.next = 1
        self.bytes = 0
        self.appended = 0  # bytes ever written, for group commit
        self.synced = 0
        self.syncs = 0
        self.failed: OSError | None = None  # a sync that failed: what the disk has since is not known
        self._syncing = threading.Lock()

    def adopt(self, number: int, path: Path, size: int) -> None:
        """A file that was there before; it is read and removed, never appended to."""
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.files[number] = SegmentFile(number, path, file, size)
        self.bytes += size
        self.next = max(self.next, number + 1)

    def append(self, parts: Sequence[bytes]) -> tuple[int, int]:
        """Write a chunk, or several, in one go; the segment and the offset."""
        if self.failed is not None:
            raise self.failed
        if self.active is None or self.active.size >= self.longest:
            self._roll()
        segment = self.active
        assert segment is not None
        offset, length = segment.size, sum(map(len, parts))
        try:
            self.disk.append(segment.file, segment.path, parts)
        except OSError:
            # Whatever arrived of it must not stand between good chunks.
            os.ftruncate(segment.file, offset)
            raise
        segment.size += length
        self.bytes += length
        self.appended += length
        return segment.number, offset

    def _roll(self) -> None:
        """Begin a new file; the old one is complete on disk before."""
        if self.durable:
            self.sync(self.appended)
        number = self.next
        path = self.folder / segment_name(self.lane, number)
        file = self.disk.create(path)
        try:
            self.disk.append(file, path, [file_head(self.lane, number)])
            if self.durable:
                self.disk.sync_folder(self.folder)
        except OSError:
            # A file without a head, with others behind it, would be damage.
            self.disk.close(file)
            self.disk.remove(path)
            raise
        self.next += 1
        self.active = self.files[number] = SegmentFile(number, path, file, HEAD)
        self.bytes += HEAD

    def sync(self, upto: int) -> None:
        """Return when the first `upto` bytes ever written are on disk; threads that wait share one sync."""
        if self.synced >= upto:
            return
        with self._syncing:
            if self.synced >= upto:
                return
            if self.failed is not None:
                # A second sync may succeed though the system has dropped what the first could not write.
                raise self.failed
            reached, segment = self.appended, self.active
            if segment is not None:
                try:
                    self.disk.sync(segment.file, segment.path)
                except OSError as error:
                    self.failed = error
                    raise
                self.syncs += 1
            self.synced = max(self.synced, reached)

    def read(self, chunks: Sequence[Chunk]) -> list[memoryview]:
        """Chunks as they lie, each checked; what lies together is read together."""
        found: list[memoryview] = []
        at = 0
        while at < len(chunks):
            first, end, after = chunks[at], at + 1, chunks[at].offset + chunks[at].length
            while end < len(chunks) and (chunks[end].segment, chunks[end].offset) == (first.segment, after):
                after += chunks[end].length
                end += 1
            segment = self.files[first.segment]
            raw = memoryview(_read(segment.file, first.offset, after - first.offset))
            for chunk in chunks[at:end]:
                start = chunk.offset - first.offset
                part = raw[start : start + chunk.length]
                good = check(part, 0, chunk.segment)
                if good is None or good.first != chunk.first or good.count != chunk.count:
                    raise QueueDamageError(
                        f"The chunk in '{segment.path}' at offset {chunk.offset} has changed since it "
                        "was written; it is not delivered. `penstock queues verify` lists damage."
                    )
                found.append(part)
            at = end
        return found

    def keep(self, chunk: Chunk) -> None:
        """A chunk is needed."""
        self.files[chunk.segment].live += 1

    def free(self, chunk: Chunk) -> None:
        """Give up a chunk that is no longer needed; with its last chunk the file is deleted."""
        segment = self.files[chunk.segment]
        segment.live -= 1
        if segment.live == 0:
            self._drop(segment)

    def drop_unused(self) -> None:
        """Remove files in which nothing is needed."""
        for segment in [s for s in self.files.values() if s.live == 0]:
            self._drop(segment)

    def _drop(self, segment: SegmentFile) -> None:
        if segment is self.active:
            # Others may be waiting for a sync of it, and nothing in it needs one.
            with self._syncing:
                self.active = None
                self.synced = self.appended
        del self.files[segment.number]
        self.bytes -= segment.size
        self.disk.close(segment.file)
        self.disk.remove(segment.path)

    def close(self) -> None:
        """Close all files; they stay."""
        for segment in self.files.values():
            self.disk.close(segment.file)
        self.files.clear()
        self.active = None


def _read(file: int, offset: int, length: int) -> bytes:
    raw = os.pread(file, length, offset)
    if len(raw) == length or not raw:
        return raw
    parts = [raw]
    done = len(raw)
    while done < length and (raw := os.pread(file, length - done, offset + done)):
        parts.append(raw)
        done += len(raw)
    return b"".join(parts)
