"""Every bit of every file of a durable queue: `verify` and opening tell of damage, or it changes nothing."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

import penstock as ps
from penstock.errors import PenstockError, QueueDamageError
from penstock.queues import verify
from penstock.queues.store.marks import CHECK, MAGIC
from tests.queues.test_crash import path as python_path

# Bytes whose change need not be told of, because nothing that the queue delivers depends on them: who last
# held the lock, and whether marks are those of a closed queue, which a crash may leave either way.
HARMLESS = {"lock": range(32), "marks": range(8, 24)}

Content = tuple[list[bytes], int, int, dict[str, int]]


def fill(queue: Any) -> None:
    """A few small chunks in two files, several confirmations, and producers."""
    lane = queue._lane
    for number in range(6):
        if number == 3:
            lane.segments.longest = 1  # the next chunk begins a file
        elif number == 4:
            lane.segments.longest = 1 << 20
        queue.put_many([b"%d.%d" % (number, i) for i in range(3)], producer=("till", number))
    queue.get_many(4)
    for offset in (1, 3, 4):
        queue.commit(offset)


def content(folder: Path) -> Content:
    with ps.SpillQueue(folder, memory=2_000, durable=True) as queue:
        assert not queue.recovery.lost
        return queue.get_many(100), queue.committed, queue.end, dict(queue._lane.producers)


@pytest.fixture(scope="module", params=["closed", "killed"])
def made(request: pytest.FixtureRequest) -> Iterator[tuple[Path, Content]]:
    """The folder of a queue that was closed, or whose process was killed; and what is in it."""
    # Thousands of queues are opened and closed: in memory that takes a tenth of the time.
    with tempfile.TemporaryDirectory(dir=memory if (memory := Path("/dev/shm")).is_dir() else None) as place:
        yield make(Path(place) / "queue", request.param)


def make(folder: Path, state: str) -> tuple[Path, Content]:
    if state == "closed":
        with ps.SpillQueue(folder, memory=2_000, durable=True) as queue:
            fill(queue)
    else:
        code = (
            "import os, sys, penstock as ps; from tests.queues.test_damage import fill; "
            "fill(ps.SpillQueue(sys.argv[1], memory=2_000, durable=True)); os.kill(os.getpid(), 9)"
        )
        env = os.environ | {"PYTHONPATH": python_path()}
        subprocess.run([sys.executable, "-c", code, str(folder)], env=env, check=False)
    whole = folder.with_name("whole")
    shutil.copytree(folder, whole)
    wanted = content(whole)
    assert wanted[0][0] == b"1.1"
    assert wanted[1:] == (4, 18, {"till": 5})
    assert len(list(folder.glob("*.seg"))) == 2
    assert verify(folder).whole
    return folder, wanted


def files(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.name != "lock"}


def told(folder: Path) -> bool:
    """Whether `verify` and opening both tell of damage; a refusal changes nothing, and comes again."""
    try:
        said = not verify(folder).whole
    except PenstockError:
        said = True
    before = files(folder)
    try:
        with ps.SpillQueue(folder, memory=2_000, durable=True) as queue:
            opened = bool(queue.recovery.torn or queue.recovery.lost or not queue.recovery.end_known)
            assert not queue.recovery.damage
    except PenstockError:
        assert files(folder) == before
        with pytest.raises(PenstockError):
            ps.SpillQueue(folder, memory=2_000, durable=True)
        return said
    assert not opened or said
    return opened


def sweep(folder: Path, wanted: Content, name: str, bits: Any) -> tuple[int, list[tuple[int, int]]]:
    """Flip bits of a file, one at a time: how many were told of, and which were not and changed nothing."""
    raw = (folder / name).read_bytes()
    copy = folder.with_name("copy")
    found, silent = 0, []
    for place in range(len(raw)):
        for bit in bits(place):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(folder, copy)
            (copy / name).write_bytes(raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :])
            if told(copy):
                found += 1
            else:
                assert content(copy) == wanted, (name, place, bit)
                silent.append((place, bit))
    return found, silent


def check_every_file(made: tuple[Path, Content], bits: Any) -> None:
    folder, wanted = made
    for name in sorted(each.name for each in folder.iterdir()):
        found, silent = sweep(folder, wanted, name, bits)
        print(f"{name}: {found} told, {len(silent)} without effect")
        assert {place for place, _ in silent} <= set(HARMLESS.get(name, ())), (name, silent)
        assert found or name == "lock"


def test_a_bit_of_every_byte_is_flipped(made: tuple[Path, Content]) -> None:
    check_every_file(made, lambda place: [(place * 5 + 3) % 8])


def test_every_bit_of_the_confirmations_is_flipped(made: tuple[Path, Content]) -> None:
    folder, wanted = made
    found, silent = sweep(folder, wanted, "commits", lambda _: range(8))
    assert found == 8 * (folder / "commits").stat().st_size
    assert not silent


@pytest.mark.soak
def test_every_bit_is_flipped(made: tuple[Path, Content]) -> None:
    check_every_file(made, lambda _: range(8))


@pytest.mark.parametrize("without_marks", [False, True], ids=["", "power"])
def test_every_truncation(made: tuple[Path, Content], without_marks: bool) -> None:
    """With marks and, as after a loss of power, without; then that is told, and the end is not known."""
    folder, wanted = made
    copy = folder.with_name("copy")
    for name in ("commits", "marks", "queue.json", *(each.name for each in folder.glob("*.seg"))):
        raw = (folder / name).read_bytes()
        silent = []
        for size in range(len(raw)):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(folder, copy)
            (copy / name).write_bytes(raw[:size])
            if without_marks:
                (copy / "marks").unlink()
            if not told(copy):
                assert content(copy) == wanted, (name, size)
                silent.append(size)
        assert not silent or (name == "marks" and without_marks), (name, silent)


def test_missing_swapped_and_foreign_files(made: tuple[Path, Content], tmp_path: Path) -> None:
    folder, _ = made
    first, second = sorted(each.name for each in folder.glob("*.seg"))
    other = tmp_path / "other"
    with ps.SpillQueue(other, memory=2_000, durable=True) as queue:
        queue.put_many([b"x"] * 40)
        queue.get_many(30)
        queue.commit()

    def swap(copy: Path, a: str, b: str) -> None:
        (copy / a).rename(copy / "aside")
        (copy / b).rename(copy / a)
        (copy / "aside").rename(copy / b)

    changes: dict[str, Any] = {
        "no first segment": lambda copy: (copy / first).unlink(),
        "no last segment": lambda copy: (copy / second).unlink(),
        "no segments": lambda copy: [(copy / name).unlink() for name in (first, second)],
        "no confirmations": lambda copy: (copy / "commits").unlink(),
        "no marks": lambda copy: (copy / "marks").unlink(),
        "no queue.json": lambda copy: (copy / "queue.json").unlink(),
        "swapped segments": lambda copy: swap(copy, first, second),
        "swapped marks": lambda copy: swap(copy, "marks", "commits"),
        "first twice": lambda copy: shutil.copy(copy / first, copy / second.replace("2.", "3.")),
        "first as second": lambda copy: shutil.copy(copy / first, copy / second),
        "of a second queue": lambda copy: shutil.copy(copy / first, copy / first.replace("q00000", "q00001")),
        "other confirmations": lambda copy: shutil.copy(other / "commits", copy / "commits"),
        "empty confirmations": lambda copy: (copy / "commits").write_bytes(b""),
        "blank confirmations": lambda copy: (copy / "commits").write_bytes(bytes(200)),
    }
    closed = verify(folder).clean
    for name, change in changes.items():
        copy = folder.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        change(copy)
        if name == "other confirmations" and not closed:
            continue  # confirmations that run ahead of marks are what a loss of power leaves
        assert told(copy), name


def test_damaged_confirmations_can_be_salvaged(made: tuple[Path, Content]) -> None:
    """Records that can be read count; items whose confirmation cannot be read may come again."""
    folder, wanted = made
    copy = folder.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    raw = bytearray((copy / "commits").read_bytes())
    raw[-20] ^= 1
    (copy / "commits").write_bytes(raw)
    with pytest.raises(
        QueueDamageError, match=r"damage: commits at offset \d+, \d+ bytes: .*checksum.*salvage"
    ):
        ps.SpillQueue(copy, memory=2_000, durable=True)
    with ps.SpillQueue(copy, memory=2_000, durable=True, salvage=True) as queue:
        assert [flaw.file for flaw in queue.recovery.damage] == ["commits"]
        assert queue.committed == 3
        assert queue.get_many(100) == [b"1.0", *wanted[0]]
        queue.commit(4)
    assert verify(copy).whole
    assert content(copy)[1] == 4


def test_a_torn_confirmation_is_cut_off(tmp_path: Path) -> None:
    with ps.SpillQueue(tmp_path, durable=True) as queue:
        queue.put_many([b"a", b"b", b"c"])
        queue.get_many(2)
        queue.commit(1)
        size = (tmp_path / "commits").stat().st_size
        queue.commit(2)
    (tmp_path / "marks").unlink()  # as after a loss of power
    raw = (tmp_path / "commits").read_bytes()
    for end in range(size + 1, len(raw)):
        (tmp_path / "commits").write_bytes(raw[:end])
        with ps.SpillQueue(tmp_path, durable=True) as queue:
            (flaw,) = queue.recovery.torn
            assert (flaw.file, flaw.offset, flaw.bytes) == ("commits", size, end - size)
            assert queue.get_many(5) == [b"b", b"c"]
        (tmp_path / "marks").unlink()
        assert (tmp_path / "commits").stat().st_size == size


def test_without_durable_damaged_marks_are_told(tmp_path: Path) -> None:
    """They alone know what was delivered."""
    with ps.SpillQueue(tmp_path / "q", memory=20) as queue:
        queue.put_many([b"%d" % i for i in range(9)])
        queue.get_many(3)
    raw = (tmp_path / "q" / "marks").read_bytes()
    for change in (b"", raw[:-1], raw[:64] + b"!" + raw[65:], raw[:72] + b"\1" + raw[73:], None):
        (tmp_path / "q" / "marks").unlink()
        if change is not None:
            (tmp_path / "q" / "marks").write_bytes(change)
        assert not verify(tmp_path / "q").whole
        with pytest.raises(QueueDamageError, match="marks"):
            ps.SpillQueue(tmp_path / "q", memory=20)
        (tmp_path / "q" / "marks").write_bytes(raw)
    with ps.SpillQueue(tmp_path / "q", memory=20) as queue:
        assert queue.get_many(9) == [b"%d" % i for i in range(3, 9)]


def test_without_durable_every_bit_of_the_marks_of_a_killed_queue(tmp_path: Path) -> None:
    """A crash leaves no checksum over all of them, so each number checks itself."""
    folder, copy = tmp_path / "q", tmp_path / "copy"
    code = (
        "import os, sys, penstock as ps; queue = ps.SpillQueue(sys.argv[1], memory=20); "
        "queue.put_many([b'%d' % i for i in range(40)]); queue.get_many(3); os.kill(os.getpid(), 9)"
    )
    env = os.environ | {"PYTHONPATH": python_path()}
    subprocess.run([sys.executable, "-c", code, str(folder)], env=env, check=False)

    def items() -> tuple[list[bytes], list[Any]]:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        with ps.SpillQueue(copy, memory=20) as queue:
            return queue.get_many(100), queue.recovery.lost

    wanted = items()
    assert len(wanted[0]) > 20
    raw = (folder / "marks").read_bytes()
    silent = set()
    for place in range(len(raw)):
        for bit in range(8):
            (folder / "marks").write_bytes(raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :])
            if any(flaw.file == "marks" for flaw in verify(folder).flaws):
                with pytest.raises(QueueDamageError, match="damage: marks"):
                    items()
            else:
                assert items() == wanted, (place, bit)
                silent.add(place)
    assert silent <= set(HARMLESS["marks"])
    (folder / "marks").write_bytes(raw[:64] + bytes([raw[64] ^ 1]) + raw[65:])
    with ps.SpillQueue(folder, memory=20, salvage=True) as queue:
        assert [flaw.reason for flaw in queue.recovery.damage] == ["a number of queue 0 was changed"]
        assert queue.get_many(100)[-1] == wanted[0][-1]


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_marks_of_earlier_versions_are_read(tmp_path: Path, killed: bool) -> None:
    """Their numbers do not check themselves; the file is replaced by one whose numbers do."""
    with ps.SpillQueue(tmp_path, memory=20) as queue:
        queue.put_many([b"%d" % i for i in range(9)])
        queue.get_many(3)
    new = struct.unpack("<16Q", (tmp_path / "marks").read_bytes())
    numbers = [word // CHECK for word in new[3:]]
    closed = [0, 0] if killed else [1, google_crc32c.value(struct.pack("<13Q", *numbers))]
    (tmp_path / "marks").write_bytes(struct.pack("<16Q", 0x32514D4B50, *closed, *numbers))
    assert verify(tmp_path).whole
    with ps.SpillQueue(tmp_path, memory=20) as queue:
        assert queue.recovery.clean is not killed
        assert queue.get_many(2) == [b"3", b"4"]
    assert (tmp_path / "marks").read_bytes()[:8] == struct.pack("<Q", MAGIC)
    with ps.SpillQueue(tmp_path, memory=20) as queue:
        assert queue.get_many(9) == [b"5", b"6", b"7", b"8"]
