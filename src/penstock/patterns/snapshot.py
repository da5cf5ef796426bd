"""States of patterns as bytes: plain values and arrays, with a version and a checksum."""

from __future__ import annotations

import io
import pickle
import struct
import zlib
from typing import Any

from penstock.errors import SnapshotError

MAGIC = b"PENNEEL\x00"
VERSION = 1
_HEADER = struct.Struct("<8sHIQ")  # magic, version, checksum, length
_ARRAYS = {
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}


def pack(content: dict[str, Any]) -> bytes:
    """Plain values and arrays as bytes."""
    body = zlib.compress(pickle.dumps(content, protocol=5), 1)
    return _HEADER.pack(MAGIC, VERSION, zlib.crc32(body), len(body)) + body


def unpack(data: bytes) -> dict[str, Any]:
    """The counterpart, or an error that says what is wrong.

    >>> from penstock.patterns.snapshot import pack, unpack
    >>> unpack(pack({"rows": [1, 2]}))
    {'rows': [1, 2]}
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise SnapshotError(f"A snapshot is bytes; {type(data).__name__} was given.")
    data = bytes(data)
    if len(data) < _HEADER.size or data[:8] != MAGIC:
        raise SnapshotError(f"This is not a snapshot of a pattern ({len(data)} bytes, no header).")
    _, version, checksum, length = _HEADER.unpack_from(data)
    if version != VERSION:
        raise SnapshotError(f"The snapshot has version {version}; this Penstock reads version {VERSION}.")
    body = data[_HEADER.size :]
    if len(body) != length or zlib.crc32(body) != checksum:
        raise SnapshotError(
            f"The snapshot is damaged: {len(body)} bytes instead of {length}, or a wrong checksum."
        )
    try:
        content = _Careful(io.BytesIO(zlib.decompress(body))).load()
    except SnapshotError:
        raise
    except Exception as error:
        raise SnapshotError(f"The snapshot cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise SnapshotError("The snapshot is of something else than a pattern.")
    return content


class _Careful(pickle.Unpickler):
    """Loads plain values and arrays only."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ARRAYS:
            return super().find_class(module, name)
        raise SnapshotError(f"The snapshot names {module}.{name}, which has no place in one.")
