"""The write-ahead log: readers that come and go do not let it grow, and it is gone when the store is closed."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reprieve.stores.protocol import Retention
from reprieve.stores.sqlite import SqliteStore
from reprieve.testing.conformance.stage import START, Worker, new_jobs, succeed

MEGABYTE = 1_000_000
JOURNAL_LIMIT = 67_108_864


class Load:
    """A store that is written to, about half a megabyte of log in a round."""

    def __init__(self, path: Path, store: SqliteStore, worker: Worker) -> None:
        self.store = store
        self._worker = worker
        self._log = path.with_name(path.name + "-wal")

    @property
    def log(self) -> int:
        """How large the log is now."""
        return self._log.stat().st_size if self._log.exists() else 0

    async def write(self, rounds: int, between: Callable[[int], object] = int) -> int:
        """Write for so many rounds; answer how large the log became at the most."""
        largest = 0
        for number in range(rounds):
            await self.store.enqueue(new_jobs(self.store, 40, payload=b"x" * 2_000), START)
            await self._worker.settle(*(succeed(job) for job in await self._worker.take(40)))
            if number % 20 == 19:
                await self.store.prune(Retention(now=START, succeeded=100))
            between(number)
            largest = max(largest, self.log)
        return largest


@pytest.fixture
async def load(tmp_path: Path) -> AsyncIterator[Load]:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path, durability="fast")
    yield Load(path, store, await Worker.open(store))
    await store.close()


@pytest.fixture
def reader(tmp_path: Path, load: Load) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as connection:
        yield connection


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def look(reader: sqlite3.Connection) -> None:
    """Begin to read, and stay at what is there now."""
    reader.execute("begin")
    reader.execute("select count(*) from reprieve_job as job").fetchone()


async def test_log_stays_small_under_load(load: Load) -> None:
    assert await load.write(100) < 16 * MEGABYTE


async def test_log_stays_small_with_a_reader_that_comes_and_goes(load: Load, reader: sqlite3.Connection) -> None:
    def come_and_go(number: int) -> None:
        if number % 10 == 0:
            look(reader)
        elif number % 10 == 6:
            reader.execute("commit")

    assert await load.write(100, come_and_go) < 24 * MEGABYTE


async def test_log_shrinks_to_its_limit_when_a_reader_that_stayed_has_left(
    load: Load, reader: sqlite3.Connection
) -> None:
    look(reader)
    while load.log <= JOURNAL_LIMIT + MEGABYTE:
        await load.write(10)
    reader.execute("commit")
    await load.write(10)
    assert load.log <= JOURNAL_LIMIT


async def test_log_is_gone_when_the_store_is_closed(load: Load, tmp_path: Path) -> None:
    await load.write(10)
    assert load.log
    await load.store.close()
    assert names(tmp_path) == {"jobs.db", "jobs.db-lock"}
