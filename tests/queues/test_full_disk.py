"""A disk that is really full: a small file system of its own, and a limit on the size of files."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import PenstockError, QueueDiskError, QueueError
from penstock.queues import QueueClient, QueueServer, verify
from penstock.queues.store.disk import Disk
from tests.queues.test_crash import path as python_path


def item(number: int, size: int = 700) -> bytes:
    return b"%06d" % number + b"." * (size - 6)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill_up(place: Path) -> Path:
    """Take all space that is left."""
    ballast = place / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (4096, 1):
            while True:
                try:
                    file.write(b"x" * size)
                except OSError as error:
                    assert error.errno == errno.ENOSPC  # noqa: PT017
                    break
    return ballast


@pytest.mark.parametrize("durable", [False, True], ids=["", "durable"])
@pytest.mark.parametrize("policy", ["half", "half-late", "greedy", "buffered-head"])
def test_nothing_is_lost_and_the_queue_goes_on(small_disk: Path, durable: bool, policy: str) -> None:
    options: dict[str, Any] = {"memory": "32 KiB", "durable": durable, "policy": policy}
    with ps.SpillQueue(small_disk / "q", **options) as queue:
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"x" * (128 << 10))
        taken = 0

        def fill() -> None:
            nonlocal taken
            while True:
                done = queue.put_many([item(taken + i) for i in range(60)])
                assert done == 60
                taken += done

        with pytest.raises(QueueDiskError, match="is full") as caught:
            fill()
        assert isinstance(caught.value, PenstockError)
        assert caught.value.errno == errno.ENOSPC
        assert f"{caught.value.taken:,} of 60 items were taken" in str(caught.value)
        if durable:
            assert caught.value.taken == 0
        taken += caught.value.taken
        assert 0 < taken < 500
        assert len(queue) == taken
        queue.check()
        got = [queue.get() for _ in range(10)]
        ballast.unlink()
        assert queue.put_many([item(taken + i) for i in range(20)]) == 20
        queue.check()
        assert queue.committed == 0
        if durable:
            queue.commit(10)
    assert verify(small_disk / "q").whole
    with ps.SpillQueue(small_disk / "q", **options) as queue:
        assert queue.recovery.clean
        got += queue.get_many(1_000)
    assert got == [item(i) for i in range(taken + 20)]


def test_close_keeps_what_it_cannot_write(small_disk: Path) -> None:
    """Without durable, items in memory go to disk when the queue is closed."""
    queue = ps.SpillQueue(small_disk / "q", memory="64 KiB", policy="half")
    queue.put_many([item(i) for i in range(85)])  # all of it in memory
    assert not list((small_disk / "q").glob("*.seg"))
    ballast = fill_up(small_disk)
    for _ in range(2):
        with pytest.raises(QueueDiskError, match="stays open with its 85 items"):
            queue.close()
        queue.check()
    assert queue.get() == item(0)
    os.truncate(ballast, ballast.stat().st_size - (24 << 10))  # not enough
    with pytest.raises(QueueDiskError, match="stays open with its 84 items"):
        queue.close()
    queue.check()
    ballast.unlink()
    queue.put(item(85))
    queue.close()
    queue.close()
    assert verify(small_disk / "q").whole
    with ps.SpillQueue(small_disk / "q", memory="64 KiB") as queue:
        assert queue.get_many(1_000) == [item(i) for i in range(1, 86)]


def test_several_queues_close_on_a_full_disk(small_disk: Path) -> None:
    """What a failed close has written of the first queue is not written, nor delivered, twice."""
    queues = ps.SpillQueues(small_disk / "q", 3, memory="96 KiB")
    for number in range(3):
        queues.put_many(number, [item(100 * number + i) for i in range(40)])
    (small_disk / "ballast").write_bytes(b"x" * (256 - 60 << 10))
    with pytest.raises(QueueDiskError, match="stays open"):
        queues.close()
    queues.check()
    assert queues.get(0) == item(0)
    (small_disk / "ballast").unlink()
    queues.put(0, item(40))
    queues.close()
    with ps.SpillQueues(small_disk / "q", 3, memory="96 KiB") as queues:
        assert queues.get_many(0, 99) == [item(i) for i in range(1, 41)]
        for number in (1, 2):
            assert queues.get_many(number, 99) == [item(100 * number + i) for i in range(40)]


@pytest.mark.parametrize("policy", ["buffered-head", "greedy", "greedy-chunk:block=2000"])
@pytest.mark.parametrize("durable", [False, True], ids=["", "durable"])
def test_random_work_on_a_disk_that_is_full_at_times(small_disk: Path, durable: bool, policy: str) -> None:
    """Queues against lists: every call does what it says or says what it did."""
    rng = random.Random(7)
    options: dict[str, Any] = {"memory": "32 KiB", "durable": durable, "policy": policy}
    queues = ps.SpillQueues(small_disk / "q", 3, **options)
    models: list[list[bytes]] = [[], [], []]
    refused = number = 0
    for _ in range(400):
        at = rng.randrange(3)
        try:
            match rng.choice(["put", "put", "get", "get_many", "full", "space", "close"]):
                case "put":
                    items = [item(number + i, rng.randrange(6, 900)) for i in range(rng.randrange(1, 30))]
                    number += len(items)
                    try:
                        taken = queues.put_many(at, items)
                    except QueueDiskError as error:
                        models[at] += items[: error.taken]
                        raise
                    models[at] += items[:taken]
                case "get" if models[at]:
                    assert queues.get(at) == models[at][0]
                    del models[at][0]
                case "get_many":
                    got = queues.get_many(at, rng.randrange(40))
                    assert got == models[at][: len(got)]
                    del models[at][: len(got)]
                case "full":
                    fill_up(small_disk)
                case "space":
                    (small_disk / "ballast").unlink(missing_ok=True)
                case "close" if not durable:
                    queues.close()
                    queues = ps.SpillQueues(small_disk / "q", 3, **options)
            if durable:
                queues.commit(at)
        except QueueDiskError:
            refused += 1
        if queues._store.closed:  # closed, and a full disk refused to open it again
            (small_disk / "ballast").unlink(missing_ok=True)
            queues = ps.SpillQueues(small_disk / "q", 3, **options)
        queues.check()
        assert [len(queues[i]) for i in range(3)] == [len(model) for model in models]
    assert refused > 10
    (small_disk / "ballast").unlink(missing_ok=True)
    queues.close()
    assert verify(small_disk / "q").whole
    with ps.SpillQueues(small_disk / "q", 3, **options) as queues:
        for at in range(3):
            got = queues.get_many(at, 10**6)
            assert got[len(got) - len(models[at]) :] == models[at]
            assert durable or len(got) == len(models[at])


def test_a_sync_that_fails_is_final(tmp_path: Path) -> None:
    """What the disk has is not known then: nothing is acknowledged until the queue is opened again."""

    class BadDisk(Disk):
        bad = False

        def sync(self, file: int, path: Path) -> None:
            if self.bad:
                raise OSError(errno.EIO, "Input/output error")
            super().sync(file, path)

    disk = BadDisk()
    queue = ps.SpillQueue(tmp_path, durable=True, disk=disk)
    queue.put(b"a")
    disk.bad = True
    with pytest.raises(QueueDiskError, match=r"cannot be written .*It is unknown whether 1 items are safe"):
        queue.put_many([b"b"], producer=("p", 1))
    disk.bad = False
    for call in (
        lambda: queue.put_many([b"b"], producer=("p", 1)),  # not acknowledged by mistake
        lambda: queue.put(b"c"),
        queue.commit,
    ):
        with pytest.raises(QueueDiskError, match="cannot be written"):
            call()
    queue.close()
    with ps.SpillQueue(tmp_path, durable=True) as queue:
        assert queue.get_many(9) in ([b"a"], [b"a", b"b"])
        assert queue.put(b"c")


def test_a_durable_queue_is_consumed_on_a_full_disk(small_disk: Path) -> None:
    """Opening writes nothing, and a confirmation needs only what is left of a page."""
    with ps.SpillQueue(small_disk / "q", memory="32 KiB", durable=True) as queue:
        queue.put_many([item(i) for i in range(150)])
        queue.get_many(10)
        queue.commit()
    fill_up(small_disk)
    with ps.SpillQueue(small_disk / "q", memory="32 KiB", durable=True) as queue:
        with pytest.raises(QueueDiskError, match="0 of 99 items"):
            queue.put_many([item(i) for i in range(99)])
        assert queue.get_many(1_000) == [item(i) for i in range(10, 150)]
        assert queue.commit() == 150
        assert queue.put_many([b"again"]) == 1
        assert queue.get() == b"again"


def test_confirmations_on_a_full_disk(small_disk: Path) -> None:
    """One that does not fit is refused and leaves nothing behind; the items come again."""
    with ps.SpillQueue(small_disk / "q", memory="32 KiB", durable=True) as queue:
        queue.put_many([item(i, 20) for i in range(900)])
        ballast = fill_up(small_disk)
        refused = number = 0
        while number < 400:
            number += 1
            queue.get()
            try:
                queue.commit()
            except QueueDiskError as error:
                assert "Nothing was confirmed" in str(error)  # noqa: PT017
                refused += 1
                before = queue.committed
                if refused > 3:
                    break
        assert refused > 3
        assert number < 400
        ballast.unlink()
        queue.get()
        assert queue.commit() == number + 1
        assert queue.committed > before
        confirmed = queue.committed
    assert verify(small_disk / "q").whole
    with ps.SpillQueue(small_disk / "q", memory="32 KiB", durable=True) as queue:
        assert queue.committed == confirmed
        assert queue.get() == item(confirmed, 20)


def test_a_folder_on_a_full_disk(small_disk: Path) -> None:
    fill_up(small_disk)
    for durable in (False, True):
        with pytest.raises(PenstockError, match="full"):
            ps.SpillQueue(small_disk / "q", memory="32 KiB", durable=durable)
    (small_disk / "ballast").unlink()
    ps.SpillQueue(small_disk / "q", memory="32 KiB").close()


def test_the_server_lives_on(small_disk: Path) -> None:
    def batch(number: int) -> Any:
        return pa.record_batch({"n": [number] * 50, "s": ["x" * 200] * 50})

    schema = batch(0).schema
    with (
        QueueServer(small_disk / "served", memory="64 KiB") as server,
        QueueClient(server.location) as client,
    ):
        producer = client.producer("a", schema, name="it")
        sent = 0

        def send() -> None:
            nonlocal sent
            while True:
                producer.put(batch(sent))
                sent += 1

        with pytest.raises(QueueError, match=r"is full.* 0 of 1 batches were taken"):
            send()
        assert 5 < sent < 30
        assert producer.number == sent - 1
        fill_up(small_disk)
        with pytest.raises(QueueError, match="is full"):
            producer.put_many([batch(sent), batch(sent + 1)])
        with pytest.raises(QueueError, match="full"):
            client.producer("b", schema).put(batch(0))
        first, after = client.offsets("a")
        assert after == 50 * sent
        assert [piece["n"][0].as_py() for piece in client.read("a", first, 50 * 3)] == [0, 1, 2]
        (small_disk / "ballast").unlink()
        client.commit("a", after)
        assert producer.put_many([batch(sent), batch(sent + 1)]) == sent + 1
        client.producer("b", schema).put(batch(0))
        first, after = client.offsets("a")
        found = [n for piece in client.read("a", first, after) for n in piece["n"].to_pylist()]
        assert found == [sent] * 50 + [sent + 1] * 50  # once each


def test_a_batch_that_is_taken_in_part(small_disk: Path) -> None:
    """Several batches in one call: those before the full disk are in, the error says how many."""

    def batch(number: int) -> Any:
        return pa.record_batch({"n": [number] * 50, "s": ["x" * 200] * 50})

    with (
        QueueServer(small_disk / "served", memory="64 KiB") as server,
        QueueClient(server.location) as client,
    ):
        producer = client.producer("a", batch(0).schema, name="it")
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"x" * (128 << 10))
        with pytest.raises(QueueError, match=r"(\d+) of 40 batches were taken") as caught:
            producer.put_many([batch(i) for i in range(40)])
        taken = int(str(caught.value).split(" of 40")[0].split()[-1])
        assert 2 < taken < 20
        ballast.unlink()
        producer.put(batch(taken))
        first, after = client.offsets("a")
        found = [n for piece in client.read("a", first, after) for n in piece["n"].to_pylist()]
        assert found == [i for i in range(taken + 1) for _ in range(50)]


LIMITED = """
import resource, sys, penstock as ps
from penstock.errors import QueueDiskError
folder, durable = sys.argv[1], sys.argv[2] == "durable"
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
queue = ps.SpillQueue(folder, memory=30_000, durable=durable)
taken, told = 0, 0
try:
    while True:
        taken += queue.put_many([b"%06d" % (taken + i) for i in range(500)])
except QueueDiskError as error:
    taken, told = taken + error.taken, error.taken
assert len(queue) == taken, (len(queue), taken)
queue.check()
try:
    queue.close()
except QueueDiskError:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    queue.close()
print(taken, told)
"""


@pytest.mark.parametrize("kind", ["durable", "plain"])
def test_files_may_not_grow(tmp_path: Path, kind: str) -> None:
    """A limit on the size of files, where no file system can be mounted."""
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "q"), kind]
    env = os.environ | {"PYTHONPATH": python_path()}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    taken, told = map(int, done.stdout.split())
    assert taken > 2_000
    assert told == 0 or kind == "plain"
    assert verify(tmp_path / "q").whole
    with ps.SpillQueue(tmp_path / "q", memory=30_000, durable=kind == "durable") as queue:
        assert queue.get_many(10**6) == [b"%06d" % i for i in range(taken)]
