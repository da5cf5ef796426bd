"""A producer and a consumer of a queue server, to be killed at any time.

    python -m tests.queues.clients produce PORT SENT GOAL
    python -m tests.queues.clients consume PORT GOT GOAL

Both end when the file GOAL is there: the producer then writes how many rows there are to SENT, and the
consumer has written all of them to GOT, once each, one number a line.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pyarrow as pa
from pyarrow import flight

from penstock.errors import QueueError
from penstock.queues import QueueClient

ROWS = 50
TROUBLE = (QueueError, flight.FlightError, pa.ArrowException, OSError)


def produce(port: str, sent: Path, goal: Path) -> None:
    """Batch k has the rows from 50 k on, under the number k: after a kill it goes on where the server is."""
    while True:
        try:
            with QueueClient(f"grpc://127.0.0.1:{port}") as client:
                schema = pa.schema({"n": pa.int64()})
                with client.producer("q", schema, name="it") as producer:
                    while not goal.exists():
                        first = (producer.number + 1) * ROWS
                        producer.put(pa.record_batch({"n": list(range(first, first + ROWS))}))
                    sent.write_text(str((producer.number + 1) * ROWS))
                    return
        except TROUBLE:
            time.sleep(0.1)


def consume(port: str, got: Path, goal: Path) -> None:
    """Write rows, then confirm them; after a kill, what is written is known and not written again."""
    sent = goal.with_name("sent")
    while True:
        try:
            with QueueClient(f"grpc://127.0.0.1:{port}") as client:
                while True:
                    text = got.read_text() if got.exists() else ""
                    whole = text[: text.rfind("\n") + 1]
                    have = whole.count("\n")
                    if len(whole) < len(text):
                        os.truncate(got, len(whole))
                    first, after = client.offsets("q")
                    start = max(first, have)
                    assert have >= first
                    with got.open("a") as file:
                        for batch in client.read("q", start, after):
                            file.writelines(f"{n}\n" for n in batch["n"].to_pylist())
                    client.commit("q", after)
                    if goal.exists() and sent.exists() and after == int(sent.read_text() or -1):
                        return
                    time.sleep(0.02)
        except TROUBLE:
            time.sleep(0.1)


if __name__ == "__main__":
    {"produce": produce, "consume": consume}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
