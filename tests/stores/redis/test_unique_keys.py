"""Unique keys of a store with several partitions: if a process dies, stops or is slow, a key has one job."""

import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from struct import pack
from uuid import uuid4

import pytest
from redis import Redis

from reprieve.core.ids import id_to_bytes, partition_of
from reprieve.core.job import Job
from reprieve.errors import StoreLocked
from reprieve.stores.protocol import Filter, Retention
from reprieve.stores.record import key_of
from reprieve.stores.redis import RedisStore
from reprieve.stores.redis.enqueue import MAX_JOBS_PER_CALL
from reprieve.stores.redis.partition import Partition
from reprieve.stores.redis.unique_keys import SHARDS
from reprieve.testing.conformance.stage import (
    DAY,
    HOUR,
    START,
    Worker,
    enqueue,
    enqueued,
    find_all,
    new_job,
    new_jobs,
    succeed,
)


@pytest.fixture
def prefix() -> str:
    return f"keys{uuid4().hex[:12]}"


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(f"{redis_url}?prefix={prefix}&partitions=3")
    await enqueued(store, queue="elsewhere")
    yield store
    await store.close()


@pytest.fixture
def client(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as client:
        yield client


def shard_of(job: Job) -> int:
    return int.from_bytes(key_of(job)[:4], "big") % SHARDS


async def store_and_die(store: RedisStore, job: Job) -> None:
    """Do what a producer does that dies before it can say that its job is stored."""
    await store._enqueuer._keys.reserve([job], START)  # noqa: SLF001 - as far as it gets
    await store._partitions[partition_of(job.id)].enqueue([job], START, has_keys=False)  # noqa: SLF001 - as above


async def run_and_forget(store: RedisStore) -> None:
    worker = await Worker.open(store)
    await worker.settle(succeed(await worker.one()))
    while not (await store.prune(Retention(now=START, succeeded=0))).is_all:
        pass


async def test_key_of_a_producer_that_died_stays_with_the_job_that_it_stored(
    store: RedisStore, client: Redis, prefix: str
) -> None:
    job = new_job(store, key="k")
    await store_and_die(store, job)
    await run_and_forget(store)
    assert await enqueue(store, new_job(store, key="k"), at=START + 61_000) == [job.id]
    # The enqueue that found it has confirmed it, so it stays when the job is no longer remembered.
    for key in client.scan_iter(f"{{{prefix}:*:forgotten:*"):
        client.delete(key)
    assert await enqueue(store, new_job(store, key="k"), at=START + DAY - 1) == [job.id]
    after = new_job(store, key="k")
    assert await enqueue(store, after, at=START + DAY) == [after.id]


async def test_key_of_a_producer_that_died_is_confirmed_while_its_job_waits(store: RedisStore) -> None:
    job = new_job(store, key="k")
    await store_and_die(store, job)
    assert await enqueue(store, new_job(store, key="k"), at=START + 61_000) == [job.id]
    await run_and_forget(store)
    assert await enqueue(store, new_job(store, key="k"), at=START + HOUR) == [job.id]


async def test_key_of_a_producer_that_died_is_confirmed_though_no_enqueue_asks_for_it(
    store: RedisStore, client: Redis, prefix: str
) -> None:
    job, lost = new_job(store, key="k"), new_job(store, key="lost")
    await store_and_die(store, job)
    await store._enqueuer._keys.reserve([lost], START)  # noqa: SLF001 - as far as it gets
    assert (await store.prune(Retention(now=START + 10_000))).is_all
    await run_and_forget(store)
    for key in client.scan_iter(f"{{{prefix}:*:forgotten:*"):
        client.delete(key)
    assert (await store.prune(Retention(now=START + 60_000))).is_all
    assert (await store.prune(Retention(now=START + 61_000))).keys == 1, "that of the one that stored nothing"
    assert list(client.scan_iter(f"{{{prefix}:*:unique_key_reservations")) == []
    assert await enqueue(store, new_job(store, key="k"), at=START + HOUR) == [job.id]


async def test_same_key_twice_in_a_batch_is_one_job(store: RedisStore) -> None:
    first, second, other = new_job(store, key="k"), new_job(store, key="k"), new_job(store, key="other")
    for _ in range(2):
        assert await enqueue(store, first, second, other) == [first.id, first.id, other.id]


async def test_large_batch_keeps_few_keys_reserved_at_a_time(store: RedisStore, client: Redis, prefix: str) -> None:
    reserved: list[int] = []

    async def write(partition: Partition, jobs: Sequence[Job], now: int, *, has_keys: bool) -> list[str]:
        values = itertools.chain(*(client.hvals(f"{{{prefix}:k{shard}}}:unique_keys") for shard in range(SHARDS)))
        reserved.append(sum(value[24] == 0 for value in values))
        return await partition.enqueue(jobs, now, has_keys=has_keys)

    jobs = [new_job(store, key=str(number)) for number in range(2 * MAX_JOBS_PER_CALL + 10)]
    plain = new_jobs(store, 10)
    ids = await store._enqueuer.enqueue([*plain, *jobs], START, write)  # noqa: SLF001 - to look in between
    assert ids == [job.id for job in [*plain, *jobs]]
    assert max(reserved) == MAX_JOBS_PER_CALL
    assert reserved[-1] == 0
    assert len(await find_all(store, Filter(queues=("default",)), limit=1_000)) == len(ids)


async def test_producer_that_stopped_for_a_minute_looks_whether_it_still_has_the_key(
    store: RedisStore, client: Redis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = new_job(store, key="k"), new_job(store, key="k")
    times = iter([0.0, 0.0, 0.0, 61.0])

    def ticks() -> float:
        time = next(times)
        if time:
            # While it stood still, another process has taken over the key.
            value = pack(">16sdBd", id_to_bytes(quick.id), START + DAY, 1, START + 60_500)
            client.hset(f"{{{prefix}:k{shard_of(slow)}}}:unique_keys", key_of(slow), value)
        return time

    monkeypatch.setattr("reprieve.stores.redis.partitioned_enqueue.ticks", ticks)
    assert await enqueue(store, slow) == [quick.id]
    assert await find_all(store, Filter(queues=("default",))) == []


async def test_repeat_has_a_minute_of_its_own(store: RedisStore) -> None:
    slow, other = new_job(store, key="k"), new_job(store, key="k")
    keys = store._enqueuer._keys  # noqa: SLF001 - as far as it gets
    await keys.reserve([slow], START)
    await keys.reserve([slow], START + 59_000)
    with pytest.raises(StoreLocked, match="'k' of task send"):
        await enqueue(store, other, at=START + 61_000)
    assert await enqueue(store, other, at=START + 120_000) == [other.id]


async def test_keys_whose_jobs_stay_keep_no_others_from_being_forgotten(store: RedisStore) -> None:
    names = (name for name in map(str, itertools.count()) if shard_of(new_job(store, key=name)) == 0)
    staying = [new_job(store, key=next(names), key_ttl=1.0, queue="staying") for _ in range(120)]
    going = new_job(store, key=next(names), key_ttl=2.0)
    await enqueue(store, *staying, going)
    await run_and_forget(store)
    later = START + 10_000
    assert sum([(await store.prune(Retention(now=later))).keys for _ in range(2)]) == 1
    assert (await store.prune(Retention(now=later))).is_all
    assert await enqueue(store, new_job(store, key=staying[0].key), at=later) == [staying[0].id]
