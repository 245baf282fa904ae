"""Connections of every library: a job joins the transaction of sqlite3, SQLAlchemy or Django, on the right file."""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from reprieve.errors import StoreError, ValidationError
from reprieve.stores.sqlite import SqliteStore
from reprieve.stores.sqlite.outbox import SqliteOutbox
from reprieve.testing.conformance.stage import START, new_job
from tests.stores.atomic_block import atomic_block
from tests.stores.sqlite.recount import complaints, stored_ids

Opened: TypeAlias = Callable[[Path], AbstractContextManager[Any]]
INSERT = sqlalchemy.text("insert into shop_order values ('bread')")


class Undone(Exception):
    """Ends a transaction without a commit."""


@contextmanager
def engine_of(path: Path) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def in_sqlite3(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("insert into shop_order values ('bread')")
        yield connection


@contextmanager
def in_a_connection(path: Path) -> Iterator[sqlalchemy.Connection]:
    with engine_of(path) as engine, engine.begin() as connection:
        connection.execute(INSERT)
        yield connection


@contextmanager
def in_a_session(path: Path) -> Iterator[Session]:
    with engine_of(path) as engine, Session(engine) as session, session.begin():
        session.execute(INSERT)
        yield session


@contextmanager
def in_a_scoped_session(path: Path) -> Iterator[Any]:
    with engine_of(path) as engine:
        session = scoped_session(sessionmaker(engine))
        try:
            with session.begin():
                session.execute(INSERT)
                yield session
        finally:
            session.remove()


@contextmanager
def in_a_session_that_has_written_nothing(path: Path) -> Iterator[Session]:
    with engine_of(path) as engine, Session(engine) as session, session.begin():
        yield session
        session.execute(INSERT)


@contextmanager
def in_django(path: Path) -> Iterator[Any]:
    with atomic_block({"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}) as connection:
        with connection.cursor() as cursor:
            cursor.execute("insert into shop_order values ('bread')")
        yield connection


LIBRARIES = [
    in_sqlite3,
    in_a_connection,
    in_a_session,
    in_a_scoped_session,
    in_a_session_that_has_written_nothing,
    in_django,
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table shop_order (title text)")
    return path


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path, shared=True)
    yield store
    asyncio.run(store.close())
    assert complaints(path) == []


def orders(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("select count(*) from shop_order").fetchone()[0])


@pytest.mark.parametrize("opened", LIBRARIES)
def test_job_and_row_are_there_after_the_commit(path: Path, store: SqliteStore, opened: Opened) -> None:
    job = new_job(store)
    with opened(path) as connection:
        assert store.enqueue_in(connection, [job], START) == [job.id]
        assert stored_ids(path) == set()
    assert stored_ids(path) == {job.id}
    assert orders(path) == 1


@pytest.mark.parametrize("opened", LIBRARIES)
def test_neither_is_there_after_a_rollback(path: Path, store: SqliteStore, opened: Opened) -> None:
    with suppress(Undone), opened(path) as connection:
        store.enqueue_in(connection, [new_job(store)], START)
        raise Undone
    assert stored_ids(path) == set()
    assert orders(path) == 0


@pytest.mark.parametrize("opened", LIBRARIES)
def test_an_outbox_takes_the_same_connections(path: Path, store: SqliteStore, opened: Opened) -> None:
    outbox = SqliteOutbox(path)
    job = new_job(store)
    with opened(path) as connection:
        assert outbox.enqueue_in(connection, [job], START) == [job.id]
        assert not asyncio.run(outbox.holds(job.id))
    assert asyncio.run(outbox.holds(job.id))
    asyncio.run(outbox.close())


def test_a_connection_in_autocommit_mode_has_no_transaction(path: Path, store: SqliteStore) -> None:
    with (
        engine_of(path) as engine,
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(StoreError, match="no open transaction"),
    ):
        store.enqueue_in(connection, [new_job(store)], START)


def test_django_outside_of_an_atomic_block_is_refused(path: Path, store: SqliteStore) -> None:
    with in_django(path) as connection:
        connection.in_atomic_block = False
        with pytest.raises(StoreError, match=re.escape("enqueue inside `with transaction.atomic()`")):
            store.enqueue_in(connection, [new_job(store)], START)
        connection.in_atomic_block = True


@pytest.mark.parametrize("thing", ["nonsense", 7, object()])
def test_what_is_no_connection_is_refused(store: SqliteStore, thing: object) -> None:
    with pytest.raises(ValidationError, match=r"of sqlite3, SQLAlchemy \(Session or Connection\) or Django, got "):
        store.enqueue_in(thing, [new_job(store)], START)


def test_an_asynchronous_session_is_refused_with_what_to_do(store: SqliteStore) -> None:
    with pytest.raises(ValidationError, match="AsyncSession of sqlalchemy uses its connection in another thread"):
        store.enqueue_in(AsyncSession(), [new_job(store)], START)


@pytest.mark.parametrize("kind", ["store", "outbox"])
def test_a_connection_to_another_file_names_both(path: Path, store: SqliteStore, tmp_path: Path, kind: str) -> None:
    joins = store if kind == "store" else SqliteOutbox(path)
    # It has a store of its own: the job must not land there.
    asyncio.run(SqliteStore(tmp_path / "other.db").close())
    with closing(sqlite3.connect(tmp_path / "other.db", isolation_level=None)) as connection:
        connection.execute("begin immediate")
        with pytest.raises(ValidationError, match=r"this connection is to .*/other\.db, the jobs are in .*/app\.db"):
            joins.enqueue_in(connection, [new_job(store)], START)
    assert stored_ids(tmp_path / "other.db") == set()


def test_a_file_may_be_known_by_another_name(path: Path, store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(path)
    job = new_job(store)
    with in_sqlite3(tmp_path / "link.db") as connection:
        store.enqueue_in(connection, [job], START)
    assert stored_ids(path) == {job.id}


def test_a_store_in_memory_has_no_transaction_to_join(path: Path) -> None:
    store = SqliteStore(None)
    with in_sqlite3(path) as connection, pytest.raises(ValidationError, match="the jobs are in memory"):
        store.enqueue_in(connection, [new_job(store)], START)
    asyncio.run(store.close())
