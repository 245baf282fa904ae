"""The listener when its connection breaks: every waiter is woken, once."""

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


def disconnect(server: servers.Server) -> None:
    """Break the connection of the listener, as soon as it reads."""
    with server.client() as client:
        while not (listening := [entry["id"] for entry in client.client_list() if entry["cmd"] == "xread"]):
            threading.Event().wait(0.01)
        for number in listening:
            client.client_kill_filter(_id=number)


async def test_broken_connection_wakes_a_waiter_and_none_afterwards(server: servers.Server) -> None:
    store = RedisStore(server.url)
    await enqueued(store)
    worker = await Worker.open(store)
    assert len(await worker.take(10)) == 1
    await worker.take(10)
    waiting = asyncio.create_task(store.wait(("default",), 30.0, worker.session))
    await asyncio.to_thread(disconnect, server)
    assert await waiting, "a notification may have been missed"
    assert await worker.take(10) == []
    assert not await store.wait(("default",), 0.5, worker.session)
    await store.close()


async def test_notification_while_the_listener_is_away_is_not_missed(server: servers.Server) -> None:
    store = RedisStore(server.url)
    worker = await Worker.open(store)
    await enqueued(store)
    assert len(await worker.take(10)) == 1
    await worker.take(10)
    waiting = asyncio.create_task(store.wait(("default",), 30.0, worker.session))
    await asyncio.to_thread(disconnect, server)
    await enqueued(store)
    assert await waiting
    assert await store.wait(("default",), 30.0, worker.session), "the session has not claimed since"
    await store.close()
