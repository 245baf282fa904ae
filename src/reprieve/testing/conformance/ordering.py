# ruff: noqa: D103 - a check's name is its sentence
"""Checks of the order in which a lane's jobs are taken: by the time at which they became ready, then by id."""

from reprieve.core import change
from reprieve.core.job import Job
from reprieve.core.move import Return
from reprieve.stores.protocol import Store
from reprieve.testing.conformance.expect import expect_equal
from reprieve.testing.conformance.stage import (
    OPERATOR,
    SECOND,
    START,
    Worker,
    enqueue,
    fail,
    make,
    new_job,
)


async def _expect_order(worker: Worker, at: int, wanted: list[Job], what: str) -> None:
    taken = await worker.take(len(wanted) + 1, at)
    expect_equal([job.id for job in taken], [job.id for job in wanted], what)


async def _enqueued_in_turn(store: Store, count: int) -> list[Job]:
    """Enqueue jobs, each a millisecond after the one before."""
    jobs = [new_job(store, START + number) for number in range(count)]
    await enqueue(store, *jobs, at=START + count)
    return jobs


async def check_jobs_are_taken_in_the_order_in_which_they_became_ready(store: Store) -> None:
    worker = await Worker.open(store)
    failed = new_job(store)
    await enqueue(store, failed)
    await worker.settle(fail(await worker.one(), due_at=START + 4 * SECOND))
    scheduled = new_job(store, due_at=START + 2 * SECOND, waiting_for="schedule")
    await enqueue(store, scheduled)
    fresh = [new_job(store, START + second * SECOND) for second in (1, 3, 5)]
    for job in fresh:
        await enqueue(store, job, at=job.created_at)
    wanted = [fresh[0], scheduled, fresh[1], failed, fresh[2]]
    await _expect_order(worker, START + 9 * SECOND, wanted, "jobs in the order in which they became ready")


async def check_jobs_that_became_ready_together_are_taken_by_id(store: Store) -> None:
    jobs = await _enqueued_in_turn(store, 4)
    worker = await Worker.open(store)
    leased = await worker.take(4, START + 4)
    await worker.settle(*[fail(job, due_at=START + SECOND) for job in reversed(leased)], at=START + 4)
    await _expect_order(worker, START + SECOND, jobs, "jobs that were due together, by id")


async def check_job_given_back_before_its_start_keeps_its_place(store: Store) -> None:
    jobs = await _enqueued_in_turn(store, 4)
    worker = await Worker.open(store)
    leased = await worker.take(2, START + 4)
    await worker.settle(*[make(job, Return(started=False), START + SECOND) for job in leased], at=START + SECOND)
    await _expect_order(worker, START + SECOND, jobs, "jobs after two were given back before their start")


async def check_job_given_back_after_its_start_goes_behind_those_that_wait(store: Store) -> None:
    jobs = await _enqueued_in_turn(store, 4)
    worker = await Worker.open(store)
    leased = await worker.take(2, START + 4)
    await worker.settle(*[make(job, Return(), START + SECOND) for job in leased], at=START + SECOND)
    late = new_job(store, START + 2 * SECOND)
    await enqueue(store, late, at=late.created_at)
    wanted = [*jobs[2:], *jobs[:2], late]
    await _expect_order(worker, START + 2 * SECOND, wanted, "jobs after two were interrupted")


async def check_job_that_is_cancelled_in_the_middle_changes_no_order(store: Store) -> None:
    jobs = await _enqueued_in_turn(store, 4)
    worker = await Worker.open(store)
    leased = await worker.take(3, START + 4)
    returned = [make(job, Return(), START + SECOND) for job in leased]
    await worker.settle(*returned, at=START + SECOND)
    at = START + 2 * SECOND
    await store.apply([change.cancel(returned[1].job, OPERATOR, at), change.cancel(jobs[3], OPERATOR, at)], at)
    late = new_job(store, at)
    await enqueue(store, late, at=at)
    await _expect_order(worker, at, [jobs[0], jobs[2], late], "jobs after two were cancelled")
