"""Partitions that are added while producers and workers work: none dies, nothing is missed, nothing is made twice."""

import asyncio
from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import pytest
from redis import Redis

from reprieve.core import change
from reprieve.core.ids import PARTITIONS, partition_of
from reprieve.errors import InvalidUrl, StoreError
from reprieve.stores.protocol import Claim, Filter, LimitUpdate, Retention
from reprieve.stores.redis import RedisStore
from reprieve.stores.redis.address import address_of
from reprieve.stores.redis.connections import Connections
from reprieve.stores.redis.tags import tag_of
from reprieve.stores.redis.topology import CHECK_PARTITIONS_SECONDS, Topology
from reprieve.testing.conformance.stage import (
    DAY,
    OPERATOR,
    START,
    Worker,
    enqueue,
    enqueued,
    find_all,
    get,
    new_job,
    new_jobs,
    succeed,
    update_limits,
)
from tests.stores.redis.recount import complaints

Open = Callable[[int | None], RedisStore]


@pytest.fixture
def prefix() -> str:
    return f"grow{uuid4().hex[:12]}"


@pytest.fixture
async def opened(redis_url: str, prefix: str) -> AsyncIterator[Open]:
    """Open stores on the same keys, each in a process of its own as far as it knows."""
    stores: list[RedisStore] = []

    def open_one(partitions: int | None) -> RedisStore:
        more = f"&partitions={partitions}" if partitions else ""
        stores.append(RedisStore(f"{redis_url}?prefix={prefix}{more}"))
        return stores[-1]

    yield open_one
    for store in stores:
        await store.close()


async def grow(opened: Open, partitions: int) -> RedisStore:
    large = opened(partitions)
    await enqueued(large, queue="elsewhere")
    return large


@pytest.mark.parametrize("before", [1, 2])
async def test_session_outlives_growth(before: int, opened: Open) -> None:
    small = opened(before)
    worker = await Worker.open(small)
    large = await grow(opened, 4)
    assert await worker.heartbeat()
    assert await worker.heartbeat()
    jobs = new_jobs(large, 12)
    await enqueue(large, *jobs)
    assert {job.id for job in await worker.take(100)} == {job.id for job in jobs}


async def test_session_that_others_opened_outlives_growth(opened: Open) -> None:
    worker = await Worker.open(opened(1))
    worker.store = await grow(opened, 4)
    assert await worker.heartbeat()
    await enqueue(worker.store, *new_jobs(worker.store, 12))
    assert len(await worker.take(100)) == 12


async def test_session_that_ends_after_growth_ends_everywhere(opened: Open, redis_url: str, prefix: str) -> None:
    worker = await Worker.open(opened(1))
    await grow(opened, 3)
    assert await worker.heartbeat()
    assert not await worker.heartbeat(lease=0)
    with Redis.from_url(redis_url) as client:
        assert [client.zcard(f"{tag_of(prefix, number)}:live_sessions") for number in range(3)] == [0, 0, 0]


async def test_dead_session_stays_dead_after_growth(opened: Open) -> None:
    worker = await Worker.open(opened(1), lease=1.0)
    large = await grow(opened, 3)
    assert await large.recover(START + 10_000) == []
    assert not await worker.heartbeat(START + 10_000)


async def test_who_never_heartbeats_learns_of_growth_within_a_second(opened: Open) -> None:
    child, producer, supervisor = opened(1), opened(1), opened(1)
    opener = await Worker.open(supervisor)
    worker = Worker(child, opener.session)
    await enqueued(producer)
    await worker.take(100)
    large = await grow(opened, 4)
    assert await opener.heartbeat()
    jobs = new_jobs(large, 8)
    await enqueue(large, *jobs)
    await asyncio.sleep(CHECK_PARTITIONS_SECONDS)
    assert {job.id for job in await worker.take(100)} == {job.id for job in jobs}
    await update_limits(producer, LimitUpdate(subject="dependency", name="ses", permits=0))
    await enqueue(large, *new_jobs(large, 8, dependency="ses"))
    assert await worker.take(100) == []
    assert max(partition_of(job.id) for job in new_jobs(producer, 4)) == 3


async def test_child_that_learns_of_growth_before_its_session_is_open_there_goes_on(opened: Open) -> None:
    child, supervisor = opened(1), opened(1)
    opener = await Worker.open(supervisor)
    worker = Worker(child, opener.session)
    assert await worker.take(10) == []
    large = await grow(opened, 4)
    jobs = new_jobs(large, 8)
    await enqueue(large, *jobs)
    await child._partitions.refresh()  # noqa: SLF001 - as a second later
    claimed = await worker.ask(100)
    assert {partition_of(job.id) for job in claimed.jobs} == {0}
    assert claimed.next_at is not None
    assert claimed.next_at <= START + 1_000, "it asks again soon, and does not wait for a notification that has passed"
    assert await opener.heartbeat()
    assert len(await worker.take(100)) == 8 - len(claimed.jobs)


async def test_job_of_a_partition_that_is_not_known_yet_is_found_at_once(opened: Open) -> None:
    small, other, third = opened(1), opened(1), opened(1)
    for store in (small, other, third):
        await store.find(Filter(), START)
    large = await grow(opened, 4)
    job = next(job for job in new_jobs(large, 4) if partition_of(job.id) == 3)
    await enqueue(large, job)
    assert await get(small, job) == job
    assert await other.apply([change.cancel(job, OPERATOR, START)], START) == ["applied"]
    late = next(job for job in new_jobs(large, 4) if partition_of(job.id) == 2)
    await enqueue(third, late)
    assert await get(large, late) == late, "stored where its id says"


