"""The folder of some queues while it is open: its lock, what was found in it, and how it is closed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.arguments import one_of
from penstock.errors import (
    QueueError,
    UnknownPolicyError,
)
from penstock.queues.arguments import (
    disk_error,
    existing_folder,
    unusable,
    yes_or_no,
)
from penstock.queues.planning.planners import Planner, planner, with_block
from penstock.queues.stats import QueueStats
from penstock.queues.store.commits import Commits
from penstock.queues.store.disk import Disk
from penstock.queues.store.lanes import Lane
from penstock.queues.store.lock import Lock
from penstock.queues.store.marks import CHECK, COMMITTED, COMMITTED_ROW, GOT, PUT, PUT_ROWS
from penstock.queues.store.metadata import open_metadata
from penstock.queues.store.recovery import examine, marked_row, recover
from penstock.queues.store.segments import Segments
from penstock.queues.store.spiller import Spiller
from penstock.units import size as size_of

BLOCK = 1 << 20  # T: chunks of 1 MiB reach nearly the sequential rate of a disk, even with a sync each
SEGMENT = 64 << 20
FULL = ("block", "fail", "drop-newest")


class OpenFolder:
    """What queues that share one memory have open. `mutex` guards all of it."""

    def __init__(
        self,
        path: str | Path,
        queues: int,
        memory: str | int,
        policy: str | Planner,
        durable: bool,
        disk_limit: str | int | None,
        on_full: str,
        schema: Any,
        salvage: bool,
        disk: Disk | None,
    ) -> None:
        spec = planner(policy)
        if not spec.stores:
            raise UnknownPolicyError(f"{spec.name!r} is for simulations only.")
        spec = with_block(spec, BLOCK)
        self.memory = size_of(memory)
        if spec.name == "greedy-chunk" and spec.block and spec.block > self.memory // (2 * queues):
            spec = with_block(planner("hybrid"), spec.block)  # T above M/2 means HALF
        self.plan = spec.sized(self.memory, queues)
        one_of("on_full", on_full, FULL, QueueError)
        self.limit = None if disk_limit is None else size_of(disk_limit)
        if self.limit is not None and self.limit < 4096:
            raise QueueError(f"disk_limit takes at least 4 KiB; {disk_limit!r} was given.")
        self.on_full, self.durable, self.planner = on_full, yes_or_no("durable", durable), spec
        yes_or_no("salvage", salvage)
        self.disk = disk or Disk()
        self.folder = existing_folder(path)
        self.closed = False
        self.commits: Commits | None = None
        try:
            self.lock = Lock(self.folder)
            try:
                self.items = open_metadata(self.folder, queues, self.durable, schema, self.disk)
                self._open(queues, salvage)
            except BaseException:
                self.closed = True
                self.lock.release()
                raise
        except QueueError:
            raise
        except OSError as error:
            raise unusable(self.folder, error) from error

    def _open(self, queues: int, salvage: bool) -> None:
        self.mutex = threading.RLock()
        self.arrived = threading.Condition(self.mutex)
        self.freed = threading.Condition(self.mutex)
        self.waiting_get = self.waiting_put = 0
        segment = SEGMENT if self.limit is None else max(1 << 16, min(SEGMENT, self.limit // 8))
        self.lanes = [
            Lane(number, Segments(self.folder, number, self.disk, segment, self.durable))
            for number in range(queues)
        ]
        self.spiller = Spiller(self.plan, BLOCK, self.lanes, self.durable)
        state = examine(self.folder, queues, self.durable)
        self.marks = state.marks
        try:
            self.recovery = recover(self.folder, self.lanes, state, self.disk, salvage)
            for lane in self.lanes:
                lane.put_row = max(lane.put_row, marked_row(self.marks, lane))
            if self.durable:
                self.commits = Commits(self.folder / "commits", state.confirmed, self.disk)
            self.marks.open()
        except BaseException:
            self.marks.close(clean=False)
            if self.commits is not None:
                self.commits.close()
            for lane in self.lanes:
                lane.segments.close()
            raise
        self.words = self.marks.words
        for lane in self.lanes:
            self._mark(lane, PUT, lane.put)
            self._mark(lane, GOT, lane.got)
            self._mark(lane, PUT_ROWS, lane.put_row)
            self._mark(lane, COMMITTED, lane.committed)
            self._mark(lane, COMMITTED_ROW, lane.committed_row)

    def _mark(self, lane: Lane, word: int, value: int) -> None:
        self.words[self.marks.place(lane.number) + word] = value * CHECK

    def _need_open(self) -> None:
        if self.closed:
            raise QueueError(f"The queue in '{self.folder}' is closed.")

    def _free_disk(self) -> int | None:
        if self.limit is None:
            return None
        return self.limit - sum(lane.segments.bytes for lane in self.lanes)

    def _over(self, amount: int) -> bool:
        free = self._free_disk()
        return free is not None and amount + amount // 64 + 256 > free

    def stats(self, lanes: Sequence[Lane]) -> QueueStats:
        """The counts of some queues together."""
        with self.mutex:
            counters = [lane.counters for lane in lanes]
            return QueueStats(
                items=sum(lane.count for lane in lanes),
                head=sum(lane.head() for lane in lanes),
                spilled=sum(lane.disk for lane in lanes),
                tail=sum(lane.memory - lane.head() for lane in lanes),
                memory=sum(lane.memory for lane in lanes),
                reads=sum(c.reads for c in counters),
                writes=sum(c.writes for c in counters),
                bytes_read=sum(c.read for c in counters),
                bytes_written=sum(c.written for c in counters),
                journal_writes=sum(c.journal_writes for c in counters),
                journal_bytes=sum(c.journal_bytes for c in counters),
                syncs=sum(lane.segments.syncs for lane in lanes),
                dropped=sum(c.dropped for c in counters),
                disk_bytes=sum(lane.segments.bytes for lane in lanes),
                block=self.planner.block or BLOCK,
            )

    def check(self) -> None:
        """Assert every invariant: bookkeeping, memory, and that room is what the planner means by it."""
        with self.mutex:
            for lane in self.lanes:
                lane.check()
                room = self.spiller.room(lane)
                if 0 <= room < self.plan.largest:
                    assert self.spiller.wanted(lane, room + 1, False)[0] > 0
                if room >= 0:
                    assert self.spiller.wanted(lane, room, False)[0] == 0
            assert self.spiller.whole() <= self.memory

    def close(self) -> None:
        """Close the queues. Without `durable`, write their items to disk first; if that fails, stay open."""
        with self.mutex:
            if self.closed:
                return
            try:
                for lane in self.lanes:
                    if not self.durable:
                        self.spiller.save(lane)
                    for segment in lane.segments.files.values():
                        if segment is lane.segments.active:
                            self.disk.sync(segment.file, segment.path)
                    if self.durable and lane.segments.failed is None:
                        self._mark(lane, PUT, lane.put)
                        self._mark(lane, PUT_ROWS, lane.put_row)
                self.disk.sync_folder(self.folder)
            except OSError as error:
                if self.durable:
                    self._release(clean=False)
                    consequence = "The queue is closed; everything that was acknowledged is on disk."
                    raise disk_error(self.folder, error, consequence) from error
                count = sum(lane.count for lane in self.lanes)
                consequence = (
                    f"The queue stays open with its {count:,} items: free space and close it, or get them."
                )
                raise disk_error(self.folder, error, consequence) from error
            except BaseException:
                self._release(clean=False)
                raise
            self._release(clean=all(lane.segments.failed is None for lane in self.lanes))

    def _release(self, clean: bool) -> None:
        self.closed = True
        self.arrived.notify_all()
        self.freed.notify_all()
        for lane in self.lanes:
            lane.segments.close()
        self.marks.close(clean)
        if self.commits is not None:
            self.commits.close()
        self.lock.release()
