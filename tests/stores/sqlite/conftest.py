"""A store in a file, for tests that need nothing else of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reprieve.stores.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the file of the store lies."""
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """Return a store in that file."""
    store = SqliteStore(path)
    yield store
    await store.close()
