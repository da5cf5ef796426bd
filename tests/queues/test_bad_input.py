"""Whatever is given, what comes back is an error of ours that says what was given and what is allowed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock.errors import PenstockError, QueueDamageError, QueueError
from penstock.queues import QueueClient, QueueServer, verify
from tests.queues.test_crash import path as python_path
from tests.queues.test_flight import certificate, free_port

BATCH = pa.record_batch({"n": [1, 2, 3]})
HUGE = 2**64

CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "put_many(5)": (lambda q: q.put_many(5), r"put_many takes several items.*5 was given"),
    "put_many(None)": (lambda q: q.put_many(None), "None was given"),
    "put_many(bytes)": (lambda q: q.put_many(b"abc"), r"one bytes was given.*put\(item\)"),
    "put_many(str)": (lambda q: q.put_many("abc"), "one str was given"),
    "put_many(batch)": (lambda q: q.put_many(BATCH), "one RecordBatch was given"),
    "put_many of numbers": (lambda q: q.put_many([b"a", HUGE]), "takes bytes; int was given"),
    "put a huge number": (lambda q: q.put(HUGE), "takes bytes; int was given"),
    "put nothing": (lambda q: q.put(None), "NoneType was given"),
    "producer 2**64": (lambda q: q.put_many([b"a"], producer=("p", HUGE)), f"{HUGE} was given"),
    "producer below 0": (lambda q: q.put_many([b"a"], producer=("p", -1)), "-1 was given"),
    "producer a text": (lambda q: q.put_many([b"a"], producer="p"), "producer takes a name and a number"),
    "producer's number a text": (lambda q: q.put_many([b"a"], producer=("p", "1")), "'1' was given"),
    "producer's name half a character": (
        lambda q: q.put_many([b"a"], producer=("\ud800", 1)),
        "producer takes a name",
    ),
    "producer without name": (lambda q: q.put_many([b"a"], producer=(1, 2)), "producer takes"),
    "put's timeout a text": (lambda q: q.put(b"a", timeout="soon"), "timeout takes seconds.*'soon'"),
    "get's timeout a text": (lambda q: q.get(timeout="soon"), "timeout takes seconds.*'soon'"),
    "get's timeout NaN": (lambda q: q.get(timeout=float("nan")), "timeout takes seconds.*nan"),
    "get_many(2.5)": (lambda q: q.get_many(2.5), "2.5 was given"),
    "get_many('2')": (lambda q: q.get_many("2"), "'2' was given"),
    "get_many(-1)": (lambda q: q.get_many(-1), "-1 was given"),
    "commit('1')": (lambda q: q.commit("1"), "'1' was given"),
    "commit(2**64)": (lambda q: q.commit(HUGE), f"{HUGE}"),
    "commit(-1)": (lambda q: q.commit(-1), "-1"),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("durable", [False, True], ids=["", "durable"])
def test_calls(tmp_path: Path, durable: bool, name: str) -> None:
    call, told = CALLS[name]
    if "producer" in name and not durable:
        told = "durable=True"
    with ps.SpillQueue(tmp_path, durable=durable) as queue:
        with pytest.raises(PenstockError, match=told):
            call(queue)
        assert len(queue) == 0
        queue.check()
        assert queue.put_many([b"a", bytearray(b"b"), memoryview(b"c")]) == 3
        assert queue.get(timeout=1e300) == b"a"


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"memory": -5}, "-5"),
    ({"memory": 0}, "0"),
    ({"memory": float("nan")}, "nan"),
    ({"memory": float("inf")}, "inf"),
    ({"memory": "-64 MiB"}, "-64 MiB"),
    ({"memory": "64 pounds"}, "64 pounds"),
    ({"memory": ""}, "''"),
    ({"memory": None}, "None"),
    ({"memory": True}, "True"),
    ({"memory": [1]}, r"\[1\]"),
    ({"disk_limit": -5}, "-5"),
    ({"disk_limit": float("nan")}, "nan"),
    ({"disk_limit": "lots"}, "lots"),
    ({"policy": 5}, "5"),
    ({"policy": None}, "None"),
    ({"on_full": 5}, "5"),
    ({"durable": "no"}, "durable takes True or False; 'no'"),
    ({"salvage": 1}, "salvage takes True or False; 1"),
    ({"schema": 5}, "int was given"),
]


@pytest.mark.parametrize(("options", "told"), OPTIONS, ids=str)
def test_options(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    with pytest.raises(PenstockError, match=told):
        ps.SpillQueue(tmp_path / "q", **options)
    assert not list((tmp_path / "q").glob("*.json"))
    ps.SpillQueue(tmp_path / "q").close()


def test_paths(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    for path, told in (
        (file, "is a file; a queue takes a folder"),
        (file / "below", "Not a directory"),
        (5, "takes the path of a folder; 5 was given"),
        (None, "None was given"),
        ("a\0b", "takes the path of a folder"),
        (tmp_path / ("x" * 300), "name too long"),
        ("/proc/queue", "No such file|cannot be opened"),
    ):
        for make in (ps.SpillQueue, QueueServer, lambda path: ps.SpillQueues(path, 2)):
            with pytest.raises(QueueError, match=told):
                make(path)
    for path in (file, file / "below", tmp_path / "none"):
        with pytest.raises(QueueError, match="holds no queue"):
            verify(path)
    assert "is a file" in CliRunner().invoke(app, ["queues", "serve", str(file), "--port", "0"]).output


WITHOUT_RIGHTS = """
import os, sys, tempfile, penstock as ps
from penstock.errors import QueueError
from penstock.queues import verify
with tempfile.TemporaryDirectory() as place:
    ps.SpillQueue(place).close()  # loads all modules, which others may not be allowed to read
