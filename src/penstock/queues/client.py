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

# A server that is restarted is found again within a second; by default gRPC waits up to two minutes.
_RECONNECT = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
]
_REFUSALS = (flight.FlightServerError, flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError)


class QueueClient:
    """A connection to a queue server.

    Parameters
    ----------
    location
        Such as "grpc://127.0.0.1:8815", or "grpc+tls://..." with TLS.
    token
        What the server wants to see.
    roots
        A file of certificates (PEM) to trust instead of the system's.
    patience
        How many seconds a question is asked again while the server cannot be reached.

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
        self.location, self._token, self._patience = location, token, patience
        self._roots = None if roots is None else Path(roots).read_bytes()
        self._producers: list[QueueProducer] = []
        self._connect()

    def _connect(self) -> None:
        options = {} if self._roots is None else {"tls_root_certs": self._roots}
        try:
            self._client = flight.connect(self.location, generic_options=_RECONNECT, **options)
        except (pa.ArrowInvalid, flight.FlightError) as error:
            raise QueueError(
                f"{self.location!r} is no address of a queue server ({error}); "
                "write it like 'grpc://127.0.0.1:8815' or 'grpc+tls://host:8815'."
            ) from error

    @property
    def _call(self) -> Any:
        headers = [(b"authorization", f"Bearer {self._token}".encode())] if self._token else []
        return flight.FlightCallOptions(headers=headers)

    def _ask(self, kind: str, **about: Any) -> Any:
        action = flight.Action(kind, json.dumps(about).encode())
        waits = _Waits(self.location, self._patience)
        while True:
            try:
                results = list(self._client.do_action(action, self._call))
                return json.loads(results[0].body.to_pybytes())
            except flight.FlightServerError as error:
                raise QueueError(_first_line(error)) from error
            except (flight.FlightUnavailableError, flight.FlightTimedOutError) as error:
                waits.pause(error)

    def queues(self) -> list[str]:
        """The names of the server's queues."""
        found: list[str] = self._ask("queues")
        return found

    def schema(self, queue: str) -> Any:
        """The schema of a queue."""
        raw = base64.b64decode(self._ask("schema", queue=queue)["schema"])
        return pa.ipc.read_schema(pa.py_buffer(raw))

    def offsets(self, queue: str) -> tuple[int, int]:
        """The first row that is not confirmed, and the row after the last."""
        found = self._ask("offsets", queue=queue)
        return found["committed"], found["end"]

    def read(self, queue: str, first: int, after: int) -> Iterator[Any]:
        """The batches of a range of rows; they stay until they are confirmed."""
        ticket = flight.Ticket(json.dumps({"queue": queue, "first": first, "after": after}).encode())
        try:
            for piece in self._client.do_get(ticket, self._call):
                yield piece.data
        except flight.FlightServerError as error:
            raise QueueError(_first_line(error)) from error

    def commit(self, queue: str, row: int) -> None:
        """Confirm all rows before this one; they are gone."""
        self._ask("commit", queue=queue, row=row)

    def stats(self, queue: str) -> dict[str, Any]:
        """The counts of a queue."""
        found: dict[str, Any] = self._ask("stats", queue=queue)
        return found

    def producer(
        self, queue: str, schema: Any, name: str | None = None, patience: float = 60.0
    ) -> QueueProducer:
        """A producer for a queue, which is made if it is new.

        `name` makes it the same producer after a restart; `patience` is how many seconds it tries to reach a
        server that does not answer.
        """
        made = QueueProducer(self, queue, schema, name or uuid.uuid4().hex, patience)
        self._producers.append(made)
        return made

    def close(self) -> None:
        """Close the connection, and the calls of producers with it."""
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
    """Sends batches to one queue, each with a number; what was not acknowledged is sent again under it."""

    def __init__(self, client: QueueClient, queue: str, schema: Any, name: str, patience: float) -> None:
        self._client, self._queue, self._schema, self.name = client, queue, schema, name
        self._patience = patience
        self._writer: Any = None
        self._reader: Any = None
        self._waiting: list[tuple[int, Any]] = []
        known = queue in client.queues()
        self.number = client._ask("last", queue=queue, producer=name)["number"] if known else -1

    def put(self, batch: Any) -> int:
        """Send a batch, and return its number when the server has it for good; waits at the disk limit."""
        return self.put_many([batch])

    def put_many(self, batches: list[Any]) -> int:
        """Send batches without waiting for each; returns the last number when all are safe."""
        for batch in batches:
            if not batch.schema.equals(self._schema):
                raise QueueError(f"The producer has the schema {self._schema}; {batch.schema} was given.")
            self.number += 1
            self._waiting.append((self.number, batch))
        waits = _Waits(self._client.location, self._patience)
        while self._waiting:
            before = len(self._waiting)
            try:
                self._send()
            except _REFUSALS as error:
                self._drop()
                raise QueueError(_first_line(error)) from error
            except (flight.FlightError, pa.ArrowException, OSError) as error:
                self._drop()
                if len(self._waiting) < before:
                    waits = _Waits(self._client.location, self._patience)
                waits.pause(error)
        return self.number

    def _send(self) -> None:
        if self._writer is None:
            descriptor = flight.FlightDescriptor.for_path(self._queue)
            self._writer, self._reader = self._client._client.do_put(
                descriptor, self._schema, self._client._call
            )
        sent = 0
        while self._waiting:
            # A few ahead of the answers, so that the way there and back is not waited for each time.
            while sent < len(self._waiting) and sent < 8:
                number, batch = self._waiting[sent]
                about = json.dumps({"producer": self.name, "number": number}).encode()
                self._writer.write_with_metadata(batch, about)
                sent += 1
            answer = self._reader.read()
            if answer is None:
                self._writer.close()  # raises what the server said
                raise flight.FlightUnavailableError("the server ended the call")
            done = json.loads(answer.to_pybytes())["number"]
            while self._waiting and self._waiting[0][0] <= done:
                self._waiting.pop(0)
                sent -= 1

    def _drop(self) -> None:
        self._writer = self._reader = None

    def close(self) -> None:
        """End the call; everything that was put is safe already."""
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
    """Pauses between attempts to reach a server, until patience is over."""

    def __init__(self, location: str, patience: float) -> None:
        self.location, self.patience = location, patience
        self.end, self.next = time.monotonic() + patience, 0.05

    def pause(self, error: Exception) -> None:
        """Wait for a while before the next attempt, or tell of the last one."""
        if time.monotonic() > self.end:
            told = f"The server at {self.location} has not answered for {self.patience:g} s"
            raise QueueError(f"{told}: {_first_line(error)}") from error
        time.sleep(self.next)
        self.next = min(1.0, 2 * self.next)


def _first_line(error: BaseException) -> str:
    return str(error).split(". Detail:")[0].split("\n")[0]
