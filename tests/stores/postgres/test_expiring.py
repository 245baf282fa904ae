"""What a call of `expire` does on PostgreSQL: how much at a time, and what was committed in the meantime."""

import psycopg
from psycopg.sql import SQL, Identifier

from reprieve.core.job import Job
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.postgres.expire import MAX_ADDED_JOBS
from reprieve.testing.conformance.stage import DAY, HOUR, MINUTE, SECOND, START, Worker, new_job, new_jobs


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
