"""Several workers on one queue: with offsets, nothing is confirmed that one of them still holds."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import QueueError
from penstock.queues import QueueClient, QueueServer

OFFSETS = [b"a", b"b", b"c", b"d"]


def test_a_commit_without_offset_confirms_what_others_hold(tmp_path: Path) -> None:
    """What the docstring of `commit` warns of."""
    with ps.SpillQueue(tmp_path, durable=True) as queue:
        queue.put_many(OFFSETS)
        held = queue.get()
        assert queue.get() == b"b"
        queue.commit()
    with ps.SpillQueue(tmp_path, durable=True) as queue:
        assert held not in queue.get_many(9)


@pytest.mark.parametrize("many", [False, True], ids=["get", "get_many"])
def test_with_offsets_what_a_worker_holds_comes_again(tmp_path: Path, many: bool) -> None:
    with ps.SpillQueue(tmp_path, memory=6, durable=True) as queue:
        queue.put_many(OFFSETS)
        if many:
            (slow, quick) = queue.get_many(2, with_offset=True)
        else:
            slow, quick = queue.get(with_offset=True), queue.get(with_offset=True)
        assert (slow, quick) == ((0, b"a"), (1, b"b"))
        assert queue.commit(min(slow.offset, quick.offset + 1)) == 0
    with ps.SpillQueue(tmp_path, memory=6, durable=True) as queue:
        offset, item = queue.get(with_offset=True)
        assert (offset, item) == (0, b"a")
        queue.commit(offset + 1)
        assert queue.get_many(9) == [b"b", b"c", b"d"]
        assert queue.get_many(9, with_offset=True) == []
    with ps.SpillQueue(tmp_path, memory=6, durable=True) as queue:
        assert queue.get_many(2, with_offset=True) == [(1, b"b"), (2, b"c")]


def test_offsets_are_those_of_commit(tmp_path: Path) -> None:
    """Over spills, reopening and blocks that are delivered in part."""
    items = [b"%05d" % i for i in range(400)]
    for durable in (False, True):
        with ps.SpillQueue(tmp_path / str(durable), memory=200, durable=durable) as queue:
            queue.put_many(items[:300])
            found = [*queue.get_many(7, with_offset=True), queue.get(with_offset=True)]
            assert queue.offset == 8
            queue.commit()
        with ps.SpillQueue(tmp_path / str(durable), memory=200, durable=durable) as queue:
            queue.put_many(items[300:])
            while len(queue):
                found += queue.get_many(13, with_offset=True)
        assert found == list(enumerate(items))
        assert found[9].offset == 9
        assert found[9].item == items[9]


def test_members_of_several_queues_have_offsets(tmp_path: Path) -> None:
    with ps.SpillQueues(tmp_path, 2, memory=100, durable=True) as queues:
        queues.put_many(1, [b"a", b"b"])
        assert queues.get(1, with_offset=True) == (0, b"a")
        assert queues.get_many(1, 5, with_offset=True) == [(1, b"b")]
        assert queues.commit(1, 1) == 1


def test_two_threads_of_which_one_never_ends(tmp_path: Path) -> None:
    """The pattern of the documentation: confirm up to the smallest offset in work."""
    lock, working, done = threading.Lock(), set(), []
    holds, free = threading.Event(), threading.Event()
    with ps.SpillQueue(tmp_path, memory=300, durable=True) as queue:
        queue.put_many([b"%03d" % i for i in range(50)])

        def work(slow: bool) -> None:
            while True:
                with lock:
                    if not len(queue):
                        return
                    offset, item = queue.get(with_offset=True)
                    working.add(offset)
                if slow and offset >= 10:
                    holds.set()
                    free.wait(60)
                    return  # as if its process had died
                with lock:
                    done.append(item)
                    working.discard(offset)
                    queue.commit(min(working, default=queue.offset))
                if slow:
                    holds.wait(0)
                elif offset >= 20:
                    holds.wait(60)

        threads = [threading.Thread(target=work, args=(slow,)) for slow in (True, False)]
        for thread in threads:
            thread.start()
        threads[1].join()
        free.set()
        threads[0].join()
        (held,) = working
        assert queue.committed == held
    with ps.SpillQueue(tmp_path, memory=300, durable=True) as queue:
        again = queue.get_many(99)
    assert again[0] == b"%03d" % held
    assert set(done) | set(again) == {b"%03d" % i for i in range(50)}


def test_batches_of_a_server_have_offsets(tmp_path: Path) -> None:
    def batch(first: int) -> Any:
        return pa.record_batch({"n": [first, first + 1, first + 2]})

    with QueueServer(tmp_path) as server, QueueClient(server.location) as client:
        client.producer("q", batch(0).schema).put_many([batch(0), batch(3), batch(6)])
        found = list(client.read("q", 1, 8, with_offset=True))
        assert [(each.offset, each.item["n"].to_pylist()) for each in found] == [
            (1, [1, 2]),
            (3, [3, 4, 5]),
            (6, [6, 7]),
        ]
        client.commit("q", found[1].offset)  # the first is done with, the second is still in work
        assert client.offsets("q") == (3, 9)
        assert [each["n"].to_pylist() for each in client.read("q", 3, 6)] == [[3, 4, 5]]
        client.commit("q", 6)
        with pytest.raises(QueueError, match="confirmed rows are deleted"):
            list(client.read("q", 3, 6))
