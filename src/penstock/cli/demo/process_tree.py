"""A process and all that it starts: their memory together, and ending them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
GRACE = 5.0  # seconds to wait for killed processes to disappear


@dataclass(frozen=True)
class TreeMemory:
    """Bytes of memory of a tree of processes."""

    java: int
    other: int

    @property
    def total(self) -> int:
        """Of all processes."""
        return self.java + self.other


class ProcessTree:
    """A process that leads a session of its own (`start_new_session=True`), with all that it starts.

    >>> import subprocess, sys
    >>> from penstock.cli.demo.process_tree import ProcessTree
    >>> child = subprocess.Popen(
    ...     [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    ... )
    >>> tree = ProcessTree(child.pid)
    >>> tree.memory().total > 0
    True
    >>> tree.end()
    >>> child.stdin.close()
    >>> child.wait() != 0, tree.members()
    (True, [])
    """

    def __init__(self, root: int) -> None:
        self.root = root

    def members(self) -> list[int]:
        """The processes that are alive."""
        return [pid for pid, _ in self._found()]

    def memory(self) -> TreeMemory:
        """Return the memory of all processes; what several of them share counts once, on Linux."""
        java = other = 0
        for pid, name in self._found():
            size = _memory_of(pid)
            java, other = (java + size, other) if name == "java" else (java, other + size)
        return TreeMemory(java, other)

    def end(self) -> None:
        """Kill all processes, and wait until they have gone."""
        until = time.monotonic() + GRACE
        while (members := self.members()) and time.monotonic() < until:
            for pid in members:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def _found(self) -> Iterator[tuple[int, str]]:
        """The process numbers and names of all members, zombies left out."""
        for pid, session, state, name in _processes():
            if session == self.root and state != "Z":
                yield pid, name


def _processes() -> Iterator[tuple[int, int, str, str]]:
    """All processes of this machine: number, session, state, name."""
    if PROC.joinpath("self", "stat").exists():
        for entry in os.scandir(PROC):
            if entry.name.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    head, _, rest = Path(entry.path, "stat").read_text().rpartition(")")
                    words = rest.split()
                    yield int(entry.name), int(words[3]), words[0], head.partition("(")[2]
        return
    asked = ["ps", "-axo", "pid=,stat=,comm="]
    listed = subprocess.run(asked, capture_output=True, text=True, check=False)
    for line in listed.stdout.splitlines():
        pid, state, name = line.split(None, 2)
        with contextlib.suppress(OSError):
            yield int(pid), os.getsid(int(pid)), state[:1], Path(name.strip()).name


def _memory_of(pid: int) -> int:
    """Return the bytes of a process: its own and its part of what it shares, or those that are resident."""
    try:
        for line in PROC.joinpath(str(pid), "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    if PROC.joinpath("self", "stat").exists():
        return 0  # it has just ended
    asked = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return int(asked.stdout.strip() or 0) << 10
