"""The writer's thread: callers that share a transaction do not suffer for each other."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future, wait
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from reprieve.errors import StoreClosed, StoreError
from reprieve.stores.checked import checked
from reprieve.stores.protocol import Filter
from reprieve.stores.sqlite import SqliteStore
from reprieve.stores.sqlite.open_file import OpenFile
from reprieve.stores.sqlite.writer import UPKEEP_EVERY, Writer
from reprieve.testing.conformance.stage import START, Worker, new_job, new_jobs
from tests.stores.sqlite.recount import complaints


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "jobs.db")
    yield store
    await store.close()
    assert complaints(tmp_path / "jobs.db") == []


@asynccontextmanager
async def busy(store: SqliteStore) -> AsyncIterator[None]:
    """Keep the writer busy, so that what is asked meanwhile waits and shares the next transaction."""
    begun, is_over = threading.Event(), threading.Event()

    def work(tx: sqlite3.Connection) -> None:
        begun.set()
        is_over.wait(10)

    held = store.submit(work)
    await asyncio.to_thread(begun.wait, 10)
    try:
        yield
    finally:
        is_over.set()
        await asyncio.wrap_future(held)


def create(tx: sqlite3.Connection) -> str:
    tx.execute("create table half_done (id integer)")
    return "created"


def spoil(tx: sqlite3.Connection) -> str:
    tx.execute("create table spoiled (id integer)")
    tx.execute("select nonsense")
    return "never"


async def test_only_the_guilty_call_of_a_transaction_fails(store: SqliteStore) -> None:
    job = new_job(store)
    async with busy(store):
        good = asyncio.create_task(store.enqueue([job], START))
        created, spoiled = store.submit(create), store.submit(spoil)
        await asyncio.sleep(0)
    assert await good == [job.id]
    assert created.result(10) == "created"
    with pytest.raises(StoreError, match="no such column: nonsense"):
        spoiled.result(10)
    tables = store.submit(lambda tx: tx.execute("select name from sqlite_master").fetchall()).result(10)
    assert ("half_done",) in tables
    assert ("spoiled",) not in tables


async def test_caller_that_gives_up_does_not_stop_the_others(store: SqliteStore) -> None:
    worker = await Worker.open(store)
    job = new_job(store)
    async with busy(store):
        given_up = [
            asyncio.create_task(call)
            for call in (worker.ask(5), store.enqueue(new_jobs(store, 1), START), store.recover(START))
        ]
        patient = asyncio.create_task(store.enqueue([job], START))
        await asyncio.sleep(0)
        for task in given_up:
            task.cancel()
    results = await asyncio.gather(*given_up, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert await asyncio.wait_for(patient, 30) == [job.id]
    assert job.id in {found.id for found in (await store.find(Filter(), START)).jobs}


async def test_calls_that_wait_are_answered_before_the_store_is_closed(store: SqliteStore) -> None:
    jobs = new_jobs(store, 3)
    opened = checked(store)
    async with busy(store):
        waiting: list[Future[str]] = [store.submit(create)]
        enqueued = asyncio.create_task(opened.enqueue(jobs, START))
        await asyncio.sleep(0)
        closing = asyncio.create_task(opened.close())
        await asyncio.sleep(0)
        with pytest.raises(StoreClosed, match="open it again"):
            await opened.enqueue(jobs, START)
    assert await asyncio.wait_for(enqueued, 30) == [job.id for job in jobs]
    assert not wait(waiting, 10).not_done
    await closing


async def test_many_callers_at_once_are_all_answered(store: SqliteStore, tmp_path: Path) -> None:
    calls = [store.enqueue(new_jobs(store, 3, tenant=f"t{number % 7}"), START) for number in range(200)]
    answers = await asyncio.gather(*calls)
    assert len({job_id for ids in answers for job_id in ids}) == 600
    assert complaints(tmp_path / "jobs.db") == []


def flushing(tx: sqlite3.Connection) -> str:
    return {1: "later", 2: "at once"}[tx.execute("pragma synchronous").fetchone()[0]]


async def test_only_what_must_last_waits_for_the_disk(store: SqliteStore) -> None:
    assert store.submit(flushing, is_lasting=False).result(10) == "later"
    assert store.submit(flushing).result(10) == "at once"
    async with busy(store):
        shared = [store.submit(flushing, is_lasting=is_lasting) for is_lasting in (False, True, False)]
    assert [each.result(10) for each in shared] == ["at once"] * 3
    assert store.submit(flushing, is_lasting=False).result(10) == "later"


async def test_fast_store_never_waits_for_the_disk(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "fast.db", durability="fast")
    assert store.submit(flushing).result(10) == "later"
    assert store.submit(flushing, is_lasting=False).result(10) == "later"
    assert store.submit(flushing).result(10) == "later"
    await store.close()


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error"), FileNotFoundError("jobs.db-wal")])
def test_upkeep_that_fails_ends_no_writer(error: Exception) -> None:
    calls = []

    class Failing(OpenFile):
        def keep_small(self, connection: sqlite3.Connection) -> None:
            calls.append(connection)
            raise error

    writer = Writer(Failing(None, "full"), lambda: None, lambda: None)
    for number in range(2 * UPKEEP_EVERY):
        assert writer.submit(lambda tx, number=number: number).result(60) == number  # type: ignore[misc]  # mypy does not infer it
    assert len(calls) == 2
    writer.close()
