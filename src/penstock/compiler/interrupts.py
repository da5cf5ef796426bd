"""Let Ctrl-C wait where Python would lose it.

LLVM hands over machine code in a callback. Python runs signal handlers in there, ignores what they raise, and
the code is lost as well as the interrupt.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def interrupts_wait() -> Iterator[None]:
    """Within this block Ctrl-C does nothing; at its end the program's handler is called.

    >>> import os, signal
    >>> from penstock.compiler.interrupts import interrupts_wait
    >>> try:
    ...     with interrupts_wait():
    ...         os.kill(os.getpid(), signal.SIGINT)
    ...         print("to the end")
    ... except KeyboardInterrupt:
    ...     print("then interrupted")
    to the end
    then interrupted
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # Python calls handlers in the main thread only
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if came:
        handler(*came[0])


def interrupts_wait_for(engine: Any) -> None:
    """Have one of Numba's engines do so whenever it makes machine code or loads it."""
    if "finalize_object" in vars(engine):
        return
    finalize = engine.finalize_object

    def finalize_object() -> None:
        with interrupts_wait():
            finalize()

    engine.finalize_object = finalize_object
