"""Growth: whatever a table holds, and whatever the planner believes that it holds, the hot path reads no more of it."""

import threading
from collections import Counter
from collections.abc import AsyncIterator

import psycopg
import pytest

from reprieve.clock import ticks
from reprieve.core import change
from reprieve.core.change import Request
from reprieve.core.job import Cause, Job
from reprieve.core.move import Dead, Retry
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.postgres.address import address_of
from reprieve.stores.protocol import Filter, Retention
from reprieve.testing.conformance.stage import ANOTHER, MINUTE, START, Worker, find_all, new_job, new_jobs, succeed

CAUSE = Cause(reason="450 mailbox busy", code="450", kind="transient", fingerprint="busy")

BIG = (
    "job",
    "ready",
    "delayed",
    "ended",
    "finished",
    "event_other",
    "uncounted_enqueue",
    "unique_key",
    "result",
    "lane",
    "tenant",
    "session",
    "annotation",
)
"""Tables that grow with the jobs and the workers. The others hold a row for each claim, queue or limiter."""


class Tables:
    """The tables of a schema, as its owner sees them."""

    def __init__(self, url: str) -> None:
        self._url = url.partition("?")[0]
        self._schema = url.partition("schema=")[2]

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as admin:
            admin.execute(f"set search_path = {self._schema}")
            for statement in statements:
                admin.execute(statement)

    def fill(self, count: int) -> None:
        """Put so many jobs beside the one that is there."""
        with psycopg.connect(self._url, autocommit=True) as admin:
            admin.execute(f"set search_path = {self._schema}")
            admin.execute(
                """
                insert into job (id, lane, due_at, version, state, waiting_for, record)
                select (lpad(to_hex(%s - number %% 100000), 12, '0') || '70008' || lpad(to_hex(number), 15, '0'))::uuid,
                       lane, due_at, version, state, waiting_for, record
                from job, generate_series(1, %s) as number
                """,
                [START - 2, count],
            )
            admin.execute("update lane set ready = ready + %s", [count])

    def scans(self) -> Counter[str]:
        """Return how often each table was read from beginning to end, once all that used the schema have told."""
        with psycopg.connect(self._url, autocommit=True) as admin:
            users = "select 1 from pg_stat_activity where application_name = %s"
            deadline = ticks() + 20
            while admin.execute(users, [self._schema]).fetchall():
                assert ticks() < deadline, "a connection was not closed"
                threading.Event().wait(0.01)
            rows = admin.execute(
                "select relname, seq_scan from pg_stat_user_tables where schemaname = %s and relname = any (%s)",
                [self._schema, list(BIG)],
            )
            return Counter(dict(rows.fetchall()))


@pytest.mark.parametrize("count", [30_000, pytest.param(1_000_000, marks=pytest.mark.faults)])
async def test_nothing_is_read_from_beginning_to_end(count: int, url: str) -> None:
    tables, named = Tables(url), f"{url}&application_name={url.partition('schema=')[2]}"
    store = PostgresStore(named)
    await store.enqueue([new_job(store, tenant="ana", due_at=START - 1)], START)
    await (await Worker.open(store)).ask(0)
    await store.prune(Retention(now=START))
    await store.close()
    # The planner remembers empty tables, and no ANALYZE tells it otherwise.
    tables.execute(*(f"alter table {name} set (autovacuum_enabled = false)" for name in BIG), "analyze")
    tables.fill(count)
    before = tables.scans()
    store = PostgresStore(named)
    await use(store)
    await store.close()
    assert tables.scans() - before == Counter()


async def use(store: PostgresStore) -> None:
    """Do everything that workers and producers do all day."""
    worker = await Worker.open(store)
    await store.enqueue(new_jobs(store, 50, tenant="bea"), START)
    await store.enqueue([new_job(store, key="k"), new_job(store, due_at=START + 5)], START)
    await store.enqueue([new_job(store, tenant="cem", key="k")], START)
    with psycopg.connect(store_url(store)) as shop:
        store.enqueue_in(shop, new_jobs(store, 3, tenant="dan"), START)
    for _ in range(5):
        jobs = await worker.take(40)
        assert jobs
        await worker.settle(*map(end, jobs, range(len(jobs))))
    dead = await store.find(Filter(statuses=frozenset({"dead"})), START, limit=3)
    await store.apply([change.retry(job, ANOTHER, START, 1_800) for job in dead.jobs], START)
    await store.recover(START)
    await store.prune(Retention(now=START))
    assert len(await find_all(store, Filter(ids=tuple(job.id for job in dead.jobs)))) == len(dead.jobs)


