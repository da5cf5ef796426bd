"""The queue server: durable queues of record batches for many producers, over Arrow Flight.

Producers push batches to named queues. Each batch has the producer's name and a number, so sending it again
creates no duplicate. Consumers read ranges of rows as often as they like, and confirm them when done.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import json
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from penstock.errors import PenstockError, QueueError, QueueFullError
from penstock.queues.arguments import existing_folder, token_text
from penstock.queues.queue import SpillQueue

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
PATIENCE = 0.5  # seconds between checks that the producer of a push that waits for disk still exists


def is_loopback(host: str) -> bool:
    """Whether an address is local to this machine.

    >>> from penstock.queues.server import is_loopback
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def _errors_for_clients() -> Iterator[None]:
    """Send errors of a call to its client; the server continues."""
    try:
        yield
    except flight.FlightError:
        raise
    except PenstockError as error:
        raise flight.FlightServerError(" ".join(str(error).split())) from error
    except OSError as error:
        raise flight.FlightServerError(f"The server's disk failed: {error.strerror or error}.") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise flight.FlightServerError(f"The server cannot read the request ({error!r}).") from error


class _Tokens(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Rejects every call without the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._wanted = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: Any) -> Any:
        given = next((v for k, v in headers.items() if k.lower() == "authorization"), [""])
        text = given[0] if given else ""
        raw = text if isinstance(text, bytes) else text.encode()
        if not hmac.compare_digest(raw, self._wanted):
            raise flight.FlightUnauthenticatedError("The token is missing or wrong.")
        return None


class QueueServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves the queues below a folder.

    Parameters
    ----------
    folder
        Each queue is a folder in it.
    host, port
        Where to listen; port 0 picks a free one, see `port`. Addresses other than loopback need a token and
        TLS files.
    memory, policy, disk_limit
        Per queue, as for `SpillQueue`. At the disk limit, producers wait.
    token, certificate, key
        The token that clients must send, and the TLS files (PEM).

    >>> import tempfile
    >>> from penstock.queues import QueueServer
    >>> with QueueServer(tempfile.mkdtemp()) as server:
    ...     server.port > 0
    True
    >>> QueueServer(tempfile.mkdtemp(), host="0.0.0.0")
    Traceback (most recent call last):
    ...
    penstock.errors.QueueError: To listen on '0.0.0.0', a token and TLS files are needed; ...
    """

    def __init__(
        self,
        folder: str | Path,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        memory: str | int = "64 MiB",
        policy: str = "half",
        disk_limit: str | int | None = None,
        token: str | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
    ) -> None:
        if not is_loopback(host) and not (token and certificate and key):
            raise QueueError(
                f"To listen on '{host}', a token and TLS files are needed; "
                "without them the server listens on 127.0.0.1 only."
            )
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65_535:
            raise QueueError(
                f"port takes a whole number from 0 to 65535, 0 for a free one; {port!r} was given."
            )
        token = token_text(token)
        if (certificate is None) != (key is None):
            raise QueueError("TLS needs a certificate and a key; only one of them was given.")
        self._options: dict[str, Any] = {"memory": memory, "policy": policy, "disk_limit": disk_limit}
        with tempfile.TemporaryDirectory() as place:  # rejects options that no queue takes
            SpillQueue(place, durable=True, **self._options).close()
        self.folder = existing_folder(folder)
        self._queues: dict[str, SpillQueue] = {}
        self._guard = threading.Lock()
        self._closing = False
        middleware = {"token": _Tokens(token)} if token else None
        certificates = None
        if certificate is not None and key is not None:
            certificates = [(_file(certificate), _file(key))]
        scheme = "grpc+tls" if certificates else "grpc"
        try:
            for path in sorted(self.folder.glob("*/queue.json")):
                self._queues[path.parent.name] = SpillQueue(path.parent, durable=True, **self._options)
            super().__init__(
                f"{scheme}://{host}:{port}", middleware=middleware, tls_certificates=certificates
            )
        except (pa.ArrowException, flight.FlightError) as error:
            self._close_queues()
            said = str(error).splitlines()[0]
            raise QueueError(
                f"The server cannot listen on {host}, port {port}: {said}. Is the port in use? "
                "Port 0 picks a free one. With TLS, the certificate and the key must be PEM files."
            ) from error
        except BaseException:
            self._close_queues()
            raise
        self.location = f"{scheme}://{host}:{self.port}"

    # --- queues ---------------------------------------------------------------------------------------

    def _queue(self, name: str) -> SpillQueue:
        with self._guard:
            if name not in self._queues:
                known = ", ".join(sorted(self._queues)) or "none yet"
                raise flight.FlightServerError(f"There is no queue {name!r}. There are: {known}.")
            return self._queues[name]

    def _queue_for(self, name: str, schema: Any) -> SpillQueue:
        """Return the queue of a producer; the first producer creates it with its schema."""
        if not NAME.fullmatch(name):
            raise flight.FlightServerError(
                f"{name!r} is not a valid queue name: letters, digits, '_', '.' and '-', at most 64."
            )
        with self._guard:
            if self._closing:
                raise flight.FlightUnavailableError("The server is closing.")
            if name not in self._queues:
                self._queues[name] = SpillQueue(
                    self.folder / name, durable=True, schema=schema.remove_metadata(), **self._options
                )
            found = self._queues[name]
        if not found.schema.equals(schema.remove_metadata()):
            raise flight.FlightServerError(
                f"Queue {name!r} has the schema {found.schema.to_string()!r}; "
                f"{schema.to_string()!r} was given."
            )
        return found

    # --- Flight ---------------------------------------------------------------------------------------

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Take batches, and answer with the number of each once it is stored."""
        with _errors_for_clients():
            queue = self._queue_for(descriptor.path[0].decode(), reader.schema)
        for piece in reader:
            with _errors_for_clients():
                about = json.loads(piece.app_metadata.to_pybytes())
                producer = (str(about["producer"]), int(about["number"]))
                self._put(context, queue, piece.data.replace_schema_metadata(None), producer)
            writer.write(json.dumps({"number": producer[1]}).encode())

    def _put(self, context: Any, queue: SpillQueue, batch: Any, producer: tuple[str, int]) -> None:
        parts = _slices(batch, queue._store.spiller.grain)
        while True:
            try:
                queue.put_many(parts, timeout=PATIENCE, producer=producer)
                return
            except QueueFullError as error:
                limit = queue._store.limit
                if limit is not None and batch.nbytes + 4096 > limit:
                    raise flight.FlightServerError(str(error)) from error
                if context.is_cancelled() or self._closing:
                    raise flight.FlightUnavailableError(str(error)) from error
            except QueueError as error:
                if self._closing:  # the producer sends it again to the next server
                    raise flight.FlightUnavailableError("The server is closing.") from error
                raise

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Return unconfirmed rows of a queue, in order."""
        with _errors_for_clients():
            about = json.loads(ticket.ticket)
            queue = self._queue(about["queue"])
            first, after = int(about["first"]), int(about["after"])
        store, lane = queue._store, queue._lane
        if first < lane.committed_row or after > lane.put_row:
            raise flight.FlightServerError(
                f"Rows {first} to {after} of {about['queue']!r} were requested, but it has "
                f"{lane.committed_row} to {lane.put_row} (confirmed rows are deleted)."
            )

        def batches() -> Iterator[Any]:
            row = first
            while row < after:
                with _errors_for_clients():
                    stop = min(after, store.chunk_end(lane, row))
                    found = store.between(lane, row, stop)
                for start, batch in found:
                    begin, end = max(row - start, 0), min(stop - start, batch.num_rows)
                    yield batch.slice(begin, end - begin)
                row = stop

        return flight.GeneratorStream(queue.schema, batches())

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        """`offsets`, `schema`, `commit`, `last`, `stats` and `queues`."""
        with _errors_for_clients():
            about = json.loads(action.body.to_pybytes() or b"{}")
            answer = self._answer(action.type, about)
        return iter([json.dumps(answer).encode()])

    def _answer(self, kind: str, about: dict[str, Any]) -> Any:
        if kind == "queues":
            with self._guard:
                return sorted(self._queues)
        if kind not in ("offsets", "schema", "commit", "last", "stats"):
            raise QueueError(f"There is no action {kind!r}.")
        queue = self._queue(about["queue"])
        lane = queue._lane
        if kind == "commit":
            queue._store.commit_row(lane, int(about["row"]))
        if kind == "last":
            return {"number": lane.producers.get(str(about["producer"]), -1)}
        if kind == "schema":
            return {"schema": base64.b64encode(queue.schema.serialize().to_pybytes()).decode()}
        if kind == "stats":
            return vars(queue.stats())
        return {"committed": lane.committed_row, "end": _safe_end(queue)}

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """Return the available actions."""
        return [
            ("queues", "names of the queues"),
            ("offsets", "first unconfirmed row and the end"),
            ("schema", "schema of a queue"),
            ("commit", "confirm all before a row"),
            ("last", "last number of a producer"),
            ("stats", "counts of a queue"),
        ]

    # --- the end --------------------------------------------------------------------------------------

    def close(self, patience: float = 2.0) -> None:
        """Stop, and close all queues; calls in progress get a few seconds."""
        self._closing = True
        # Arrow waits for calls to end, but a producer may keep one open without sending anything.
        stopping = threading.Thread(target=self.shutdown, daemon=True)
        stopping.start()
        stopping.join(patience)
        self._close_queues()

    def _close_queues(self) -> None:
        with self._guard:
            for queue in self._queues.values():
                queue.close()

    def __exit__(self, *error: Any) -> None:
        self.close()


def _safe_end(queue: SpillQueue) -> int:
    """Return the end of the rows that would survive a power loss; no more may be acknowledged."""
    store, lane = queue._store, queue._lane
    with store.mutex:
        end, written = lane.put_row, lane.segments.appended
    lane.segments.sync(written)
    return end


def _slices(batch: Any, most: int) -> list[Any]:
    """Split a batch into parts that fit into a chunk."""
    size = batch.nbytes + 1024
    if size <= most or batch.num_rows <= 1:
        return [batch]
    rows = max(1, int(batch.num_rows * most / size * 0.9))
    return [batch.slice(at, rows) for at in range(0, batch.num_rows, rows)]


def _file(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise QueueError(f"The TLS file '{path}' cannot be read: {error.strerror}.") from error


def use_little_memory() -> None:
    """Make Arrow return memory to the system at once; for a process that is only a server."""
    pa.set_memory_pool(pa.system_memory_pool())
