"""Transactions of the caller: a job and the caller's own rows are there together, or not at all."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from psycopg.rows import dict_row

from reprieve import Reprieve
from reprieve.errors import InvalidName, StoreError, ValidationError
from reprieve.stores.capabilities import Transactional
from reprieve.stores.checked import checked
from reprieve.stores.open import diagnostics_for
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.postgres.address import address_of
from reprieve.stores.protocol import Filter
from reprieve.testing.conformance.stage import START, Worker, find_all, new_job, new_jobs
from tests.stores.postgres.recount import stored_ids


@pytest.fixture
def shop(url: str) -> Iterator[psycopg.Connection]:
    """Connect as an application does that has tables of its own in the same database."""
    with psycopg.connect(url.partition("?")[0]) as connection:
        connection.execute("create temp table shop_order (title text)")
        connection.commit()
        yield connection


@pytest.fixture
async def async_shop(url: str) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(url.partition("?")[0]) as connection:
        yield connection


async def test_job_and_row_are_there_after_the_commit(url: str, store: PostgresStore, shop: psycopg.Connection) -> None:
    assert isinstance(store, Transactional)
    job = new_job(store, tenant="ana")
    shop.execute("insert into shop_order values ('bread')")
    assert store.enqueue_in(shop, [job], START) == [job.id]
    assert stored_ids(url) == set()
    shop.commit()
    assert (await (await Worker.open(store)).one()).id == job.id
    assert shop.execute("select title from shop_order").fetchall() == [("bread",)]


async def test_neither_job_nor_row_is_there_after_a_rollback(
    url: str, store: PostgresStore, shop: psycopg.Connection
) -> None:
    worker = await Worker.open(store)
    shop.execute("insert into shop_order values ('bread')")
    store.enqueue_in(shop, [new_job(store, tenant="ana", key="k"), new_job(store, due_at=START + 1)], START)
    shop.rollback()
    assert await worker.take(10) == []
    assert stored_ids(url) == set()
    again = new_job(store, tenant="ana", key="k")
    assert await store.enqueue([again], START) == [again.id]


async def test_asynchronous_connection_enqueues_as_well(
    url: str, store: PostgresStore, async_shop: psycopg.AsyncConnection
) -> None:
    first, second = new_jobs(store, 2, key="k")
    assert await store.aenqueue_in(async_shop, [first], START) == [first.id]
    assert await store.aenqueue_in(async_shop, [second], START) == [first.id]
    await async_shop.commit()
    assert stored_ids(url) == {first.id}


async def test_repeat_in_another_transaction_stores_nothing_twice(
    store: PostgresStore, shop: psycopg.Connection
) -> None:
    job = new_job(store)
    for _ in range(2):
        store.enqueue_in(shop, [job], START)
        shop.commit()
    assert len(await find_all(store, Filter())) == 1


async def test_connection_with_other_rows_and_settings_will_do(url: str, store: PostgresStore) -> None:
    with psycopg.connect(url.partition("?")[0], row_factory=dict_row, autocommit=True) as shop:
        job = new_job(store, tenant="ana")
        with shop.transaction():
            shop.execute("set local search_path to pg_catalog")
            shop.execute("set local enable_indexscan to off")
            assert store.enqueue_in(shop, [job], START) == [job.id]
    assert stored_ids(url) == {job.id}


def shadow(connection: psycopg.Connection, url: str) -> None:
    """Make a temporary table of the name of every table of ours."""
    schema = url.partition("schema=")[2]
    names = connection.execute(
        "select relname from pg_class where relnamespace = %s::regnamespace and relkind in ('r', 'p')", [schema]
    ).fetchall()
    assert len(names) > 10
    for (name,) in names:
        connection.execute(f"create temp table {name} (like {schema}.{name} including all)")


async def test_temporary_tables_of_the_same_names_are_no_tables_of_ours(
    url: str, store: PostgresStore, shop: psycopg.Connection
) -> None:
    worker = await Worker.open(store)
    shadow(shop, url)
    single, keyed, delayed = new_job(store), new_job(store, key="k"), new_job(store, due_at=START + 1)
    store.enqueue_in(shop, [single], START)
    store.enqueue_in(shop, [keyed, delayed], START)
    shop.commit()
    assert stored_ids(url) == {single.id, keyed.id, delayed.id}
    assert {job.id for job in await worker.take(10, at=START + 1)} == {single.id, keyed.id, delayed.id}


def test_sessions_of_ours_see_no_temporary_table(url: str) -> None:
    diagnostics_for(url).migrate()
    with address_of(url).connect() as connection:
        shadow(connection, url)
        found = connection.execute("select relnamespace::regnamespace::text from pg_class where oid = 'job'::regclass")
        assert found.fetchone() == (url.partition("schema=")[2],)


async def test_migration_by_hand_makes_no_use_of_temporary_tables(url: str, shop: psycopg.Connection) -> None:
    shop.execute("create temp table schema_version (version int8, checksum text)")
    shop.execute("create temp table event (at int8) partition by range (at)")
    shop.execute("create temp table uncounted_enqueue (lane text)")
    shop.commit()
    shop.autocommit = True
    for step in diagnostics_for(url).migrations():
        shop.execute(step.sql)
    assert diagnostics_for(url).schema_version().stored == diagnostics_for(url).schema_version().known


async def test_connection_without_a_transaction_is_refused(url: str, store: PostgresStore) -> None:
    with (
        psycopg.connect(url.partition("?")[0], autocommit=True) as shop,
        pytest.raises(StoreError, match="no open transaction"),
    ):
        store.enqueue_in(shop, [new_job(store)], START)


async def test_what_is_refused_leaves_the_transaction_alone(
    url: str, store: PostgresStore, shop: psycopg.Connection
) -> None:
    opened = checked(store)
    assert isinstance(opened, Transactional)
    await store.tally("status", Filter(), START)
    shop.execute("insert into shop_order values ('bread')")
    with pytest.raises(InvalidName):
        opened.enqueue_in(shop, [new_job(store, tenant="a\nb")], START)
    shop.commit()
    assert shop.execute("select count(*) from shop_order").fetchone() == (1,)
    assert stored_ids(url) == set()


async def test_one_statement_serves_any_driver(url: str, store: PostgresStore, shop: psycopg.Connection) -> None:
    jobs = [new_job(store, tenant="ana", key="k"), new_job(store, due_at=START + 5)]
    await store.tally("status", Filter(), START)
    statement, parameters = store.statement(jobs, START)
    assert isinstance(parameters, dict)
    assert all(isinstance(value, str | bytes | int) for value in parameters.values())
    shop.execute(statement, parameters)
    shop.commit()
    assert stored_ids(url) == {job.id for job in jobs}


async def test_app_enqueues_in_transactions_of_both_kinds(
    url: str, shop: psycopg.Connection, async_shop: psycopg.AsyncConnection
) -> None:
    app = Reprieve(url)

    @app.task
    def send(number: int) -> None: ...

    handles = [await send.using(connection=async_shop).aenqueue(1)]
    handles.append(await asyncio.to_thread(send.using(connection=shop).enqueue, 2))
    assert stored_ids(url) == set()
    await async_shop.commit()
    shop.commit()
    with pytest.raises(ValidationError, match="enqueue with aenqueue"):
        await asyncio.to_thread(send.using(connection=async_shop).enqueue, 3)
    await app.aclose()
    assert stored_ids(url) == {handle.id for handle in handles}
