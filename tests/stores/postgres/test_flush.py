"""The claim lock is free before a commit has reached the disk and the replicas; the call returns after that."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from reprieve.clock import ticks
from reprieve.stores.postgres import PostgresStore
from reprieve.testing.conformance.stage import START, Worker, new_job
from tests.servers import postgres

WAITS = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'"
HOLDS = "select count(*) from pg_locks where locktype = 'advisory' and granted"
UNFLUSHED = "select pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn()"


@pytest.fixture
async def server() -> AsyncIterator[postgres.Server]:
    with postgres.own() as server:
        yield server


def count(admin: psycopg.Connection, statement: str) -> int:
    row = admin.execute(statement).fetchone()
    return int(row[0]) if row else 0


async def keep_committing(url: str, is_over: asyncio.Event) -> None:
    """Commit again and again: whether commits wait, as a new setting says, is seen by one that does."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while not is_over.is_set():
            await connection.execute("select pg_current_xact_id()")


async def test_claims_wait_for_replicas_beside_each_other(server: postgres.Server) -> None:
    store = PostgresStore(server.url)
    workers = [await Worker.open(store, session) for session in ("one", "two", "three")]
    await store.enqueue([new_job(store) for _ in workers], START)
    with psycopg.connect(server.url, autocommit=True) as admin:
        # No such replica is there, so commits wait for it.
        admin.execute("alter system set synchronous_standby_names = 'absent'")
        admin.execute("select pg_reload_conf()")
        is_over = asyncio.Event()
        commits = asyncio.create_task(keep_committing(server.url, is_over))
        async with asyncio.timeout(30):
            while not count(admin, WAITS):  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.01)
            claims = [asyncio.create_task(worker.one()) for worker in workers]
            while count(admin, WAITS) < len(workers) + 1:
                assert not any(claim.done() for claim in claims)
                await asyncio.sleep(0.01)
        assert count(admin, HOLDS) == 0
        assert not any(claim.done() for claim in claims)
        admin.execute("alter system reset synchronous_standby_names")
        admin.execute("select pg_reload_conf()")
        jobs = await asyncio.gather(*claims)
        is_over.set()
        await commits
    assert len({job.id for job in jobs}) == len(workers)
    await store.close()


async def test_what_a_claim_returns_is_on_the_disk(server: postgres.Server) -> None:
    store = PostgresStore(server.url)
    worker = await Worker.open(store, "one")
    await store.enqueue([new_job(store) for _ in range(20)], START)
    with psycopg.connect(server.url, autocommit=True) as admin:
        # The server's own writer must not do it for us.
        admin.execute("alter system set wal_writer_delay = '10s'")
        admin.execute("select pg_reload_conf()")
        for _ in range(20):
            await worker.one()
            assert count(admin, UNFLUSHED) == 0
    await store.close()


@pytest.mark.faults
async def test_five_hundred_sessions_that_claim_at_once_are_all_served_within_seconds(server: postgres.Server) -> None:
    stores = [PostgresStore(server.url) for _ in range(5)]
    workers = [await Worker.open(stores[number % 5], f"session-{number}") for number in range(500)]
    await stores[0].enqueue([new_job(stores[0]) for _ in range(5_000)], START)
    began = ticks()
    jobs = await asyncio.gather(*(worker.exactly(10) for worker in workers))
    took = ticks() - began
    assert len({job.id for some in jobs for job in some}) == 5_000
    assert took < 30  # the last of them; they are served one after the other
    for store in stores:
        await store.close()
