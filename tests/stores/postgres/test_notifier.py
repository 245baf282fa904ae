"""Notifications: a store that cannot listen polls, and listens again as soon as that is possible."""

import asyncio
import logging
import resource
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from urllib.parse import urlsplit

import psycopg
import pytest

from reprieve.stores.postgres import PostgresStore
from reprieve.testing.conformance.stage import START, Worker, new_job

LIMIT = 20.0


async def listens(store: PostgresStore) -> bool:
    """Return whether a wait is left alone while nothing happens: a store that polls ends it early."""
    return not await store.wait(("silent",), 0.5)


@pytest.fixture
def many_files() -> Iterator[None]:
    """Have more than a thousand files open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, before[1]), before[1]))
    try:
        with ExitStack() as files:
            for _ in range(1_100):
                files.enter_context(Path("/dev/null").open("rb"))
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_files")
async def test_process_with_many_open_files_listens(url: str, store: PostgresStore) -> None:
    async with asyncio.timeout(LIMIT):
        worker = await Worker.open(store)
        await worker.ask()
        assert await listens(store)
        other = PostgresStore(url)
        try:
            await other.enqueue([new_job(other)], START)
            assert await store.wait(("default",), LIMIT, worker.session)
        finally:
            await other.close()
    await worker.one()


async def test_store_that_is_closed_again_closes_no_file_of_others(store: PostgresStore) -> None:
    await store.wait(("silent",), 0.01)
    await store.close()
    with ExitStack() as files:
        # New files get the numbers of those that were closed.
        opened = [files.enter_context(TemporaryFile()) for _ in range(32)]
        await store.close()
        assert [file.read() for file in opened] == [b""] * 32


@pytest.fixture
def unencoded_url(postgres_url: str, url: str) -> Iterator[str]:
    """Return the URL of a database whose texts are any bytes."""
    name = url.partition("schema=")[2]
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"create database {name} encoding 'SQL_ASCII' template template0")
        yield urlsplit(postgres_url)._replace(path=f"/{name}").geturl()
        admin.execute(f"drop database {name} with (force)")


async def test_notification_that_cannot_be_read_ends_no_listening_for_long(
    unencoded_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgresStore(unencoded_url)
    try:
        async with asyncio.timeout(LIMIT):
            assert await listens(store)
            with (
                caplog.at_level(logging.DEBUG, "reprieve"),
                psycopg.connect(unencoded_url, autocommit=True) as sender,
            ):
                sender.execute(rb"""select pg_notify('reprieve reprieve', E'a sender \xff')""")
                while not caplog.records:  # noqa: ASYNC110 - it is said by another thread
                    await asyncio.sleep(0.01)
            while not await listens(store):
                pass
    finally:
        await store.close()
    (said,) = [record.message for record in caplog.records if record.name == "reprieve"]
    assert said.startswith("cannot listen for notifications, polling every 0.2 s instead: ")


async def test_server_that_is_away_is_said_once_and_only_to_who_debugs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "reprieve")
    store = PostgresStore("postgresql://ana:secret@127.0.0.1:9/jobs")
    try:
        async with asyncio.timeout(LIMIT):
            for _ in range(4):
                assert not await listens(store)
    finally:
        await store.close()
    ((level, said),) = [(record.levelname, record.message) for record in caplog.records if record.name == "reprieve"]
    # The worker logs that its store is away.
    assert level == "DEBUG"
    assert "the server at postgresql://ana@127.0.0.1:9/jobs cannot be reached" in said
    assert "secret" not in said


async def test_listener_that_cannot_be_reached_while_the_store_can_is_a_warning(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgresStore(f"{url}&listen=postgresql://ana:secret@127.0.0.1:9/jobs")
    try:
        async with asyncio.timeout(LIMIT):
            assert not await listens(store)
    finally:
        await store.close()
    (said,) = [record for record in caplog.records if record.name == "reprieve"]
    assert said.levelname == "WARNING"
    assert "cannot be reached" in said.message
