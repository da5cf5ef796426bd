"""Signs of life: a command says something within two seconds of its start, and Ctrl-C ends it within two.

Neither can be left to the command itself. It may be importing, or compiling, or in a call that no exception
reaches before it returns; so threads beside it do both.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import ParamSpec

P = ParamSpec("P")
Report = Callable[[int, int, str], None]

FIRST = 1.0  # seconds from the start of the process to the first word
LATER = 1.5  # the same from the start of a command in a process that has done other things before
EVERY = 10.0  # seconds between two lines of a log, at least
GRACE = 1.2  # seconds that a command has to end by itself after Ctrl-C

_voice: _Voice | None = None
_began: float | None = None  # when this process did, by the monotonic clock; None if it is not ours


class _Voice(threading.Thread):
    """Says what a command is at: in a log a line now and then, in a terminal one that is wiped out again."""

    def __init__(self, first: str) -> None:
        super().__init__(name="penstock-signs-of-life", daemon=True)
        self.latest = f"{first} ..."
        self._out = sys.stderr
        self._terminal = _is_terminal(self._out)
        self._done = threading.Event()

    def report(self, done: int, total: int, label: str) -> None:
        """How far it is."""
        self.latest = f"{done} of {total}: {label}" if total > 1 else f"{label} ..."

    def run(self) -> None:
        """Speak until told to stop."""
        global _began
        since, _began = _began, None  # the first command of the process has had its start
        pause = LATER if since is None else max(0.0, since + FIRST - time.monotonic())
        said = ""
        while not self._done.wait(pause):
            if self.latest != said:
                said = self.latest
                self._write(f"\r\x1b[2K{said}" if self._terminal else f"{said}\n")
            pause = EVERY
        if said and self._terminal:
            self._write("\r\x1b[2K")

    def stop(self) -> None:
        """Not a word from now on."""
        self._done.set()
        self.join()

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile
            self._out.write(text)
            self._out.flush()


def _is_terminal(stream: object) -> bool:
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return False


@contextlib.contextmanager
def speaking(first: str) -> Iterator[Report]:
    """Progress on stderr after a second; within a command that speaks already, its next words.

    >>> from penstock.cli.signs import speaking
    >>> with speaking("reading") as report:
    ...     report(1, 2, "half way")
    """
    global _voice
    if _voice is None:
        _voice = _Voice(first)
        _voice.start()
    else:
        _voice.latest = f"{first} ..."
    try:
        yield _voice.report
    finally:
        hush()


def hush() -> None:
    """The command has something better to show now."""
    global _voice
    if _voice is not None:
        _voice.stop()
        _voice = None


def speaks(first: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Decorator of a command that may take long: it says something before it has imported what it needs.

    >>> from penstock.cli.signs import speaks
    >>> @speaks("reading")
    ... def quick() -> None:
    ...     print("done")
    >>> quick()
    done
    """

    def decorate(command: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(command)
        def spoken(*args: P.args, **kwargs: P.kwargs) -> None:
            with speaking(first):
                command(*args, **kwargs)

        return spoken

    return decorate


@contextlib.contextmanager
def heeding_ctrl_c() -> Iterator[None]:
    """Within this block, which is all of a process, Ctrl-C ends it even if the main thread is slow to notice.

    Python raises `KeyboardInterrupt` between two of its instructions, and one call into a compiler takes
    longer than anybody waits. But the signal itself is written to a pipe at once.

    >>> from penstock.cli.signs import heeding_ctrl_c
    >>> with heeding_ctrl_c():
    ...     pass
    """
    global _began
    _began = time.monotonic() - time.process_time()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def watch() -> None:
        while number := os.read(reader, 1):
            if number[0] == signal.SIGINT:
                time.sleep(GRACE)
                _end_now()

    threading.Thread(target=watch, name="penstock-ctrl-c", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)


def _end_now() -> None:
    """End this process and those that it has started to work for it."""
    import multiprocessing

    for child in multiprocessing.active_children():
        child.kill()
    os._exit(130)
