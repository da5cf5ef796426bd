"""The databases of the lookup tests: SQLite in a file, PostgreSQL over a socket, with the same tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

sa = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is an extra")

from tests.lookup.postgres import postgres, url_of  # noqa: E402


def fill(url: str) -> None:
    """Items with every second number as key, places with composite keys, and people whose keys are texts."""
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    data = sa.MetaData()
    items = sa.Table(
        "items",
        data,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String),
        sa.Column("weight", sa.Float),
    )
    places = sa.Table(
        "places",
        data,
        sa.Column("x", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("y", sa.String, primary_key=True),
        sa.Column("z", sa.Integer),
    )
    people = sa.Table(
        "people", data, sa.Column("who", sa.String, primary_key=True), sa.Column("age", sa.Integer)
    )
    data.create_all(engine)
    with engine.begin() as connection:
        connection.execute(
            items.insert(), [{"id": i, "name": f"item {i}", "weight": i / 4} for i in range(0, 2_000, 2)]
        )
        connection.execute(
            places.insert(), [{"x": x, "y": y, "z": 10 * x} for x in range(20) for y in ("a", "b")]
        )
        connection.execute(
            people.insert(), [{"who": "ann", "age": 30}, {"who": "'; DROP TABLE people; --", "age": 99}]
        )
    engine.dispose()


@pytest.fixture(scope="session")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a SQLite database with the tables."""
    url = f"sqlite:///{tmp_path_factory.mktemp('sqlite')}/test.db"
    fill(url)
    return url


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL database with the tables."""
    with postgres() as server:
        fill(url_of(server))
        yield url_of(server)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> Any:
    """Either of them."""
    return request.getfixturevalue(request.param)
