"""Records of which scripts cannot read even the head: cut, overwritten or deleted, while the job waits or runs."""

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest
import redis

from reprieve.core import change
from reprieve.core.ids import id_to_bytes
from reprieve.core.job import Job
from reprieve.core.move import Return
from reprieve.core.unreadable import unreadable_record
from reprieve.stores.open import open_store
from reprieve.stores.protocol import Filter, Store
from reprieve.testing.conformance.stage import (
    HOUR,
    MINUTE,
    OPERATOR,
    START,
    Worker,
    enqueue,
    enqueued,
    find_all,
    kill,
    new_jobs,
    succeed,
)
from tests.stores.redis.recount import complaints

LOST = (b"", b"\0\0\0", b"\0" * 14, b"\xff" * 80, b"\0\0\0\0\0\0" + b"\0" * 8 + b"\0\x40lane")
NUMBERS = count()


class Damaged:
    """A store, and a client that damages its records."""

    def __init__(self, url: str) -> None:
        self.prefix = f"heads-{next(NUMBERS)}"
        self.store: Store = open_store(f"{url}?prefix={self.prefix}")
        self.client = redis.Redis.from_url(url, protocol=2)
        self.tag = f"{{{self.prefix}:0}}"

    def damage(self, jobs: list[Job]) -> None:
        for number, job in enumerate(jobs):
            self.client.hset(f"{self.tag}:jobs", id_to_bytes(job.id), LOST[number % len(LOST)])

    def delete(self, job: Job) -> None:
        self.client.hdel(f"{self.tag}:jobs", id_to_bytes(job.id))


@pytest.fixture
def damaged(redis_url: str) -> Iterator[Damaged]:
    damaged = Damaged(redis_url)
    yield damaged
    damaged.client.unlink(*damaged.client.keys(f"{damaged.tag}*"), "")
    damaged.client.close()


@pytest.fixture
async def store(damaged: Damaged) -> AsyncIterator[Store]:
    yield damaged.store
    await damaged.store.close()


def raw_of(job: Job) -> bytes | None:
    record = unreadable_record(job)
    return None if record is None else record.raw


async def test_ready_jobs_are_leased_from_the_lane_that_lists_them(damaged: Damaged, store: Store) -> None:
    lost, sound = new_jobs(store, 5, tenant="acme"), new_jobs(store, 3, tenant="acme")
    await enqueue(store, *lost, *sound)
    damaged.damage(lost)
    worker = await Worker.open(store)
    leased = {job.id: job for job in await worker.exactly(8)}
    assert [raw_of(leased[job.id]) for job in lost] == list(LOST)
    assert {(job.tenant, job.task, job.version) for job in leased.values()} == {("acme", "send", 1)}
    changes = [kill(leased[job.id], death="undecodable") for job in lost] + [succeed(leased[job.id]) for job in sound]
    assert await worker.settle(*changes) == ["applied"] * 8
    assert complaints(damaged.client, damaged.tag) == []
    dead = await find_all(store, Filter(death="undecodable"))
    assert {raw_of(job) for job in dead} == set(LOST)


async def test_due_jobs_whose_lane_is_lost_are_leased_and_stop_no_other(damaged: Damaged, store: Store) -> None:
    lost, sound = new_jobs(store, 5, due_at=START + MINUTE), new_jobs(store, 3, due_at=START + MINUTE)
    await enqueue(store, *lost, *sound)
    damaged.damage(lost)
    worker = await Worker.open(store)
    leased = await worker.take(20, START + HOUR)
    assert {job.id for job in leased} == {job.id for job in (*lost, *sound)}
    assert {raw_of(job) for job in leased} == {*LOST, None}
    assert {job.queue for job in leased} == {"default"}
    changes = [succeed(job) if raw_of(job) is None else kill(job, death="undecodable") for job in leased]
    assert await worker.settle(*changes, at=START + HOUR) == ["applied"] * 8
    assert len(await find_all(store, Filter(statuses=frozenset({"dead"})), START + HOUR)) == 5
    assert await worker.take(20, START + HOUR) == []


async def test_jobs_of_a_dead_session_are_recovered_even_without_a_record(damaged: Damaged, store: Store) -> None:
    jobs = new_jobs(store, 6, tenant="acme")
    await enqueue(store, *jobs)
    worker = await Worker.open(store, lease=15.0)
    await worker.exactly(6)
    damaged.damage(jobs[:5])
    damaged.delete(jobs[5])
    assert {job.id for job in (await worker.again(6)).jobs} == {job.id for job in jobs}
    assert len(await find_all(store, Filter(session=worker.session))) == 6
    now = START + MINUTE
    held = await store.recover(now)
    assert {raw_of(job) for job in held} == set(LOST)
    assert {(job.tenant, job.version) for job in held} == {("acme", 1)}
    assert await store.apply([change.settle(job, Return(crashed=True), now) for job in held], now) == ["applied"] * 6
    assert complaints(damaged.client, damaged.tag) == []


async def test_search_apply_and_prune_go_on(damaged: Damaged, store: Store) -> None:
    lost, sound = await enqueued(store), await enqueued(store)
    later = await enqueued(store, due_at=START + MINUTE)
    stored = {job.id: job for job in await find_all(store, Filter())}
    damaged.damage([lost])
    damaged.client.hset(f"{damaged.tag}:jobs", id_to_bytes(later.id), b"short")
    assert {job.id for job in await find_all(store, Filter())} == {lost.id, sound.id, later.id}
    assert {job.id for job in await find_all(store, Filter(ids=(lost.id, sound.id)))} == {lost.id, sound.id}
    assert sum((await store.tally("status", Filter(), START + HOUR)).counts.values()) == 3
    changes = [change.cancel(stored[job.id], OPERATOR, START) for job in (lost, sound, later)]
    assert await store.apply(changes, START) == ["refused", "applied", "refused"]
