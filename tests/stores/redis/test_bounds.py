"""What one call of a script may do: no more than others can wait for, however much there is."""

from collections.abc import Iterator

import pytest
import redis

from reprieve.stores.protocol import Filter
from reprieve.stores.redis import RedisStore
from reprieve.stores.redis.store import FEWEST_JOBS, MOST_JOBS
from reprieve.testing.conformance.stage import (
    START,
    Worker,
    enqueue,
    new_job,
    new_jobs,
    succeed,
)
from tests.servers import redis as servers
from tests.stores.redis.recount import complaints

TAG = "{reprieve:0}"


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.own() as server:
        yield server


@pytest.fixture
def client(server: servers.Server) -> Iterator[redis.Redis]:
    with server.client() as client:
        client.flushall()
        yield client
        assert complaints(client, TAG) == []


@pytest.fixture
async def store(server: servers.Server, client: redis.Redis) -> RedisStore:
    return RedisStore(server.url)


async def test_claim_leases_so_many_at_a_time_and_says_that_there_is_more(store: RedisStore) -> None:
    await enqueue(store, *new_jobs(store, 2 * MOST_JOBS + 1))
    worker = await Worker.open(store)
    first = await worker.ask(10_000)
    assert (len(first.jobs), first.next_at) == (MOST_JOBS, START)
    assert (await worker.again(10_000)).jobs == first.jobs
    assert len(await worker.take(10_000)) == MOST_JOBS
    last = await worker.ask(10_000)
    assert (len(last.jobs), last.next_at) == (1, None)
    await store.close()


async def test_claim_leases_fewer_when_every_job_is_another_tenants(store: RedisStore) -> None:
    await enqueue(store, *(new_job(store, tenant=f"t{number}") for number in range(200)))
    worker = await Worker.open(store)
    jobs = await worker.take(250)
    claimed = await worker.ask(250, changes=map(succeed, jobs))
    assert (len(claimed.jobs), claimed.next_at) == (FEWEST_JOBS, START)
    await store.close()


async def test_thousands_that_expire_at_once_are_all_buried(store: RedisStore) -> None:
    count = 5_000
    await enqueue(store, *new_jobs(store, count, deadline_at=START + 1))
    worker = await Worker.open(store)
    while (await worker.ask(count, at=START + 2)).next_at is not None:
        pass
    assert (await store.tally("status", Filter(), START + 2)).get("dead") == count
    assert len(await store.events(limit=2 * count)) == count
    await store.close()
