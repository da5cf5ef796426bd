"""The store behind `SpillQueue` and `SpillQueues`: queues that share one memory, one folder and one lock."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from penstock.errors import QueueDamageError, QueueEmptyError, QueueError, QueueFullError
from penstock.queues.arguments import disk_error, producer_of_batch, seconds, whole_number
from penstock.queues.store import rows
from penstock.queues.store.chunks import Chunk, encode, lengths_of
from penstock.queues.store.lanes import Block, Delivery, Lane
from penstock.queues.store.marks import CHECK, COMMITTED, COMMITTED_ROW, GOT, PUT, PUT_ROWS
from penstock.queues.store.open_folder import OpenFolder
from penstock.queues.store.recovery import producer_tag
from penstock.queues.store.spiller import pieces


class QueueStore(OpenFolder):
    """Queues in one memory. All methods are safe to call from several threads."""

    # --- in -------------------------------------------------------------------------------------------

    def put_many(
        self,
        lane: Lane,
        items: Iterable[Any],
        timeout: float | None = None,
        producer: tuple[str, int] | None = None,
    ) -> int:
        """Append items; return how many were taken (fewer only with on_full="drop-newest")."""
        if producer is not None:
            producer = producer_of_batch(producer)
        until = None if timeout is None else time.monotonic() + seconds("timeout", timeout)
        encoded = self.items.encode(items)
        sizes = lengths_of(encoded)
        if encoded and sizes.max() > self.plan.largest:
            raise QueueError(
                f"An item of {int(sizes.max()):,} bytes was given; with a memory of {self.memory:,} and "
                f"{len(self.lanes)} queue{'s' * (len(self.lanes) > 1)}, {self.planner.name!r} takes items of "
                f"at most {self.plan.largest:,}. Give more memory or smaller items."
            )
        with self.mutex:
            self._need_open()
            if producer is not None and producer[1] <= lane.producers.get(producer[0], -1):
                # The same again: the first one may still be on its way to the disk.
                taken, upto = len(encoded), lane.segments.appended
            elif self.durable:
                try:
                    taken, upto = self._journal(lane, encoded, sizes, until, producer)
                except OSError as error:
                    raise self._not_written(error, 0, len(encoded)) from error
            else:
                taken, upto = self._take_in(lane, encoded, sizes, until), 0
        if self.durable:
            try:
                lane.segments.sync(upto)
            except OSError as error:
                raise self._not_written(error, 0, len(encoded)) from error
            with self.mutex:
                if (
                    not self.closed
                    and lane.put > self.marks.get(lane.number, PUT)
                    and (lane.segments.synced >= lane.segments.appended)
                ):
                    # Only what is on disk for good may be missed later.
                    self._mark(lane, PUT, lane.put)
                    self._mark(lane, PUT_ROWS, lane.put_row)
        return taken

    def _take_in(self, lane: Lane, items: list[bytes], sizes: np.ndarray, until: float | None) -> int:
        """Place items, spilling as the planner says."""
        total, at = int(sizes.sum()), 0
        even = int(sizes[0]) if len(items) and sizes.min() == sizes.max() else -1
        ends: np.ndarray | None = None
        while at < len(items):
            room = self.spiller.room(lane)
            number, amount = len(items) - at, total
            if total > room:
                if ends is None:
                    ends = np.cumsum(sizes)
                done = int(ends[at - 1]) if at else 0
                number = int(np.searchsorted(ends, done + room, side="right")) - at
                amount = int(ends[at + number - 1]) - done if number else 0
            if number:
                part = items if number == len(items) else items[at : at + number]
                self._place(lane, part, amount, even)
                at, total = at + number, total - amount
                if self.waiting_get:
                    self.arrived.notify_all()
            else:
                size = int(sizes[at])
                need = self.spiller.wanted(lane, size, False)[0]
                if self._over(need) and not self._wait_for_disk(lane, at, len(items), until):
                    break
                try:
                    self.spiller.make_room(lane, size, False, self._over)
                except OSError as error:
                    raise self._not_written(error, at, len(items)) from error
        return at

    def _not_written(self, error: OSError, taken: int, given: int) -> QueueError:
        """What to raise where items could not be written."""
        if any(lane.segments.failed for lane in self.lanes):
            consequence = (
                f"It is unknown whether {given:,} items are safe: the disk failed to sync. Close the queue "
                "and open it again; the items that it has then are safe."
            )
        else:
            consequence = (
                f"{taken:,} of {given:,} items were taken, and nothing that was taken is lost. Free space, "
                f"or consume{' and commit' * self.durable}; then put the others."
            )
        return disk_error(self.folder, error, consequence, taken)

    def _place(self, lane: Lane, items: list[bytes], size: int, even: int) -> None:
        if not lane.extend(items, size, self.spiller.grain, even):
            block = Block(list(items), lane.put, size)
            block.even = even
            lane.place(block)
        lane.put += len(items)
        lane.put_row += self.items.rows(items)
        place = self.marks.place(lane.number)
        self.words[place + PUT] = lane.put * CHECK
        self.words[place + PUT_ROWS] = lane.put_row * CHECK

    def _journal(
        self,
        lane: Lane,
        items: list[bytes],
        sizes: np.ndarray,
        until: float | None,
        producer: tuple[str, int] | None,
    ) -> tuple[int, int]:
        """Write items to the journal and keep them in memory while the planner does."""
        parts = pieces(items, sizes, self.spiller.grain)
        room = self._free_disk()
        need = int(sizes.sum()) + 4 * len(sizes) + 64 * len(parts)
        while room is not None and need > room and self.on_full != "drop-newest":
            # All or nothing: what is acknowledged is one thing.
            if not self._wait_for_disk(lane, 0, len(items), until, need):
                return 0, 0
            room = self._free_disk()
        taken = 0
        buffers: list[bytes] = []
        made: list[tuple[list[bytes], int, int, int, int]] = []
        first, row = lane.put, lane.put_row
        for number, (part, lengths, size) in enumerate(parts):
            if room is not None and (room := room - size - 4 * len(part) - 64) < 0:
                break
            number_of_rows = self.items.rows(part)
            tag = producer_tag(*producer, last=number == len(parts) - 1) if producer else b""
            encoded = encode(part, first, row, number_of_rows, tag, lengths)
            buffers += encoded
            made.append((part, size, first, row, sum(map(len, encoded))))
            first, row, taken = first + len(part), row + number_of_rows, taken + len(part)
        if taken < len(items):
            lane.counters.dropped += len(items) - taken
        if not made:
            return 0, 0
        segment, offset = lane.segments.append(buffers)
        lane.counters.journal_writes += 1
        lane.counters.journal_bytes += sum(map(len, buffers))
        for part, size, number, at_row, length in made:
            chunk = Chunk(
                segment, offset, length, number, len(part), size, at_row, self.items.rows(part), b""
            )
            offset += length
            lane.segments.keep(chunk)
            lane.journal.append(chunk)
            self.spiller.make_room(lane, size, False)
            lane.place(Block(part, number, size, chunk))
        lane.put, lane.put_row = first, row
        if producer is not None and taken == len(items):
            lane.producers[producer[0]] = producer[1]
        if self.waiting_get:
            self.arrived.notify_all()
        return taken, lane.segments.appended

    # --- the disk limit -------------------------------------------------------------------------------

    def _wait_for_disk(
        self, lane: Lane, taken: int, given: int, until: float | None, need: int | None = None
    ) -> bool:
        """The disk is full: wait, raise, or say that the rest is dropped (False)."""
        if self.on_full == "drop-newest":
            lane.counters.dropped += given - taken
            return False
        assert self.limit is not None
        never = need is not None and need + 256 > self.limit
        left = None if until is None else until - time.monotonic()
        if self.on_full == "fail" or never or (left is not None and left <= 0):
            raise QueueFullError(
                f"The queue in '{self.folder}' is at its disk limit of {self.limit:,} bytes; {taken:,} of "
                f"{given:,} items were taken. Consume{' and commit' * self.durable}, raise disk_limit, "
                "or choose on_full='block' or 'drop-newest'.",
                taken,
            )
        self.waiting_put += 1
        try:
            self.freed.wait(left)
        finally:
            self.waiting_put -= 1
        self._need_open()
        return True

    # --- out ------------------------------------------------------------------------------------------

    def get_many(self, lane: Lane, number: int) -> list[Any]:
        """Take out the oldest items: as many as requested, or all there are."""
        return self.items.decode_many(self._take_out(lane, number, None))

    def get_many_with_offsets(self, lane: Lane, number: int) -> list[Delivery]:
        """The same, each with its number."""
        offsets: list[int] = []
        items = self.items.decode_many(self._take_out(lane, number, offsets))
        return [Delivery(offset, item) for offset, item in zip(offsets, items, strict=True)]

    def _take_out(self, lane: Lane, number: int, offsets: list[int] | None) -> list[bytes]:
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 0:
            raise QueueError(f"get_many takes a number of items from 0 up; {number!r} was given.")
        found: list[bytes] = []
        with self.mutex:
            self._need_open()
            while number > 0 and lane.count:
                block = lane.front()
                if block is None:
                    try:
                        self.spiller.load(lane)
                    except OSError as error:
                        if found:
                            break  # what is delivered is not taken back; the next call reports the error
                        raise self._not_loaded(error) from error
                    continue
                rest = len(block.items) - block.at
                if offsets is not None:
                    offsets.extend(range(block.first, block.first + min(number, rest)))
                if number >= rest:
                    part, size = block.left(), block.size
                else:
                    part = block.items[block.at : block.at + number]
                    size = sum(map(len, part))
                    block.items[block.at : block.at + number] = [None] * number  # delivered: not ours to keep
                if found:
                    found.extend(part)
                else:
                    found = part
                number -= len(part)
                self._deliver(lane, len(part), size)
            if self.waiting_put:
                self.freed.notify_all()
        return found

    def get(self, lane: Lane, block: bool = True, timeout: float | None = None) -> Delivery:
        """The oldest item with its number; waits for one if need be."""
        timeout = None if timeout is None else seconds("timeout", timeout)
        with self.mutex:
            self._need_open()
            if not lane.count:
                self._wait_for_item(lane, block, timeout)
            front = self._front(lane)
            offset, item = front.first, front.items[front.at]
            front.items[front.at] = None
            self._deliver(lane, 1, len(item))
            if self.waiting_put:
                self.freed.notify_all()
        return Delivery(offset, self.items.decode(item))

    def _front(self, lane: Lane) -> Block:
        """The block with the oldest item, read from disk where need be."""
        front = lane.front()
        while front is None:
            try:
                self.spiller.load(lane)
            except OSError as error:
                raise self._not_loaded(error) from error
            front = lane.front()
        return front

    def _not_loaded(self, error: OSError) -> QueueError:
        """What to raise where the oldest items cannot be read, or no room be made for them."""
        return disk_error(
            self.folder, error, "Room for the oldest items cannot be made; free space and get them then."
        )

    def _wait_for_item(self, lane: Lane, block: bool, timeout: float | None) -> None:
        until = None if timeout is None else time.monotonic() + timeout
        self.waiting_get += 1
        try:
            while not lane.count:
                left = None if until is None else until - time.monotonic()
                if not block or (left is not None and left <= 0):
                    waited = "" if not block or timeout is None else f" after {timeout:g} s"
                    raise QueueEmptyError(f"The queue in '{self.folder}' is empty{waited}.")
                self.arrived.wait(left)
                self._need_open()
        finally:
            self.waiting_get -= 1

    def _deliver(self, lane: Lane, number: int, size: int) -> None:
        done = lane.delivered(number, size)
        if done is not None:
            if done.chunk is not None and not self.durable:
                lane.segments.free(done.chunk)
            if self.spiller.eager and lane.runs and lane.runs[0].on_disk:
                self._mark(lane, GOT, lane.got)
                # An item that is out must reach its consumer: the next call reports a bad disk.
                with contextlib.suppress(OSError, QueueDamageError):
                    self.spiller.load(lane)
        self.words[self.marks.place(lane.number) + GOT] = lane.got * CHECK

    def peek(self, lane: Lane) -> Any:
        """The oldest item, which stays."""
        with self.mutex:
            self._need_open()
            if not lane.count:
                raise QueueEmptyError(f"The queue in '{self.folder}' is empty.")
            front = self._front(lane)
            return self.items.decode(front.items[front.at])

    # --- confirmation ---------------------------------------------------------------------------------

    def commit(self, lane: Lane, offset: int | None = None, row: int | None = None) -> int:
        """Confirm everything before this item: it is not delivered again, and its space becomes free."""
        with self.mutex:
            self._need_open()
            offset = lane.got if offset is None else offset
            if isinstance(offset, bool) or not isinstance(offset, int | np.integer):
                raise QueueError(f"commit takes the number of an item; {offset!r} was given.")
            if row is None and not lane.committed <= offset <= lane.got:
                raise QueueError(
                    f"commit({offset}) was given; items {lane.committed} to {lane.got} can be confirmed "
                    "(delivered and not yet confirmed). Without a number, all that was delivered is."
                )
            if self.commits is None:
                lane.committed = int(offset)
                return lane.committed
            row = row if row is not None else rows.row_of(lane, self.items, int(offset))
            leaving = bool(lane.journal) and lane.journal[0].first + lane.journal[0].count <= offset
            try:
                # What is confirmed must be there after a loss of power, or it would be missed.
                lane.segments.sync(lane.segments.appended)
                self.commits.confirm(lane.number, int(offset), row, lane.producers if leaving else None)
            except OSError as error:
                consequence = (
                    "Nothing was confirmed. A confirmation takes a few bytes: free them and commit again."
                )
                raise disk_error(self.folder, error, consequence) from error
            lane.committed, lane.committed_row = int(offset), row
            self._mark(lane, COMMITTED, lane.committed)
            self._mark(lane, COMMITTED_ROW, row)
            while lane.journal and lane.journal[0].first + lane.journal[0].count <= offset:
                lane.segments.free(lane.journal.popleft())
            if self.waiting_put:
                self.freed.notify_all()
            return lane.committed

    def between(self, lane: Lane, first_row: int, after_row: int) -> list[tuple[int, Any]]:
        """Unconfirmed items that have rows in this range, each with its first row; nothing is delivered."""
        with self.mutex:
            self._need_open()
            if first_row < lane.committed_row or after_row > lane.put_row or first_row > after_row:
                raise QueueError(
                    f"Rows {first_row} to {after_row} were requested; the queue has rows "
                    f"{lane.committed_row} to {lane.put_row} (confirmed rows are deleted)."
                )
            blocks = rows.blocks(lane, first_row, after_row)
        return rows.items(blocks, self.items, first_row, after_row)

    def chunk_end(self, lane: Lane, row: int) -> int:
        """The row after the last one of the chunk that has this row."""
        with self.mutex:
            self._need_open()
            return rows.chunk_end(lane, row)

    def commit_row(self, lane: Lane, row: int) -> None:
        """Confirm everything before this row and remove it from the queue, delivered or not."""
        with self.mutex:
            self._need_open()
            row = whole_number("row", row)
            if row <= lane.committed_row:
                return
            if row > lane.put_row:
                raise QueueError(f"Row {row} was confirmed; the queue has {lane.put_row} so far.")
            item = rows.item_of(lane, self.items, row)
            self.commit(lane, item, row)
            lane.skip(item)
            self._mark(lane, GOT, lane.got)
