"""A schema of its own for every test, and a store in it, known to the server by that name, whose books are checked."""

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

from reprieve.stores.postgres import PostgresStore
from tests.servers.postgres import drop_schema
from tests.stores.postgres.recount import complaints


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    schema = f"test_{uuid4().hex[:12]}"
    yield f"{postgres_url}?schema={schema}"
    drop_schema(postgres_url, schema)


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(f"{url}&application_name={url.partition('schema=')[2]}")
    yield store
    await store.close()
    assert complaints(url) == []
