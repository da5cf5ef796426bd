"""`SpillQueue` and `SpillQueues`: lossless FIFO queues in bounded memory that spill to disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.errors import QueueError
from penstock.queues.arguments import positive_number
from penstock.queues.planning.planners import Planner
from penstock.queues.stats import QueueStats, Recovery
from penstock.queues.store.disk import Disk
from penstock.queues.store.lanes import Lane
from penstock.queues.store.store import QueueStore


class OneQueue:
    """One queue: the base of `SpillQueue` and of the members of `SpillQueues`."""

    _store: QueueStore
    _lane: Lane

    def put(self, item: Any, timeout: float | None = None) -> bool:
        """Append one item; return False if it was dropped (`on_full="drop-newest"`).

        >>> import tempfile, penstock as ps
        >>> with ps.SpillQueue(tempfile.mkdtemp()) as queue:
        ...     queue.put(b"one"), len(queue)
        (True, 1)
        """
        return self._store.put_many(self._lane, (item,), timeout) == 1

    def put_many(
        self, items: Iterable[Any], timeout: float | None = None, producer: tuple[str, int] | None = None
    ) -> int:
        """Append items; return how many were taken.

        With `durable=True` they survive `kill -9` and power loss once this has returned. `producer` is a name
        and an increasing number: items with a number that was already used are not taken again.

        On a full disk this raises `QueueDiskError`, whose `taken` is the number of items in the queue: with
        `durable=True` none, otherwise as many as fit. Put the others when there is space.

        >>> import tempfile, penstock as ps
        >>> with ps.SpillQueue(tempfile.mkdtemp()) as queue:
        ...     queue.put_many([b"a", b"b"])
        2
        """
        if producer is not None and not self._store.durable:
            raise QueueError("producer=... is stored with the data, so it needs a queue with durable=True.")
        return self._store.put_many(self._lane, items, timeout, producer)

    def get(self, block: bool = True, timeout: float | None = None, *, with_offset: bool = False) -> Any:
        """Return the oldest item; wait up to `timeout` seconds for one (default: without limit).

        `with_offset=True` returns a pair (offset, item): the number of the item, for `commit`.

        >>> import tempfile, penstock as ps
        >>> with ps.SpillQueue(tempfile.mkdtemp()) as queue:
        ...     _ = queue.put_many([b"a", b"b"])
        ...     queue.get(), queue.get(with_offset=True)
        (b'a', Delivery(offset=1, item=b'b'))
        >>> with ps.SpillQueue(tempfile.mkdtemp()) as queue:
        ...     queue.get(timeout=0.01)
        Traceback (most recent call last):
        ...
        penstock.errors.QueueEmptyError: The queue in '...' is empty after 0.01 s.
        """
        found = self._store.get(self._lane, block, timeout)
        return found if with_offset else found.item

    def get_many(self, n: int, *, with_offset: bool = False) -> list[Any]:
        """Return the oldest min(n, len) items at once; with `with_offset=True` as pairs (offset, item).

        >>> import tempfile, penstock as ps
        >>> with ps.SpillQueue(tempfile.mkdtemp()) as queue:
        ...     queue.put_many([b"a", b"b", b"c"])
        ...     queue.get_many(2)
        3
        [b'a', b'b']
        """
        if with_offset:
            return self._store.get_many_with_offsets(self._lane, n)
        return self._store.get_many(self._lane, n)

    def peek(self) -> Any:
        """Return the oldest item without removing it."""
        return self._store.peek(self._lane)

    def commit(self, offset: int | None = None) -> int:
        """Confirm all items before this one, or all delivered items; return the offset.

        With `durable=True`, confirmed items are not delivered again after reopening; other items are.

        Without an offset this confirms what *every* thread has received, including items that are still being
        processed: if the process dies then, those items are lost. With several workers on one queue, take
        items by `get(with_offset=True)` and confirm only up to the smallest offset that a worker still holds.

        >>> import tempfile, penstock as ps
        >>> with ps.SpillQueue(tempfile.mkdtemp(), durable=True) as queue:
        ...     _ = queue.put_many([b"a", b"b", b"c"])
        ...     first, second = queue.get(with_offset=True), queue.get(with_offset=True)
        ...     # The worker with `second` is done, the one with `first` is not.
        ...     queue.commit(min(first.offset, second.offset + 1))
        ...     # Now it is.
        ...     queue.commit(second.offset + 1)
        0
        2
        """
        return self._store.commit(self._lane, offset)

    @property
    def offset(self) -> int:
        """The number of the next item to be delivered; items are numbered from 0."""
        return self._lane.got

    @property
    def committed(self) -> int:
        """The number of the first unconfirmed item."""
        return self._lane.committed

    @property
    def end(self) -> int:
        """The number that the next appended item will have."""
        return self._lane.put

    def __len__(self) -> int:
        return self._lane.count

    def stats(self) -> QueueStats:
        """Return reads, writes, bytes, cost, and how much is in memory and on disk.

        >>> import tempfile, penstock as ps
        >>> with ps.SpillQueue(tempfile.mkdtemp(), memory=20) as queue:
        ...     queue.put_many([b"12345"] * 6)
        ...     found = queue.stats()
        ...     found.head, found.spilled, found.tail, found.writes
        6
        (10, 10, 10, 1)
        """
        return self._store.stats([self._lane])


class _Folder:
    """Common base of one or several queues in a folder."""

    _store: QueueStore

    @property
    def recovery(self) -> Recovery:
        """What was found when the queue was opened."""
        return self._store.recovery

    @property
    def schema(self) -> Any:
        """The schema of the record batches; None for bytes."""
        return self._store.items.schema

    def check(self) -> None:
        """Assert every invariant; for tests."""
        self._store.check()

    def close(self) -> None:
        """Close the queue; its contents stay on disk for the next opening.

        Without `durable=True`, items in memory are written now. If the disk is too full, this raises
        `QueueDiskError` and the queue stays open: free space and close it again, or get the items.
        """
        self._store.close()

    def _leave(self, error: BaseException | None) -> None:
        self._store.close()


class SpillQueue(OneQueue, _Folder):
    """A FIFO queue that keeps at most `memory` bytes of items in memory and spills the others to disk.

    Parameters
    ----------
    path
        A folder for this queue only; one process may open it at a time.
    memory
        Bytes of items in memory, or a text such as "64 MiB". An item may have at most half of it.
    policy
        The planner of writes and reads: a name of `penstock.queues.planners`, such as "half" or "hybrid".
    durable
        Whether `put_many` returns only when its items would survive a power loss.
    disk_limit, on_full
        The maximum size of all files together, and what happens then: "block", "fail" or "drop-newest".
    schema
        A `pyarrow.Schema`, if the items are record batches. Without one, they are bytes.
    salvage
        Open a queue even if it is damaged; `recovery` says what is missing.

    >>> import tempfile, penstock as ps
    >>> folder = tempfile.mkdtemp()
    >>> with ps.SpillQueue(folder, memory="1 KiB") as queue:
    ...     queue.put_many(str(i).encode() for i in range(1_000))
    1000
    >>> with ps.SpillQueue(folder, memory="1 KiB") as queue:
    ...     queue.get(), len(queue), queue.recovery.clean
    (b'0', 999, True)

    Motwani and Thomas, Caching Queues in Memory Buffers (SODA 2004).
    """

    def __init__(
        self,
        path: str | Path,
        memory: str | int = "64 MiB",
        policy: str | Planner = "half",
        durable: bool = False,
        *,
        disk_limit: str | int | None = None,
        on_full: str = "block",
        schema: Any = None,
        salvage: bool = False,
        disk: Disk | None = None,
    ) -> None:
        self._store = QueueStore(path, 1, memory, policy, durable, disk_limit, on_full, schema, salvage, disk)
        self._lane = self._store.lanes[0]

    def __enter__(self) -> SpillQueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)


class _Member(OneQueue):
    def __init__(self, store: QueueStore, lane: Lane) -> None:
        self._store, self._lane = store, lane


class SpillQueues(_Folder):
    """Several queues that share one memory; `queues[i]` is one queue, with the methods of `SpillQueue`.

    >>> import tempfile, penstock as ps
    >>> with ps.SpillQueues(tempfile.mkdtemp(), queues=2, memory="1 KiB") as queues:
    ...     queues.put_many(0, [b"a", b"b"])
    ...     queues[1].put(b"c")
    ...     queues.get(0), queues[1].get(), len(queues[0])
    2
    True
    (b'a', b'c', 1)
    """

    def __init__(
        self,
        path: str | Path,
        queues: int,
        memory: str | int = "64 MiB",
        policy: str | Planner = "buffered-head",
        durable: bool = False,
        *,
        disk_limit: str | int | None = None,
        on_full: str = "block",
        schema: Any = None,
        salvage: bool = False,
        disk: Disk | None = None,
    ) -> None:
        number = positive_number(queues)
        self._store = QueueStore(
            path, number, memory, policy, durable, disk_limit, on_full, schema, salvage, disk
        )
        self._members = [_Member(self._store, lane) for lane in self._store.lanes]

    def __getitem__(self, queue: int) -> OneQueue:
        if isinstance(queue, bool) or not isinstance(queue, int) or not 0 <= queue < len(self._members):
            raise QueueError(f"There is no queue {queue!r}; there are 0 to {len(self._members) - 1}.")
        return self._members[queue]

    def __iter__(self) -> Iterator[OneQueue]:
        return iter(self._members)

    def __len__(self) -> int:
        return sum(map(len, self._members))

    def put(self, queue: int, item: Any, timeout: float | None = None) -> bool:
        """Like `SpillQueue.put`, for one of the queues."""
        return self[queue].put(item, timeout)

    def put_many(
        self,
        queue: int,
        items: Iterable[Any],
        timeout: float | None = None,
        producer: tuple[str, int] | None = None,
    ) -> int:
        """Like `SpillQueue.put_many`, for one of the queues."""
        return self[queue].put_many(items, timeout, producer)

    def get(
        self, queue: int, block: bool = True, timeout: float | None = None, *, with_offset: bool = False
    ) -> Any:
        """Like `SpillQueue.get`, for one of the queues."""
        return self[queue].get(block, timeout, with_offset=with_offset)

    def get_many(self, queue: int, n: int, *, with_offset: bool = False) -> list[Any]:
        """Like `SpillQueue.get_many`, for one of the queues."""
        return self[queue].get_many(n, with_offset=with_offset)

    def peek(self, queue: int) -> Any:
        """Like `SpillQueue.peek`, for one of the queues."""
        return self[queue].peek()

    def commit(self, queue: int, offset: int | None = None) -> int:
        """Like `SpillQueue.commit`, for one of the queues; the note on several workers applies too."""
        return self[queue].commit(offset)

    def stats(self) -> QueueStats:
        """Return the counts of all queues together."""
        return self._store.stats(self._store.lanes)

    def __enter__(self) -> SpillQueues:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)
