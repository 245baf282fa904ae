"""Several processes on one file: they share it without running a job twice, and wake each other only for work."""

import asyncio
import os
import resource
import sqlite3
from contextlib import AsyncExitStack, closing
from itertools import pairwise
from pathlib import Path

import pytest

from reprieve.core.job import Job
from reprieve.core.rate import Rate
from reprieve.stores.protocol import Filter, LimitUpdate
from reprieve.stores.sqlite import SqliteStore
from reprieve.stores.sqlite.rows import row_id
from reprieve.testing.conformance.stage import PROGRAM, START, Worker, new_job, new_jobs, succeed
from tests.stores.sqlite.processes import PATIENCE, Program
from tests.stores.sqlite.recount import complaints, stored_ids


async def started(stack: AsyncExitStack, name: str, *arguments: object) -> Program:
    """Start a program that is killed when the test is over, and wait until it is ready."""
    program = await Program.start(name, *arguments)
    stack.push_async_callback(program.kill)
    assert "ready" in await program.read()
    return program


async def until_succeeded(store: SqliteStore, count: int) -> None:
    async with asyncio.timeout(20):
        while (await store.tally("status", Filter(), START)).counts.get("succeeded", 0) < count:
            await store.wait(("default",), 0.1)


async def test_two_processes_share_a_queue_and_run_no_job_twice(path: Path, store: SqliteStore) -> None:
    async with AsyncExitStack() as stack:
        workers = [await started(stack, "take_turns", path, f"worker-{number}") for number in range(2)]
        ids: list[str] = []
        for _ in range(20):
            ids += await store.enqueue(new_jobs(store, 10), START)
        await until_succeeded(store, len(ids))
        answers: list[list[str]] = []
        for number in range(1, 3):
            await store.enqueue([new_job(store, task="last")], START)
            await until_succeeded(store, len(ids) + number)
        for worker in workers:
            answers.append((await worker.read())["ran"])
            await worker.end()
    assert sorted(answers[0] + answers[1]) == sorted(ids)
    assert all(answers)
    assert complaints(path) == []


async def test_enqueue_in_another_process_wakes_who_waits(path: Path, store: SqliteStore) -> None:
    worker = await Worker.open(store)
    async with AsyncExitStack() as stack:
        producer = await started(stack, "enqueue_when_told", path)
        done: list[Job] = []
        for _ in range(50):
            claimed = await worker.ask(10, changes=[succeed(job) for job in done])
            assert claimed.jobs == ()
            # The settlement itself was a change; this claim changes nothing and begins to listen.
            assert (await worker.ask(10)).jobs == ()
            waiting = asyncio.create_task(store.wait(("default",), PATIENCE, worker.session))
            producer.tell()
            assert await waiting
            await producer.read()
            done = await worker.take(10)
            assert len(done) == 1
        await producer.end()


async def test_what_happened_between_claim_and_wait_is_not_missed(path: Path, store: SqliteStore) -> None:
    worker = await Worker.open(store)
    async with AsyncExitStack() as stack:
        producer = await started(stack, "enqueue_when_told", path)
        assert await worker.take() == []
        producer.tell()
        await producer.read()
        assert await store.wait(("default",), PATIENCE, worker.session)
        await producer.end()


async def test_child_of_a_fork_opens_its_own_store(path: Path) -> None:
    async with AsyncExitStack() as stack:
        program = await Program.start("fork_with_an_open_store", path)
        stack.push_async_callback(program.kill)
        assert "open it here again" in (await program.read())["inherited"]
        own = (await program.read())["own"]
        parent = await program.read()
        await program.end()
    assert parent["child"] == 0
    assert {own, parent["parent"]} < stored_ids(path)
    assert len(stored_ids(path)) == 3
    assert complaints(path) == []


async def test_ids_of_several_processes_never_collide(path: Path, store: SqliteStore) -> None:
    ids = [store.new_id(START, "default") for _ in range(5_000)]
    for _ in range(3):
        program = await Program.start("make_ids", path, 5_000)
        ids += (await program.read())["ids"]
        await program.end()
    assert len({row_id(job_id) for job_id in ids}) == 20_000


def test_ids_of_one_process_grow() -> None:
    store = SqliteStore(None)
    # So many that several milliseconds run out of ids.
    ids = [store.new_id(now, "default") for now in (START, START + 5, START + 3, START + 3) for _ in range(9_000)]
    assert all(row_id(one) < row_id(other) for one, other in pairwise(ids))


@pytest.mark.parametrize(
    ("updates", "leased"),
    [
        ([], 10),
        ([LimitUpdate(subject="dependency", name="ses", permits=0)], 0),
        ([LimitUpdate(subject="dependency", name="ses", max_running=2)], 2),
        ([LimitUpdate(subject="dependency", name="ses", rate=Rate(count=2, window=60))], 2),
        ([LimitUpdate(subject="task", name="send", max_running=2)], 2),
        ([LimitUpdate(subject="tenant", name="ana", queue="default", permits=0)], 0),
        ([LimitUpdate(subject="tenant", name="ana", queue="default", max_running=2)], 2),
        ([LimitUpdate(subject="queue", name="default", permits=0)], 0),
        ([LimitUpdate(subject="queue", name="default", max_running=2)], 2),
    ],
    ids=lambda value: f"{value[0].subject} {value[0].name}" if isinstance(value, list) and value else None,
)
async def test_idle_claim_does_not_change_the_file(
    path: Path, store: SqliteStore, updates: list[LimitUpdate], leased: int
) -> None:
    worker = await Worker.open(store)
    await store.update_limits(updates, START, PROGRAM)
    delayed = new_job(store, tenant="ana", due_at=START + 1)
    await store.enqueue([delayed, *new_jobs(store, 10, tenant="ana", dependency="ses")], START)
    assert len(await worker.take(20)) == leased
    # Whatever cannot run may be put aside once.
    assert await worker.take(20) == []
    with closing(sqlite3.connect(path)) as listener:
        before = listener.execute("pragma data_version").fetchone()
        for _ in range(3):
            assert await worker.take(20) == []
        assert listener.execute("pragma data_version").fetchone() == before


async def test_process_that_dies_with_the_lock_does_not_keep_it(path: Path, store: SqliteStore) -> None:
    async with AsyncExitStack() as stack:
        holder = await started(stack, "hold_the_lock", path)
        waiting = asyncio.create_task(store.enqueue(new_jobs(store, 1), START))
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        await holder.kill()
        assert len(await asyncio.wait_for(waiting, PATIENCE)) == 1
    assert complaints(path) == []


async def test_a_process_with_thousands_of_open_files_is_woken(path: Path, store: SqliteStore) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        # Opened when the log exists, so that writes to it are reported.
        listening = SqliteStore(path)
        worker = await Worker.open(listening)
        while (await worker.ask(10)).jobs or await listening.wait(("default",), 0.1, worker.session):
            pass
        waiting = asyncio.create_task(listening.wait(("default",), PATIENCE, worker.session))
        await asyncio.sleep(0)
        await store.enqueue([new_job(store)], START)
        assert await waiting
        await listening.close()
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
