# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of entries that are written together with new jobs, changes and limits: all of it, or nothing."""

import asyncio

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.job import Job
from reprieve.errors import StoreError, ValidationError
from reprieve.stores.capabilities import Faulty
from reprieve.stores.protocol import EntryWrite, Filter, LimitUpdate, Retention, Store
from reprieve.testing.conformance.auditing import all_audit
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error, expect_ids
from reprieve.testing.conformance.stage import (
    DAY,
    OPERATOR,
    PROGRAM,
    START,
    Worker,
    find_all,
    get,
    new_job,
    new_jobs,
    set_entry,
    succeed,
)

KEY = "schedule/nightly"


def beside(store: Store, key: str = "") -> Job:
    """Return a new job in the partition of the entry."""
    return replace(new_job(store, key=key), id=store.new_id(START, "default", beside=KEY))


async def check_entry_moves_on_and_enqueues_one_job(store: Store) -> None:
    worker = await Worker.open(store)
    job = beside(store)
    write = EntryWrite(key=KEY, version=0, value=b"1", jobs=(job,))
    first = await store.compare_and_set(write, START, PROGRAM)
    expect_equal(first.ids, (job.id,), "the id of the job")
    expect_equal(await store.compare_and_set(write, START, PROGRAM), first, "the result of a repeat")
    taken = await worker.take(10)
    expect_ids(taken, [job], "jobs that the entry enqueued")
    await worker.settle(succeed(taken[0]))
    while not (await store.prune(Retention(now=START + 30 * DAY))).is_all:
        pass
    again = await store.compare_and_set(write, START, PROGRAM)
    expect_equal(again.entry, first.entry, "a repeat that comes after its job has ended and was pruned")
    expect_equal(await worker.take(10), [], "jobs that the repeat enqueued")
    expect_equal(await find_all(store, Filter()), [], "all jobs")


async def check_write_whose_reply_is_lost_is_made_once(store: Store) -> None:
    if not isinstance(store, Faulty):
        return
    version, jobs = 0, [beside(store) for _ in range(6)]
    for number, job in enumerate(jobs):
        write = EntryWrite(key=KEY, version=version, value=b"%d" % number, jobs=(job,))
        store.inject("after" if number % 2 else "before")
        await expect_error(store.compare_and_set(write, START, PROGRAM), StoreError, "a write that fails")
        written = (await store.compare_and_set(write, START, PROGRAM)).entry
        expect(written is not None, "the write is recognised, or made")
        version = 0 if written is None else written.version
    expect_ids(await find_all(store, Filter()), jobs, "the jobs of all writes")


async def check_of_many_writers_one_enqueues(store: Store) -> None:
    entry = await set_entry(store, KEY, 0, b"0")
    version = 0 if entry is None else entry.version
    writes = [EntryWrite(key=KEY, version=version, value=b"%d" % number, jobs=(beside(store),)) for number in range(5)]
    results = await asyncio.gather(*(store.compare_and_set(write, START, PROGRAM) for write in writes))
    winners = [write for write, result in zip(writes, results, strict=True) if result.entry is not None]
    expect_equal(len(winners), 1, "writers that won")
    expect_ids(await find_all(store, Filter()), list(winners[0].jobs), "jobs that were enqueued")


async def check_write_with_a_change_that_does_not_apply_writes_nothing(store: Store) -> None:
    worker = await Worker.open(store)
    waiting, gone = beside(store), beside(store)
    await store.enqueue([waiting, gone], START)
    (ended,) = [job for job in await worker.take(2) if job.id == gone.id]
    await worker.settle(succeed(ended))
    fine = beside(store)
    await store.enqueue([fine], START)
    changes = (change.cancel(fine, OPERATOR, START), change.cancel(gone, OPERATOR, START))
    write = EntryWrite(
        key=KEY,
        version=0,
        value=b"1",
        updates=(LimitUpdate(subject="task", name="send", max_running=7),),
        jobs=(beside(store),),
        changes=changes,
    )
    refused = await store.compare_and_set(write, START, OPERATOR)
    expect_equal((refused.entry, refused.results[0]), (None, "applied"), "a write that is refused")
    expect(refused.results[1] in ("refused", "missing"), f"the change that does not apply is {refused.results[1]}")
    expect_equal((await store.entry(KEY), await all_audit(store)), (None, []), "the entry and the audit log")
    expect_equal(await get(store, fine), fine, "the job that the other change was to cancel")
    expect_equal(await get(store, write.jobs[0]), None, "the job that was to be enqueued")
    done = await store.compare_and_set(replace(write, write_id=5, changes=changes[:1]), START, OPERATOR)
    expect_equal((done.entry is not None, done.results), (True, ("applied",)), "the write without that change")
    expect_equal(await get(store, fine), changes[0].job, "the cancelled job")
    kinds = sorted(entry.kind for entry in await all_audit(store))
    expect_equal(kinds, ["entry", "job", "task"], "what the audit log tells")


async def check_entry_of_another_version_carries_nothing(store: Store) -> None:
    await set_entry(store, KEY, 0, b"0")
    job = beside(store)
    await store.enqueue([job], START)
    write = EntryWrite(
        key=KEY, version=0, value=b"1", jobs=(beside(store),), changes=(change.cancel(job, OPERATOR, START),)
    )
    lost = await store.compare_and_set(write, START, OPERATOR)
    expect_equal((lost.entry, lost.ids), (None, ()), "a write that lost")
    expect_ids(await find_all(store, Filter()), [job], "all jobs")
    expect_equal(await get(store, job), job, "the job that was to be cancelled")
    expect_equal(await all_audit(store), [], "the audit log")


async def check_unique_keys_hold_for_jobs_of_an_entry(store: Store) -> None:
    first = beside(store, key="nightly")
    await store.enqueue([first], START)
    second, other = beside(store, key="nightly"), beside(store, key="weekly")
    write = EntryWrite(key=KEY, version=0, value=b"1", jobs=(second, other))
    written = await store.compare_and_set(write, START, PROGRAM)
    expect_equal(written.ids, (first.id, other.id), "the ids of two jobs, one with a key that is taken")
    expect_ids(await find_all(store, Filter()), [first, other], "all jobs")
    third = beside(store, key="weekly")
    expect_equal(await store.enqueue([third], START), [other.id], "an enqueue with the key of that job")


async def check_write_that_carries_too_much_is_refused(store: Store) -> None:
    many = tuple(replace(job, id=store.new_id(START, "default", beside=KEY)) for job in new_jobs(store, 26))
    for jobs in (many, (replace(beside(store), id="no id"),)):
        write = EntryWrite(key=KEY, version=0, value=b"1", jobs=jobs)
        await expect_error(store.compare_and_set(write, START, PROGRAM), ValidationError, f"{len(jobs)} jobs")
    expect_equal(await store.entry(KEY), None, "the entry")
