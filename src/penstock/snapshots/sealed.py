"""Seal states as bytes: a magic word, a version, a checksum, and careful reading.

Bytes from a disk or a state store may be truncated, damaged, or from another version or program. All of that
is rejected with an error that says which; no code in the bytes is run.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import SnapshotError
from penstock.snapshots.encoding import Accept, Buffer, decode, encoded

_HEADER = struct.Struct("<8sHIQ")  # magic, version, checksum, length
_SIZE = struct.Struct("<Q")  # of what is compressed


@dataclass(frozen=True)
class Seal:
    """A kind of bytes, and how it is called in errors.

    >>> from penstock.snapshots.sealed import Seal
    >>> seal = Seal(b"EXAMPLE1", 1, "state")
    >>> seal.unseal(seal.seal(b"data")), seal.load(seal.dump({"rows": [1, 2]}))
    (b'data', {'rows': [1, 2]})
    >>> seal.unseal(b"data")
    Traceback (most recent call last):
        ...
    penstock.errors.SnapshotError: This is no state of Penstock (4 bytes, no header).
    """

    magic: bytes  # eight of them
    version: int
    what: str

    def seal(self, data: bytes) -> bytes:
        """Data with a header by which it is known again."""
        return self.header([data]) + data

    def header(self, parts: Sequence[Buffer]) -> bytes:
        """The header of data that is in several parts, which need not be put together for it."""
        checksum = length = 0
        for part in parts:
            checksum, length = zlib.crc32(part, checksum), length + memoryview(part).nbytes
        return _HEADER.pack(self.magic, self.version, checksum, length)

    def unseal(self, data: bytes) -> bytes:
        """The data, or an error that says what is wrong with it."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise SnapshotError(f"A {self.what} is bytes; {type(data).__name__} was given.")
        data = bytes(data)
        if len(data) < _HEADER.size or data[:8] != self.magic:
            raise SnapshotError(f"This is no {self.what} of Penstock ({len(data)} bytes, no header).")
        _, version, checksum, length = _HEADER.unpack_from(data)
        if version != self.version:
            raise SnapshotError(
                f"The {self.what} has version {version}; this Penstock reads version {self.version}."
            )
        body = memoryview(data)[_HEADER.size :]
        if len(body) != length or zlib.crc32(body) != checksum:
            raise SnapshotError(
                f"The {self.what} is damaged: {len(body)} bytes instead of {length}, or a wrong checksum."
            )
        return bytes(body)

    def dump(self, content: Any, accept: Accept = lambda kind: False) -> bytes:
        """Plain values, arrays, and records of accepted classes, compressed and sealed."""
        sink, size = pa.BufferOutputStream(), 0
        with pa.CompressedOutputStream(sink, "zstd") as compressed:
            for part in encoded(content, accept):
                compressed.write(part)
                size += memoryview(part).nbytes
        parts = [_SIZE.pack(size), sink.getvalue()]
        return b"".join([self.header(parts), *parts])

    def load(self, data: bytes, accept: Accept = lambda kind: False) -> Any:
        """The counterpart."""
        body = self.unseal(data)
        try:
            (size,) = _SIZE.unpack_from(body)
            whole = pa.decompress(body[_SIZE.size :], decompressed_size=size, codec="zstd", asbytes=True)
            return decode(whole, accept)
        except Exception as error:
            raise SnapshotError(f"The {self.what} cannot be read: {error}") from error
