"""What a call of `expire` does on PostgreSQL: how much at a time, and what was committed in the meantime."""

import asyncio
import threading
from collections.abc import Callable, Sequence

import psycopg
from psycopg.sql import SQL, Identifier

from reprieve.core import change
from reprieve.core.headers import Headers
from reprieve.core.job import Job
from reprieve.stores.postgres import PostgresStore, expire, settle
from reprieve.stores.postgres.address import address_of
from reprieve.stores.postgres.claim_lock import ClaimLock
from reprieve.stores.postgres.expire import MAX_ADDED_JOBS
from reprieve.stores.postgres.lane_cache import KnownLanes, LaneCache
from reprieve.stores.postgres.pool import ConnectionPool, Tx
from reprieve.stores.protocol import Expired
from reprieve.stores.sql.store import MAX_CHANGES_PER_WRITE
from reprieve.testing.conformance.stage import (
    DAY,
    HOUR,
    MINUTE,
    OPERATOR,
    SECOND,
    START,
    Worker,
    get,
    new_job,
    new_jobs,
)


def count(url: str, table: str) -> int:
    """Return how many rows a table has."""
    server, _, schema = url.partition("?schema=")
    with psycopg.connect(server) as connection:
        row = connection.execute(SQL("select count(*) from {}").format(Identifier(schema, table))).fetchone()
    return int(row[0]) if row else 0


async def expire_all(store: PostgresStore, at: int) -> list[Job]:
    """Expire until nothing is left."""
    ended: list[Job] = []
    while (expired := await store.expire(at)).has_more or expired.jobs:
        ended += expired.jobs
    return ended


async def test_all_additions_with_other_deadlines_get_their_rows_in_one_call(store: PostgresStore, url: str) -> None:
    worker = await Worker.open(store)
    jobs = []
    for number in range(40):
        at = START + number
        jobs.append(new_job(store, at, deadline_at=at + (HOUR if number % 2 else DAY)))
        await store.enqueue(jobs[-1:], at)
        await worker.take(0, at)
    assert count(url, "unswept_addition") > 10
    await store.expire(START + SECOND)
    assert count(url, "unswept_addition") == 0
    ended = await expire_all(store, START + HOUR + MINUTE)
    assert {job.id for job in ended} == {job.id for job in jobs[1::2]}
    ended = await expire_all(store, START + DAY + MINUTE)
    assert {job.id for job in ended} == {job.id for job in jobs[::2]}


async def test_additions_of_many_jobs_get_their_rows_in_parts(store: PostgresStore, url: str) -> None:
    worker = await Worker.open(store)
    await store.enqueue([new_job(store, deadline_at=START + DAY)], START)
    await worker.take(0, START)
    late: list[Job] = []
    for number in range(1, 4):
        some = new_jobs(store, MAX_ADDED_JOBS // 2 + 10, START + number, deadline_at=START + number + HOUR)
        await store.enqueue(some, START + number)
        await worker.take(0, START + number)
        late += some
    assert count(url, "unswept_addition") == 3
    assert (await store.expire(START + SECOND)).has_more
    assert 0 < count(url, "unswept_addition") < 3
    assert not (await store.expire(START + SECOND)).has_more
    assert count(url, "unswept_addition") == 0
    assert count(url, "expiring") == len(late)


async def test_job_of_a_new_lane_that_is_committed_under_the_lock_expires(store: PostgresStore, url: str) -> None:
    await _expect_counted(store, url, lambda job: change.expire(job, START + HOUR).job, _expire)


async def test_job_of_a_new_lane_that_is_committed_under_the_lock_can_be_cancelled(
    store: PostgresStore, url: str
) -> None:
    await _expect_counted(store, url, lambda job: change.cancel(job, OPERATOR, START + HOUR).job, _cancel)


def _expire(tx: Tx, jobs: Sequence[Job]) -> int:
    return len(expire.expire(tx, LaneCache(KnownLanes()), START + HOUR, len(jobs)).jobs)


def _cancel(tx: Tx, jobs: Sequence[Job]) -> int:
    cancels = [change.cancel(job, OPERATOR, START + HOUR) for job in jobs]
    return settle.settle(tx, LaneCache(KnownLanes()), cancels, START + HOUR).count("applied")


async def _expect_counted(
    store: PostgresStore, url: str, wanted: Callable[[Job], Job], end: Callable[[Tx, Sequence[Job]], int]
) -> None:
    """Expect that jobs end as wanted whose transaction commits after the holder of the claim lock has counted."""
    headers = Headers(sla_at=START + MINUTE)
    jobs = [
        new_job(store, tenant="sla", headers=headers, deadline_at=START + MINUTE),
        new_job(store, tenant="scheduled", due_at=START + DAY, deadline_at=START + MINUTE),
    ]
    other = PostgresStore(url)

    def work(tx: Tx) -> int:
        assert ClaimLock().acquire(tx).is_all_counted
        other.enqueue_sync(jobs, START)
        return end(tx, jobs)

    pool = ConnectionPool(address_of(url, None, "full"))
    assert await asyncio.wrap_future(pool.submit(work)) == len(jobs)
    pool.close()
    await other.close()
    for job in jobs:
        assert await get(store, job, START + HOUR) == wanted(job)
    after = new_job(store, START + HOUR, tenant="sla", headers=headers)
    await store.enqueue([after], START + HOUR)
    worker = await Worker.open(store)
    assert [job.id for job in await worker.take(10, START + HOUR)] == [after.id]


async def test_expiry_takes_no_lock_when_nothing_is_due(store: PostgresStore, url: str) -> None:
    await store.enqueue([new_job(store, deadline_at=START + DAY), new_job(store, tenant="b", due_at=START + 1)], START)
    await expire_all(store, START)
    await store.enqueue(new_jobs(store, 10, START + 2), START + 2)
    is_locked, is_over = asyncio.Event(), threading.Event()
    loop, pool = asyncio.get_running_loop(), ConnectionPool(address_of(url, None, "full"))

    def work(tx: Tx) -> bool:
        # Asking whether all is counted waits until the lock is acquired.
        is_counted = ClaimLock().acquire(tx).is_all_counted
        loop.call_soon_threadsafe(is_locked.set)
        is_over.wait(60)
        return is_counted

    holding = asyncio.wrap_future(pool.submit(work))
    await is_locked.wait()
    try:
        async with asyncio.timeout(30):
            assert await store.expire(START + HOUR) == Expired()
    finally:
        is_over.set()
    await holding
    pool.close()


async def test_expiry_ends_so_many_jobs_at_a_time_and_says_that_there_is_more(store: PostgresStore) -> None:
    jobs = new_jobs(store, 2 * MAX_CHANGES_PER_WRITE + 1, deadline_at=START + MINUTE)
    await store.enqueue(jobs, START)
    ended, has_more = [], True
    while has_more:
        expired = await store.expire(START + HOUR)
        ended.append(len(expired.jobs))
        has_more = expired.has_more
    assert (max(ended), sum(ended)) == (MAX_CHANGES_PER_WRITE, len(jobs))
