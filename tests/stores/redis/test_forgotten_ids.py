"""Jobs that have ended and were forgotten: an enqueue whose reply was lost can be repeated, and makes none anew."""

from collections.abc import Iterator

import pytest

from reprieve.core import change
from reprieve.stores.protocol import Filter, Retention
from reprieve.stores.redis import RedisStore
from reprieve.testing.conformance.stage import (
    OPERATOR,
    START,
    Worker,
    enqueue,
    find_all,
    new_job,
    new_jobs,
    succeed,
)
from tests.servers import redis as servers

LEAST_KEPT = 1_000
"""Succeeded jobs that stay however many come after them."""


@pytest.fixture
def server() -> Iterator[servers.Server]:
    with servers.own() as server:
        yield server


def lives(server: servers.Server) -> list[int]:
    """Return for how many seconds ids are remembered."""
    with server.client() as client:
        return [client.ttl(key) for key in client.scan_iter("{reprieve:0}:forgotten:*")]


async def work_off(worker: Worker, at: int = START) -> int:
    """Run everything that there is; answer how many ran."""
    count = 0
    while jobs := await worker.take(100, at):
        count += len(jobs)
        await worker.settle(*(succeed(job, at) for job in jobs), at=at)
    return count


@pytest.mark.parametrize("kept", [0, 1], ids=["emptied", "shortened"])
async def test_enqueue_can_be_repeated_after_its_job_was_pruned(kept: int, server: servers.Server) -> None:
    store = RedisStore(server.url)
    worker = await Worker.open(store)
    jobs = new_jobs(store, 3)
    await enqueue(store, *jobs)
    assert await work_off(worker) == 3
    assert (await store.prune(Retention(now=START, succeeded=kept))).succeeded == 3 - kept
    assert len(await find_all(store, Filter())) == kept
    await enqueue(store, jobs[0])
    await enqueue(store, *jobs)
    assert await worker.take(10) == []
    assert len(await find_all(store, Filter())) == kept
    assert [500 < life <= 600 for life in lives(server)] == [True]
    await store.close()


async def test_enqueue_can_be_repeated_after_others_took_its_place_among_the_succeeded(server: servers.Server) -> None:
    store = RedisStore(server.url)
    worker = await Worker.open(store)
    first = new_jobs(store, 250)
    await enqueue(store, *first)
    await work_off(worker)
    await enqueue(store, *new_jobs(store, LEAST_KEPT))
    assert await work_off(worker, START + 1) == LEAST_KEPT
    gone = await find_all(store, Filter(ids=tuple(job.id for job in first)))
    assert gone == []
    # At once, as when a connection broke: so soon that it is no later than the first time.
    await enqueue(store, *first)
    assert await work_off(worker) == 0
    await store.close()


async def test_repeat_among_new_jobs_stores_only_these(server: servers.Server) -> None:
    store = RedisStore(server.url)
    worker = await Worker.open(store)
    old, new = new_jobs(store, 3), new_jobs(store, 3)
    await enqueue(store, *old)
    await work_off(worker)
    await store.prune(Retention(now=START, succeeded=0))
    await enqueue(store, old[0], new[0], old[1], *new[1:], old[2])
    assert {job.id for job in await worker.take(10)} == {job.id for job in new}
    await store.close()


async def test_many_ids_are_remembered_for_less_long(server: servers.Server) -> None:
    store = RedisStore(server.url)
    worker = await Worker.open(store)
    for _ in range(12):
        await enqueue(store, *new_jobs(store, 250))
    assert await work_off(worker) == 3_000
    assert [70 <= life <= 75 for life in lives(server)] == [True]
    await store.prune(Retention(now=START, succeeded=0))
    assert [45 <= life <= 50 for life in lives(server)] == [True]
    await store.close()


async def test_cancelled_and_pruned_job_is_not_made_anew(server: servers.Server) -> None:
    store = RedisStore(server.url)
    job = new_job(store)
    await enqueue(store, job)
    await store.apply([change.cancel(job, OPERATOR, START)], START)
    later = START + 1_000_000_000
    assert (await store.prune(Retention(now=later))).cancelled == 1
    await enqueue(store, job, at=later)
    assert await find_all(store, Filter()) == []
    await store.close()
