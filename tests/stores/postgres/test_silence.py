"""A server that no longer replies keeps no caller waiting for ever."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import psycopg
import pytest

from reprieve.clock import ticks
from reprieve.errors import StoreError
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.postgres.address import address_of
from reprieve.stores.postgres.functions import with_hashed_names
from reprieve.stores.protocol import Filter
from reprieve.testing.conformance.stage import START, Worker, new_job
from tests.servers import proxy

LIMIT = 10.0
"""Seconds within which everything is over here, where patience is half a second."""


@pytest.fixture
async def way(postgres_url: str) -> AsyncIterator[proxy.Proxy]:
    async with proxy.running(postgres_url) as way:
        yield way


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reprieve.stores.postgres.pool.WRITE_SECONDS", 0.5)
    monkeypatch.setattr("reprieve.stores.postgres.pool.READ_SECONDS", 0.5)
    monkeypatch.setattr("reprieve.stores.postgres.pool.CONNECT_SECONDS", 0.5)
    monkeypatch.setattr("reprieve.stores.postgres.notifier.CONNECT_SECONDS", 0.5)


def through(way: proxy.Proxy, url: str) -> str:
    return f"{way.url}?{urlsplit(url).query}&connect_timeout=2"


async def test_call_is_given_up_and_repeated_on_another_connection(url: str, way: proxy.Proxy) -> None:
    store = PostgresStore(through(way, url))
    try:
        worker = await Worker.open(store)
        way.fall_silent()
        async with asyncio.timeout(LIMIT):
            with pytest.raises(StoreError, match="no response within") as caught:
                await worker.heartbeat()
            assert caught.value.is_passing
        way.speak()
        assert await worker.heartbeat()
    finally:
        await store.close()


async def test_read_is_not_kept_waiting_either(url: str, way: proxy.Proxy) -> None:
    store = PostgresStore(through(way, url))
    try:
        await store.tally("status", Filter(), START)
        way.fall_silent()
        async with asyncio.timeout(LIMIT):
            with pytest.raises(StoreError, match="no response within"):
                await store.tally("status", Filter(), START)
    finally:
        way.speak()
        await store.close()


async def test_closing_waits_no_longer_for_what_was_begun(
    url: str, way: proxy.Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reprieve.stores.postgres.pool.WRITE_SECONDS", 600)
    store = PostgresStore(through(way, url))
    worker = await Worker.open(store)
    way.fall_silent()
    calls = [asyncio.create_task(worker.heartbeat()) for _ in range(2)]
    await asyncio.sleep(0)
    began = ticks()
    async with asyncio.timeout(LIMIT):
        await store.close()
        for ended in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(ended, StoreError)
    assert ticks() - began >= 0.5


async def test_work_that_takes_long_is_waited_for_when_closing(url: str, store: PostgresStore) -> None:
    worker = await Worker.open(store)
    with psycopg.connect(url.partition("?")[0]) as holder:
        holder.execute(f"set search_path = {url.partition('schema=')[2]}")
        holder.execute(with_hashed_names("select acquire_claim_lock('1:1:')"))
        claim = asyncio.create_task(worker.ask())
        waits = "select 1 from pg_stat_activity where application_name = current_schema() and wait_event_type = 'Lock'"
        while not holder.execute(waits).fetchall():  # noqa: ASYNC110 - the server alone knows who waits
            await asyncio.sleep(0.01)
        closing = asyncio.create_task(store.close())
        holder.rollback()
    await closing
    assert not (await claim).jobs


def test_server_that_vanishes_is_noticed_by_the_system_and_long_statements_by_the_server(url: str) -> None:
    with address_of(url).connect() as connection:
        said = connection.info.get_parameters()
        assert (said["tcp_user_timeout"], said["keepalives_idle"], said["keepalives_count"]) == ("10000", "10", "3")
        assert connection.execute("show statement_timeout").fetchone() == ("2min",)


async def test_first_call_is_given_up_as_well(url: str, way: proxy.Proxy) -> None:
    way.fall_silent()
    store = PostgresStore(through(way, url))
    try:
        async with asyncio.timeout(LIMIT):
            with pytest.raises(StoreError, match="cannot be reached"):
                await store.enqueue([new_job(store)], START)
    finally:
        way.speak()
        await store.close()
