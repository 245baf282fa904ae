# ruff: noqa: D103 - a check's name is its sentence
"""Checks of the order in which a lane's jobs are taken: by SLA, or the time at which they became ready, then by id."""

from collections import Counter
from typing import Any

from reprieve.core import change
from reprieve.core.headers import Headers
from reprieve.core.job import Job
from reprieve.core.move import Return
from reprieve.stores.protocol import Store
from reprieve.testing.conformance.expect import expect, expect_equal
from reprieve.testing.conformance.stage import (
    HOUR,
    MINUTE,
    OPERATOR,
    SECOND,
    START,
    Worker,
    count_by,
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


def _with_sla(store: Store, sla_at: int | None, at: int = START, **fields: Any) -> Job:  # noqa: ANN401 - the fields of a job
    return new_job(store, at, headers=None if sla_at is None else Headers(sla_at=sla_at), **fields)


async def check_jobs_with_an_sla_are_taken_by_it(store: Store) -> None:
    slas = [30, 10, 50, 20, 40]
    jobs = [_with_sla(store, START + MINUTE + sla * SECOND, START + number) for number, sla in enumerate(slas)]
    for job in jobs[:3]:
        await enqueue(store, job, at=job.created_at)
    await enqueue(store, *jobs[3:], at=START + 10)
    worker = await Worker.open(store)
    wanted = [jobs[slas.index(sla)] for sla in sorted(slas)]
    await _expect_order(worker, START + SECOND, wanted, "jobs with an SLA")


async def check_jobs_with_the_same_sla_are_taken_by_id(store: Store) -> None:
    jobs = [_with_sla(store, START + HOUR, START + number) for number in range(4)]
    await enqueue(store, jobs[2], jobs[0], at=START + 5)
    await enqueue(store, jobs[3], jobs[1], at=START + 6)
    worker = await Worker.open(store)
    await _expect_order(worker, START + SECOND, jobs, "jobs with the same SLA")


async def check_sla_orders_jobs_that_wait_again(store: Store) -> None:
    worker = await Worker.open(store)
    slas = [40, 30, 20, 10]
    scheduled = _with_sla(store, START + MINUTE + 25 * SECOND, due_at=START + 2 * SECOND)
    jobs = [_with_sla(store, START + MINUTE + sla * SECOND, START + number) for number, sla in enumerate(slas)]
    await enqueue(store, scheduled)
    await enqueue(store, *jobs, at=START + 5)
    leased = {job.id: job for job in await worker.exactly(4, START + 5)}
    fourth, third, second, first = (leased[job.id] for job in jobs)
    await worker.settle(
        fail(fourth, START + 6, due_at=START + SECOND),
        make(third, Return(started=False), START + 6),
        make(second, Return(), START + 6),
        fail(first, START + 6, due_at=START + 3 * SECOND),
        at=START + 6,
    )
    wanted = [jobs[3], jobs[2], scheduled, jobs[1], jobs[0]]
    await _expect_order(worker, START + 4 * SECOND, wanted, "retried, returned and scheduled jobs with an SLA")


async def check_jobs_with_an_sla_come_before_others_of_their_priority(store: Store) -> None:
    plain = [_with_sla(store, None, START + number) for number in range(20)]
    urgent = new_job(store, START + 30, priority=4)
    timed = [_with_sla(store, START + HOUR + number, START + 40 + number) for number in range(3)]
    await enqueue(store, *plain, at=START + 20)
    await enqueue(store, urgent, *timed, at=START + 50)
    worker = await Worker.open(store)
    await _expect_first(worker, [urgent, *timed, *plain[:10]], "a better priority, then jobs with an SLA, then others")


async def check_jobs_with_an_sla_do_not_starve_others(store: Store) -> None:
    plain = _with_sla(store, None)
    timed = [_with_sla(store, START + HOUR + number, START + 1 + number) for number in range(40)]
    await enqueue(store, plain)
    await enqueue(store, *timed, at=START + 50)
    worker = await Worker.open(store)
    taken = await worker.exactly(20, START + 50)
    expect(plain.id in {job.id for job in taken}, "the job without an SLA is among twenty that are taken")


async def check_sla_changes_no_share_between_tenants(store: Store) -> None:
    timed = [_with_sla(store, START + HOUR, START + number, tenant="timed") for number in range(20)]
    plain = [new_job(store, START + number, tenant="plain") for number in range(20)]
    await enqueue(store, *timed, *plain, at=START + 30)
    worker = await Worker.open(store)
    taken = await worker.exactly(10, START + 30)
    expect_equal(count_by(taken, "tenant"), Counter(timed=5, plain=5), "jobs of each tenant")


async def check_job_with_an_sla_can_be_cancelled_and_expires(store: Store) -> None:
    jobs = [_with_sla(store, START + HOUR - number, deadline_at=START + MINUTE) for number in range(3)]
    await enqueue(store, *jobs)
    await enqueue(store, _with_sla(store, START + HOUR, deadline_at=START + 2 * HOUR))
    cancelled = await store.apply([change.cancel(jobs[1], OPERATOR, START + SECOND)], START + SECOND)
    expect_equal(cancelled, ["applied"], "the result of a cancel")
    ended = (await store.expire(START + MINUTE + 3 * SECOND)).jobs
    expect_equal({job.id for job in ended}, {jobs[0].id, jobs[2].id}, "jobs with an SLA past their deadline")
    worker = await Worker.open(store)
    expect_equal(len(await worker.take(10, START + HOUR)), 1, "jobs that are left")


async def _expect_first(worker: Worker, wanted: list[Job], what: str) -> None:
    taken = await worker.take(len(wanted), START + SECOND)
    expect_equal([job.id for job in taken], [job.id for job in wanted], what)
