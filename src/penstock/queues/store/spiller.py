"""Move items to disk and back, as the planner of the queues decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from penstock.queues.planning import decisions
from penstock.queues.planning.decisions import SizedPlanner
from penstock.queues.store.chunks import Chunk, decode, encode
from penstock.queues.store.lanes import Block, Lane

# The decisions are compiled for simulations; a call with plain numbers is quicker interpreted.
_before = getattr(decisions.before, "py_func", decisions.before)
_protected = getattr(decisions.protected, "py_func", decisions.protected)
_reading = getattr(decisions.reading, "py_func", decisions.reading)
_on_demand = getattr(decisions.on_demand, "py_func", decisions.on_demand)


class Spiller:
    """Moves items of queues that share one memory to disk and back; its caller holds the lock."""

    def __init__(self, plan: SizedPlanner, longest: int, lanes: list[Lane], durable: bool) -> None:
        self.plan, self.lanes, self.durable = plan, lanes, durable
        # Chunks are at most this long, so that one always fits where a planner reads.
        grain = min(longest, plan.largest)
        self.grain = min(grain, plan.block) if plan.kind == decisions.GREEDY else grain
        self.keep = _protected(plan)
        self.unit = _reading(plan)
        self.eager = not _on_demand(plan)

    def whole(self) -> int:
        """How much memory all queues take."""
        return self.lanes[0].memory if len(self.lanes) == 1 else sum(lane.memory for lane in self.lanes)

    def room(self, lane: Lane) -> int:
        """How much may enter before something is written; `Store.check` compares it with the planner."""
        if self.plan.kind == decisions.HALF:
            return self.plan.memory // 2 - lane.tail() if lane.disk else self.plan.memory - lane.head()
        return self.plan.memory - self.whole()

    def wanted(self, lane: Lane, size: int, reads: bool) -> tuple[int, Lane]:
        """What the planner writes before so much enters: how much, and of which queue."""
        fullest = max(self.lanes, key=lambda each: each.memory) if len(self.lanes) > 1 else lane
        amount, of_fullest = _before(
            self.plan,
            size,
            reads,
            lane.head(),
            lane.tail(),
            lane.disk,
            self.whole(),
            fullest.memory,
        )
        return amount, fullest if of_fullest else lane

    def make_room(
        self, lane: Lane, size: int, reads: bool, too_much: Callable[[int], bool] | None = None
    ) -> None:
        """Write what the planner says before so much enters; stop at a write that would be too much."""
        while True:
            amount, source = self.wanted(lane, size, reads)
            if amount == 0 or (too_much is not None and too_much(amount)):
                return
            if not self._spill(source, amount):
                # Chunks written under a larger memory may be longer than a planner's reads are now.
                assert reads, "a planner asked for a write where nothing can be written"
                return

    def _spill(self, lane: Lane, amount: int) -> bool:
        """The newest of a queue go to disk, or are forgotten where they are there already."""
        position, some = len(lane.runs) - 1, False
        while amount > 0 and position >= 0:
            run = lane.runs[position]
            if not run.on_disk:
                limit = max(run.size - amount, 0)
                moved = run.cut(max(limit, self.keep) if position == 0 else limit, self.durable)
                if not moved:
                    break
                some = True
                size = sum(block.size for block in moved)
                amount -= size
                stays = bool(run.parts)
                try:
                    chunks = self.write(lane, moved)
                except BaseException:
                    for block in moved:  # a disk that fails must not cost what is in memory
                        run.add(block)
                    raise
                lane.counters.writes += 1
                lane.counters.written += size
                lane.to_disk(position, moved, chunks)
                if stays:
                    break
            position -= 1
        return some

    def write(self, lane: Lane, blocks: list[Block]) -> list[Chunk]:
        """Blocks as chunks on disk, written in one go; what is there already is not written twice."""
        there = [block.chunk for block in blocks if block.chunk is not None]
        if self.durable:
            return there
        if there:
            return there + (self.write(lane, blocks[len(there) :]) if len(there) < len(blocks) else [])
        items = blocks[0].left() if len(blocks) == 1 else [i for block in blocks for i in block.left()]
        first = blocks[0].first
        lengths = np.concatenate([block.lengths(block.left()) for block in blocks])
        parts = pieces(items, lengths, self.grain)
        buffers: list[bytes] = []
        made = []
        for part, lengths, size in parts:
            encoded = encode(part, first, 0, len(part), b"", lengths)
            buffers += encoded
            made.append((first, len(part), size, sum(map(len, encoded))))
            first += len(part)
        segment, offset = lane.segments.append(buffers)
        chunks = []
        for number, count, size, length in made:
            chunks.append(Chunk(segment, offset, length, number, count, size, 0, count, b""))
            offset += length
            lane.segments.keep(chunks[-1])
        return chunks

    def save(self, lane: Lane) -> None:
        """Write what is in memory only. It stays in memory, and is not written again."""
        for run in lane.runs:
            fresh = [block for block in run.parts if block.chunk is None] if not run.on_disk else []
            if not fresh:
                continue
            items = [item for block in fresh for item in block.left()]
            parts = [block for block in run.parts if block.chunk is not None]
            at = 0
            for chunk in self.write(lane, fresh):
                parts.append(Block(items[at : at + chunk.count], chunk.first, chunk.size, chunk))
                at += chunk.count
            run.parts = deque(parts)

    def load(self, lane: Lane) -> None:
        """Read the oldest of a queue, which are on disk, into memory."""
        chunks = lane.front_chunks(min(self.unit, lane.runs[0].size))
        self.make_room(lane, sum(chunk.size for chunk in chunks), True)
        blocks = []
        for chunk, raw in zip(chunks, lane.segments.read(chunks), strict=True):
            confirmed = max(0, lane.got - chunk.first)
            if confirmed:  # delivered and confirmed before the queue was opened
                items = decode(raw)[confirmed:]
                blocks.append(Block(items, chunk.first + confirmed, sum(map(len, items)), chunk))
            else:
                blocks.append(Block.of(raw, chunk))
        lane.from_disk(blocks, chunks)
        lane.counters.reads += 1
        lane.counters.read += sum(chunk.size for chunk in chunks)


def pieces(items: list[bytes], sizes: np.ndarray, longest: int) -> list[tuple[list[bytes], np.ndarray, int]]:
    """Items in pieces of at most this size (an item that is larger is a piece), with their sizes."""
    total = int(sizes.sum())
    if total <= longest:
        return [(items, sizes, total)] if items else []
    ends = np.cumsum(sizes)
    found, at, done = [], 0, 0
    while at < len(items):
        after = max(at + 1, int(np.searchsorted(ends, done + longest, side="right")))
        found.append((items[at:after], sizes[at:after], int(ends[after - 1]) - done))
        at, done = after, int(ends[after - 1])
    return found
