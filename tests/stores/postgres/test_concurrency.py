"""Many at once: stores with connections of their own, as processes and machines have them, on one schema."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import psycopg
import pytest

from reprieve.clock import ticks
from reprieve.core import change
from reprieve.core.change import Change
from reprieve.core.job import Cause, Job
from reprieve.core.move import Cancel, Dead, Park, Retry, Return, Snooze, Succeed
from reprieve.errors import StoreLocked
from reprieve.stores.paginate import all_limit_states
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.postgres.address import SETTINGS, address_of
from reprieve.stores.postgres.connection import CONNECT_SECONDS
from reprieve.stores.postgres.functions import with_hashed_names
from reprieve.stores.postgres.notifier import ENQUEUE_INTERVAL_SECONDS
from reprieve.stores.protocol import Filter, LimitUpdate, Retention, Subject
from reprieve.testing.conformance.stage import (
    ANOTHER,
    DAY,
    PROGRAM,
    START,
    Worker,
    find_all,
    new_job,
    new_jobs,
    succeed,
)
from tests.stores.postgres.recount import complaints, stored_ids

CAUSE = Cause(reason="450 mailbox busy", code="450", kind="transient", fingerprint="busy")

LOCK = with_hashed_names("select acquire_claim_lock('1:1:')")


def decide(job: Job, rng: random.Random) -> Change:
    """Let most attempts succeed, and the others end in every other way."""
    match rng.randrange(16):
        case 0 | 1:
            return change.settle(job, Retry(due_at=START, cause=CAUSE, delay=0.1, max_attempts=1_000), START)
        case 2:
            return change.settle(job, Park(gate=job.dependency or "ses", due_at=START, cause=CAUSE), START)
        case 3:
            return change.settle(job, Snooze(due_at=START), START)
        case 4:
            return change.settle(job, Dead(death="permanent", cause=CAUSE, charged=True), START)
        case 5:
            return change.settle(job, Cancel(reason="asked to stop"), START)
        case 6:
            return change.settle(job, Return(), START)
        case _:
            return change.settle(job, Succeed(), START)


def any_job(store: PostgresStore, rng: random.Random) -> Job:
    return new_job(
        store,
        tenant=f"tenant-{rng.randrange(5)}",
        task=rng.choice(("send", "bill")),
        dependency=rng.choice(("", "ses", "sms")),
        priority=rng.choice((1, 5, 5)),
        key=rng.choice(("", "", "", f"key-{rng.randrange(400)}")),
    )


async def produce(store: PostgresStore, url: str, rng: random.Random) -> set[str]:
    """Enqueue alone and in transactions that stay open for a while and do not always commit."""
    ids: set[str] = set()
    for _ in range(15):
        ids.update(await store.enqueue([any_job(store, rng) for _ in range(rng.randrange(1, 8))], START))
        async with await psycopg.AsyncConnection.connect(url.partition("?")[0]) as connection:
            jobs = [any_job(store, rng) for _ in range(rng.randrange(1, 4))]
            known = await store.aenqueue_in(connection, jobs, START)
            await asyncio.sleep(rng.random() / 50)
            if rng.random() < 0.3:
                await connection.rollback()
            else:
                await connection.commit()
                ids.update(known)
    return ids


async def work(store: PostgresStore, name: str, rng: random.Random, done: asyncio.Event) -> Counter[str]:
    """Claim and settle until everything is done; answer how often each job succeeded."""
    worker = await Worker.open(store, name)
    succeeded: Counter[str] = Counter()
    changes: list[Change] = []
    while True:
        is_over = done.is_set()
        claimed = await worker.ask(rng.randrange(1, 12), changes=changes)
        assert set(claimed.results) <= {"applied"}
        succeeded.update(change.job.id for change in changes if change.job.state == "succeeded")
        changes = [decide(job, rng) for job in claimed.jobs]
        if not changes and claimed.next_at is None:
            if is_over:
                return succeeded
            await store.wait(("default",), 0.05, name)


async def meddle(store: PostgresStore, rng: random.Random, quiet: asyncio.Event) -> None:
    """Hold and release, limit, and let a person retry what is dead; in the end let everything through."""
    while not quiet.is_set():
        await store.update_limits(
            [LimitUpdate(subject="dependency", name="ses", permits=rng.choice((0, 1, 3, None)))], START, PROGRAM
        )
        await store.update_limits(
            [LimitUpdate(subject="task", name="bill", max_running=rng.choice((2, None)))], START, PROGRAM
        )
        page = await store.find(Filter(statuses=frozenset({"dead"})), START, limit=5)
        await store.apply([change.retry(job, ANOTHER, START, 1_800) for job in page.jobs], START)
        await asyncio.sleep(0.01)
    release = LimitUpdate(subject="dependency", name="ses", permits=None)
    await store.update_limits([release, LimitUpdate(subject="task", name="bill", max_running=None)], START, PROGRAM)


@pytest.mark.parametrize("number", range(2))
async def test_crowd_keeps_the_books_and_runs_no_job_twice(number: int, url: str) -> None:
    quiet, done = asyncio.Event(), asyncio.Event()
    async with AsyncExitStack() as stack:
        stores = [PostgresStore(url) for _ in range(6)]
        for store in stores:
            stack.push_async_callback(store.close)
        rngs = [random.Random(number * 10 + seed) for seed in range(6)]
        workers = [
            asyncio.create_task(work(store, f"worker-{number}", rng, done))
            for number, (store, rng) in enumerate(zip(stores[:3], rngs[:3], strict=True))
        ]
        meddler = asyncio.create_task(meddle(stores[3], rngs[3], quiet))
        producers = [produce(store, url, rng) for store, rng in zip(stores[4:], rngs[4:], strict=True)]
        ids = set.union(*await asyncio.gather(*producers))
        assert complaints(url) == []
        quiet.set()
        await meddler
        done.set()
        times: Counter[str] = sum(await asyncio.gather(*workers), Counter())
        assert complaints(url) == []
        assert stored_ids(url) == ids
        ended = await find_all(stores[0], Filter())
        assert {job.state for job in ended} <= {"succeeded", "dead", "cancelled"}
        assert times == Counter(job.id for job in ended if job.state == "succeeded")


async def test_open_transaction_keeps_no_other_waiting(url: str, store: PostgresStore) -> None:
    worker = await Worker.open(store)
    with psycopg.connect(url.partition("?")[0]) as shop:
        waiting = new_job(store, tenant="ana", key="k")
        store.enqueue_in(shop, [waiting], START)
        others = new_jobs(store, 20, tenant="ana")
        await store.enqueue(others, START)
        taken = await worker.take(50)
        assert {job.id for job in taken} == {job.id for job in others}
        await worker.settle(*map(succeed, taken))
        shop.commit()
    late = await worker.one(10)
    assert late.id == waiting.id
    await worker.settle(succeed(late))


async def test_key_of_an_open_transaction_keeps_no_other_waiting_who_wants_another(
    url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "lock_timeout", "1s")
    await store.tally("status", Filter(), START)
    with psycopg.connect(url.partition("?")[0]) as shop:
        store.enqueue_in(shop, [new_job(store, key="held")], START)
        first = asyncio.create_task(store.enqueue([new_job(store)], START))
        keyed = [new_job(store, key=key) for key in ("held", "free", "held", "another")]
        waiting = [asyncio.create_task(store.enqueue([job], START)) for job in keyed]
        await asyncio.gather(first, *(store.enqueue([new_job(store)], START) for _ in range(40)))
        assert not any(task.done() for task in waiting[:1])
        held, free, again, another = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(held), type(again)] == [StoreLocked, StoreLocked]
        assert (free, another) == ([keyed[1].id], [keyed[3].id])
        shop.rollback()


async def test_pruning_waits_for_no_key_of_an_open_transaction(url: str, store: PostgresStore) -> None:
    late = START + 3 * DAY
    worker = await Worker.open(store)
    for key in ("mine", "other"):
        await store.enqueue([new_job(store, key=key, key_ttl=1.0)], START)
        await worker.settle(succeed(await worker.one()))
    with psycopg.connect(url.partition("?")[0]) as shop:
        store.enqueue_in(shop, [new_job(store, late, key="mine")], late)
        pruned = await asyncio.wait_for(store.prune(Retention(now=late)), CONNECT_SECONDS / 2)
        assert pruned.keys == 1
        shop.rollback()
    assert (await store.prune(Retention(now=late))).keys == 1


async def test_process_that_stops_with_the_claim_lock_stops_no_other_for_long(url: str, store: PostgresStore) -> None:
    await store.enqueue([new_job(store)], START)
    worker = await Worker.open(store)
    stopped = address_of(url).connect()
    try:
        stopped.execute("begin")
        stopped.execute(LOCK)
        assert (await worker.one()).attempt == 1
    finally:
        stopped.close()


async def test_store_is_used_from_many_loops_and_threads(store: PostgresStore) -> None:
    def enqueue(number: int) -> list[str]:
        jobs = new_jobs(store, 3, tenant=f"tenant-{number}")
        return asyncio.run(store.enqueue(jobs, START))

    ids = await asyncio.gather(*(asyncio.to_thread(enqueue, number) for number in range(8)))
    taken = await (await Worker.open(store)).take(100)
    assert {job.id for job in taken} == {job_id for some in ids for job_id in some}


def connections_of(url: str, name: str, state: str = "") -> int:
    """Return how many connections of a name there are, or how many of them wait for something."""
    with psycopg.connect(url.partition("?")[0], autocommit=True) as admin:
        count = (
            "select count(*) from pg_stat_activity where application_name = %s and coalesce(wait_event_type, '') ~ %s"
        )
        (found,) = admin.execute(count, [name, state]).fetchone() or (0,)
        return int(found)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what the server alone knows."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - it does not say when
            await asyncio.sleep(0.01)


async def test_process_has_nine_connections_at_the_most_and_heartbeats_while_threads_wait(url: str) -> None:
    name = url.partition("schema=")[2]
    store = PostgresStore(f"{url}&application_name={name}")
    try:
        worker = await Worker.open(store)
        await worker.ask()
        with psycopg.connect(url.partition("?")[0]) as shop:
            store.enqueue_in(shop, [new_job(store, key="k")], START)
            with ThreadPoolExecutor(12) as threads:
                calls = [threads.submit(store.enqueue_sync, [new_job(store, key="k")], START) for _ in range(12)]
                await until(lambda: connections_of(url, name, "Lock") >= 4)
                await asyncio.gather(*(store.tally("status", Filter(), START) for _ in range(40)))
                assert await worker.heartbeat()
                assert connections_of(url, name) <= 9
                shop.rollback()
                assert len({call.result()[0] for call in calls}) == 1
    finally:
        await store.close()


async def test_connections_that_are_not_needed_are_closed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = url.partition("schema=")[2]
    store = PostgresStore(f"{url}&application_name={name}")
    try:
        with psycopg.connect(url.partition("?")[0]) as holder:
            await store.tally("status", Filter(), START)
            holder.execute(f"set search_path = {name}")
            holder.execute(LOCK)
            calls = [asyncio.create_task(store.apply([], START)) for _ in range(4)]
            await until(lambda: connections_of(url, name, "Lock") == 4)
            holder.rollback()
            await asyncio.gather(*calls)
        assert connections_of(url, name) == 4
        monkeypatch.setattr("reprieve.stores.postgres.pool.MAX_IDLE_SECONDS", 0.0)
        await store.tally("status", Filter(), START)
        await until(lambda: connections_of(url, name) == 1)
        await store.tally("status", Filter(), START)
    finally:
        await store.close()


async def test_notification_is_received_by_another_process(url: str, store: PostgresStore) -> None:
    other = PostgresStore(url)
    try:
        worker = await Worker.open(store, "listener")
        await worker.ask(1)
        await other.enqueue([new_job(other)], START)
        assert await store.wait(("default",), 5.0, "listener")
        assert not await store.wait(("elsewhere",), 0.05, "listener")
    finally:
        await other.close()


async def test_commit_of_another_library_notifies(url: str, store: PostgresStore) -> None:
    worker = await Worker.open(store, "listener")
    await worker.ask(1)
    with psycopg.connect(url.partition("?")[0]) as shop:
        store.enqueue_in(shop, [new_job(store)], START)
        assert not await store.wait(("default",), 0.05, "listener")
        shop.commit()
    assert await store.wait(("default",), 5.0, "listener")


async def test_queue_is_not_notified_of_every_job(url: str, store: PostgresStore) -> None:
    def enqueue() -> None:
        for _ in range(50):
            store.enqueue_sync([new_job(store)], START)

    with psycopg.connect(url.partition("?")[0], autocommit=True) as listener:
        listener.execute(f'listen "reprieve {url.partition("schema=")[2]}"')
        await store.wait(("default",), 0.01)
        began = ticks()
        await asyncio.gather(*(asyncio.to_thread(enqueue) for _ in range(4)))
        took = ticks() - began
        received = list(listener.notifies(timeout=0.3))
    # However slow the machine is, there is a while between two notices; the last comes after the last job.
    assert 1 <= len(received) <= took / ENQUEUE_INTERVAL_SECONDS + 2


async def test_crowd_of_tenants_is_served_in_turn(store: PostgresStore) -> None:
    tenants = [f"tenant-{number}" for number in range(300)]
    await store.enqueue([new_job(store, tenant=tenant) for tenant in tenants for _ in range(2)], START)
    worker = await Worker.open(store, slots=10_000)
    rounds = [[job for _ in range(6) for job in await worker.take(50)] for _ in range(2)]
    for jobs in rounds:
        assert sorted(job.tenant for job in jobs) == sorted(tenants)
    # A new tenant is not behind all of them, though they have run more.
    await store.enqueue([*new_jobs(store, 300, tenant="tenant-0"), new_job(store, tenant="quiet")], START)
    assert "quiet" in {job.tenant for job in await worker.take(3)}
    await worker.settle(*map(succeed, (job for jobs in rounds for job in jobs)))


@pytest.mark.parametrize("limit", [LimitUpdate(subject="queue", name="default", permits=0), None])
async def test_crowd_that_may_not_run_makes_no_worker_claim_again_at_once(
    limit: LimitUpdate | None, store: PostgresStore
) -> None:
    tenants = [f"tenant-{number}" for number in range(1_100)]
    await store.enqueue([new_job(store, tenant=tenant) for tenant in tenants for _ in range(2)], START)
    for _ in range(2):
        # So many are counted in two turns.
        await store.update_limits([], START, PROGRAM)
    if limit is not None:
        await store.update_limits([limit], START, PROGRAM)
    else:
        # Each has as much as one tenant may have beside others, once there are so few slots.
        await (await Worker.open(store, "first", slots=20_000)).exactly(1_100)
        await Worker.open(store, "first", slots=1)
    worker = await Worker.open(store, slots=1)
    for _ in range(3):
        claimed = await worker.ask(10)
        assert (claimed.jobs, claimed.next_at) == ((), None)


@pytest.mark.parametrize(("subject", "name"), [("queue", "mail"), ("tenant", "ana"), ("task", "send"), ("group", "g")])
async def test_limit_states_wait_for_no_lock_and_know_new_jobs(
    subject: Subject, name: str, url: str, store: PostgresStore
) -> None:
    await store.enqueue([new_job(store, queue="mail", tenant="ana", group="g")], START)
    with address_of(url).connect() as busy:
        busy.execute("begin")
        busy.execute(LOCK)
        before = await asyncio.wait_for(all_limit_states(store, subject), 30)
        busy.execute("commit")
    assert [limit_state.name for limit_state in before] == [name]
    assert await all_limit_states(store, subject) == before
