"""Few jobs are enqueued on the caller's event loop, without a switch to a thread."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from reprieve.errors import StoreError, StoreLocked
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.postgres.store import MAX_JOBS_ON_LOOP
from reprieve.testing.conformance.stage import START, new_job
from tests.servers import proxy
from tests.stores.postgres.recount import stored_ids


@pytest.fixture
def switches(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that grows with every call that is handed to a thread."""
    submit, seen = ThreadPoolExecutor.submit, list[object]()

    def noted(pool: ThreadPoolExecutor, /, call: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - any call
        seen.append(call)
        return submit(pool, call, *arguments, **options)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", noted)
    return seen


async def test_jobs_that_are_enqueued_one_by_one_switch_to_no_thread(
    store: PostgresStore, url: str, switches: list[object]
) -> None:
    ids = await store.enqueue([new_job(store)], START)
    assert switches  # the first call connects, which an event loop must not wait for
    switches.clear()
    for _ in range(5):
        ids += await store.enqueue([new_job(store)], START)
    assert switches == []
    assert sorted(stored_ids(url)) == sorted(ids)


async def test_many_jobs_are_packed_in_a_thread(store: PostgresStore, url: str, switches: list[object]) -> None:
    await store.enqueue([new_job(store)], START)
    switches.clear()
    ids = await store.enqueue([new_job(store) for _ in range(MAX_JOBS_ON_LOOP + 1)], START)
    assert switches
    assert set(ids) <= set(stored_ids(url))


async def test_concurrent_enqueues_find_a_connection_each(store: PostgresStore, url: str) -> None:
    await store.enqueue([new_job(store)], START)
    found = await asyncio.gather(*(store.enqueue([new_job(store)], START) for _ in range(30)))
    assert {job for ids in found for job in ids} <= set(stored_ids(url))


@asynccontextmanager
async def blocked_enqueue(store: PostgresStore, url: str) -> AsyncIterator[tuple[asyncio.Task[list[str]], Any]]:
    """Return an enqueue that waits for a lock in the server, and a connection that can end it."""
    await store.enqueue([new_job(store)], START)
    server, _, schema = url.partition("?schema=")
    with psycopg.connect(server, autocommit=True) as admin, psycopg.connect(server) as other:
        other.execute(f"lock table {schema}.job in access exclusive mode")
        enqueue = asyncio.create_task(store.enqueue([new_job(store)], START))
        waits = "select 1 from pg_stat_activity where application_name = %s and wait_event_type = 'Lock'"
        async with asyncio.timeout(30):
            # The event loop goes on while the enqueue waits.
            while admin.execute(waits, (schema,)).fetchone() is None:  # noqa: ASYNC110 - the server alone knows
                await asyncio.sleep(0.01)
        yield enqueue, admin


async def test_error_of_a_statement_leaves_the_connection_usable(
    store: PostgresStore, url: str, switches: list[object]
) -> None:
    async with blocked_enqueue(store, url) as (enqueue, admin):
        schema = url.partition("?schema=")[2]
        admin.execute("select pg_cancel_backend(pid) from pg_stat_activity where application_name = %s", (schema,))
        with pytest.raises(StoreLocked, match="cancelled the statement"):
            await enqueue
    switches.clear()
    assert set(await store.enqueue([new_job(store)], START)) <= set(stored_ids(url))
    assert switches == []


async def test_cancelled_enqueue_leaves_no_reply_to_the_next_one(store: PostgresStore, url: str) -> None:
    async with blocked_enqueue(store, url) as (enqueue, _):
        enqueue.cancel()
        with pytest.raises(asyncio.CancelledError):
            await enqueue
    job = new_job(store)
    assert await store.enqueue([job], START) == [job.id]
    assert job.id in stored_ids(url)


async def test_silent_server_is_given_up(url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reprieve.stores.postgres.pool.WRITE_SECONDS", 0.5)
    async with proxy.running(postgres_url) as way:
        store = PostgresStore(f"{way.url}?{urlsplit(url).query}")
        try:
            await store.enqueue([new_job(store)], START)
            way.fall_silent()
            with pytest.raises(StoreError, match="no response within") as caught:
                await store.enqueue([new_job(store)], START)
            assert caught.value.is_passing
            way.speak()
            job = new_job(store)
            assert await store.enqueue([job], START) == [job.id]
        finally:
            await store.close()
