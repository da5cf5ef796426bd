"""Kills, damage and loss of power: nothing acknowledged is lost, nothing doubled, no item ever wrong."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import QueueDamageError, QueueError
from penstock.queues.store.disk import Disk
from tests.queues.crash import acknowledged, item

ROOT = Path(__file__).parents[2]


def some_seed() -> int:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    return seed


# --- kill -9 ------------------------------------------------------------------------------------------


def kill_again_and_again(folder: Path, kills: int, longest: float) -> None:
    rng = random.Random(some_seed())
    queue, log = folder / "queue", folder / "log"
    for number in range(kills):
        before = log.stat().st_size if log.exists() else 0
        command = [sys.executable, "-m", "tests.queues.crash", str(queue), str(log), str(rng.random())[2:9]]
        with subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path()}) as process:
            end = time.monotonic() + 60
            while not (log.exists() and log.stat().st_size > before + 12):  # it has opened the queue
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.002)
            time.sleep(rng.uniform(0, longest))
            process.send_signal(signal.SIGKILL)
        put, done, lines = acknowledged(log)
        assert not [line for line in lines if line.startswith("wrong")]
        with ps.SpillQueue(queue, memory=5_000, durable=True) as again:
            assert done <= again.committed
            assert put <= again.end
            assert not again.recovery.damage
            assert not again.recovery.lost
            assert len(again) == again.end - again.committed
            first = again.offset
            assert first == again.committed
            if number % 5 == 4 or number == kills - 1:  # all of it; not confirmed, so it comes again
                got = again.get_many(10**7)
                assert got == [item(first + i) for i in range(len(got))]


def path() -> str:
    return os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])


def test_killed_three_times(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, kills=3, longest=0.3)


@pytest.mark.soak
def test_killed_two_hundred_times(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, kills=200, longest=0.5)


def test_a_crash_without_durable_says_what_it_lost(tmp_path: Path) -> None:
    code = f"""
import os, penstock as ps
queue = ps.SpillQueue({str(tmp_path)!r}, memory=1000)
queue.put_many([b"%04d" % i for i in range(1000)])
assert queue.get_many(30)[-1] == b"0029"
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path()}, check=False)
    with ps.SpillQueue(tmp_path, memory=1000) as queue:
        assert not queue.recovery.clean
        assert 0 < queue.recovery.lost_items < 300
        assert "missing" in str(queue.recovery)
        got = queue.get_many(1000)
        assert len(got) == 970 - queue.recovery.lost_items
        assert got == sorted(got)
        lost = {n for gap in queue.recovery.lost for n in range(gap.first, gap.after)}
        assert lost | {int(each) for each in got} == set(range(30, 1000))


# --- damage -------------------------------------------------------------------------------------------


def make(folder: Path, durable: bool) -> list[bytes]:
    items = [item(i) for i in range(300)]
    with ps.SpillQueue(folder, memory=2_000, durable=durable) as queue:
        for at in range(0, 300, 10):
            queue.put_many(items[at : at + 10])
        queue.get_many(20)
        queue.commit(20)
    return items[20:]


def harm(rng: random.Random, path: Path) -> None:
    raw = bytearray(path.read_bytes())
    kind = rng.randrange(3)
    if kind == 0 or not raw:
        del raw[rng.randrange(len(raw) + 1) :]
    else:
        for _ in range(rng.randrange(1, 4)):
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)


