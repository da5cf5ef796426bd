"""The client of a queue server: producers that send each batch once, consumers that read and confirm."""

from __future__ import annotations

import base64
import contextlib
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyarrow import flight

from penstock.errors import QueueError
from penstock.queues.arguments import seconds, token_text, whole_number
from penstock.queues.store.items import listed
from penstock.queues.store.lanes import Delivery

# Reconnect to a restarted server within a second; by default gRPC waits up to two minutes.
_RECONNECT = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
]
_SILENCE = (flight.FlightUnavailableError, flight.FlightTimedOutError)
_STRANGERS = (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError)
_REFUSALS = (flight.FlightServerError, *_STRANGERS, pa.ArrowNotImplementedError)
# Besides Arrow errors: unreadable answers of another kind of server.
_ANY = (flight.FlightError, pa.ArrowException, OSError, ValueError, LookupError, TypeError)


class QueueClient:
    """A connection to a queue server.

    Parameters
    ----------
    location
        Such as "grpc://127.0.0.1:8815", or "grpc+tls://..." with TLS.
    token
        The token that the server expects.
    roots
        A file of certificates (PEM) to trust instead of the system's.
    patience
        For how many seconds to retry a request while the server cannot be reached.

    >>> import pyarrow as pa, tempfile
    >>> from penstock.queues import QueueClient, QueueServer
    >>> with QueueServer(tempfile.mkdtemp()) as server, QueueClient(server.location) as client:
    ...     batch = pa.record_batch({"n": [1, 2, 3]})
    ...     with client.producer("numbers", batch.schema, name="one") as producer:
    ...         _ = producer.put(batch)
    ...     committed, end = client.offsets("numbers")
    ...     rows = pa.Table.from_batches(client.read("numbers", committed, end)).to_pydict()
    ...     client.commit("numbers", end)
    >>> rows, (committed, end)
    ({'n': [1, 2, 3]}, (0, 3))
    """

    def __init__(
        self,
        location: str,
        token: str | None = None,
        roots: str | Path | None = None,
        patience: float = 10.0,
    ) -> None:
        if not isinstance(location, str):
            raise QueueError(
                f"location takes a text such as 'grpc://127.0.0.1:8815'; {location!r} was given."
            )
        token = token_text(token)
        self.location, self._token, self._patience = location, token, seconds("patience", patience)
        try:
            self._roots = None if roots is None else Path(roots).read_bytes()
        except (OSError, TypeError) as error:
            raise QueueError(
                f"roots takes a file of certificates (PEM); {roots!r} cannot be read."
            ) from error
        self._producers: list[QueueProducer] = []
        self._connect()

    def _connect(self) -> None:
        options = {} if self._roots is None else {"tls_root_certs": self._roots}
        try:
            self._client = flight.connect(self.location, generic_options=_RECONNECT, **options)
        except (pa.ArrowException, flight.FlightError, ValueError, OSError) as error:
            raise QueueError(
                f"{self.location!r} is not the address of a queue server ({error}); "
                "write it like 'grpc://127.0.0.1:8815' or 'grpc+tls://host:8815'."
            ) from error

    @property
    def _call(self) -> Any:
        headers = [(b"authorization", f"Bearer {self._token}".encode())] if self._token else []
        return flight.FlightCallOptions(headers=headers)

    def _ask(self, kind: str, *keys: str, **about: Any) -> Any:
        """Send a request and return the answer, an object with at least these keys."""
        if not isinstance(about.get("queue", ""), str):
            raise QueueError(f"The name of a queue is a text; {about['queue']!r} was given.")
        action = flight.Action(kind, json.dumps(about).encode())
        waits = _Waits(self.location, self._patience)
        while True:
            try:
                results = list(self._client.do_action(action, self._call))
                found = json.loads(results[0].body.to_pybytes())
                if not isinstance(found, list if kind == "queues" else dict) or not set(keys) <= set(found):
                    raise ValueError(f"an answer of another kind to {kind!r}")
                return found
            except _SILENCE as error:
                waits.pause(error)
            except _ANY as error:
                raise self._error(error) from error

    def _error(self, error: Exception, problem: str = "") -> QueueError:
        """Convert an error of the server, or of something that is not a queue server."""
        said = _first_line(error)
        if isinstance(error, flight.FlightServerError):
            return QueueError(f"{said}{problem}")
        if isinstance(error, _STRANGERS):
            given = "the given one is wrong" if self._token else "none was given"
            return QueueError(
                f"The queue server at {self.location} requires a token, and {given}. Pass token=..., as in "
                "the server's --token-file or PENSTOCK_QUEUE_TOKEN."
            )
        if isinstance(error, _SILENCE):
            return QueueError(f"The server at {self.location} does not answer: {said}{problem}")
        said = said or type(error).__name__
        return QueueError(
            f"The server at {self.location} does not answer like a queue server ({said}). "
            f"Is it `penstock queues serve`, and is TLS enabled on both sides or on neither?{problem}"
        )

    def queues(self) -> list[str]:
        """Return the names of the server's queues."""
        found: list[str] = self._ask("queues")
        return found

    def schema(self, queue: str) -> Any:
        """Return the schema of a queue."""
        raw = base64.b64decode(self._ask("schema", "schema", queue=queue)["schema"])
        return pa.ipc.read_schema(pa.py_buffer(raw))

    def offsets(self, queue: str) -> tuple[int, int]:
        """Return the first unconfirmed row, and the row after the last."""
        found = self._ask("offsets", "committed", "end", queue=queue)
        return found["committed"], found["end"]

    def read(self, queue: str, first: int, after: int, *, with_offset: bool = False) -> Iterator[Any]:
        """Return the batches of a range of rows; they stay until they are confirmed.

        `with_offset=True` returns pairs (offset, batch): the number of the batch's first row, for `commit`.
        """
        first, after = whole_number("first", first), whole_number("after", after)
        ticket = flight.Ticket(json.dumps({"queue": str(queue), "first": first, "after": after}).encode())
        row = first
        try:
            for piece in self._client.do_get(ticket, self._call):
                yield Delivery(row, piece.data) if with_offset else piece.data
                row += piece.data.num_rows
        except _ANY as error:
            if isinstance(error, QueueError):
                raise
            raise self._error(error) from error

    def commit(self, queue: str, row: int) -> None:
        """Confirm all rows before this one, for every consumer of the queue; they cannot be read again.

        A queue has one position. If several workers share it, each reads its own range, and rows may be
        confirmed only up to the smallest offset that a worker still holds: confirmed rows are deleted for all
        workers.
        """
        self._ask("commit", "committed", queue=queue, row=whole_number("row", row))

    def stats(self, queue: str) -> dict[str, Any]:
        """Return the counts of a queue."""
        found: dict[str, Any] = self._ask("stats", "items", queue=queue)
        return found

    def producer(
        self, queue: str, schema: Any, name: str | None = None, patience: float = 60.0
    ) -> QueueProducer:
        """Return a producer for a queue, which is created if it is new.

        `name` identifies the producer after a restart; `patience` is for how many seconds it retries to reach
        a server that does not answer. If the server refuses a batch, the error says how many were taken; the
        others can be put again. If the server does not answer, the batch is kept, and the next `put` sends it
        first.
        """
        made = QueueProducer(self, queue, schema, name or uuid.uuid4().hex, patience)
        self._producers.append(made)
        return made

    def close(self) -> None:
        """Close the connection, including the calls of producers."""
        for producer in self._producers:
            with contextlib.suppress(flight.FlightError, pa.ArrowException, OSError):
                producer.close()
        self._client.close()

    def __enter__(self) -> QueueClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class QueueProducer:
    """Sends numbered batches to one queue; unacknowledged ones are sent again under the same number."""

    def __init__(self, client: QueueClient, queue: str, schema: Any, name: str, patience: float) -> None:
        if not isinstance(schema, pa.Schema):
            raise QueueError(f"schema takes a pyarrow.Schema; {type(schema).__name__} was given.")
        if not isinstance(name, str):
            raise QueueError(f"The name of a producer is a text; {name!r} was given.")
        self._client, self._queue, self._schema, self.name = client, queue, schema, name
        self._patience = seconds("patience", patience)
        self._writer: Any = None
        self._reader: Any = None
        self._waiting: list[tuple[int, Any]] = []
        self.number = self._last()

    def _last(self) -> int:
        """Return the last number that the server has from this producer, -1 if none."""
        if self._queue not in self._client.queues():
            return -1
        found: int = self._client._ask("last", "number", queue=self._queue, producer=self.name)["number"]
        return found

    def put(self, batch: Any) -> int:
        """Send a batch, and return its number once the server has stored it; waits at the disk limit."""
        return self.put_many([batch])

    def put_many(self, batches: list[Any]) -> int:
        """Send batches without waiting for each; return the last number once all are stored."""
        given = listed(batches, "record batches")
        for batch in given:
            if not isinstance(batch, pa.RecordBatch):
                raise QueueError(
                    f"A producer sends Arrow record batches; {type(batch).__name__} was given. "
                    "For a table, use to_batches()."
                )
            if not batch.schema.equals(self._schema):
                raise QueueError(f"The producer has the schema {self._schema}; {batch.schema} was given.")
        for batch in given:
            self.number += 1
            self._waiting.append((self.number, batch))
        waits = _Waits(self._client.location, self._patience)
        while self._waiting:
            before = len(self._waiting)
            try:
                self._send()
            except _REFUSALS as error:
                self._drop()
                raise self._refused(error, len(given)) from error
            except (flight.FlightError, pa.ArrowException, OSError) as error:
                self._drop()
                if len(self._waiting) < before:
                    waits = _Waits(self._client.location, self._patience)
                waits.pause(error)
        return self.number

    def _refused(self, error: Exception, given: int) -> QueueError:
        """Handle a refusal: return the error with the number of batches taken; the rest is not kept."""
        after = self.number
        with contextlib.suppress(QueueError):
            self.number = self._last()
            self._waiting.clear()
            taken = max(0, given - (after - self.number))
            return self._client._error(error, f" {taken:,} of {given:,} batches were taken.")
        return self._client._error(error)

    def _send(self) -> None:
        if self._writer is None:
            descriptor = flight.FlightDescriptor.for_path(self._queue)
            self._writer, self._reader = self._client._client.do_put(
                descriptor, self._schema, self._client._call
            )
        sent = 0
        while self._waiting:
            # Send a few batches ahead of the answers, to hide the round-trip time.
            while sent < len(self._waiting) and sent < 8:
                number, batch = self._waiting[sent]
                about = json.dumps({"producer": self.name, "number": number}).encode()
                self._writer.write_with_metadata(batch, about)
                sent += 1
            answer = self._reader.read()
            if answer is None:
                self._writer.close()  # raises the server's error
                raise flight.FlightUnavailableError("the server ended the call")
            done = json.loads(answer.to_pybytes())["number"]
            while self._waiting and self._waiting[0][0] <= done:
                self._waiting.pop(0)
                sent -= 1

    def _drop(self) -> None:
        self._writer = self._reader = None

    def close(self) -> None:
        """End the call; everything that was put is already stored."""
        writer = self._writer
        self._drop()
        if writer is not None:
            writer.done_writing()
            writer.close()

    def __enter__(self) -> QueueProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()


class _Waits:
    """Pauses between attempts to reach a server, until patience runs out."""

    def __init__(self, location: str, patience: float) -> None:
        self.location, self.patience = location, patience
        self.end, self.next = time.monotonic() + patience, 0.05

    def pause(self, error: Exception) -> None:
        """Wait before the next attempt, or raise the last error."""
        if time.monotonic() > self.end:
            problem = f"The server at {self.location} has not answered for {self.patience:g} s"
            if isinstance(error, pa.ArrowException) and not isinstance(error, flight.FlightError):
                problem = f"{problem}, or not like a queue server"
            raise QueueError(f"{problem}: {_first_line(error)}") from error
        time.sleep(self.next)
        self.next = min(1.0, 2 * self.next)


def _first_line(error: BaseException) -> str:
    return str(error).split(". Detail:")[0].split("\n")[0]