if os.getuid() == 0:
    os.setgid(65534), os.setuid(65534)
for call in (lambda: ps.SpillQueue(sys.argv[1]), lambda: ps.SpillQueue(sys.argv[1] + "/new"),
             lambda: verify(sys.argv[1])):
    try:
        call()
    except QueueError as error:
        print(error)
"""


@pytest.mark.parametrize("what", ["folder", "queue.json", "marks", "lock"])
def test_folders_without_permission(what: str) -> None:
    folder = Path(tempfile.mkdtemp())  # others may not look into the folders of a test
    try:
        os.chmod(folder, 0o755)
        ps.SpillQueue(folder / "q").close()
        for each in (folder / "q").iterdir():
            each.chmod(0o644)
        (folder / "q").chmod(0o755)
        (folder / "q" / (what if what != "folder" else ".")).chmod(0)
        command = [sys.executable, "-c", WITHOUT_RIGHTS, str(folder / "q")]
        done = subprocess.run(
            command,
            env=os.environ | {"PYTHONPATH": python_path(), "NUMBA_DISABLE_JIT": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said = done.stdout.splitlines()
        assert len(said) == (2 if what == "lock" else 3), said
        assert all("Permission denied" in line for line in said), said
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", str(folder)], check=True)
        shutil.rmtree(folder)


GOOD = {"version": 1, "queues": 1, "durable": True, "schema": None}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("penstock", "not JSON"),
        ("\udcff", "not JSON"),
        ("[]", "holds list"),
        ("[" * 100_000, "is not JSON"),
        ("null", "holds NoneType"),
        ("5", "holds int"),
        ('"text"', "holds str"),
        ({"version": 2}, "is of version 2; this Penstock reads up to 1"),
        ({"version": "1"}, "'version' is '1'"),
        ({"version": 0}, "'version' is 0"),
        ({"version": -1}, "'version' is -1"),
        ({"version": True}, "'version' is True"),
        ({"queues": "1"}, "'queues' is '1'"),
        ({"queues": 0}, "'queues' 0"),
        ({"queues": 1.5}, "'queues' is 1.5"),
        ({"queues": HUGE}, f"'queues' {HUGE}"),
        ({"queues": None}, "'queues' is None"),
        ({"durable": "yes"}, "'durable' is 'yes'"),
        ({"durable": 1}, "'durable' is 1"),
        ({"schema": 5}, "'schema' is 5"),
        ({"schema": "!"}, "'schema' cannot be read"),
        ({"schema": "abcd"}, "'schema' cannot be read"),
        ({"checksum": 5}, "checksum is wrong"),
        ({"checksum": None}, "checksum is wrong"),
        ({"color": "red"}, "'color' does not belong"),
        *(({name: ...}, f"'{name}' is missing") for name in GOOD),
    ],
    ids=str,
)
def test_a_damaged_queue_json(tmp_path: Path, text: Any, told: str) -> None:
    folder = tmp_path / "q"
    with ps.SpillQueue(folder, durable=True) as queue:
        queue.put(b"a")
    if isinstance(text, dict):
        text = json.dumps({k: v for k, v in (GOOD | text).items() if v is not ...})
    (folder / "queue.json").write_text(text, errors="surrogateescape")
    error = QueueError if "version 2" in told else QueueDamageError
    with pytest.raises(error, match=told):
        ps.SpillQueue(folder, durable=True)
    with pytest.raises(error, match=r"queue\.json"):
        QueueServer(tmp_path)
    with pytest.raises(error, match=told):
        verify(folder)
    done = CliRunner().invoke(app, ["queues", "verify", str(folder)])
    assert done.exit_code == 2, done.output
    assert "queue.json" in done.output
    (folder / "queue.json").write_text(json.dumps(GOOD))  # as one from before there was a checksum
    with ps.SpillQueue(folder, durable=True) as queue:
        assert queue.get() == b"a"


# --- the server -----------------------------------------------------------------------------------------


def use(client: QueueClient) -> list[Callable[[], Any]]:
    """Everything that a client can ask for."""
    return [
        client.queues,
        lambda: client.schema("q"),
        lambda: client.offsets("q"),
        lambda: list(client.read("q", 0, 1)),
        lambda: client.commit("q", 1),
        lambda: client.stats("q"),
        lambda: client.producer("q", BATCH.schema),
    ]


def test_tokens(tmp_path: Path) -> None:
    with QueueServer(tmp_path, token="secret") as server:
        for token, told in ((None, "none was given"), ("wrong", "is wrong"), ("secret ", "is wrong")):
            with QueueClient(server.location, token=token) as client:
                for call in use(client):
                    with pytest.raises(QueueError, match=f"requires a token, and .*{told}.*token=") as caught:
                        call()
                    assert "secret" not in str(caught.value)
        with QueueClient(server.location, token="secret") as client:
            client.producer("q", BATCH.schema).put(BATCH)
    for bad in (5, "two\nlines", "é", ""):
        with pytest.raises(QueueError, match="token takes"):
            QueueClient("grpc://127.0.0.1:1", token=bad)
        with pytest.raises(QueueError, match="token takes"):
            QueueServer(tmp_path, token=bad)


def test_a_dead_server(tmp_path: Path) -> None:
    server = QueueServer(tmp_path)
    with QueueClient(server.location, patience=0.2) as client:
        producer = client.producer("q", BATCH.schema, patience=0.2)
        producer.put(BATCH)
        server.close()
        for call in [*use(client), lambda: producer.put(BATCH)]:
            with pytest.raises(QueueError, match=r"127\.0\.0\.1:\d+ (has not answered|does not answer)"):
                call()


class OtherFlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """A Flight server that knows nothing of queues."""


class OddFlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """A Flight server whose answers are of another kind."""

    answer: Any = ()

    def do_action(self, context: Any, action: Any) -> Any:
        return iter(self.answer)

    def do_get(self, context: Any, ticket: Any) -> Any:
        raise RuntimeError("no such thing")


@pytest.mark.parametrize("answer", [None, [], [b"text"], [b"5"], [b"{}"], [b"[]"], [b"\xff"]], ids=str)
def test_servers_of_another_kind(answer: Any) -> None:
    with (OtherFlightServer if answer is None else OddFlightServer)("grpc://127.0.0.1:0") as server:
        server.answer = answer
        with QueueClient(f"grpc://127.0.0.1:{server.port}", patience=0.2) as client:
            for position, call in enumerate(use(client)):
                if answer == [b"[]"] and position in (0, 6):
                    continue  # a server without queues answers so
                with pytest.raises(QueueError):
                    call()
            if answer is None:
                with pytest.raises(QueueError, match="does not answer like a queue server"):
                    client.queues()


def test_a_server_that_is_no_flight_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with QueueClient(f"grpc://127.0.0.1:{listener.getsockname()[1]}", patience=0.2) as client:
            for call in use(client):
                with pytest.raises(QueueError, match="answer"):
                    call()
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_tls_at_one_end(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with QueueServer(tmp_path / "q", token="secret", certificate=cert, key=key) as server:
        for location in (f"grpc://localhost:{server.port}", f"grpc+tls://localhost:{server.port}"):
            with QueueClient(location, token="secret", patience=0.2) as client:
                for call in use(client):
                    with pytest.raises(QueueError, match="answer"):
                        call()
    with pytest.raises(QueueError, match="cannot listen"):
        QueueServer(tmp_path / "q", certificate=key, key=cert)
    with pytest.raises(QueueError, match="TLS file"):
        QueueServer(tmp_path / "q", certificate=tmp_path / "none", key=key)


def test_clients_and_servers_are_built_of_what_they_take(tmp_path: Path) -> None:
    for location in ("", "nonsense", "http//x", 5, None, "ftp://127.0.0.1:1", "grpc://127.0.0.1:port"):
        with pytest.raises(QueueError, match=r"location|address|answer"):
            QueueClient(location, patience=0.1).queues()
    with pytest.raises(QueueError, match="patience takes seconds"):
        QueueClient("grpc://127.0.0.1:1", patience="long")
    for roots in (tmp_path / "none", tmp_path, 5):
        with pytest.raises(QueueError, match="roots takes a file"):
            QueueClient("grpc+tls://127.0.0.1:1", roots=roots)
    for port in (-1, 65_536, "8815", 1.5, None, True):
        with pytest.raises(QueueError, match="port takes"):
            QueueServer(tmp_path, port=port)
    with QueueServer(tmp_path) as server, pytest.raises(QueueError, match=r"cannot listen.*in use"):
        QueueServer(tmp_path / "other", port=server.port)
    with pytest.raises(QueueError, match=r"cannot listen|token and TLS"):
        QueueServer(tmp_path, host="no.such.host.invalid")


def test_requests_that_make_no_sense(tmp_path: Path) -> None:
    with QueueServer(tmp_path) as server, QueueClient(server.location) as client:
        producer = client.producer("q", BATCH.schema)
        producer.put(BATCH)
        for call, told in (
            (lambda: client.commit("q", HUGE), f"{HUGE} was given"),
            (lambda: client.commit("q", -1), "-1 was given"),
            (lambda: client.commit("q", "1"), "'1' was given"),
            (lambda: client.commit("q", 4), "Row 4"),
            (lambda: client.commit(5, 1), "5 was given"),
            (lambda: list(client.read("q", 0, HUGE)), f"{HUGE} was given"),
            (lambda: list(client.read("q", "0", 1)), "'0' was given"),
            (lambda: list(client.read("q", 0, 9)), "Rows 0 to 9"),
            (lambda: list(client.read("nobody", 0, 1)), "There is no queue 'nobody'. There are: q"),
            (lambda: client._ask("commit", queue="q"), "cannot read the request"),
            (lambda: client._ask("commit", queue="q", row="x"), "cannot read the request"),
            (lambda: client._ask("commit", queue="q", row=-1), "row takes"),
            (lambda: client._ask("nonsense"), "There is no action 'nonsense'"),
            (lambda: client.producer("q", 5), "schema takes"),
            (lambda: client.producer("q", BATCH.schema, name=5), "The name of a producer is a text"),
            (lambda: producer.put(5), "record batches; int was given"),
            (lambda: producer.put(pa.table(BATCH.to_pydict())), "to_batches"),
            (lambda: producer.put_many(5), "5 was given"),
            (lambda: producer.put_many(BATCH), "one RecordBatch was given"),
            (lambda: producer.put_many([BATCH, pa.record_batch({"z": [1]})]), "schema"),
        ):
            with pytest.raises(QueueError, match=told):
                call()
            assert client.offsets("q") == (0, 3)
        assert producer.put(BATCH) == 1
        assert client.offsets("q") == (0, 6)


def test_a_refused_batch_does_not_stay_in_the_producer(tmp_path: Path) -> None:
    """The server refuses what is larger than a queue takes; what follows is taken, and nothing twice."""
    wide = pa.record_batch({"s": ["x" * 100_000]})
    small = pa.record_batch({"s": ["y"]})
    with QueueServer(tmp_path, memory="64 KiB") as server, QueueClient(server.location) as client:
        producer = client.producer("q", small.schema)
        for batches, taken in (([wide], 0), ([small, wide, small], 1)):
            with pytest.raises(
                QueueError, match=rf"An item of .* {taken} of {len(batches)} batches were taken"
            ):
                producer.put_many(batches)
        producer.put(small)
        assert client.offsets("q") == (0, 2)


def test_a_server_that_does_not_start_lets_go(tmp_path: Path) -> None:
    """One damaged queue: the others are not left locked."""
    for name in ("a", "b"):
        ps.SpillQueue(tmp_path / name, durable=True, schema=BATCH.schema).close()
    (tmp_path / "b" / "queue.json").write_text("{")
    with pytest.raises(QueueDamageError, match=r"b/queue\.json"):
        QueueServer(tmp_path, port=free_port())
    ps.SpillQueue(tmp_path / "a", durable=True).close()
