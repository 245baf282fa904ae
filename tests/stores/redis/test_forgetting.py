"""What Redis keeps of jobs and names that are gone: nothing, besides ids that are remembered for minutes."""

from collections.abc import Iterator
from random import Random

import pytest
import redis

from reprieve.core import change
from reprieve.core.job import Job
from reprieve.stores.paginate import all_events
from reprieve.stores.protocol import LimitUpdate, Retention, Store
from reprieve.stores.redis import RedisStore
from reprieve.testing.conformance.stage import (
    ANOTHER,
    DAY,
    MINUTE,
    OPERATOR,
    START,
    Worker,
    enqueue,
    fail,
    get,
    kill,
    new_job,
    new_jobs,
    succeed,
    update_limits,
)
from tests.servers import redis as servers
from tests.stores.redis.recount import complaints

TAG = "{reprieve:0}"
META = f"{TAG}:meta".encode()
"""A number for each kind of thing."""

OWN_TIME = tuple(f"{TAG}:{name}".encode() for name in ("audit", "cause", "series"))
"""What is kept for a time of its own, whatever happens to the jobs."""

LONG_LANE_JOBS = 5_000
INDEXED_EVENTS = 200


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


def kept(client: redis.Redis) -> dict[bytes, int]:
    """Return what stays: the keys that do not expire by themselves, and how many entries each hash of names has."""
    keys = [key for key in client.scan_iter(count=1_000) if client.ttl(key) < 0]
    return {key: client.hlen(key) if client.type(key) == b"hash" and key != META else 0 for key in keys}


async def prune_all(store: Store, at: int, *dead: Job) -> None:
    retention = Retention(now=at, succeeded=0, succeeded_for=0, cancelled_for=0, events_for=0.001, archived=dead)
    while not (await store.prune(retention)).is_all:
        pass


async def test_store_returns_to_the_keys_it_had(store: RedisStore, client: redis.Redis) -> None:
    worker = await Worker.open(store)
    await enqueue(store, new_job(store, tenant="first"))
    await worker.settle(succeed(await worker.one()))
    await prune_all(store, START + DAY)
    before = kept(client)
    at = START + DAY
    await update_limits(
        store,
        LimitUpdate(subject="dependency", name="d1", permits=0),
        LimitUpdate(subject="tenant", name="t2", queue="q0", max_running=1),
        at=at,
    )
    jobs = [
        new_job(
            store, at, queue=f"q{n % 3}", tenant=f"t{n}", task=f"k{n}", dependency=f"d{n}", group=f"g{n}", key=f"u{n}"
        )
        for n in range(100)
    ]
    delayed = [new_job(store, at, tenant=f"d{n}", due_at=at + MINUTE) for n in range(10)]
    await enqueue(store, *jobs, *delayed, at=at)
    queues = ("q0", "q1", "q2")
    taken = await worker.take(60, at, queues)
    ended = [kill(job, at) for job in taken[:10]]
    retried = [fail(job, at) for job in taken[10:20]]
    worked = [succeed(job, at, result=b"done", ttl=60.0) for job in taken[20:]]
    await worker.settle(*ended, *retried, *worked, at=at)
    settled = {job.id for job in taken} - {made.job.id for made in retried}
    waiting = [found for job in (*jobs, *delayed) if job.id not in settled and (found := await get(store, job, at))]
    await store.apply([change.cancel(job, OPERATOR, at) for job in waiting], at)
    await update_limits(
        store,
        LimitUpdate(subject="dependency", name="d1", permits="default"),
        LimitUpdate(subject="tenant", name="t2", queue="q0", max_running="default"),
        at=at,
    )
    assert await worker.take(10, at + MINUTE, queues) == []
    await prune_all(store, at + 3 * DAY, *(made.job for made in ended))
    outlived = {key for key in kept(client) if not key.startswith(OWN_TIME)}
    assert outlived <= before.keys()
    # The audit log and series of hours are kept for 400 days.
    await prune_all(store, at + 401 * DAY)
    assert kept(client).items() <= before.items()