async def test_producer_that_has_not_heard_of_growth_makes_no_duplicate(opened: Open) -> None:
    small = opened(1)
    await enqueued(small)
    large = await grow(opened, 4)
    first = new_job(large, key="k")
    await enqueue(large, first)
    late, other = new_job(small, key="k"), new_job(small, key="other")
    assert await enqueue(small, late, other) == [first.id, other.id]
    assert await enqueue(large, new_job(large, key="other")) == [other.id]


async def test_outbox_sink_that_has_not_heard_of_growth_makes_no_duplicate(opened: Open) -> None:
    small = opened(1)
    late = new_job(small, key="k")
    sink = small.outbox_sink()
    await sink.prepare()
    large = await grow(opened, 4)
    first = new_job(large, key="k")
    await enqueue(large, first)
    assert await sink.deliver([late], START) == [first.id]


async def test_key_is_kept_for_its_time_though_its_job_is_gone_and_partitions_were_added(opened: Open) -> None:
    small = opened(1)
    worker = await Worker.open(small)
    job = new_job(small, key="k")
    await enqueue(small, job)
    await worker.settle(succeed(await worker.one()))
    large = await grow(opened, 4)
    assert (await large.prune(Retention(now=START, succeeded=0))).succeeded == 1
    assert await enqueue(large, new_job(large, key="k"), at=START + DAY - 1) == [job.id]
    after = new_job(large, key="k")
    assert await enqueue(large, after, at=START + DAY) == [after.id]


async def test_repeat_of_a_claim_after_growth_leases_nothing_more(opened: Open, redis_url: str, prefix: str) -> None:
    small = opened(1)
    await enqueue(small, *new_jobs(small, 30))
    worker = await Worker.open(small)
    worker.number = 499
    small.inject("after")
    with pytest.raises(StoreError):
        await worker.ask(10)
    large = await grow(opened, 4)
    await enqueue(large, *new_jobs(large, 30))
    assert await worker.heartbeat()
    jobs = (await worker.again(10)).jobs
    assert len(jobs) == 10
    with Redis.from_url(redis_url) as client:
        held = [client.hlen(f"{tag_of(prefix, number)}:leases:{worker.session}") for number in range(4)]
    assert held == [10, 0, 0, 0]
    assert await worker.settle(*map(succeed, jobs)) == ["applied"] * 10
    assert len(await worker.take(100)) == 50


@pytest.mark.parametrize("partitions", [1, 3])
async def test_repeat_of_a_claim_after_many_millions_answers_the_same_jobs(
    partitions: int, opened: Open, redis_url: str, prefix: str
) -> None:
    store = opened(partitions)
    worker = await Worker.open(store)
    await enqueue(store, *new_jobs(store, 6))
    worker.number = 1 << 40
    store.inject("after")
    with pytest.raises(StoreError):
        await worker.ask(10)
    jobs = (await worker.again(10)).jobs
    assert len(jobs) == 6
    assert await worker.settle(*map(succeed, jobs)) == ["applied"] * 6
    with pytest.raises(
        StoreError, match=f"call {(1 << 40) - 1} of session 'worker-1' comes after call {(1 << 40) + 2}"
    ):
        await store.claim(Claim(session=worker.session, number=(1 << 40) - 1, now=START))
    with Redis.from_url(redis_url) as client:
        assert [line for number in range(partitions) for line in complaints(client, tag_of(prefix, number))] == []


async def test_two_who_begin_at_once_agree_on_the_larger_number(redis_url: str) -> None:
    for _ in range(20):
        url = f"{redis_url}?prefix=grow{uuid4().hex[:12]}"
        many = [Connections(Topology(address_of(f"{url}&partitions={count}"))) for count in (8, 6, 7)]
        await asyncio.gather(*(one.current().ensure_admitted() for one in many))
        await asyncio.gather(*(one.current().refresh_partitions() for one in many))
        assert [one.topology.partitions for one in many] == [8, 8, 8]
        for one in many:
            await one.close()


@pytest.mark.parametrize("count", [0, -1, PARTITIONS + 1, 5_000])
def test_number_of_partitions_that_ids_cannot_name_is_refused(count: int) -> None:
    with pytest.raises(InvalidUrl, match="from 1 to 4,096"):
        address_of(f"redis://localhost?partitions={count}")
    assert address_of(f"redis://localhost?partitions={PARTITIONS}").partitions == PARTITIONS


async def test_all_jobs_are_found_after_growth(opened: Open) -> None:
    small = opened(1)
    jobs = new_jobs(small, 5)
    await enqueue(small, *jobs)
    large = await grow(opened, 4)
    more = new_jobs(large, 8)
    await enqueue(large, *more)
    found = await find_all(large, Filter(queues=("default",)))
    assert {job.id for job in found} == {job.id for job in jobs + more}


@pytest.mark.parametrize("before", [1, 2])
async def test_default_is_split_anew_when_partitions_are_added(before: int, opened: Open) -> None:
    small = opened(before)
    old = await Worker.open(small, "old")
    await update_limits(small, LimitUpdate(subject="tenant", name=None, max_running=8))
    assert await old.heartbeat()
    large = await grow(opened, 8)
    await enqueue(large, *new_jobs(large, 80, tenant="a"))
    worker = await Worker.open(large)
    assert len(await worker.take(100)) == 8
    # A process that has not heard of the new partitions changes the default.
    await update_limits(small, LimitUpdate(subject="tenant", name=None, max_running=16))
    assert await worker.heartbeat()
    assert len(await worker.take(100)) == 8
    assert await worker.take(100) == []