def fuzz(folder: Path, rounds: int) -> None:
    rng = random.Random(some_seed())
    wanted: dict[bool, list[bytes]] = {}
    for durable in (False, True):
        wanted[durable] = make(folder / str(durable), durable)
    outcomes = {"refused": 0, "whole": 0, "reported": 0}
    for number in range(rounds):
        durable = bool(number % 2)
        copy = folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder / str(durable), copy)
        harm(rng, rng.choice(sorted(copy.glob("*.seg"))))
        known = number % 4 != 1
        if not known:
            (copy / "marks").unlink()  # after a loss of power nothing may be known of the end
        items = wanted[durable]
        try:
            with ps.SpillQueue(copy, memory=2_000, durable=durable) as queue:
                report, got = queue.recovery, queue.get_many(1_000)
        except QueueDamageError as error:
            assert "offset" in str(error) or "missing" in str(error)  # noqa: PT017
            outcomes["refused"] += 1
            # What can be saved is a part of what was there, in order, and the rest is named.
            with ps.SpillQueue(copy, memory=2_000, durable=durable, salvage=True) as queue:
                got = queue.get_many(1_000)
                assert len(got) + queue.recovery.lost_items == len(items) or not known
                rest = iter(items)
                assert all(each in rest for each in got)
            continue
        if got == items:
            outcomes["whole"] += 1
        else:
            assert report.torn or report.lost
            assert got == items[: len(got)]
            outcomes["reported"] += 1
    print(outcomes)
    assert outcomes["refused"]
    assert outcomes["reported"]


def test_truncations_and_flips(tmp_path: Path) -> None:
    fuzz(tmp_path, 150)


@pytest.mark.soak
def test_ten_thousand_truncations_and_flips(tmp_path: Path) -> None:
    fuzz(tmp_path, 10_000)


def test_a_torn_end_is_cut_off_and_told(tmp_path: Path) -> None:
    items = make(tmp_path, durable=True)
    last = sorted(tmp_path.glob("*.seg"))[-1]
    (tmp_path / "marks").unlink()  # as after a loss of power: nothing is known of the end
    size = last.stat().st_size
    with last.open("ab") as file:
        file.write(b"PQch half a chunk")
    with ps.SpillQueue(tmp_path, memory=2_000, durable=True) as queue:
        (flaw,) = queue.recovery.torn
        assert (flaw.file, flaw.offset, flaw.bytes) == (last.name, size, 17)
        assert queue.get_many(1_000) == items
    assert last.stat().st_size == size


def test_damage_on_the_way_is_not_delivered(tmp_path: Path) -> None:
    """A file that changes while the queue is open."""
    with ps.SpillQueue(tmp_path, memory=2_000) as queue:
        queue.put_many([item(i) for i in range(300)])
        file = sorted(tmp_path.glob("*.seg"))[0]
        raw = bytearray(file.read_bytes())
        raw[len(raw) // 2] ^= 4
        file.write_bytes(raw)
        with pytest.raises(QueueDamageError, match="at offset"):
            queue.get_many(300)


class FullDisk(Disk):
    """A disk on which nothing more can be written, once it is told so."""

    full = False

    def append(self, file: int, path: Path, parts: Any) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "no space left")
        super().append(file, path, parts)


@pytest.mark.parametrize("durable", [False, True], ids=["", "durable"])
def test_a_disk_that_fails_costs_nothing(tmp_path: Path, durable: bool) -> None:
    disk = FullDisk()
    with ps.SpillQueue(tmp_path, memory=2_000, durable=durable, disk=disk) as queue:
        taken = 0
        while taken < 100:
            disk.full = taken > 50
            try:
                queue.put(item(taken))
            except OSError:
                break
            taken += 1
        assert 40 < taken < 100
        queue.check()
        disk.full = False
        queue.put(item(taken))
        assert queue.get_many(200) == [item(i) for i in range(taken + 1)]


# --- loss of power ------------------------------------------------------------------------------------


