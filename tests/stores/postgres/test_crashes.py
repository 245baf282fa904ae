"""The server crashes under load and comes back: nothing acknowledged is lost, and nothing runs twice."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg
import pytest

from reprieve.core.change import Change
from reprieve.errors import StoreError
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.protocol import Filter
from reprieve.testing.conformance.stage import START, Worker, find_all, new_job, new_jobs, succeed
from tests.servers import pgbouncer, postgres
from tests.stores.postgres.recount import complaints, stored_ids

PAUSE, LIMIT = 0.02, 60
T = TypeVar("T")


async def produce(store: PostgresStore, until: asyncio.Event) -> tuple[set[str], int]:
    """Enqueue, and repeat what was not acknowledged; answer what was, and how often the store did not answer."""
    ids: set[str] = set()
    failures = 0
    while not until.is_set():
        job = new_job(store, tenant=f"tenant-{len(ids) % 3}")
        while True:
            try:
                ids.update(await store.enqueue([job], START))
            except StoreError as error:
                if not error.is_passing:
                    raise
                failures += 1
                await asyncio.sleep(PAUSE)
            else:
                break
    return ids, failures


async def work(store: PostgresStore, until: asyncio.Event, taken: Counter[str]) -> None:
    """Claim and settle, and repeat whatever was not answered; count how often each job was taken."""
    worker = await repeat_while_unreachable(lambda: Worker.open(store))
    changes: list[Change] = []
    while True:
        worker.number += 1
        is_over = until.is_set()
        while True:
            try:
                claimed = await worker.again(5, changes=changes)
            except StoreError as error:
                if not error.is_passing:
                    raise
                await asyncio.sleep(PAUSE)
            else:
                break
        assert set(claimed.results) <= {"applied", "already"}
        taken.update(job.id for job in claimed.jobs)
        changes = [succeed(job) for job in claimed.jobs]
        if not changes and is_over:
            return
        if not changes:
            await store.wait(("default",), 0.05, worker.session)


async def busy(taken: Counter[str]) -> None:
    """Wait until work goes on."""
    before = taken.total()
    async with asyncio.timeout(LIMIT):
        while taken.total() < before + 10:  # noqa: ASYNC110 - a server, a producer and a worker have to get there
            await asyncio.sleep(PAUSE)


async def test_server_that_crashes_loses_nothing_and_is_found_again() -> None:
    with postgres.own() as server:
        stores = [PostgresStore(server.url) for _ in range(2)]
        for store in stores:
            assert await find_all(store, Filter()) == []  # the schema is there before anything crashes
        quiet, done, taken = asyncio.Event(), asyncio.Event(), Counter[str]()
        producer = asyncio.create_task(produce(stores[0], quiet))
        worker = asyncio.create_task(work(stores[1], done, taken))
        for _ in range(2):
            await busy(taken)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        await busy(taken)
        quiet.set()
        ids, failures = await producer
        done.set()
        await worker
        assert failures > 0
        assert complaints(server.url) == []
        assert stored_ids(server.url) == ids
        assert taken == Counter(ids)
        assert {job.state for job in await find_all(stores[0], Filter())} == {"succeeded"}
        for store in stores:
            await store.close()


async def repeat_while_unreachable(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until the server is back."""
    for _ in range(100):
        try:
            return await call()
        except StoreError:
            await asyncio.sleep(PAUSE)
    return await call()


@pytest.mark.parametrize("transactions", [0, 200], ids=["before", "after"])
async def test_jobs_are_found_when_a_server_takes_over_that_has_seen_less(transactions: int) -> None:
    """Numbers of transactions are given again, be they below or above those that the worker has seen."""
    with postgres.own() as server:
        store = PostgresStore(server.url)
        worker = await Worker.open(store)
        await store.enqueue(new_jobs(store, 1), START)
        assert len(await worker.take(10)) == 1
        server.kill()
        server.copy("standby")
        server.start()
        for _ in range(40):
            await repeat_while_unreachable(lambda: store.enqueue([new_job(store)], START))
            await repeat_while_unreachable(worker.one)
        server.kill()
        server.restore("standby")
        server.start()
        await repeat_while_unreachable(lambda: store.enqueue([new_job(store, tenant="new")], START))
        with psycopg.connect(server.url, autocommit=True) as other:
            for _ in range(transactions):
                other.execute("select pg_current_xact_id()")
        successor = await repeat_while_unreachable(lambda: Worker.open(store, "successor"))
        assert [job.tenant for job in await successor.take(10)] == ["new"]
        await store.close()


async def test_jobs_are_found_when_a_server_takes_over_behind_a_pooler(
    url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection to the pooler stays, so what it knows of numbers is not trusted for long."""
    with pgbouncer.running(url.partition("?")[0]) as pooler:
        monkeypatch.setattr("reprieve.stores.postgres.claim_lock.RECOUNT_SECONDS", 0.0)
        pooled = PostgresStore(f"{pooler}?{url.partition('?')[2]}")
        worker = await Worker.open(pooled)
        await worker.take(1)
        job = new_job(store)
        await store.enqueue([job], START)
        with psycopg.connect(url.partition("?")[0], autocommit=True) as admin:
            # As it would be if the number of its transaction had been given before.
            admin.execute(f"update {url.partition('schema=')[2]}.uncounted_enqueue set xid = '3'")  # noqa: S608 - our own
        assert (await worker.one()).id == job.id
        await pooled.close()
