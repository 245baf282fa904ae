"""Connections of callers: jobs join the transactions of whatever library an application talks to PostgreSQL with."""

import asyncio
from contextlib import suppress
from uuid import uuid4

import asyncpg  # type: ignore[import-untyped]  # has no types
import psycopg
import pytest

from reprieve import Reprieve
from reprieve.config import Settings
from reprieve.errors import StoreError, ValidationError
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.protocol import Filter
from reprieve.testing.conformance.stage import START, Worker, new_job, new_jobs
from tests.servers import postgres
from tests.stores.postgres.libraries import AsyncOpened, Opened, Undone, every_awaited_library, every_library
from tests.stores.postgres.recount import stored_ids


@every_library
def test_jobs_are_stored_with_the_commit_of_the_caller(opened: Opened, url: str) -> None:
    with Reprieve(url, settings=Settings()) as app:

        @app.task
        def confirm(order: int) -> None: ...

        with opened(url.partition("?")[0]) as connection:
            handle = confirm.using(connection=connection, key="order-1").enqueue(1)
            again = confirm.using(connection=connection, key="order-1").enqueue(1)
            assert (handle.is_new, again.is_new, again.id) == (True, False, handle.id)
            assert stored_ids(url) == set()
        assert stored_ids(url) == {handle.id}


@every_library
def test_jobs_go_with_the_rollback_of_the_caller(opened: Opened, url: str) -> None:
    with Reprieve(url, settings=Settings()) as app:

        @app.task
        def confirm(order: int) -> None: ...

        with suppress(Undone), opened(url.partition("?")[0]) as connection:
            confirm.using(connection=connection, tenant="ana").enqueue(1)
            raise Undone
        assert stored_ids(url) == set()
        app.enqueue_many([confirm.using(tenant="ana").call(2)])
        assert len(stored_ids(url)) == 1


@every_awaited_library
async def test_jobs_are_stored_with_the_commit_of_the_caller_who_awaits(opened: AsyncOpened, url: str) -> None:
    async with Reprieve(url, settings=Settings()) as app:

        @app.task
        async def confirm(order: int) -> None: ...

        async with opened(url.partition("?")[0]) as connection:
            handle = await confirm.using(connection=connection).aenqueue(1)
            assert stored_ids(url) == set()
        assert stored_ids(url) == {handle.id}


@every_awaited_library
async def test_jobs_go_with_the_rollback_of_the_caller_who_awaits(
    opened: AsyncOpened, url: str, store: PostgresStore
) -> None:
    with suppress(Undone):
        async with opened(url.partition("?")[0]) as connection:
            await store.aenqueue_in(connection, new_jobs(store, 3, tenant="ana"), START)
            raise Undone
    assert stored_ids(url) == set()


async def test_connection_without_a_transaction_is_refused(url: str, store: PostgresStore) -> None:
    connection = await asyncpg.connect(url.partition("?")[0])
    with pytest.raises(StoreError, match="no open transaction"):
        await store.aenqueue_in(connection, [new_job(store)], START)
    await connection.close()


async def test_what_is_no_connection_is_refused(store: PostgresStore) -> None:
    with pytest.raises(ValidationError, match="a str is not a connection to PostgreSQL"):
        store.enqueue_in("jobs.db", [new_job(store)], START)


async def test_the_statement_is_published_in_every_style(url: str, store: PostgresStore) -> None:
    await store.tally("status", Filter(), START)
    first, second = new_jobs(store, 2)
    text, parameters = store.statement([first], START)
    with psycopg.connect(url.partition("?")[0]) as connection:
        connection.execute(text, parameters)
    text, values = store.statement([second], START, "numbered")
    connected = await asyncpg.connect(url.partition("?")[0])
    await connected.execute(text, *values)
    await connected.close()
    assert stored_ids(url) == {first.id, second.id}


async def test_longest_name_of_a_schema_is_heard_and_enqueued_in(postgres_url: str) -> None:
    schema = f"longest_{uuid4().hex}".ljust(54, "x")
    url = f"{postgres_url}?schema={schema}"
    store, other = PostgresStore(url), PostgresStore(url)
    try:
        worker = await Worker.open(other)
        assert await worker.take(1) == []
        with psycopg.connect(postgres_url) as connection:
            store.enqueue_in(connection, [new_job(store)], START)
        async with asyncio.timeout(10):
            assert await other.wait(["default"], 60.0, worker.session)
    finally:
        await store.close()
        await other.close()
        postgres.drop_schema(postgres_url, schema)


async def test_transaction_without_notifications_can_be_prepared() -> None:
    # A server of our own, since a server that the caller names may prepare no transactions.
    with postgres.own() as server:
        store = PostgresStore(server.url)
        await store.tally("status", Filter(), START)
        with psycopg.connect(server.url, autocommit=True) as connection:
            job = new_job(store)
            statement, parameters = store.statement([job], START)
            assert isinstance(parameters, dict)
            connection.execute("begin")
            connection.execute(statement, parameters | {"channel": ""})
            connection.execute("prepare transaction 'prepared'")
            assert stored_ids(server.url) == set()
            connection.execute("commit prepared 'prepared'")
        assert stored_ids(server.url) == {job.id}
        await store.close()
