"""The outbox in a SQLite file: sent by the application's own connection, beside its own tables."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reprieve.core.ids import make_id
from reprieve.core.job import Job
from reprieve.errors import NewerSchema, StoreClosed
from reprieve.stores.open import diagnostics_for
from reprieve.stores.sqlite.outbox import SqliteOutbox
from reprieve.testing.conformance.stage import START

PATIENCE = 10.0


def job(number: int) -> Job:
    return Job(id=make_id(START, number), task="confirm", created_at=START, due_at=START, payload=b"x" * 10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
async def outbox(path: Path) -> AsyncIterator[SqliteOutbox]:
    outbox = SqliteOutbox(path)
    yield outbox
    await outbox.close()


@pytest.fixture
def shop(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("create table orders (title text)")
        yield connection


def send(outbox: SqliteOutbox, shop: sqlite3.Connection, *numbers: int) -> None:
    shop.execute("begin immediate")
    outbox.enqueue_in(shop, [job(number) for number in numbers], START)
    shop.execute("commit")


def tables(shop: sqlite3.Connection) -> set[str]:
    return {name for (name,) in shop.execute("select name from sqlite_master where type = 'table'")}


async def test_the_first_transaction_that_sends_makes_our_tables_and_waits_for_no_other(
    path: Path, outbox: SqliteOutbox, shop: sqlite3.Connection
) -> None:
    shop.execute("begin immediate")
    shop.execute("insert into orders values ('bread')")
    outbox.enqueue_in(shop, [job(1)], START)
    shop.execute("rollback")
    assert tables(shop) == {"orders"}
    send(outbox, shop, 1)
    assert [entry.job for entry in await outbox.take(10)] == [job(1)]
    assert diagnostics_for(f"sqlite:///{path}").schema_version().stored == 1


async def test_a_row_that_was_removed_gives_its_place_to_no_other(
    path: Path, outbox: SqliteOutbox, shop: sqlite3.Connection
) -> None:
    send(outbox, shop, 1)
    slow = await outbox.take(10)
    quick = SqliteOutbox(path)
    await quick.settle(await quick.take(10), {})
    await quick.close()
    send(outbox, shop, 2)
    await outbox.settle(slow, {})
    assert [entry.job for entry in await outbox.take(10)] == [job(2)]


async def test_a_connection_with_rows_and_texts_of_its_own_will_do(
    outbox: SqliteOutbox, shop: sqlite3.Connection
) -> None:
    shop.row_factory = sqlite3.Row
    shop.text_factory = bytes
    send(outbox, shop, 1)
    assert [entry.job for entry in await outbox.take(10)] == [job(1)]


async def test_a_failure_leaves_the_rest_of_the_transaction_alone(
    outbox: SqliteOutbox, shop: sqlite3.Connection
) -> None:
    send(outbox, shop, 1)
    shop.execute("update reprieve_compatibility set oldest_schema = 99")
    shop.execute("begin immediate")
    shop.execute("insert into orders values ('bread')")
    with pytest.raises(NewerSchema):
        outbox.enqueue_in(shop, [job(2)], START)
    shop.execute("commit")
    assert shop.execute("select title from orders").fetchall() == [("bread",)]


async def test_a_commit_wakes_the_relay_that_waits(outbox: SqliteOutbox, shop: sqlite3.Connection) -> None:
    send(outbox, shop, 1)
    await outbox.settle(await outbox.take(10), {})
    await outbox.take(10)
    waiting = asyncio.create_task(outbox.wait(PATIENCE))
    assert not (await asyncio.wait({waiting}, timeout=0.3))[0]
    await asyncio.to_thread(lambda: None)
    send(outbox, shop, 2)
    async with asyncio.timeout(PATIENCE / 2):
        assert await waiting


async def test_an_outbox_that_was_closed_says_so(outbox: SqliteOutbox, shop: sqlite3.Connection) -> None:
    await outbox.close()
    with pytest.raises(StoreClosed):
        await outbox.take(1)
    with pytest.raises(StoreClosed):
        outbox.enqueue_in(shop, [job(1)], START)
