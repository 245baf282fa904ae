"""The ear when its connection breaks: whoever waits looks for themselves, once."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from reprieve.stores.redis import RedisStore
from reprieve.testing.conformance.stage import Worker, enqueued
from tests.servers import redis as servers


@pytest.fixture
def server() -> Iterator[servers.Server]:
    with servers.own() as server:
        yield server


def deafen(server: servers.Server) -> None:
    """Break the connection over which somebody listens, as soon as somebody does."""
    with server.client() as client:
        while not (listening := [entry["id"] for entry in client.client_list() if entry["cmd"] == "xread"]):
            threading.Event().wait(0.01)
        for number in listening:
            client.client_kill_filter(_id=number)


async def test_broken_connection_wakes_whoever_waits_and_nobody_afterwards(server: servers.Server) -> None:
    store = RedisStore(server.url)
    await enqueued(store)
    worker = await Worker.open(store)
    assert len(await worker.take(10)) == 1
    await worker.take(10)
    waiting = asyncio.create_task(store.wait(("default",), 30.0, worker.session))
    await asyncio.to_thread(deafen, server)
    assert await waiting, "something may have rung that nobody heard"
    assert await worker.take(10) == []
    assert not await store.wait(("default",), 0.5, worker.session)
    await store.close()


async def test_what_rings_while_nobody_hears_is_not_missed(server: servers.Server) -> None:
    store = RedisStore(server.url)
    worker = await Worker.open(store)
    await enqueued(store)
    assert len(await worker.take(10)) == 1
    await worker.take(10)
    waiting = asyncio.create_task(store.wait(("default",), 30.0, worker.session))
    await asyncio.to_thread(deafen, server)
    await enqueued(store)
    assert await waiting
    assert await store.wait(("default",), 30.0, worker.session), "the session has not looked since"
    await store.close()
