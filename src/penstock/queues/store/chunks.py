"""Chunks: some items of a queue as bytes, with a checksum over all of it (CRC32C).

    magic | crc | body | items | first item | first row | rows | tag  ||  tag, lengths, items

The checksum covers everything behind itself. The tag is what a producer said of the chunk, or nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import google_crc32c
import numpy as np

MAGIC = b"PQch"
HEADER = struct.Struct("<4sIIIQQQI")
_CHECKED = struct.Struct("<IIQQQI")
LONGEST = 1 << 31


class Chunk(NamedTuple):
    """The location of a chunk, its items and rows of the queue, and its size in bytes."""

    segment: int
    offset: int
    length: int
    first: int
    count: int  # type: ignore[assignment]  # nobody counts the fields of a chunk
    size: int
    row: int
    rows: int
    tag: bytes


def lengths_of(items: Sequence[bytes]) -> np.ndarray:
    """How long each item is; where all are equally long, which is common, in half the time.

    >>> from penstock.queues.store.chunks import lengths_of
    >>> lengths_of([b"a", b"bc"]).tolist()
    [1, 2]
    """
    kinds = set(map(len, items))
    if len(kinds) == 1:
        return np.full(len(items), kinds.pop(), np.int64)
    return np.fromiter(map(len, items), np.int64, len(items))


def encode(
    items: Sequence[bytes],
    first: int,
    row: int,
    rows: int,
    tag: bytes = b"",
    lengths: np.ndarray | None = None,
) -> list[bytes]:
    """The parts of a chunk, to be written one behind the other.

    >>> from penstock.queues.store.chunks import decode, encode
    >>> decode(b"".join(encode([b"a", b"bc"], first=5, row=5, rows=2)))
    [b'a', b'bc']
    """
    data = b"".join(items)
    front = tag + (lengths_of(items) if lengths is None else lengths).astype(np.uint32).tobytes()
    checked = _CHECKED.pack(len(front) + len(data), len(items), first, row, rows, len(tag))
    crc = google_crc32c.extend(google_crc32c.value(checked + front), data)
    return [MAGIC + struct.pack("<I", crc) + checked + front, data]


def decode(raw: bytes | memoryview) -> list[bytes]:
    """The items of a chunk that has been checked."""
    _, _, _, count, _, _, _, tag = HEADER.unpack_from(raw)
    start = HEADER.size + tag
    lengths = np.frombuffer(raw, np.uint32, count, start)
    start += 4 * count
    if count > 1 and (lengths == lengths[0]).all():
        # Items of one length come out of one call, in a third of the time.
        return list(struct.unpack_from(f"{int(lengths[0])}s" * count, raw, start))
    ends = (np.cumsum(lengths, dtype=np.int64) + start).tolist()
    whole = bytes(raw)
    return [whole[a:b] for a, b in zip([start, *ends], ends, strict=False)]


def check(raw: bytes | memoryview, offset: int, segment: int) -> Chunk | None:
    """The chunk that starts at an offset, or nothing if there is no whole one with the right checksum.

    >>> from penstock.queues.store.chunks import check, encode
    >>> raw = b"".join(encode([b"a", b"bc"], first=5, row=5, rows=2))
    >>> check(raw, 0, 0).first, check(raw[:-1], 0, 0), check(raw[:-1] + b"!", 0, 0)
    (5, None, None)
    """
    if len(raw) - offset < HEADER.size:
        return None
    magic, crc, body, count, first, row, rows, tag = HEADER.unpack_from(raw, offset)
    end = offset + HEADER.size + body
    if magic != MAGIC or end > len(raw) or tag + 4 * count > body:
        return None
    if google_crc32c.value(bytes(memoryview(raw)[offset + 8 : end])) != crc:
        return None
    start = offset + HEADER.size
    size = body - tag - 4 * count
    words = bytes(raw[start : start + tag])
    return Chunk(segment, offset, HEADER.size + body, first, count, size, row, rows, words)


def search(raw: bytes, start: int) -> Iterator[int]:
    """Offsets from `start` on at which a chunk might begin.

    >>> from penstock.queues.store.chunks import MAGIC, search
    >>> list(search(b"..." + MAGIC + MAGIC, 0))
    [3, 7]
    """
    at = raw.find(MAGIC, start)
    while at >= 0:
        yield at
        at = raw.find(MAGIC, at + 1)
