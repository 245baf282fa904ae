"""Every relay out of every kind of outbox, to a Redis server that all tests share."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.relay.shop import Database, Databases, Shop, in_a_file, in_a_schema


@pytest.fixture(params=["sqlite", "postgres"])
def databases(request: pytest.FixtureRequest) -> Databases:
    """Return where applications keep their outboxes."""
    if request.param == "sqlite":
        return in_a_file
    server: str = request.getfixturevalue("postgres_url")
    return lambda _: in_a_schema(server)


@pytest.fixture
def database(databases: Databases, tmp_path: Path) -> Iterator[Database]:
    with databases(tmp_path) as database:
        yield database


@pytest.fixture
async def shop(database: Database, redis_url: str) -> AsyncIterator[Shop]:
    shop = Shop(database, redis_url)
    yield shop
    await shop.close()
