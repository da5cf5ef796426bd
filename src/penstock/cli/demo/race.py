"""Run the sides of the demo as process trees, measure their memory, and hold both to the same limit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.cli.demo.process_tree import ProcessTree, TreeMemory
from penstock.cli.demo.scenario import Scenario

EVERY = 0.5  # seconds between two looks at the memory
ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}  # as Hadoop has it: freed memory is given back sooner
NO_MEMORY = "OutOfMemoryError"
COLLECTOR = re.compile(r"-XX:[+-]Use\w+GC")


@dataclass
class Side:
    """What is known of one side: samples of its memory, its batches, and how it ended."""

    name: str
    limit: int
    samples: list[tuple[float, TreeMemory]] = field(default_factory=list)
    batches: list[dict[str, Any]] = field(default_factory=list)  # as told, with the second (`at`)
    events: list[dict[str, Any]] = field(default_factory=list)  # all others
    fate: str | None = None  # done, died or stopped
    fate_at: float = 0.0
    reason: str = ""

    @property
    def peak(self) -> int:
        """The most memory that all its processes had together."""
        return max((memory.total for _, memory in self.samples), default=0)

    @property
    def memory(self) -> TreeMemory:
        """The last measurement."""
        return self.samples[-1][1] if self.samples else TreeMemory(0, 0)

    @property
    def results(self) -> int:
        """The results of all finished batches."""
        return sum(batch["results"] for batch in self.batches)

    @property
    def late(self) -> int:
        """The late rows of all finished batches."""
        return sum(batch["late"] for batch in self.batches)

    @property
    def rows(self) -> int:
        """The input rows of all finished batches."""
        return sum(batch["rows"] for batch in self.batches)

    @property
    def began(self) -> float | None:
        """When the query began."""
        return next((event["at"] for event in self.events if event["event"] == "started"), None)

    def to_json(self) -> dict[str, Any]:
        """Return all measurements as plain data."""
        samples = [{"at": at, **asdict(memory)} for at, memory in self.samples]
        return {
            "fate": self.fate,
            "fate_at": self.fate_at,
            "reason": self.reason,
            "results": self.results,
            "late": self.late,
            "peak_bytes": self.peak,
            "batches": self.batches,
            "memory": samples,
        }


def without_collectors(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without a choice of Java's garbage collector: the demo makes one.

    >>> from penstock.cli.demo.race import without_collectors
    >>> without_collectors({"JAVA_TOOL_OPTIONS": "-XX:+UseG1GC -Dhttp.proxyHost=proxy", "USER": "ann"})
    {'JAVA_TOOL_OPTIONS': '-Dhttp.proxyHost=proxy', 'USER': 'ann'}
    """
    options = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
    return dict(environment) | {
        name: " ".join(word for word in environment[name].split() if not COLLECTOR.fullmatch(word))
        for name in options
        if name in environment
    }


class Runner:
    """One side while it runs: a child process, what it tells, and its limit."""

    def __init__(self, side: Side, command: Sequence[str], log: Path, clock: Callable[[], float]) -> None:
        self.side, self._log, self._clock = side, log, clock
        self._file = log.open("wb")
        self._child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._file, stdin=subprocess.PIPE, start_new_session=True,
            env=without_collectors(os.environ) | ENVIRONMENT | {"TMPDIR": str(log.parent)},
        )  # fmt: skip
        self.tree = ProcessTree(self._child.pid)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.side.fate is None

    def look(self) -> None:
        """Measure the memory; end the side if it is above its limit, and note how it ended if it did."""
        side, now = self.side, self._clock()
        memory = self.tree.memory()
        code = self._child.poll()
        if code is not None:
            self._reader.join(5)
            self.tree.end()
            if code == 0 and any(event["event"] == "done" for event in side.events):
                self._ended("done", now, "")
            else:
                self._ended("died", now, self._last_words(code))
            return
        side.samples.append((now, memory))
        if memory.total > side.limit:
            self.close()
            self._ended("died", now, "ended at the memory limit")

    def stop(self, reason: str) -> None:
        """End it before its time."""
        self.close()
        self._ended("stopped", self._clock(), reason)

    def close(self) -> None:
        """Kill whatever still runs."""
        self.tree.end()
        self._child.wait()
        self._reader.join(5)
        self._file.close()
        if self._child.stdin is not None:
            self._child.stdin.close()

    def _ended(self, fate: str, at: float, reason: str) -> None:
        if self.side.fate is None:
            self.side.fate, self.side.fate_at, self.side.reason = fate, at, reason
            self._file.close()

    def _read(self) -> None:
        """Note what the side tells; all else that it prints goes to its log."""
        assert self._child.stdout is not None
        with self._child.stdout as out:
            for line in out:
                try:
                    event = json.loads(line)
                except ValueError:
                    self._file.write(line)
                    self._file.flush()
                    continue
                event["at"] = self._clock()
                (self.side.batches if event["event"] == "batch" else self.side.events).append(event)

    def _last_words(self, code: int) -> str:
        """Return why it ended, from its log."""
        text = self._log.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if NO_MEMORY in text:
            said = next(line for line in lines if NO_MEMORY in line)
            return "out of memory: " + said[said.index(NO_MEMORY) + len(NO_MEMORY) :].strip(" :")[:60]
        return f"exit code {code}: {lines[-1][:200] if lines else 'nothing was said'}"


def command_of(which: str, folder: Path, scenario: Scenario, core: int | None) -> list[str]:
    """Return the command of a process of the demo."""
    core_word = "-" if core is None else str(core)
    given = json.dumps(asdict(scenario))
    return [sys.executable, "-m", "penstock.cli.demo.side", which, str(folder), given, core_word]


def own_cores() -> tuple[int | None, int | None]:
    """Return a core for each side, where there are two and the system can bind processes to them."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    cores = sorted(os.sched_getaffinity(0))
    return (cores[0], cores[1]) if len(cores) > 1 else (None, None)


def race(
    runners: Sequence[Runner],
    patience: float,
    clock: Callable[[], float],
    show: Callable[[], None] = lambda: None,
) -> None:
    """Watch the sides until all have ended; one that still runs after `patience` seconds is stopped."""
    while any(runner.running for runner in runners):
        due = clock() + EVERY
        for runner in runners:
            if runner.running:
                runner.look()
                if runner.running and clock() > patience and any(not each.running for each in runners):
                    runner.stop(f"still running after {patience:.0f} s")
        show()
        time.sleep(max(0.05, due - clock()))
