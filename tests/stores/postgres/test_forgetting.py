"""Names that are deleted while a transaction holds jobs of them: they come back with its commit."""

import psycopg
import pytest

from reprieve.stores.postgres import PostgresStore
from reprieve.stores.postgres.address import address_of
from reprieve.stores.postgres.functions import with_hashed_names
from reprieve.stores.postgres.lane_ref import hash_id
from reprieve.stores.protocol import LimitUpdate, Retention
from reprieve.testing.conformance.stage import DAY, HOUR, MINUTE, PROGRAM, SECOND, START, Worker, new_job, succeed
from tests.stores.postgres.recount import complaints


def count(url: str, *tables: str) -> list[int]:
    with address_of(url).connect() as connection:
        rows = [connection.execute(f"select count(*) from {table}").fetchone() for table in tables]  # noqa: S608 - our own tables
    return [row[0] for row in rows if row is not None]


async def prune_all(store: PostgresStore, at: int) -> None:
    while not (await store.prune(Retention(now=at, succeeded=0, succeeded_for=0))).is_all:
        pass


async def run_one(store: PostgresStore, at: int, session: str, **lane: str) -> None:
    await store.enqueue([new_job(store, at, **lane)], at)
    worker = await Worker.open(store, session, at=at)
    await worker.settle(succeed(await worker.one(at=at), at), at=at)


LANE = {"tenant": "ana", "task": "send", "dependency": "ses", "group": "g"}


@pytest.mark.parametrize("delay", [0, 10 * SECOND])
async def test_lane_is_deleted_while_a_transaction_has_a_job_of_it(url: str, store: PostgresStore, delay: int) -> None:
    await run_one(store, START, "worker-1", **LANE)
    with psycopg.connect(url.partition("?")[0]) as shop:
        early = new_job(store, START, due_at=START + delay, **LANE)
        store.enqueue_in(shop, [early], START)
        await run_one(store, START + HOUR, "worker-2", **LANE)
        await prune_all(store, START + DAY)
        assert count(url, "lane", "tenant", "limiter", "queue") == [0, 0, 0, 0]
        shop.commit()
    worker = await Worker.open(store, "worker-3", at=START + DAY)
    late = new_job(store, START + DAY, **LANE)
    await store.enqueue([late], START + DAY)
    taken = [await worker.one(at=START + DAY) for _ in range(2)]
    assert [job.id for job in taken] == [early.id, late.id]
    assert complaints(url) == []
    await worker.settle(*(succeed(job, START + DAY) for job in taken), at=START + DAY)
    assert await worker.take(10, START + DAY) == []


async def test_lane_that_was_taken_from_is_kept_while_its_job_runs(url: str, store: PostgresStore) -> None:
    await store.enqueue([new_job(store, START, **LANE), new_job(store, START, **LANE | {"task": "other"})], START)
    worker = await Worker.open(store)
    running = await worker.exactly(2)
    await prune_all(store, START + DAY)
    assert count(url, "lane") == [2]
    await worker.settle(succeed(running[0]), at=START + DAY)
    await prune_all(store, START + 2 * DAY)
    assert count(url, "lane") == [1]
    with psycopg.connect(url.partition("?")[0]) as shop:
        store.enqueue_in(shop, [new_job(store, START + 2 * DAY, **LANE)], START + 2 * DAY)
        shop.commit()
    await worker.settle(succeed(running[1]), at=START + 2 * DAY)
    assert len(await worker.take(10, START + 2 * DAY)) == 1


async def test_due_job_of_a_lane_that_no_claim_has_created_waits_for_the_next(url: str, store: PostgresStore) -> None:
    await run_one(store, START, "worker-1", tenant="other")
    job = new_job(store, START, due_at=START + SECOND, **LANE)
    await store.enqueue([job], START)
    # What a claim does when the enqueue is committed after it has counted, and before it promotes.
    promote = with_hashed_names("select promote_due(%s, %s, 10)")
    with address_of(url).connect() as connection:
        connection.execute(promote, (hash_id("queue", "default"), START + MINUTE))
        connection.commit()
    worker = await Worker.open(store, "worker-2", at=START + MINUTE)
    assert (await worker.one(at=START + MINUTE)).id == job.id


async def test_limits_of_a_name_are_kept_without_a_lane(url: str, store: PostgresStore) -> None:
    await store.update_limits([LimitUpdate(subject="tenant", name="ana", queue="default", weight=2.0)], START, PROGRAM)
    await run_one(store, START, "worker-1", **LANE)
    await prune_all(store, START + DAY)
    assert count(url, "lane", "tenant", "limiter", "queue") == [0, 1, 1, 1]
    await run_one(store, START + DAY, "worker-2", **LANE)
    (ana,) = (await store.limit_states("tenant")).states
    assert (ana.weight, ana.served) == (2.0, 2)


async def test_search_reads_some_lanes_with_each_call(url: str, store: PostgresStore) -> None:
    jobs = [new_job(store, tenant=f"t{number}") for number in range(1_200)]
    await store.enqueue(jobs, START)
    worker = await Worker.open(store, slots=2_000)
    while taken := await worker.take(500):
        await worker.settle(*(succeed(job) for job in taken))
    left = []
    while True:
        pruned = await store.prune(Retention(now=START + DAY, succeeded=0, succeeded_for=0))
        left += count(url, "lane")
        if pruned.is_all:
            break
    assert left[:3] == [700, 200, 0]
    assert count(url, "tenant", "limiter", "queue") == [0, 0, 0]
