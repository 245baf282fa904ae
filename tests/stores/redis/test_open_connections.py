"""Connections: however servers die and calls end, none is left open to be found by the garbage collector."""

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from reprieve.errors import StoreClosed, StoreError
from reprieve.stores.protocol import Filter
from reprieve.stores.redis import RedisStore
from reprieve.testing.conformance.stage import START, enqueued, new_job
from tests.servers import proxy
from tests.servers import redis as servers

CALLERS = 24
MANY_STEPS = 40
"""Steps of the event loop in which a call connects, is admitted and returns, and some more."""


@contextmanager
def nothing_left_open() -> Iterator[None]:
    """Fail for connections that were opened here and are collected open."""
    gc.collect()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        yield
        gc.collect()
    assert [str(warning.message) for warning in found] == []


@contextmanager
def a_server() -> Iterator[str]:
    with servers.own() as server:
        yield server.url


@contextmanager
def with_sentinels() -> Iterator[str]:
    with servers.sentinel_group(down_after_ms=servers.NO_FAILOVER_MS) as group:
        yield group.url


@contextmanager
def a_cluster() -> Iterator[str]:
    with servers.cluster(masters=2) as cluster:
        yield f"{cluster.url}?partitions=2"


@pytest.fixture(scope="module", params=[a_server, with_sentinels, a_cluster])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with request.param() as url:
        yield url


@asynccontextmanager
async def under_calls(store: RedisStore) -> AsyncIterator[None]:
    """Make calls of several kinds all the time, until the store is closed."""

    async def call(make: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await make()
            except StoreClosed:
                return
            except StoreError:
                continue

    kinds: list[Callable[[], Awaitable[object]]] = [
        lambda: store.enqueue([new_job(store)], START),
        lambda: store.limit_states("queue"),
        lambda: store.recover(START),
        lambda: store.wait(("later",), 0.1),
    ]
    callers = [asyncio.create_task(call(kinds[number % len(kinds)])) for number in range(CALLERS)]
    yield
    await asyncio.gather(*callers)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("durability", ["full", "strict"])
async def test_primary_of_a_cluster_that_dies_under_many_calls_leaves_no_connection_open(durability: str) -> None:
    with servers.cluster(masters=3, replicas=1, appendfsync="always") as cluster, nothing_left_open():
        store = RedisStore(f"{cluster.url}?partitions=4", durability=durability)  # type: ignore[arg-type] # one of them
        job = await enqueued(store)
        async with under_calls(store):
            number = cluster.place_of("{reprieve:0}")
            await asyncio.to_thread(cluster.masters[number].kill)
            await asyncio.to_thread(cluster.wait_for_failover, number)
            assert len((await store.find(Filter(ids=(job.id,)), START)).jobs) == 1
            await asyncio.to_thread(cluster.wait_for_failover(number).kill)
            await store.close()


async def test_store_that_is_closed_under_calls_leaves_no_connection_open(url: str) -> None:
    with nothing_left_open():
        store = RedisStore(url)
        await enqueued(store)
        async with under_calls(store):
            await enqueued(store)
            await store.close()


async def test_store_that_is_closed_at_any_step_of_its_first_call_leaves_no_connection_open(url: str) -> None:
    with nothing_left_open():
        for steps in range(MANY_STEPS):
            store = RedisStore(url)
            call = asyncio.create_task(store.enqueue([new_job(store)], START))
            for _ in range(steps):
                await asyncio.sleep(0)
            await store.close()
            await asyncio.gather(call, return_exceptions=True)


async def test_call_that_is_cancelled_at_any_step_leaves_no_connection_open(url: str) -> None:
    with nothing_left_open():
        for steps in range(MANY_STEPS):
            store = RedisStore(url)
            call = asyncio.create_task(store.enqueue([new_job(store)], START))
            for _ in range(steps):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await store.close()


async def test_store_that_is_closed_while_a_thread_connects_leaves_no_connection_open() -> None:
    with servers.cluster(masters=1) as cluster:
        (server,) = cluster.servers
        with server.client() as client:
            alone = len(client.client_list())
            async with proxy.running(server.url) as between:
                store = RedisStore(between.url.replace("redis:", "redis+cluster:").removesuffix("/0"))
                await enqueued(store)
                between.fall_silent()
                reading = asyncio.create_task(store.find(Filter(), START))
                await until(lambda: between.connections > 0)
                await store.close()
                between.speak()
                with pytest.raises(StoreClosed):
                    await reading
                await until(lambda: len(client.client_list()) == alone)
