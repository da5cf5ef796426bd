"""Snapshots: the arrays of a state as bytes, with a version and a checksum.

Layout: magic, version, checksum of what follows, then a pickled description and the arrays, compressed.
Only descriptions whose parts are plain values, NumPy and Penstock classes are accepted back.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import struct
import zlib
from typing import Any

import pyarrow as pa

from penstock.errors import SnapshotError
from penstock.kernels.layout import Store
from penstock.policies import registered
from penstock.policies.python import PythonState

MAGIC = b"PENSTOCK"
VERSION = 1
_HEADER = struct.Struct("<8sHIQQ")  # magic, version, checksum, length of the body, its length uncompressed


def pack(config: Any, store: Any, policy: Any, extra: dict[str, Any]) -> bytes:
    """A state as bytes."""
    state = _each_tuple((config, store, policy, extra), "without_views")
    body = pickle.dumps(state, protocol=5)
    packed = pa.compress(body, codec="zstd", asbytes=True)
    return _HEADER.pack(MAGIC, VERSION, zlib.crc32(packed), len(packed), len(body)) + packed


def unpack(
    data: bytes, config_class: type, store_class: type = Store
) -> tuple[Any, Any, Any, dict[str, Any]]:
    """The parts of a snapshot of an operator with this config, or an error that says what is wrong."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise SnapshotError(f"A snapshot is bytes; {type(data).__name__} was given.")
    data = bytes(data)
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
        config, store, policy, extra = _each_tuple(_Careful(io.BytesIO(body)).load(), "with_views")
    except SnapshotError:
        raise
    except Exception as error:
        raise SnapshotError(f"The snapshot cannot be read: {error}") from error
    if not (isinstance(config, config_class) and isinstance(store, store_class) and isinstance(extra, dict)):
        raise SnapshotError(
            f"The snapshot is of another operator: it has a {type(config).__name__}, "
            f"not a {config_class.__name__}."
        )
    return config, store, policy, extra


def _each_tuple(value: Any, method: str) -> Any:
    """A nested tuple in which each part that has the method went through it."""
    if not isinstance(value, tuple):
        return value
    parts = [_each_tuple(part, method) for part in value]
    whole = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return getattr(whole, method)() if hasattr(whole, method) else whole


_ARRAYS = {
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}


class _Careful(pickle.Unpickler):
    """Loads arrays, and the records and named tuples that Penstock and registered policies define."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ARRAYS or (module, name) == ("builtins", "set"):
            return super().find_class(module, name)
        if "." not in name and (module.split(".")[0] == "penstock" or _is_policy(module, name)):
            found = super().find_class(module, name)
            record = isinstance(found, type) and (dataclasses.is_dataclass(found) or _keeps_state(found))
            if record and found.__module__ == module:
                return found
        raise SnapshotError(f"The snapshot names {module}.{name}, which has no place in one.")


def _keeps_state(found: type) -> bool:
    """Whether a class is a named tuple, or the state of a policy in plain Python."""
    return issubclass(found, PythonState) or (issubclass(found, tuple) and hasattr(found, "_fields"))


def _is_policy(module: str, name: str) -> bool:
    """Whether this is a policy that the user has registered in this process."""
    return any(cls.__module__ == module and cls.__qualname__ == name for cls in registered())
