"""The queue server and its client: once and in order, whatever breaks; and who may connect."""

from __future__ import annotations

import datetime
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from penstock.errors import QueueError
from penstock.queues import QueueClient, QueueServer

ROOT = Path(__file__).parents[2]


def batch(first: int, rows: int) -> Any:
    """Rows that are numbered."""
    return pa.record_batch({"n": list(range(first, first + rows)), "s": ["x" * 80] * rows})


SCHEMA = batch(0, 1).schema


def rows_of(client: QueueClient, queue: str) -> list[int]:
    """All rows that are not confirmed."""
    first, after = client.offsets(queue)
    return [n for each in client.read(queue, first, after) for n in each["n"].to_pylist()]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def test_ranges_and_confirmation(tmp_path: Path) -> None:
    with QueueServer(tmp_path, memory="64 KiB") as server, QueueClient(server.location) as client:
        with client.producer("a", SCHEMA) as producer:
            for at in range(0, 5_000, 500):
                producer.put(batch(at, 500))
        assert client.queues() == ["a"]
        assert client.schema("a") == SCHEMA
        assert client.offsets("a") == (0, 5_000)
        part = [n for each in client.read("a", 123, 3_210) for n in each["n"].to_pylist()]
        assert part == list(range(123, 3_210))
        client.commit("a", 777)
        assert client.offsets("a") == (777, 5_000)
        assert rows_of(client, "a") == list(range(777, 5_000))
        with pytest.raises(QueueError, match="confirmed rows are deleted"):
            list(client.read("a", 0, 10))
        with pytest.raises(QueueError, match="There is no queue"):
            client.offsets("b")
        with pytest.raises(QueueError, match="schema"):
            client.producer("a", pa.schema({"z": pa.int64()})).put(pa.record_batch({"z": [1]}))
        with pytest.raises(QueueError, match="not a valid queue name"):
            client.producer("../a", SCHEMA).put(batch(0, 1))
        assert client.stats("a")["writes"] > 0
        server._queues["a"].check()
    with QueueServer(tmp_path, memory="64 KiB") as server, QueueClient(server.location) as client:
        assert rows_of(client, "a") == list(range(777, 5_000))


def test_a_retry_doubles_nothing(tmp_path: Path) -> None:
    with QueueServer(tmp_path) as server, QueueClient(server.location) as client:
        first = client.producer("a", SCHEMA, name="till")
        first.put(batch(0, 10))
        again = client.producer("a", SCHEMA, name="till")
        assert again.number == 0
        again.number = -1  # as if the answer had been lost
        again.put(batch(0, 10))
        again.put(batch(10, 10))
        assert rows_of(client, "a") == list(range(20))


def test_back_pressure(tmp_path: Path) -> None:
    with QueueServer(tmp_path, memory="64 KiB", disk_limit="256 KiB") as server:
        sent = []

        def produce() -> None:
            with QueueClient(server.location) as client, client.producer("a", SCHEMA) as producer:
                for at in range(0, 10_000, 200):
                    producer.put(batch(at, 200))
                    sent.append(at)

        thread = threading.Thread(target=produce)
        thread.start()
        time.sleep(1)
        assert 5 < len(sent) < 20
        got: list[int] = []
        with QueueClient(server.location) as client:
            while len(got) < 10_000:
                first, after = client.offsets("a")
                got += [n for each in client.read("a", first, after) for n in each["n"].to_pylist()]
                client.commit("a", after)
        thread.join()
        assert got == list(range(10_000))


def test_strangers_are_refused(tmp_path: Path) -> None:
    for options in ({}, {"token": "t"}):
        with pytest.raises(QueueError, match="token and TLS"):
            QueueServer(tmp_path, host="0.0.0.0", **options)
    with QueueServer(tmp_path, token="secret") as server:
        for token in (None, "wrong", "secret2"):
            with QueueClient(server.location, token=token) as client, pytest.raises(Exception, match="token"):
                client.queues()
        with QueueClient(server.location, token="secret") as client:
            assert client.queues() == []


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost, made by OpenSSL."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command += [
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(cert),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def test_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with QueueServer(tmp_path / "q", host="0.0.0.0", token="secret", certificate=cert, key=key) as server:
        location = f"grpc+tls://localhost:{server.port}"
        with QueueClient(location, token="secret", roots=cert) as client:
            client.producer("a", SCHEMA).put(batch(0, 5))
            assert rows_of(client, "a") == [0, 1, 2, 3, 4]
        with (
            QueueClient(f"grpc://localhost:{server.port}", token="secret", patience=0.3) as client,
            pytest.raises((pa.ArrowException, OSError, QueueError)),
        ):
            client.queues()


