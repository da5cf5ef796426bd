"""Responsiveness of commands: print progress within two seconds of the start, and end within two of Ctrl-C.

The command itself cannot guarantee either: it may be importing, compiling, or in a call that does not return
for exceptions. So separate threads do both.
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
from types import FrameType
from typing import ParamSpec

P = ParamSpec("P")
Report = Callable[[int, int, str], None]

FIRST = 1.0  # seconds from process start to the first message
LATER = 1.5  # the same, from the start of a later command in the same process
EVERY = 10.0  # minimum seconds between two log lines
GRACE = 1.2  # seconds that a command has to end by itself after Ctrl-C
INTERRUPTED = 130  # the exit code that shells expect after Ctrl-C

_grace = GRACE
_voice: _Voice | None = None
_began: float | None = None  # start of this process on the monotonic clock; None if another program owns it


class _Voice(threading.Thread):
    """Thread that reports progress: a log line now and then, or a terminal line that is erased again."""

    def __init__(self, first: str) -> None:
        super().__init__(name="penstock-signs-of-life", daemon=True)
        self.latest = f"{first} ..."
        self._out = sys.stderr
        self._terminal = _is_terminal(self._out)
        self._done = threading.Event()

    def report(self, done: int, total: int, label: str) -> None:
        """Record the progress."""
        self.latest = f"{done} of {total}: {label}" if total > 1 else f"{label} ..."

    def run(self) -> None:
        """Print progress until stopped."""
        global _began
        since, _began = _began, None  # only the first command counts from process start
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
        """Stop printing."""
        self._done.set()
        self.join()

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # stderr was closed
            self._out.write(text)
            self._out.flush()


def _is_terminal(stream: object) -> bool:
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return False


@contextlib.contextmanager
def speaking(first: str) -> Iterator[Report]:
    """Print progress on stderr after a second; if an outer block already does, update its text.

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
    """Stop printing progress, because the command has output of its own."""
    global _voice
    if _voice is not None:
        _voice.stop()
        _voice = None


def speaks(first: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Decorate a slow command to print progress before it has finished its imports.

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
    """Inside this block, Ctrl-C ends the process with exit code 130, even if the main thread reacts slowly.

    Python raises `KeyboardInterrupt` only between two bytecode instructions, and one call into a compiler
    can take seconds. The signal itself is written to a pipe at once. Whatever else fails because of it, such
    as a pool whose worker processes were interrupted too, ends the process in the same way.

    >>> from penstock.cli.signs import heeding_ctrl_c
    >>> with heeding_ctrl_c():
    ...     pass
    """
    global _began
    _began = time.monotonic() - time.process_time()
    interrupted = threading.Event()
    handler = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.default_int_handler(number, frame)

    if handler is signal.default_int_handler:  # not where the parent process ignores it
        signal.signal(signal.SIGINT, interrupt)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def watch() -> None:
        while number := os.read(reader, 1):
            if number[0] == signal.SIGINT:
                time.sleep(_grace)
                _end_now()

    threading.Thread(target=watch, name="penstock-ctrl-c", daemon=True).start()
    try:
        yield
    except BaseException:
        if interrupted.is_set():
            raise SystemExit(INTERRUPTED) from None
        raise
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.set_wakeup_fd(before)
        os.close(writer)


@contextlib.contextmanager
def time_to_clean_up(seconds: float) -> Iterator[None]:
    """Give a command that starts processes or writes large files more time to end by itself after Ctrl-C.

    >>> from penstock.cli.signs import time_to_clean_up
    >>> with time_to_clean_up(10):
    ...     pass
    """
    global _grace
    _grace = seconds
    try:
        yield
    finally:
        _grace = GRACE


def _end_now() -> None:
    """End this process and its worker processes."""
    if started := sys.modules.get("multiprocessing"):  # an import could wait for the one that is under way
        for child in started.active_children():
            child.kill()
    os._exit(INTERRUPTED)
