"""The sink: what came out of an outbox is stored once, and refused when it was held for too long."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from redis import Redis

from reprieve.errors import InvalidName, StoreError
from reprieve.stores.capabilities import RelayTarget
from reprieve.stores.checked import checked
from reprieve.stores.protocol import Filter, Retention
from reprieve.stores.redis import RedisStore
from reprieve.stores.redis.address import address_of
from reprieve.stores.redis.connections import Connections
from reprieve.stores.redis.enqueue import RelayReceipt
from reprieve.stores.redis.partition import STORED, UNKNOWN, Partition
from reprieve.stores.redis.topology import Topology
from reprieve.testing.conformance.stage import START, Worker, find_all, new_job, new_jobs, succeed

DAY = 86_400_000


@pytest.fixture(params=[1, 3], ids=["one partition", "three"])
def url(request: pytest.FixtureRequest, redis_url: str) -> str:
    return f"{redis_url}?prefix=land{uuid4().hex[:12]}&partitions={request.param}"


@pytest.fixture
async def store(url: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(url)
    yield store
    await store.close()


async def known(store: RedisStore) -> set[str]:
    return {job.id for job in await find_all(store, Filter())}


async def run_and_forget(store: RedisStore) -> None:
    """Run the job that waits, and let the store forget it."""
    worker = await Worker.open(store)
    await worker.settle(succeed(await worker.one()))
    while not (await store.prune(Retention(now=START + DAY, succeeded=0))).is_all:
        pass


async def test_jobs_land_once_however_often_they_are_brought(store: RedisStore) -> None:
    jobs = [*new_jobs(store, 600, tenant="ana"), new_job(store, key="k")]
    for _ in range(3):
        sink = store.outbox_sink()
        await sink.prepare()
        assert await sink.deliver(jobs, START) == [job.id for job in jobs]
    assert await known(store) == {job.id for job in jobs}


async def test_a_repeat_is_known_when_the_job_is_not_any_more(url: str, store: RedisStore) -> None:
    job = new_job(store)
    sink = store.outbox_sink()
    await sink.prepare()
    await sink.deliver([job], START)
    await run_and_forget(store)
    with Redis.from_url(url.partition("?")[0]) as client:
        # By themselves, ids of jobs that have ended are remembered for minutes.
        client.delete(*client.scan_iter(f"{{{url.partition('prefix=')[2].partition('&')[0]}:*}}:forgotten:*"))
    assert await known(store) == set()
    await sink.deliver([job], START + DAY)
    assert await known(store) == set()
    # One that was never delivered is another matter.
    await sink.deliver([new_job(store)], START + DAY)
    assert len(await known(store)) == 1


async def test_a_key_keeps_its_meaning(store: RedisStore) -> None:
    first, second = new_jobs(store, 2, key="k")
    sink = store.outbox_sink()
    await sink.prepare()
    assert await sink.deliver([first], START) == [first.id]
    assert await sink.deliver([second], START) == [first.id]
    assert await known(store) == {first.id}


async def test_a_repeat_does_not_take_a_key_that_was_free_again(store: RedisStore) -> None:
    first, second = new_jobs(store, 2, key="k", key_ttl=1.0)
    sink = store.outbox_sink()
    await sink.prepare()
    await sink.deliver([first], START)
    await run_and_forget(store)
    assert await sink.deliver([first], START + DAY) == [first.id]
    assert await store.enqueue([second], START + DAY) == [second.id]


async def test_what_was_taken_half_a_minute_ago_is_refused(redis_url: str) -> None:
    connections = Connections(Topology(address_of(f"{redis_url}?prefix=sink{uuid4().hex[:12]}")))
    partition = Partition(connections, 0)
    (job,) = new_jobs(RedisStore(redis_url), 1)
    clock, ids = await partition.deliver([job], START, RelayReceipt(taken_at=0), has_keys=True)
    assert ids is None
    _, ids = await partition.deliver([job], START, RelayReceipt(taken_at=clock - 30_100), has_keys=True)
    assert ids is None
    assert await partition.has_jobs([job.id]) == [UNKNOWN]
    _, ids = await partition.deliver([job], START, RelayReceipt(taken_at=clock - 20_000), has_keys=True)
    assert ids == [job.id]
    assert await partition.has_jobs([job.id]) == [STORED]
    await connections.close()


async def test_what_an_outbox_sink_has_not_prepared_for_is_refused(store: RedisStore) -> None:
    sink = store.outbox_sink()
    with pytest.raises(StoreError, match="take them again"):
        await sink.deliver([new_job(store)], START)
    await sink.prepare()
    await sink.deliver([new_job(store)], START)


async def test_what_no_store_takes_does_not_land(store: RedisStore) -> None:
    opened = checked(store)
    assert isinstance(opened, RelayTarget)
    sink = opened.outbox_sink()
    await sink.prepare()
    with pytest.raises(InvalidName):
        await sink.deliver([new_job(store), new_job(store, queue="")], START)
    assert await known(store) == set()