@pytest.mark.parametrize("is_held", [False, True])
async def test_jobs_cancelled_in_any_order_leave_a_long_lane_in_order(
    store: RedisStore, client: redis.Redis, *, is_held: bool
) -> None:
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=0 if is_held else None))
    jobs = [new_job(store, START + number, dependency="ses") for number in range(LONG_LANE_JOBS)]
    for start in range(0, len(jobs), 500):
        await enqueue(store, *jobs[start : start + 500], at=START + MINUTE)
    worker = await Worker.open(store)
    gone = Random(7).sample(jobs, k=len(jobs) * 3 // 4)
    for start in range(0, len(gone), 100):
        await store.apply([change.cancel(job, OPERATOR, START) for job in gone[start : start + 100]], START)
    before = client.hlen(f"{TAG}:leftovers")
    await prune_all(store, START + MINUTE)
    assert client.hlen(f"{TAG}:leftovers") < min(before, LONG_LANE_JOBS // 4)
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=None))
    left = {job.id for job in jobs} - {job.id for job in gone}
    taken = []
    while some := await worker.take(100, START + MINUTE):
        taken += [job.id for job in some]
        await worker.settle(*(succeed(job, START + MINUTE) for job in some), at=START + MINUTE)
    assert taken == [job.id for job in jobs if job.id in left]
    await prune_all(store, START + DAY)
    assert client.keys(f"{TAG}:fresh:*") == client.keys(f"{TAG}:leftover*") == []


async def test_cancelled_job_of_a_short_lane_leaves_no_entry(store: RedisStore, client: redis.Redis) -> None:
    jobs = new_jobs(store, 20)
    await enqueue(store, *jobs)
    await store.apply([change.cancel(job, OPERATOR, START) for job in jobs[5:15]], START)
    (key,) = client.keys(f"{TAG}:fresh:*")
    assert client.llen(key) == 10
    assert not client.exists(f"{TAG}:leftovers")
    await store.apply([change.cancel(job, ANOTHER, START) for job in (*jobs[:5], *jobs[15:])], START)
    assert client.keys(f"{TAG}:fresh:*") == []


async def test_all_events_of_a_job_are_found_and_forgotten_with_it(store: RedisStore, client: redis.Redis) -> None:
    await enqueue(store, new_job(store, max_attempts=None))
    worker = await Worker.open(store)
    for number in range(INDEXED_EVENTS + 20):
        at = START + number * MINUTE
        await worker.settle(fail(await worker.one(at=at), at), at=at)
    end = START + DAY
    job = await worker.one(at=end)
    everything = await store.events(limit=1_000)
    assert await all_events(store, job.id) == [event for _, event in everything]
    (earlier,) = client.keys(f"{TAG}:earlier_events:*")
    assert client.llen(earlier) == 20
    await worker.settle(succeed(job, end), at=end)
    await store.prune(Retention(now=end, succeeded=0))
    assert not client.exists(f"{TAG}:event_index", f"{TAG}:long_histories", earlier)
    assert len(await store.events(limit=1_000)) == len(everything)


async def test_earlier_events_of_a_job_are_forgotten_first(store: RedisStore, client: redis.Redis) -> None:
    await enqueue(store, new_job(store, max_attempts=None))
    worker = await Worker.open(store)
    count = INDEXED_EVENTS + 20
    for number in range(count):
        at = START + number * MINUTE
        await worker.settle(fail(await worker.one(at=at), at), at=at)
    (job_id,) = {event.job_id for _, event in await store.events()}
    for kept in (INDEXED_EVENTS + 10, INDEXED_EVENTS, INDEXED_EVENTS - 10):
        await store.prune(Retention(now=START, events=kept))
        assert [event.attempt for event in await all_events(store, job_id)] == list(range(count - kept + 1, count + 1))
        assert client.exists(f"{TAG}:long_histories") == (kept > INDEXED_EVENTS)
    at = START + DAY
    await worker.settle(fail(await worker.one(at=at), at), at=at)
    assert len(await store.events(limit=1_000)) == INDEXED_EVENTS - 10, "the number holds for what is told later, too"
