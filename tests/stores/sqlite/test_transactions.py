"""Transactions of the caller: a job and the caller's own rows are there together, or not at all."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from reprieve.errors import StoreError
from reprieve.stores.protocol import Filter
from reprieve.stores.sqlite import SqliteStore
from reprieve.testing.conformance.stage import START, Worker, new_job
from tests.stores.sqlite.recount import complaints, stored_ids


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    await store.close()
    assert complaints(path) == []


@pytest.fixture
def shop(path: Path, store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """Connect to the same file as an application does that keeps its own tables there."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("create table shop_order (title text)")
        yield connection


def orders(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [title for (title,) in connection.execute("select title from shop_order order by rowid")]


async def test_job_and_row_are_there_after_the_commit(path: Path, store: SqliteStore, shop: sqlite3.Connection) -> None:
    job = new_job(store, tenant="ana")
    shop.execute("begin immediate")
    shop.execute("insert into shop_order values ('bread')")
    assert store.enqueue_in(shop, [job], START) == [job.id]
    assert stored_ids(path) == set()
    shop.execute("commit")
    leased = await (await Worker.open(store)).one()
    assert leased.id == job.id
    assert orders(path) == ["bread"]


async def test_neither_job_nor_row_is_there_after_a_rollback(
    path: Path, store: SqliteStore, shop: sqlite3.Connection
) -> None:
    worker = await Worker.open(store)
    shop.execute("begin immediate")
    shop.execute("insert into shop_order values ('bread')")
    store.enqueue_in(shop, [new_job(store, tenant="ana", key="k"), new_job(store, due_at=START + 1)], START)
    shop.execute("rollback")
    assert await worker.take(10) == []
    assert orders(path) == []
    assert stored_ids(path) == set()


async def test_places_that_were_rolled_back_are_made_again(
    path: Path, store: SqliteStore, shop: sqlite3.Connection
) -> None:
    shop.execute("begin immediate")
    store.enqueue_in(shop, [new_job(store, queue="q", tenant="ana", task="bake", dependency="oven")], START)
    shop.execute("rollback")
    # The rows that these take have the numbers of those that are gone.
    other = new_job(store, queue="q", tenant="bea", task="wash", dependency="tap", group="night")
    same = new_job(store, queue="q", tenant="ana", task="bake", dependency="oven")
    await store.enqueue([other], START)
    await store.enqueue([same], START)
    leased = await (await Worker.open(store)).take(10, queues=("q",))
    assert {(job.id, job.tenant, job.task, job.dependency) for job in leased} == {
        (other.id, "bea", "wash", "tap"),
        (same.id, "ana", "bake", "oven"),
    }
    shop.execute("begin immediate")
    again = new_job(store, queue="q", tenant="ana", task="bake", dependency="oven")
    store.enqueue_in(shop, [again], START)
    shop.execute("commit")
    assert again.id in stored_ids(path)


async def test_part_of_a_transaction_can_be_rolled_back_around_it(
    path: Path, store: SqliteStore, shop: sqlite3.Connection
) -> None:
    kept, dropped = new_job(store), new_job(store)
    shop.execute("begin immediate")
    store.enqueue_in(shop, [kept], START)
    shop.execute("savepoint attempt")
    store.enqueue_in(shop, [dropped], START)
    shop.execute("rollback to attempt")
    shop.execute("commit")
    assert stored_ids(path) == {kept.id}


async def test_connection_without_a_transaction_is_refused(
    path: Path, store: SqliteStore, shop: sqlite3.Connection
) -> None:
    with pytest.raises(StoreError, match="no open transaction; begin one"):
        store.enqueue_in(shop, [new_job(store)], START)
    assert not shop.in_transaction
    assert stored_ids(path) == set()


async def test_call_that_fails_half_way_leaves_the_transaction_usable(
    path: Path, store: SqliteStore, shop: sqlite3.Connection
) -> None:
    first = new_job(store)
    await store.enqueue([first], START)
    # The same short number under another public id is noticed only when rows are read.
    twin = replace(first, id=first.id[:24] + ("0" if first.id[24] != "0" else "1") + first.id[25:])
    good = new_job(store, tenant="ana")
    shop.execute("begin immediate")
    shop.execute("insert into shop_order values ('bread')")
    with pytest.raises(StoreError, match="collides with another"):
        store.enqueue_in(shop, [new_job(store, tenant="new"), twin], START)
    store.enqueue_in(shop, [good], START)
    shop.execute("commit")
    assert stored_ids(path) == {first.id, good.id}
    assert orders(path) == ["bread"]


async def test_full_disk_takes_back_the_call_and_leaves_the_rest(
    path: Path, store: SqliteStore, shop: sqlite3.Connection
) -> None:
    pages = shop.execute("pragma page_count").fetchone()[0]
    shop.execute(f"pragma max_page_count = {pages + 3}")
    small = new_job(store)
    shop.execute("begin immediate")
    shop.execute("insert into shop_order values ('bread')")
    with pytest.raises((StoreError, sqlite3.OperationalError), match="full"):
        store.enqueue_in(shop, [new_job(store, payload=b"x" * 50_000)], START)
    assert shop.in_transaction
    store.enqueue_in(shop, [small], START)
    shop.execute("commit")
    assert stored_ids(path) == {small.id}
    assert orders(path) == ["bread"]


async def test_rows_may_come_as_the_caller_likes_them(path: Path, store: SqliteStore, shop: sqlite3.Connection) -> None:
    def backwards(cursor: sqlite3.Cursor, row: tuple[object, ...]) -> dict[str, object]:
        return {name: value for (name, *_), value in zip(cursor.description, row, strict=True)}

    first = new_job(store, key="k")
    await store.enqueue([first], START)
    for factory in (sqlite3.Row, backwards):
        shop.row_factory = factory
        shop.execute("begin immediate")
        job = new_job(store, tenant="ana")
        assert store.enqueue_in(shop, [new_job(store, key="k"), job], START) == [first.id, job.id]
        shop.execute("commit")
        assert job.id in stored_ids(path)
        assert shop.row_factory is factory


async def test_transaction_that_python_opened_will_do(path: Path, store: SqliteStore) -> None:
    job = new_job(store)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table shop_order (title text)")
        connection.execute("insert into shop_order values ('bread')")
        assert store.enqueue_in(connection, [job], START) == [job.id]
        connection.commit()
    assert stored_ids(path) == {job.id}
    assert orders(path) == ["bread"]


async def test_writers_wait_for_the_transaction(path: Path, store: SqliteStore, shop: sqlite3.Connection) -> None:
    inside, outside = new_job(store), new_job(store)
    shop.execute("begin immediate")
    store.enqueue_in(shop, [inside], START)
    waiting = asyncio.create_task(store.enqueue([outside], START))
    # The writer has the turn and waits for SQLite's lock, which it would not get back before our commit.
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    shop.execute("commit")
    assert await asyncio.wait_for(waiting, 30) == [outside.id]
    assert stored_ids(path) == {inside.id, outside.id}


async def test_commit_wakes_waiting_workers(store: SqliteStore, shop: sqlite3.Connection) -> None:
    worker = await Worker.open(store)
    assert await worker.take() == []
    waiting = asyncio.create_task(store.wait(("default",), 10.0))
    shop.execute("begin immediate")
    store.enqueue_in(shop, [new_job(store)], START)
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    shop.execute("commit")
    assert await asyncio.wait_for(waiting, 30)


async def test_application_that_was_there_first_may_share_its_file(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as shop:
        # Names that a store uses as well, and a user_version of its own: both must stay as they are.
        shop.execute("create table job (id text primary key)")
        shop.execute("create table session (id text primary key)")
        shop.execute("pragma user_version = 12")
        shop.execute("pragma application_id = 7")
        shop.execute("insert into job values ('theirs')")
        store = SqliteStore(path, shared=True)
        job = new_job(store)
        shop.execute("begin immediate")
        shop.execute("insert into session values ('also theirs')")
        store.enqueue_in(shop, [job], START)
        shop.execute("commit")
        worker = await Worker.open(store)
        assert [taken.id for taken in await worker.take()] == [job.id]
        await store.close()
        assert shop.execute("pragma user_version").fetchone()[0] == 12
        assert shop.execute("pragma application_id").fetchone()[0] == 7
        assert shop.execute("select id from job").fetchall() == [("theirs",)]
    again = SqliteStore(path)
    assert (await again.tally("status", Filter(), START)).counts == {"running": 1}
    await again.close()
