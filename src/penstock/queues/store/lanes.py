"""One queue of a store: runs of items, oldest first, alternately in memory and on disk."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from penstock.queues.store.chunks import Chunk, decode, lengths_of
from penstock.queues.store.segments import Segments


class Delivery(NamedTuple):
    """An item and its number in the queue, counted from 0 over the queue's whole life."""

    offset: int
    item: Any


class Block:
    """Items in memory; those before `at` were delivered. `chunk` is where they lie on disk, if they do."""

    __slots__ = ("at", "chunk", "even", "first", "items", "raw", "size")

    def __init__(self, items: list[Any], first: int, size: int, chunk: Chunk | None = None) -> None:
        self.items, self.at, self.first, self.size, self.chunk = items, 0, first, size, chunk
        self.raw: memoryview | None = None
        self.even = -1  # the length of every item, if it is known and one

    @classmethod
    def of(cls, raw: memoryview, chunk: Chunk) -> Block:
        """A chunk that was read: its items are made when the first is wanted, while they are in the cache."""
        block = cls([], chunk.first, chunk.size, chunk)
        block.raw = raw
        return block

    def open(self) -> None:
        """Make the items."""
        if self.raw is not None:
            self.items, self.raw = decode(self.raw), None

    def left(self) -> list[bytes]:
        """What has not been delivered."""
        self.open()
        return self.items[self.at :] if self.at else self.items

    def lengths(self, items: list[bytes]) -> np.ndarray:
        """The lengths of items of this block."""
        return np.full(len(items), self.even, np.int64) if self.even >= 0 else lengths_of(items)

    def split(self, limit: int) -> Block | None:
        """Keep the longest beginning of at most this size; the rest as a block of its own."""
        items = self.left()
        ends = np.cumsum(self.lengths(items))
        kept = int(np.searchsorted(ends, limit, side="right"))
        if kept == len(items):
            return None
        size = int(ends[kept - 1]) if kept else 0
        rest = Block(items[kept:], self.first + kept, self.size - size)
        rest.even = self.even
        self.items, self.at, self.size = items[:kept], 0, size
        return rest


class Run:
    """Blocks in memory, or chunks on disk, that follow each other."""

    __slots__ = ("on_disk", "parts", "size")

    def __init__(self, on_disk: bool) -> None:
        self.on_disk, self.size = on_disk, 0
        self.parts: deque[Any] = deque()

    def add(self, part: Any) -> None:
        """Behind the others."""
        self.parts.append(part)
        self.size += part.size

    def cut(self, limit: int, whole: bool) -> list[Block]:
        """Keep the longest beginning of at most this size; the blocks behind it, oldest first.

        With `whole`, blocks are not divided.
        """
        moved: list[Block] = []
        while self.parts and self.size > limit:
            block = self.parts[-1]
            before = self.size - block.size
            if before < limit and not whole and block.chunk is None and len(block.items) - block.at > 1:
                rest = block.split(limit - before)
                if rest is not None:
                    self.size -= rest.size
                    moved.append(rest)
                    if not block.items:
                        self.parts.pop()
                break
            moved.append(self.parts.pop())
            self.size = before
        return moved[::-1]


class Counters:
    """What a queue has done so far."""

    def __init__(self) -> None:
        self.reads = self.writes = self.read = self.written = 0
        self.journal_writes = self.journal_bytes = 0
        self.dropped = 0


