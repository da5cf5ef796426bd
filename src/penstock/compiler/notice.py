"""Tell the user that kernels are being compiled: a status line in a terminal, one log line elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Iterator

SILENCE = 1.0  # seconds of compiling before anything is said
EVERY = 0.5  # seconds between two states of the status line

log = logging.getLogger("penstock")
_local = threading.local()


@contextlib.contextmanager
def compiling(kernel: str) -> Iterator[None]:
    """Within this block a kernel is compiled, with its parts.

    >>> from penstock.compiler.notice import compiling
    >>> with compiling("drive"):
    ...     pass  # a second of this, and something is said
    """
    outer: _Notice | None = getattr(_local, "notice", None)
    if outer is not None:
        yield
        return
    _local.notice = notice = _Notice(kernel)
    notice.start()
    try:
        yield
    finally:
        _local.notice = None
        notice.done.set()
        notice.join()


def count() -> None:
    """One more part is being compiled."""
    notice: _Notice | None = getattr(_local, "notice", None)
    if notice is not None:
        notice.functions += 1


class _Notice(threading.Thread):
    """Says what is compiled and how far it is, for as long as it takes."""

    said = False  # one log line per process

    def __init__(self, kernel: str) -> None:
        super().__init__(name="penstock-notice", daemon=True)
        self.kernel = kernel
        self.functions = 0
        self.done = threading.Event()
        self.began = time.monotonic()

    def run(self) -> None:
        """Speak after a second of silence."""
        if self.done.wait(SILENCE):
            return
        if not _in_terminal():
            if not _Notice.said:
                _Notice.said = True
                log.warning(
                    "Compiling kernels (%s first), which happens once per machine; "
                    "`penstock warm` does it in advance.",
                    self.kernel,
                )
            self.done.wait()
            return
        while not self.done.wait(EVERY):
            self._show(
                f"penstock: compiling {self.kernel}, once per machine: {self.functions} functions, "
                f"{time.monotonic() - self.began:.0f} s"
            )
        self._show("")

    def _show(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile
            sys.stderr.write(f"\r\x1b[2K{text}")
            sys.stderr.flush()


def _in_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False