def test_a_question_waits_for_a_server_that_comes_up(tmp_path: Path) -> None:
    port, servers = free_port(), []

    def come_up() -> None:
        time.sleep(0.4)
        servers.append(QueueServer(tmp_path, port=port))

    late = threading.Thread(target=come_up)
    late.start()
    try:
        with QueueClient(f"grpc://127.0.0.1:{port}", patience=60) as client:
            assert client.queues() == []
    finally:
        late.join()
        servers[0].close()


def test_nobody_answers() -> None:
    client = QueueClient(f"grpc://127.0.0.1:{free_port()}", patience=0.2)
    with pytest.raises(QueueError, match=r"127\.0\.0\.1:\d+ has not answered for 0\.2 s"):
        client.offsets("a")


# --- the server as a process --------------------------------------------------------------------------


@contextmanager
def serving(folder: Path, port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`penstock queues serve` as a process of its own."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [
        sys.executable,
        "-m",
        "penstock.cli",
        "queues",
        "serve",
        str(folder),
        "--port",
        str(port),
        *options,
    ]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert b"serving" in process.stdout.readline()
            yield process
        finally:
            process.kill()


def kill_server_and_clients(folder: Path, kills: int) -> None:
    """Server, producer and consumer are killed at random; every row comes out once and in order."""
    rng = random.Random(seed := random.SystemRandom().randrange(1 << 32))
    print(f"seed {seed}")
    port, log, goal = free_port(), folder / "got", folder / "goal"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"PYTHONPATH": path}
    commands = {
        "server": ["-m", "penstock.cli", "queues", "serve", str(folder / "q"), "--port", str(port)],
        "producer": ["-m", "tests.queues.clients", "produce", str(port), str(folder / "sent"), str(goal)],
        "consumer": ["-m", "tests.queues.clients", "consume", str(port), str(log), str(goal)],
    }
    processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(name: str) -> None:
        processes[name] = subprocess.Popen(
            [sys.executable, *commands[name]], env=env, cwd=ROOT, stdout=subprocess.DEVNULL
        )

    try:
        for name in commands:
            start(name)
        end = time.monotonic() + 120
        while not (log.exists() and log.stat().st_size):  # on a busy machine they take long to start
            assert time.monotonic() < end
            time.sleep(0.05)
        for _ in range(kills):
            time.sleep(rng.uniform(0.1, 1.2))
            name = rng.choice(list(commands))
            processes[name].send_signal(signal.SIGKILL)
            processes[name].wait()
            start(name)
        goal.write_text("finish")
        for name in ("producer", "consumer"):
            assert processes[name].wait(60) == 0, name
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    got = [int(line) for line in log.read_text().split()]
    sent = int((folder / "sent").read_text())
    assert got == list(range(sent))
    assert sent > 0


def test_server_and_clients_killed_a_few_times(tmp_path: Path) -> None:
    kill_server_and_clients(tmp_path, 3)


@pytest.mark.soak
def test_server_and_clients_killed_two_hundred_times(tmp_path: Path) -> None:
    kill_server_and_clients(tmp_path, 200)


def test_a_burst_of_ten_times_the_memory(tmp_path: Path) -> None:
    rows, size = 20_000, 16 << 20
    text = ["y" * 92] * rows

    def big(at: int) -> Any:
        return pa.record_batch({"n": list(range(at, at + rows)), "s": text})

    port = free_port()
    with serving(tmp_path, port, "--memory", "16 MiB") as process:
        server = psutil.Process(process.pid)
        idle = peak = server.memory_info().rss
        with QueueClient(f"grpc://127.0.0.1:{port}") as client:
            with client.producer("a", big(0).schema) as producer:
                count = 10 * size // (100 * rows) + 1
                for at in range(count):
                    producer.put(big(at * rows))
                    peak = max(peak, server.memory_info().rss)
            expected = 0
            first, after = client.offsets("a")
            assert after == count * rows
            for each in client.read("a", first, after):
                numbers = each["n"].to_pylist()
                assert numbers == list(range(expected, expected + len(numbers)))
                expected += len(numbers)
                peak = max(peak, server.memory_info().rss)
            assert expected == after
    print(f"{(peak - idle) / 2**20:.0f} MiB above idle, at {datetime.datetime.now():%H:%M}")
    assert peak - idle <= size + (64 << 20)