class Lane:
    """The state of one queue."""

    def __init__(self, number: int, segments: Segments) -> None:
        self.number, self.segments = number, segments
        self.runs: list[Run] = []
        self.memory = 0  # bytes of items in memory
        self.disk = 0  # and on disk only
        self.count = 0
        self.put = 0  # the number of the next item to come
        self.got = 0  # and of the next to be delivered
        self.put_row = 0
        self.committed = 0
        self.committed_row = 0
        self.journal: deque[Chunk] = deque()  # chunks that are not confirmed, with durable=True
        self.producers: dict[str, int] = {}
        self.counters = Counters()

    def head(self) -> int:
        """Bytes in memory at the front."""
        return self.runs[0].size if self.runs and not self.runs[0].on_disk else 0

    def tail(self) -> int:
        """Bytes in memory behind all that is on disk, 0 if nothing is."""
        return self.runs[-1].size if len(self.runs) > 1 and not self.runs[-1].on_disk else 0

    def place(self, block: Block) -> None:
        """Items enter at the end, in memory."""
        if not self.runs or self.runs[-1].on_disk:
            self.runs.append(Run(False))
        run = self.runs[-1]
        self.memory += block.size
        self.count += len(block.items)
        run.add(block)

    def extend(self, items: list[bytes], size: int, longest: int, even: int) -> bool:
        """Items enter the last block in memory, if there is one that is not on disk and not too long."""
        if not self.runs or self.runs[-1].on_disk:
            return False
        run = self.runs[-1]
        block = run.parts[-1]
        if block.chunk is not None or block.size + size > longest:
            return False
        block.items.extend(items)
        if block.even != even:
            block.even = -1
        block.size += size
        run.size += size
        self.memory += size
        self.count += len(items)
        return True

    def front(self) -> Block | None:
        """The block with the oldest item, if that is in memory."""
        if self.runs and not self.runs[0].on_disk:
            block: Block = self.runs[0].parts[0]
            block.open()
            return block
        return None

    def delivered(self, number: int, size: int) -> Block | None:
        """The first items of the front block are out; the block if that was all of it."""
        run = self.runs[0]
        block: Block = run.parts[0]
        block.at += number
        block.first += number
        block.size -= size
        run.size -= size
        self.memory -= size
        self.count -= number
        self.got = block.first
        if block.at < len(block.items):
            return None
        run.parts.popleft()
        if not run.parts:
            self.runs.pop(0)
        return block

    def to_disk(self, position: int, moved: list[Block], chunks: list[Chunk]) -> None:
        """Blocks cut off the end of a run are chunks now, joined with those before and behind them."""
        run = self.runs[position]
        size = sum(block.size for block in moved)
        self.memory -= size
        self.disk += size
        after = self.runs[position + 1] if position + 1 < len(self.runs) else None
        if after is None:
            after = Run(True)
            self.runs.insert(position + 1, after)
        after.parts.extendleft(reversed(chunks))
        after.size += size
        if not run.parts:
            del self.runs[position]
            if position > 0:
                before = self.runs[position - 1]
                before.parts.extend(after.parts)
                before.size += after.size
                del self.runs[position]

    def front_chunks(self, size: int) -> list[Chunk]:
        """The oldest chunks of the run at the front that have at most this size together, at least one."""
        run = self.runs[0]
        found, total = [run.parts[0]], run.parts[0].size
        for chunk in islice(run.parts, 1, None):
            total += chunk.size
            if total > size:
                break
            found.append(chunk)
        return found

    def from_disk(self, blocks: list[Block], chunks: list[Chunk]) -> None:
        """The oldest chunks are blocks in memory now."""
        run = self.runs[0]
        freed = sum(chunk.size for chunk in chunks)
        for _ in chunks:
            run.parts.popleft()
        run.size -= freed
        self.disk -= freed
        if not run.parts:
            self.runs.pop(0)
        if not self.runs or self.runs[0].on_disk:
            self.runs.insert(0, Run(False))
        front = self.runs[0]
        front.parts.extendleft(reversed(blocks))
        added = sum(block.size for block in blocks)
        front.size += added
        self.memory += added

    def skip(self, item: int) -> None:
        """Everything before this item leaves the queue; what is on disk only is not read for it."""
        while self.got < item and self.runs:
            run = self.runs[0]
            part = run.parts[0]
            if run.on_disk:
                after, have = part.first + part.count, max(part.first, self.got)
                self.got = min(after, item)
                self.count -= self.got - have
                if after <= item:
                    run.parts.popleft()
                    run.size -= part.size
                    self.disk -= part.size
                if not run.parts:
                    self.runs.pop(0)
            else:
                part.open()
                number = min(item - part.first, len(part.items) - part.at)
                self.delivered(number, sum(map(len, part.items[part.at : part.at + number])))
        self.got = max(self.got, item)

    def check(self) -> None:
        """Every invariant of the bookkeeping."""
        memory = disk = count = 0
        expected = None
        for position, run in enumerate(self.runs):
            assert run.parts
            assert position == 0 or run.on_disk != self.runs[position - 1].on_disk
            assert run.size == sum(part.size for part in run.parts)
            for part in run.parts:
                first = part.first
                if run.on_disk:
                    number = part.count
                    if first < self.got:
                        number, first = number - (self.got - first), self.got
                else:
                    part.open()
                    number = len(part.items) - part.at
                    assert part.size == sum(map(len, part.left()))
                assert expected is None or first >= expected
                expected = first + number
                count += number
            disk, memory = disk + run.size * run.on_disk, memory + run.size * (not run.on_disk)
        assert (memory, disk, count) == (self.memory, self.disk, self.count)
        assert expected is None or expected <= self.put
