"""Stores of every kind, for tests of what all of them do."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from reprieve.stores.open import open_store
from reprieve.stores.protocol import Store


@pytest.fixture(params=["sqlite", "postgres", "redis"])
async def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Return an empty store of each kind."""
    name = f"any_{uuid4().hex[:12]}"
    match request.param:
        case "sqlite":
            url = f"sqlite:///{tmp_path}/jobs.db"
        case "postgres":
            url = f"{request.getfixturevalue('postgres_url')}?schema={name}"
        case _:
            url = f"{request.getfixturevalue('redis_url')}?prefix={name}"
    store = open_store(url)
    yield store
    await store.close()
