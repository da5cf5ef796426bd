"""Programs that put into and take from a durable queue until they are killed, and say what was acknowledged.

    python -m tests.queues.crash FOLDER LOG SEED

Every line of the log is written after the queue has acknowledged: `put N` (items up to N are in), `got A B`
(items from A up to B were delivered), `done N` (confirmed).
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import penstock as ps


def item(number: int) -> bytes:
    """An item that tells its number."""
    return b"%09d" % number + b"." * (number * 7 % 120)


def main(folder: str, log: str, seed: int) -> None:
    """Work at random until killed."""
    rng = random.Random(seed)
    if os.path.exists(log):  # a kill may have cut off the last line
        os.truncate(log, Path(log).read_bytes().rfind(b"\n") + 1)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with ps.SpillQueue(folder, memory=rng.choice([2_000, 20_000]), durable=True) as queue:
        os.write(file, b"open %d %d\n" % (queue.committed, queue.end))
        while True:
            if rng.random() < 0.55:
                first, count = queue.end, rng.randrange(1, 40)
                queue.put_many([item(first + i) for i in range(count)])
                os.write(file, b"put %d\n" % queue.end)
            else:
                first, got = queue.offset, queue.get_many(rng.randrange(1, 60))
                for i, each in enumerate(got):
                    if each != item(first + i):
                        os.write(file, b"wrong %d\n" % (first + i))
                if rng.random() < 0.5:
                    os.write(file, b"done %d\n" % queue.commit())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))


def acknowledged(log: Path) -> tuple[int, int, list[str]]:
    """How far items were acknowledged and confirmed, and all lines; the last one may be cut off."""
    put = done = 0
    lines = log.read_text().split("\n")[:-1]
    for line in lines:
        words = line.split()
        if words[0] == "put":
            put = int(words[1])
        elif words[0] == "done":
            done = int(words[1])
    return put, done, lines
