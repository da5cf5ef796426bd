"""Pattern states as bytes: plain values and arrays."""

from __future__ import annotations

from typing import Any

from penstock.errors import SnapshotError
from penstock.snapshots.sealed import Seal

SEAL = Seal(b"PENNEEL\x00", 4, "snapshot of a pattern")


def pack(content: dict[str, Any]) -> bytes:
    """Pack plain values and arrays into bytes."""
    return SEAL.dump(content)


def unpack(data: bytes) -> dict[str, Any]:
    """The inverse of `pack`; raises an error that says what is wrong.

    >>> from penstock.patterns.snapshot import pack, unpack
    >>> unpack(pack({"rows": [1, 2]}))
    {'rows': [1, 2]}
    """
    content = SEAL.load(data)
    if not isinstance(content, dict):
        raise SnapshotError("The snapshot is not of a pattern.")
    return content
