"""The parts of the demo that need no Spark: memory of process trees, the limit, how sides end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.demo.process_tree import ProcessTree, TreeMemory
from penstock.cli.demo.race import Runner, Side, race
from penstock.cli.demo.report import ExactAnswer, conclusion, figures_of, result_table
from penstock.cli.demo.scenario import Scenario
from penstock.cli.demo.view import RaceView

MIB = 2**20
NO_LIMIT = 2**50
HOLD = "import sys, time; held = b'x' * ({} << 20); print('held', flush=True); time.sleep(60)"
FAMILY = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {HOLD.format(60)!r}], stdout=subprocess.PIPE)
child.stdout.readline()
{HOLD.format(40)}
"""


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    """A process with 40 MiB, and its child with 60 MiB."""
    process = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        ProcessTree(process.pid).end()
        process.communicate()


def test_memory_is_of_the_whole_tree(family: subprocess.Popen[bytes]) -> None:
    tree = ProcessTree(family.pid)
    assert len(tree.members()) == 2
    assert 100 * MIB < tree.memory().total < 180 * MIB
    assert tree.memory().java == 0


def test_orphans_belong_to_it_and_all_of_them_end(family: subprocess.Popen[bytes]) -> None:
    tree = ProcessTree(family.pid)
    family.kill()
    family.wait()
    assert len(tree.members()) == 1
    tree.end()
    assert tree.members() == []


def ran(
    code: str, tmp_path: Path, limit: int = NO_LIMIT, patience: float = 60.0, others: int = 0
) -> list[Side]:
    """Race programs that tell what sides tell."""
    began = time.monotonic()

    def clock() -> float:
        return time.monotonic() - began

    sides = [Side("spark", limit), *(Side("penstock", limit) for _ in range(others))]
    programs = [code, *['print(\'{"event": "done"}\')'] * others]
    runners = [
        Runner(side, [sys.executable, "-c", program], tmp_path / f"{number}.log", clock)
        for number, (side, program) in enumerate(zip(sides, programs, strict=True))
    ]
    try:
        race(runners, patience, clock)
    finally:
        for runner in runners:
            runner.close()
    for runner in runners:
        assert runner.tree.members() == []
    return sides


def test_a_side_above_the_limit_dies(tmp_path: Path) -> None:
    (side,) = ran(HOLD.format(100), tmp_path, limit=64 * MIB)
    assert (side.fate, side.reason) == ("died", "ended at the memory limit")
    assert side.peak > 64 * MIB


def test_a_side_that_says_why_it_dies(tmp_path: Path) -> None:
    code = "import sys; sys.exit('java.lang.OutOfMemoryError: Java heap space')"
    (side,) = ran(code, tmp_path)
    assert (side.fate, side.reason) == ("died", "out of memory: Java heap space")
    (side,) = ran("print('no memory error', 1 / 0)", tmp_path)
    assert side.fate == "died"
    assert "division by zero" in side.reason


def test_a_side_that_hangs_is_stopped_when_the_other_has_ended(tmp_path: Path) -> None:
    hangs, other = ran("import time; time.sleep(60)", tmp_path, patience=0.6, others=1)
    assert (hangs.fate, other.fate) == ("stopped", "done")


def test_what_a_side_tells(tmp_path: Path) -> None:
    batch = {
        "event": "batch",
        "batch": 0,
        "rows": 5,
        "seconds": 0.1,
        "results": 3,
        "late": 1,
        "kept": 5,
        "state": 9,
    }
    told = [{"event": "started"}, batch, {"event": "done"}]
    code = "".join(f"print({json.dumps(each)!r});" for each in told) + "print('and noise')"
    (side,) = ran(code, tmp_path)
    assert (side.fate, side.rows, side.results, side.late) == ("done", 5, 3, 1)
    assert "and noise" in (tmp_path / "0.log").read_text()


def ended(name: str, fate: str, minutes: int, **more: Any) -> Side:
    """A side after some minutes of a stream with a burst in the third."""
    side = Side(name, 900 * MIB, fate=fate, fate_at=40.0, reason="out of memory: Java heap space")
    side.events.append({"event": "started", "at": 4.0})
    for number in range(minutes):
        rows = 2_000 if number == 2 else 200
        side.batches.append(
            {
                "batch": number,
                "rows": rows,
                "seconds": 2.0,
                "results": 50,
                "late": 1,
                "kept": 100,
                "state": 2**20 * number,
                "at": 6.0 + 2 * number,
            }
            | more
        )
    side.samples += [(float(at), TreeMemory(20 * at * MIB, 5 * MIB)) for at in range(1, 40)]
    return side


SCENARIO = Scenario(rows=100, factor=10, files=4, bursts=(2,), limit=900 * MIB)
SIDES = [
    ended("spark", "died", 2),
    ended("penstock", "done", 4, recall=0.81, at_most=False, evicted=7),
]


def text_of(*parts: Any) -> str:
    from rich.console import Console

    screen = Console(width=120, highlight=False)
    with screen.capture() as captured:
        screen.print(*parts)
    return " ".join(captured.get().split())


def test_the_table_says_what_was_and_was_not_achieved() -> None:
    answer = ExactAnswer(online=200, recovered=50, exact=250, same=True, seconds=9.0, recovery_seconds=3.0)
    said = text_of(result_table(SCENARIO, SIDES, answer), conclusion(SCENARIO, SIDES, answer))
    for part in (
        "died after 40 s",
        "400 of 2,600 2,600 of 2,600",
        "none finished 2.0",
        "40.0% 80.0%",
        "– 81.0 %",
        "(out of memory: Java heap space)",
        "the exact join, 250 rows",
        "Not achieved: 20% of the results came only after the stream",
    ):
        assert part in said
    figures = json.loads(json.dumps(figures_of(SCENARIO, SIDES, answer)))
    assert (figures["recall"], figures["estimated_recall"]) == (0.8, 0.81)


def test_a_difference_from_the_exact_join_is_not_hidden() -> None:
    answer = ExactAnswer(online=200, recovered=40, exact=250, same=False, seconds=9.0, recovery_seconds=3.0)
    said = text_of(result_table(SCENARIO, SIDES, answer), conclusion(SCENARIO, SIDES, answer))
    assert "not the exact answer" in said
    assert "are not the 250 rows of the exact join" in said


def test_the_live_table() -> None:
    running = ended("spark", "died", 2)
    running.fate = None
    said = text_of(RaceView([running, SIDES[1]], SCENARIO, lambda: 12.0))
    assert "minute 3 of 4 (burst), for 4 s" in said
    assert "finished after 40 s" in said
    assert "81.0 %" in said


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is an extra")
    from penstock.cli.demo.picture import draw

    draw(SCENARIO, SIDES, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").stat().st_size > 10_000
