"""The server crashes under load and comes back: nothing acknowledged is lost, and nothing runs twice."""

import asyncio
from collections import Counter

from reprieve.core.change import Change
from reprieve.errors import StoreError
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.protocol import Filter
from reprieve.testing.conformance.stage import START, Worker, find_all, new_job, succeed
from tests.servers import postgres
from tests.stores.postgres.recount import complaints, stored_ids

PAUSE = 0.02


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


async def work(store: PostgresStore, until: asyncio.Event) -> Counter[str]:
    """Claim and settle, and repeat whatever was not answered; answer how often each job was taken."""
    worker = await Worker.open(store)
    taken: Counter[str] = Counter()
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
        assert set(claimed.answers) <= {"applied", "already"}
        taken.update(job.id for job in claimed.jobs)
        changes = [succeed(job) for job in claimed.jobs]
        if not changes and is_over:
            return taken
        if not changes:
            await store.wait(("default",), 0.05, worker.session)


async def test_server_that_crashes_loses_nothing_and_is_found_again() -> None:
    with postgres.own() as server:
        stores = [PostgresStore(server.url) for _ in range(2)]
        quiet, done = asyncio.Event(), asyncio.Event()
        producer = asyncio.create_task(produce(stores[0], quiet))
        await asyncio.sleep(0.5)
        worker = asyncio.create_task(work(stores[1], done))
        for _ in range(2):
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        await asyncio.sleep(0.3)
        quiet.set()
        ids, failures = await producer
        done.set()
        taken = await worker
        assert failures > 0
        assert complaints(server.url) == []
        assert stored_ids(server.url) == ids
        assert taken == Counter(ids)
        assert {job.state for job in await find_all(stores[0], Filter())} == {"succeeded"}
        for store in stores:
            await store.close()
