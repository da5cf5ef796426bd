"""Restores altered snapshots and goes on with them: run as a process of its own, since it may crash or hang.

`python -m tests.snapshots.altered NAME FIRST LAST` prints the number of each case when it is done. A case
that takes too long ends the process, by a signal that works inside a kernel too.

Without arguments it reads such words from lines of JSON, does each in a fork, and answers with the exit code
and what was written: so Penstock is imported once for all operators.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import tempfile
from typing import Any

import numpy as np

from penstock.errors import PenstockError
from penstock.states import snapshot as snapshots
from tests.snapshots.operators import Operator, operators

SECONDS = 60  # for one case; all but those that hang take some milliseconds, once kernels are compiled


def arrays_of(value: Any) -> list[np.ndarray]:
    """All arrays of numbers, wherever they are."""
    if isinstance(value, np.ndarray):
        return [value] if value.size and value.dtype.kind in "iufb" else []
    if isinstance(value, dict):
        value = tuple(value.values())
    return [array for part in value for array in arrays_of(part)] if isinstance(value, tuple | list) else []


def alter(array: np.ndarray, rng: np.random.Generator) -> None:
    """Change one of its numbers."""
    words = array.reshape(-1)
    if words.dtype.kind in "iu" and words.dtype.itemsize == 8 and rng.random() < 0.5:
        words = words.view(np.int32)
    at = rng.integers(len(words))
    if words.dtype.kind == "b":
        words[at] = not words[at]
    elif words.dtype.kind == "f":
        words[at] = rng.choice([np.nan, np.inf, -np.inf, 1e300, -1.0, 0.0, rng.random() * 100])
    else:
        limits = np.iinfo(words.dtype)
        near, far = int(rng.integers(0, 100)), int(rng.integers(0, 2**30))
        chosen = [limits.max, limits.min, -1, near, far, 0, int(words[at]) + 1][rng.integers(7)]
        words[at] = min(max(chosen, limits.min), limits.max)


def altered(data: bytes, seal: Any, rng: np.random.Generator) -> bytes:
    """The snapshot with some numbers changed, and a right checksum."""
    content = seal.load(data, snapshots._accepted)
    inside = inner(content)
    if inside and rng.random() < 0.5:  # a snapshot in a snapshot
        at = rng.integers(len(inside))
        inside[at] = altered(inside[at], seal, rng)
        return bytes(seal.dump(content))
    arrays = arrays_of(content)
    for _ in range(int(rng.integers(1, 4))):
        alter(arrays[rng.integers(len(arrays))], rng)
    return bytes(seal.dump(content))


def inner(content: Any) -> list[bytes]:
    """The snapshots of the small joins of a policy that chooses."""
    extra = content[3] if isinstance(content, tuple) else {}
    follower = extra.get("follower") if isinstance(extra, dict) else None
    return follower["small"] if follower else []


def main(name: str, first: str, last: str) -> None:
    faulthandler.enable()
    made = [(each, each.fed()) for each in operators(name)]
    stored = [(each, state, each.store(state)) for each, state in made]
    for each, state, data in stored:
        try_out(each, each.again(state, data), np.random.default_rng(0))  # undamaged ones are accepted
    refused = 0
    for case in range(int(first), int(last)):
        rng = np.random.default_rng(case)
        each, state, data = stored[case % len(stored)]
        signal.alarm(SECONDS)
        try:
            try_out(each, each.again(state, altered(data, each.seal, rng)), rng)
        except PenstockError:
            refused += 1
        print(case, flush=True)
    print(f"{refused} refused", file=sys.stderr)


def try_out(operator: Operator, state: Any, rng: np.random.Generator) -> None:
    """Go on, as long as it takes for whatever was altered to matter."""
    for number in (4, 5):
        operator.feed(state, rng, number)


def serve() -> None:
    """Do what the lines of the standard input say, until they end."""
    for line in sys.stdin:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            if not (child := os.fork()):
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                os._exit(in_fork(json.loads(line)))
            status = os.waitpid(child, 0)[1]
            written = []
            for file in (out, err):
                file.seek(0)
                written.append(file.read().decode(errors="replace"))
        print(json.dumps([os.waitstatus_to_exitcode(status), *written]), flush=True)


def in_fork(words: list[str]) -> int:
    """Run in a fork, whose way back into `serve` is barred; the exit code."""
    try:
        main(*words)
        return 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    if sys.argv[1:]:
        main(*sys.argv[1:])
    else:
        serve()
