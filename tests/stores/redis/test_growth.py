"""Partitions that are added while producers and workers work: nobody dies, nothing is missed, nothing is made twice."""

import asyncio
from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import pytest
from redis import Redis

from reprieve.core.ids import PARTITIONS
from reprieve.errors import InvalidUrl
from reprieve.stores.redis import RedisStore
from reprieve.stores.redis.address import address_of
from reprieve.stores.redis.link import Links
from reprieve.stores.redis.tags import tag_of
from reprieve.testing.conformance.stage import (
    START,
    Worker,
    enqueue,
    enqueued,
    new_jobs,
)

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
    assert await worker.beat()
    assert await worker.beat()
    jobs = new_jobs(large, 12)
    await enqueue(large, *jobs)
    assert {job.id for job in await worker.take(100)} == {job.id for job in jobs}


async def test_session_that_others_opened_outlives_growth(opened: Open) -> None:
    worker = await Worker.open(opened(1))
    worker.store = await grow(opened, 4)
    assert await worker.beat()
    await enqueue(worker.store, *new_jobs(worker.store, 12))
    assert len(await worker.take(100)) == 12


async def test_session_that_ends_after_growth_ends_everywhere(opened: Open, redis_url: str, prefix: str) -> None:
    worker = await Worker.open(opened(1))
    await grow(opened, 3)
    assert await worker.beat()
    assert not await worker.beat(lease=0)
    with Redis.from_url(redis_url) as client:
        assert [client.zcard(f"{tag_of(prefix, number)}:sx") for number in range(3)] == [0, 0, 0]


async def test_dead_session_stays_dead_after_growth(opened: Open) -> None:
    worker = await Worker.open(opened(1), lease=1.0)
    large = await grow(opened, 3)
    assert await large.recover(START + 10_000) == []
    assert not await worker.beat(START + 10_000)


async def test_two_who_begin_at_once_agree_on_the_larger_number(redis_url: str) -> None:
    for _ in range(20):
        url = f"{redis_url}?prefix=grow{uuid4().hex[:12]}"
        links = [Links(address_of(f"{url}&partitions={count}")) for count in (8, 6, 7)]
        await asyncio.gather(*(one.here().admit() for one in links))
        await asyncio.gather(*(one.here().look_for_more() for one in links))
        assert [one.partitions for one in links] == [8, 8, 8]
        for one in links:
            await one.close()


@pytest.mark.parametrize("count", [0, -1, PARTITIONS + 1, 5_000])
def test_number_of_partitions_that_ids_cannot_name_is_refused(count: int) -> None:
    with pytest.raises(InvalidUrl, match="from 1 to 4,096"):
        address_of(f"redis://localhost?partitions={count}")
    assert address_of(f"redis://localhost?partitions={PARTITIONS}").partitions == PARTITIONS