def end(job: Job, number: int) -> change.Change:
    """End an attempt, each time in another way."""
    match number % 4:
        case 0:
            return change.settle(job, Retry(due_at=START + 1, cause=CAUSE, delay=0.001), START)
        case 1:
            return change.settle(job, Dead(death="permanent", cause=CAUSE, charged=True), START)
        case _:
            return succeed(job)


def store_url(store: PostgresStore) -> str:
    return store._address.conninfo  # noqa: SLF001 - the server that the store is on


async def test_late_commit_is_found_however_far_others_have_come(url: str, store: PostgresStore) -> None:
    worker = await Worker.open(store)
    with psycopg.connect(url.partition("?")[0]) as early, psycopg.connect(url.partition("?")[0]) as undone:
        first, lost = new_jobs(store, 2, tenant="ana")
        store.enqueue_in(early, [first], START)
        store.enqueue_in(undone, [lost], START)
        await store.enqueue(new_jobs(store, 30, tenant="ana"), START)
        running = await worker.take(10)
        done = await worker.take(10)
        await worker.settle(*map(succeed, done))
        early.commit()
        undone.rollback()
    taken = await worker.take(50)
    assert taken[0].id == first.id
    assert len(taken) == 11
    assert not {job.id for job in taken} & {job.id for job in (*running, *done)}
    await worker.settle(*map(succeed, (*running, *taken)))


async def test_delayed_job_is_found_however_late_it_commits(url: str, store: PostgresStore) -> None:
    worker = await Worker.open(store)
    with psycopg.connect(url.partition("?")[0]) as shop:
        late = new_job(store, due_at=START + 5)
        store.enqueue_in(shop, [late], START)
        await store.enqueue(new_jobs(store, 3, due_at=START + 50), START)
        await worker.settle(*map(succeed, await worker.exactly(3, START + 100)))
        # Not even one that others would not look for any more, by a clock that is behind.
        await store.enqueue([new_job(store, due_at=START + 10)], START)
        await worker.exactly(1, START + 20)
        shop.commit()
    assert (await worker.one(at=START + 20)).id == late.id


@pytest.mark.parametrize("kept", [0, 1], ids=["emptied", "shortened"])
async def test_enqueue_can_be_repeated_after_its_job_was_pruned(url: str, store: PostgresStore, kept: int) -> None:
    worker = await Worker.open(store)
    jobs = new_jobs(store, 3)
    await store.enqueue(jobs, START)
    await worker.settle(*map(succeed, await worker.exactly(3)))
    soon, late = START + 9 * MINUTE, START + 11 * MINUTE
    assert (await store.prune(Retention(now=soon, succeeded=kept))).succeeded == 3 - kept
    assert len(await find_all(store, Filter())) == kept
    await store.enqueue(jobs[:1], soon)
    await store.enqueue(jobs, soon)
    assert await worker.take(10, at=soon) == []
    while not (await store.prune(Retention(now=late, succeeded=0))).is_all:
        pass
    with psycopg.connect(url.partition("?")[0]) as admin:
        assert admin.execute(f"select count(*) from {url.partition('schema=')[2]}.finished").fetchone() == (0,)  # noqa: S608 - our own


async def test_what_came_while_no_worker_ran_is_counted_little_by_little(url: str, store: PostgresStore) -> None:
    worker = await Worker.open(store)
    jobs = [new_job(store, tenant=f"tenant-{number}") for number in range(4_500)]
    await store.enqueue(jobs, START)
    late = new_job(store, tenant="late")
    await store.enqueue([late], START)
    with address_of(url).connect() as connection:
        left = [4_501]
        taken = await worker.take(1)
        left += connection.execute("select count(*) from uncounted_enqueue").fetchone() or ()
    assert len(taken) == 1
    assert left == [4_501, 3_501]
    # An operator finds whatever is there, counted or not.
    (found,) = await find_all(store, Filter(tenants=("late",)))
    assert await store.apply([change.cancel(found, Request(by="ana", reason="too late"), START)], START) == ["applied"]
    assert sum([count async for count in counts(worker)]) == 4_499


async def test_claim_that_finds_nothing_before_all_is_counted_is_repeated_at_once(store: PostgresStore) -> None:
    worker = await Worker.open(store)
    await store.enqueue([new_job(store, tenant=f"t-{n}", due_at=START + 1_000) for n in range(1_500)], START)
    claimed = await worker.ask(10)
    assert (claimed.jobs, claimed.next_at) == ((), START)
    claimed = await worker.ask(10)
    assert (claimed.jobs, claimed.next_at) == ((), START + 1_000)


async def counts(worker: Worker) -> AsyncIterator[int]:
    """Take until there is nothing more."""
    while jobs := await worker.take(250):
        await worker.settle(*map(succeed, jobs))
        yield len(jobs)
