"""Snapshots: the arrays of a state as bytes, with a version and a checksum.

Layout: magic, version, checksum of what follows, then a pickled description and the arrays, compressed.
Only descriptions whose parts are plain values, NumPy and Penstock classes are accepted back.
"""

from __future__ import annotations

import io
import pickle
import struct
import zlib
from typing import Any

import pyarrow as pa

from penstock.errors import SnapshotError
from penstock.kernels.layout import Store
from penstock.policies import registered

MAGIC = b"PENSTOCK"
VERSION = 1
_HEADER = struct.Struct("<8sHIQQ")  # magic, version, checksum, length of the body, its length uncompressed


def pack(config: Any, store: Store, policy: Any, extra: dict[str, Any]) -> bytes:
    """A state as bytes."""
    state = _each_tuple((config, store, policy, extra), "without_views")
    body = pickle.dumps(state, protocol=5)
    packed = pa.compress(body, codec="zstd", asbytes=True)
    return _HEADER.pack(MAGIC, VERSION, zlib.crc32(packed), len(packed), len(body)) + packed


def unpack(data: bytes) -> tuple[Any, Store, Any, dict[str, Any]]:
    """The parts of a snapshot, or an error that says what is wrong with it."""
    if len(data) < _HEADER.size or data[:8] != MAGIC:
        raise SnapshotError(f"This is not a Penstock snapshot ({len(data)} bytes, no header).")
    _, version, checksum, length, whole = _HEADER.unpack_from(data)
    if version != VERSION:
        raise SnapshotError(f"The snapshot has version {version}; this Penstock reads version {VERSION}.")
    packed = data[_HEADER.size :]
    if len(packed) != length or zlib.crc32(packed) != checksum:
        raise SnapshotError(
            f"The snapshot is damaged: {len(packed)} bytes instead of {length}, or a wrong checksum."
        )
    try:
        body = pa.decompress(packed, decompressed_size=whole, codec="zstd", asbytes=True)
        state = _Careful(io.BytesIO(body)).load()
    except SnapshotError:
        raise
    except Exception as error:
        raise SnapshotError(f"The snapshot cannot be read: {error}") from error
    return _each_tuple(state, "with_views")


def _each_tuple(value: Any, method: str) -> Any:
    """A nested tuple in which each part that has the method went through it."""
    if not isinstance(value, tuple):
        return value
    parts = [_each_tuple(part, method) for part in value]
    whole = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return getattr(whole, method)() if hasattr(whole, method) else whole


class _Careful(pickle.Unpickler):
    """Loads classes only from where a snapshot can have them."""

    def find_class(self, module: str, name: str) -> Any:
        root = module.split(".")[0]
        trusted = root in ("penstock", "numpy") or (module == "builtins" and name in ("bytearray", "set"))
        if trusted or _is_policy(module, name):
            return super().find_class(module, name)
        raise SnapshotError(f"The snapshot names {module}.{name}, which has no place in one.")


def _is_policy(module: str, name: str) -> bool:
    """Whether this is a policy that the user has registered in this process."""
    return any(cls.__module__ == module and cls.__qualname__ == name for cls in registered())
