"""Compile kernels in another process while this one interprets them.

A thread would share the interpreter's lock, and a fork could inherit the compiler's; so it is a process of
its own, which fills the disk cache. It ends with the one that started it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pickle
import struct
import subprocess
import sys
import threading
import time
from typing import Any

from penstock.compiler.file_lock import locked

NICE = 10  # below those that interpret meanwhile, who would wait twice as long on a machine with nothing idle
IDLE = 20.0  # seconds without a request after which the process ends
LONGEST = 180.0  # seconds that a request may take before the caller compiles it itself

_process: subprocess.Popen[bytes] | None = None
_asked: dict[tuple[str, str, Any], float] = {}


def request(kernel: Any, signature: Any) -> bool:
    """Ask for a kernel to be compiled; False if that cannot be, or takes too long."""
    name = kernel.__module__, kernel.__qualname__
    since = _asked.get((*name, signature))
    if since is not None:
        return _alive() and time.monotonic() - since < LONGEST
    _asked[*name, signature] = time.monotonic()
    try:
        frame = pickle.dumps((*name, signature))
        stream = _start().stdin
        assert stream is not None
        stream.write(struct.pack("<q", len(frame)) + frame)
        stream.flush()
    except (OSError, pickle.PickleError, TypeError, AttributeError):
        return False
    return True


def _alive() -> bool:
    return _process is not None and _process.poll() is None


def _start() -> subprocess.Popen[bytes]:
    """The process; a new one if the last has ended."""
    global _process
    if _process is None or _process.poll() is not None:
        _end()
        from penstock.compiler.code_cache import folder, read_only

        # Folders that can only be read follow from the same environment.
        given = {} if read_only() else {"PENSTOCK_CACHE_DIR": str(folder())}
        _process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | given | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    return _process


def _end() -> None:
    """Whatever is being compiled: nobody waits for it any more."""
    global _process
    if _process is not None:
        _process.kill()
        with contextlib.suppress(OSError):
            _process.communicate()
        _process = None


def _forget() -> None:
    """A fork has no such process of its own."""
    global _process
    if _process is not None:
        assert _process.stdin is not None
        _process.stdin.close()  # this copy of it, so that the process ends with the one that asked
        _process.returncode = 0  # not to be waited for by this one
    _process = None
    _asked.clear()


os.register_at_fork(after_in_child=_forget)
atexit.register(_end)


def serve() -> None:
    """Compile what is asked for on the standard input, until it ends or nothing has come for a while."""
    if hasattr(os, "nice"):
        os.nice(NICE)
    frames: list[bytes] = []
    there = threading.Condition()

    def listen() -> None:
        while True:
            head = sys.stdin.buffer.read(8)
            frame = sys.stdin.buffer.read(struct.unpack("<q", head)[0]) if len(head) == 8 else b""
            if not frame:
                os._exit(0)  # whatever is being compiled: nobody waits for it
            with there:
                frames.append(frame)
                there.notify()

    from penstock.compiler.code_cache import folder

    turn = folder() / "compiling.lock"  # several workers of a machine ask for the same
    threading.Thread(target=listen, daemon=True).start()
    while True:
        with there:
            if not there.wait_for(lambda: frames, timeout=IDLE):
                os._exit(0)  # a compiler takes much memory
            module, name, signature = pickle.loads(frames.pop(0))
        with (
            locked(turn),
            contextlib.suppress(Exception),
        ):  # whoever asked meets the error, compiling it there
            kernel = getattr(importlib.import_module(module), name)
            if not kernel.cached(signature):
                kernel.get_ready(signature)


if __name__ == "__main__":
    serve()
