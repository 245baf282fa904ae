"""Opening a file while a transaction of the caller's is open on it."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reprieve import Reprieve
from reprieve.errors import StoreNotFound, StoreReadOnly
from reprieve.stores.open import open_store
from reprieve.stores.protocol import Filter
from reprieve.stores.sqlite import SqliteStore
from reprieve.testing.conformance.stage import START, new_job
from tests.stores.sqlite.recount import stored_ids


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


def node_of(store: SqliteStore) -> int:
    """Return the number of the process in the ids that a store makes."""
    return int(store.new_id(START, "default")[-6:], 16) >> 12 & 0x3FF


def numbers_taken(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("select value from reprieve_counter where name = 'node'").fetchone()[0])


async def test_a_store_that_is_up_to_date_opens_beside_a_transaction_and_takes_its_number_after_it(path: Path) -> None:
    await SqliteStore(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as shop:
        shop.execute("analyze")
        before = numbers_taken(path)
        shop.execute("begin immediate")
        store = SqliteStore(path, may_wait=False)
        job = new_job(store)
        store.enqueue_in(shop, [job], START)
        shop.execute("commit")
    await store.enqueue([later := new_job(store)], START)
    assert numbers_taken(path) == before + 1
    assert node_of(store) == before + 1
    assert stored_ids(path) == {job.id, later.id}
    await store.close()


async def test_a_transaction_that_has_only_read_can_still_write_after_the_store_was_opened(
    path: Path,
) -> None:
    await SqliteStore(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as shop:
        shop.execute("begin")
        shop.execute("select count(*) from reprieve_job").fetchone()
        store = SqliteStore(path, may_wait=False)
        job = new_job(store)
        store.enqueue_in(shop, [job], START)
        shop.execute("commit")
    assert stored_ids(path) == {job.id}
    await store.close()


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_store_that_is_missing_is_not_made_beside_a_transaction(path: Path, mode: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as shop:
        shop.execute(f"pragma journal_mode = {mode}")
        shop.execute("create table shop_order (title text)")
        shop.execute("begin immediate")
        shop.execute("insert into shop_order values ('bread')")
        with pytest.raises(StoreNotFound, match="open the store before you begin the transaction"):
            SqliteStore(path, shared=True, may_wait=False)
        shop.execute("commit")
        assert shop.execute("select title from shop_order").fetchall() == [("bread",)]


def test_an_app_opens_its_store_when_it_is_told_to_and_only_once(path: Path) -> None:
    with Reprieve(f"sqlite:///{path}") as app:
        assert not path.exists()
        app.open()
        assert numbers_taken(path) == 1
        asyncio.run(app.aopen())
        assert numbers_taken(path) == 1


def test_opening_raises_what_is_wrong_with_the_store(tmp_path: Path) -> None:
    app = Reprieve(f"sqlite:///{tmp_path}/missing/app.db")
    with pytest.raises(StoreReadOnly, match="does not exist"):
        app.open()
    app.close()


async def test_jobs_are_read_while_another_program_holds_the_write_lock(path: Path) -> None:
    store = SqliteStore(path)
    (job_id,) = await store.enqueue([new_job(store)], START)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin exclusive")
        # Opened by the command line to list jobs. It would wait for ten seconds, and fail.
        reading = open_store(f"sqlite:///{path}", must_exist=True)
        page = await reading.find(Filter(), START)
        other.execute("rollback")
    assert [job.id for job in page.jobs] == [job_id]
    # It can be written as well, with a number of its own in the ids that it makes.
    await reading.enqueue([new_job(reading)], START)
    await reading.close()
    await store.close()
