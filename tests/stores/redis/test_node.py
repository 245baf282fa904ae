"""A node: its connections have one call at a time; one that has gone costs a repeat and no more."""

import asyncio

from reprieve.stores.protocol import Filter
from reprieve.stores.redis import RedisStore
from reprieve.stores.redis.node import MAX_CONNECTIONS
from reprieve.testing.conformance.stage import START, new_job
from tests.servers import redis as servers


async def test_calls_after_the_server_closed_every_connection_are_repeated() -> None:
    with servers.own() as server:
        store = RedisStore(server.url)
        await asyncio.gather(*(store.enqueue([new_job(store)], START) for _ in range(8)))
        with server.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "NORMAL")
        ids = await asyncio.gather(*(store.enqueue([new_job(store)], START) for _ in range(8)))
        found = await store.find(Filter(ids=tuple(job for some in ids for job in some)), START)
        assert len(found.jobs) == 8
        await store.close()


async def test_cancelled_call_leaves_no_reply_to_the_next_one(redis_url: str) -> None:
    store = RedisStore(redis_url)
    try:
        await store.enqueue([new_job(store)], START)
        for _ in range(5):
            call = asyncio.create_task(store.enqueue([new_job(store)], START))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            job = new_job(store)
            assert await store.enqueue([job], START) == [job.id]
    finally:
        await store.close()


async def test_many_concurrent_calls_share_some_connections() -> None:
    with servers.own() as server, server.client() as client:
        store = RedisStore(server.url)
        await store.enqueue([new_job(store)], START)
        job = new_job(store)
        assert set(await asyncio.gather(*(store.result(job.id) for _ in range(500)))) == {None}
        assert len(client.client_list()) <= MAX_CONNECTIONS + 1
        await store.close()