class Recorder(Disk):
    """A disk that remembers what was asked of it, in order."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []

    def create(self, path: Path) -> int:
        self.log.append(("create", path.name))
        return super().create(path)

    def append(self, file: int, path: Path, parts: Any) -> None:
        self.log.append(("append", path.name, b"".join(parts)))
        super().append(file, path, parts)

    def sync(self, file: int, path: Path) -> None:
        super().sync(file, path)
        self.log.append(("sync", path.name))

    def sync_folder(self, folder: Path) -> None:
        super().sync_folder(folder)
        self.log.append(("sync folder",))

    def remove(self, path: Path) -> None:
        self.log.append(("remove", path.name))
        super().remove(path)

    def rename(self, old: Path, new: Path) -> None:
        self.log.append(("rename", old.name, new.name))
        super().rename(old, new)


def after_power_loss(log: list[tuple[Any, ...]], rng: random.Random) -> dict[str, bytes]:
    """The files that may be found: what was synced, and of the rest a part that the disk happened to write.

    Of data that is not synced a beginning may be there; changes of names since the last sync of the folder
    may have happened up to any of them.
    """
    content: dict[str, bytearray] = {}
    firm: dict[str, int] = {}
    names: dict[str, str] = {}  # name -> the file it means now
    durable_names: dict[str, str] = {}
    changes: list[dict[str, str]] = []
    made = 0
    for entry in log:
        if entry[0] == "create":
            made += 1
            names[entry[1]] = f"{entry[1]}#{made}"
            content[names[entry[1]]], firm[names[entry[1]]] = bytearray(), 0
        elif entry[0] == "append":
            content[names[entry[1]]] += entry[2]
        elif entry[0] == "sync":
            firm[names[entry[1]]] = len(content[names[entry[1]]])
        elif entry[0] == "remove":
            names.pop(entry[1], None)
        elif entry[0] == "rename":
            names[entry[2]] = names.pop(entry[1])
        if entry[0] == "sync folder":
            durable_names, changes = dict(names), []
        elif entry[0] in ("create", "remove", "rename"):
            changes.append(dict(names))
    found = rng.choice([durable_names, *changes])
    return {
        name: bytes(content[file][: rng.randint(firm[file], len(content[file]))])
        for name, file in found.items()
    }


def lose_power(folder: Path, rounds: int) -> None:
    rng = random.Random(some_seed())
    recorder = Recorder()
    at_ack: list[tuple[int, int, int]] = []  # entries of the log, acknowledged, confirmed
    with ps.SpillQueue(folder / "real", memory=3_000, durable=True, disk=recorder) as queue:
        queue._store.lanes[0].segments.longest = 4_000  # many files
        at_ack.append((len(recorder.log), 0, 0))
        for _ in range(60):
            first = queue.end
            queue.put_many([item(first + i) for i in range(rng.randrange(1, 30))])
            at_ack.append((len(recorder.log), queue.end, queue.committed))
            if rng.random() < 0.6:
                queue.get_many(rng.randrange(40))
                queue.commit()
                at_ack.append((len(recorder.log), queue.end, queue.committed))
    for number in range(rounds):
        cut = rng.randrange(at_ack[0][0], len(recorder.log) + 1)
        _, put, done = max(ack for ack in at_ack if ack[0] <= cut)
        copy = folder / f"after{number}"
        copy.mkdir()
        for name, raw in after_power_loss(recorder.log[:cut], rng).items():
            (copy / name).write_bytes(raw)
        with ps.SpillQueue(copy, memory=3_000, durable=True) as queue:
            assert done <= queue.committed
            assert put <= queue.end
            first, got = queue.offset, queue.get_many(10**6)
            assert got == [item(first + i) for i in range(len(got))]
            assert first + len(got) == queue.end
        shutil.rmtree(copy)


def test_loss_of_power(tmp_path: Path) -> None:
    lose_power(tmp_path, 60)


@pytest.mark.soak
def test_loss_of_power_at_length(tmp_path: Path) -> None:
    lose_power(tmp_path, 5_000)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    make(tmp_path, durable=True)
    (tmp_path / "queue.json").write_text("{")
    with pytest.raises(QueueDamageError, match=r"queue\.json"):
        ps.SpillQueue(tmp_path, durable=True)
    (tmp_path / "queue.json").unlink()
    with pytest.raises(QueueError, match="segment files"):
        ps.SpillQueue(tmp_path, durable=True)
