"""Which partitions a session claims from: one while claims are filled, all while they are not."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise

import pytest

from reprieve.core.ids import partition_of
from reprieve.core.job import Job
from reprieve.stores.redis import RedisStore
from reprieve.testing.conformance.stage import START, Worker, enqueue, new_jobs, succeed
from tests.servers import redis as servers

PARTITIONS = 4


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.own() as server:
        yield server


@pytest.fixture
async def store(server: servers.Server) -> AsyncIterator[RedisStore]:
    with server.client() as client:
        client.flushall()
    store = RedisStore(f"{server.url}?partitions={PARTITIONS}")
    yield store
    await store.close()


async def work(worker: Worker, claims: int, limit: int, each: int) -> list[Job]:
    """Claim and settle, a claim every so many milliseconds; answer what was leased, in this order."""
    jobs: list[Job] = []
    hand: list[Job] = []
    for number in range(claims):
        at = START + number * each
        hand = list((await worker.ask(limit, at, [succeed(job, at) for job in hand])).jobs)
        jobs += hand
    return jobs


async def test_where_there_is_plenty_a_claim_is_little_more_than_one_call(
    server: servers.Server, store: RedisStore
) -> None:
    await enqueue(store, *new_jobs(store, 6_000))
    worker = await Worker.open(store)
    await work(worker, 1, 50, 4)
    with server.client() as client:
        client.config_resetstat()
        jobs = await work(worker, 50, 50, 4)
        calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert len({job.id for job in jobs}) == 50 * 50
    # A call each, and another to settle wherever it has moved on from; some are for looks at the servers.
    assert calls < 50 * 1.5


async def test_all_partitions_are_served_in_turn(store: RedisStore) -> None:
    await enqueue(store, *new_jobs(store, 8_000))
    jobs = await work(await Worker.open(store), 100, 50, 5)
    served = Counter(partition_of(job.id) for job in jobs)
    assert sorted(served) == list(range(PARTITIONS))
    assert max(served.values()) <= 1.2 * min(served.values())
    # No partition is left alone for longer than one round takes.
    places = [partition_of(job.id) for job in jobs]
    for number in range(PARTITIONS):
        turns = [place // 50 * 5 for place, found in enumerate(places) if found == number]
        assert max(late - early for early, late in pairwise(turns)) <= 100


async def test_a_claim_is_filled_wherever_jobs_are_left(store: RedisStore) -> None:
    jobs = new_jobs(store, 1_200)
    rare = [job for job in jobs if partition_of(job.id) == 2]
    await enqueue(store, *(job for job in jobs if partition_of(job.id) != 2), *rare[:3])
    stored = len(jobs) - len(rare) + 3
    worker = await Worker.open(store)
    leased = await work(worker, stored // 50, 50, 5)
    assert len(leased) == stored // 50 * 50
    rest = await work(worker, 1, 50, 5)
    assert len({job.id for job in (*leased, *rest)}) == stored


async def test_partitions_that_were_empty_are_served_as_soon_as_they_are_filled(store: RedisStore) -> None:
    jobs = new_jobs(store, 8_000)
    first = [job for job in jobs if partition_of(job.id) == 0]
    others = [job for job in jobs if partition_of(job.id) != 0][:200]
    await enqueue(store, *first)
    worker = await Worker.open(store)
    await work(worker, 2, 50, 5)
    await enqueue(store, *others)
    leased = {job.id for job in await work(worker, 30, 50, 5)}
    # No notification has come since, and the first partition has plenty all the time.
    assert {job.id for job in others} <= leased


async def test_who_asks_but_rarely_asks_everywhere(store: RedisStore) -> None:
    await enqueue(store, *new_jobs(store, 2_000))
    jobs = await work(await Worker.open(store), 10, 40, 1_000)
    for start in range(0, 400, 40):
        assert {partition_of(job.id) for job in jobs[start : start + 40]} == set(range(PARTITIONS))


async def test_a_single_job_is_found_at_once_wherever_it_is(store: RedisStore) -> None:
    worker = await Worker.open(store)
    await enqueue(store, *new_jobs(store, 400))
    await work(worker, 10, 50, 5)
    for number in range(20):
        (job,) = new_jobs(store, 1)
        await enqueue(store, job)
        assert [found.id for found in await worker.take(10, START + 1_000 + number)] == [job.id]


async def test_jobs_of_new_processes_do_not_all_go_to_one_partition(server: servers.Server) -> None:
    first = []
    for _ in range(40):
        store = RedisStore(f"{server.url}?partitions={PARTITIONS}")
        first.append(partition_of(store.new_id(START, "default")))
        await store.close()
    assert len(set(first)) > 1
