"""Find the rows of a durable queue, which readers request by number."""

from __future__ import annotations

import bisect
from typing import Any

from penstock.queues.store.chunks import Chunk, decode
from penstock.queues.store.items import Items
from penstock.queues.store.lanes import Lane


def row_of(lane: Lane, kind: Items, item: int) -> int:
    """The row with which an item begins."""
    if kind.kind == "bytes":
        return item
    at = bisect.bisect_right(lane.journal, item, key=lambda chunk: chunk.first) - 1
    if at < 0 or item >= lane.journal[at].first + lane.journal[at].count:
        return lane.put_row
    chunk = lane.journal[at]
    return chunk.row + kind.rows(decode(lane.segments.read([chunk])[0])[: item - chunk.first])


def item_of(lane: Lane, kind: Items, row: int) -> int:
    """The item that has this row, or the one after the last."""
    for chunk in lane.journal:
        if chunk.row + chunk.rows > row:
            item, at = chunk.first, chunk.row
            for each in decode(lane.segments.read([chunk])[0]):
                at += kind.rows([each])
                if at > row:
                    break
                item += 1
            return item
    return lane.put


def chunk_end(lane: Lane, row: int) -> int:
    """The row after the last one of the chunk that has this row."""
    at = bisect.bisect_right(lane.journal, row, key=lambda chunk: chunk.row) - 1
    return lane.journal[at].row + lane.journal[at].rows if at >= 0 else lane.put_row


def blocks(lane: Lane, first_row: int, after_row: int) -> list[tuple[Chunk, Any]]:
    """Chunks that have rows in this range, each with its items or the bytes of them, read where need be."""
    start = max(0, bisect.bisect_right(lane.journal, first_row, key=lambda c: c.row) - 1)
    chunks = []
    for at in range(start, len(lane.journal)):
        chunk = lane.journal[at]
        if chunk.row >= after_row:
            break
        if chunk.row + chunk.rows > first_row:
            chunks.append(chunk)
    loaded: dict[int, Any] = {
        block.chunk.first: list(block.items)
        for run in lane.runs
        if not run.on_disk
        for block in run.parts
        if block.at == 0 and block.raw is None
    }
    absent = [chunk for chunk in chunks if chunk.first not in loaded]
    loaded |= zip((chunk.first for chunk in absent), lane.segments.read(absent), strict=True)
    return [(chunk, loaded[chunk.first]) for chunk in chunks]


def items(
    found: list[tuple[Chunk, Any]], kind: Items, first_row: int, after_row: int
) -> list[tuple[int, Any]]:
    """The items of such chunks that have rows in the range, each with its first row."""
    within = []
    for chunk, content in found:
        row = chunk.row
        for item in content if isinstance(content, list) else decode(content):
            rows = kind.rows([item])
            if row < after_row and row + rows > first_row:
                within.append((row, kind.decode(item)))
            row += rows
    return within
