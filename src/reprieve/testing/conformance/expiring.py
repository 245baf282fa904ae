# ruff: noqa: D103 - a check's name is its sentence
"""Checks of expiry: jobs that no worker claims end at their deadline, or when they have been parked for long enough."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.job import Job
from reprieve.core.move import Park, Return
from reprieve.stores.protocol import Filter, LimitUpdate, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_ids, expect_job
from reprieve.testing.conformance.stage import (
    CAUSE,
    DAY,
    HOUR,
    MINUTE,
    OPERATOR,
    SECOND,
    START,
    Worker,
    enqueue,
    enqueued,
    fail,
    get,
    make,
    new_job,
    new_jobs,
    succeed,
    update_limits,
)

SLICE = 40
"""How many jobs a call may end, where a check says so."""

LATEST = 3 * SECOND
"""How late a store may find that a job has expired."""


async def _expire_all(store: Store, at: int, limit: int = 100) -> list[Job]:
    """Expire until nothing is left."""
    ended: list[Job] = []
    for _ in range(1_000):
        expired = await store.expire(at, limit)
        expect(len(expired.jobs) <= limit, f"expire with a limit of {limit} ended {len(expired.jobs)} jobs")
        ended += expired.jobs
        if not expired.has_more:
            return ended
    message = "expire says after 1,000 calls that there is more"
    raise AssertionError(message)


async def _expect_expired(store: Store, at: int, wanted: Sequence[Job], what: str) -> None:
    """Expect that these waiting jobs end, just so, and that a worker gets none of them any more."""
    ended = await _expire_all(store, at)
    expect_ids(ended, wanted, what)
    by_id = {job.id: job for job in ended}
    for job in wanted:
        expect_job(by_id[job.id], change.expire(job, at).job, f"{what}, as returned")
        expect_job(await get(store, job, at), change.expire(job, at).job, f"{what}, as stored")
        events = [event for _, event in await store.events(job_id=job.id)]
        expect_equal(events[-1:], [change.expire(job, at).event], f"{what}: the last event")
    tally = (await store.tally("status", Filter(), at)).counts
    expect_equal(tally.get("dead", 0), len(wanted), f"{what}: dead jobs")
    expect_equal(await _expire_all(store, at), [], f"{what}: jobs that expire again")


async def check_job_of_a_paused_queue_expires(store: Store) -> None:
    late = await enqueued(store, deadline_at=START + MINUTE)
    fine = await enqueued(store, deadline_at=START + DAY)
    await update_limits(store, LimitUpdate(subject="queue", name="default", permits=0))
    expect_equal(await _expire_all(store, START + MINUTE - 1), [], "jobs that expire before their deadline")
    await _expect_expired(store, START + MINUTE + LATEST, [late], "jobs of a paused queue past their deadline")
    await update_limits(store, LimitUpdate(subject="queue", name="default", permits=None))
    worker = await Worker.open(store)
    expect_ids(await worker.take(10, START + HOUR), [fine], "jobs leased when the queue goes on")


async def check_job_of_a_queue_without_workers_expires(store: Store) -> None:
    late = await enqueued(store, queue="unserved", deadline_at=START + MINUTE)
    await _expect_expired(store, START + MINUTE + LATEST, [late], "jobs of a queue without workers")


async def check_job_behind_a_held_gate_expires(store: Store) -> None:
    late = await enqueued(store, dependency="ses", deadline_at=START + MINUTE)
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=0))
    worker = await Worker.open(store)
    expect_equal(await worker.take(10, START + SECOND), [], "jobs leased while the gate is held")
    await _expect_expired(store, START + MINUTE + LATEST, [late], "jobs behind a held gate past their deadline")


async def check_job_at_a_limit_expires(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="tenant", name="acme", queue="default", max_running=1))
    worker = await Worker.open(store)
    jobs = new_jobs(store, 2, tenant="acme", deadline_at=START + MINUTE)
    await enqueue(store, *jobs)
    leased = await worker.one(10)
    waiting = [job for job in jobs if job.id != leased.id]
    await _expect_expired(store, START + MINUTE + LATEST, waiting, "jobs at a limit past their deadline")


async def check_job_that_is_scheduled_later_than_its_deadline_expires(store: Store) -> None:
    late = await enqueued(store, due_at=START + HOUR, deadline_at=START + MINUTE)
    fine = await enqueued(store, due_at=START + HOUR, deadline_at=START + DAY)
    await _expect_expired(store, START + MINUTE + LATEST, [late], "scheduled jobs past their deadline")
    worker = await Worker.open(store)
    expect_ids(await worker.take(10, START + HOUR), [fine], "jobs leased when they are due")


async def check_job_that_waits_for_a_retry_expires(store: Store) -> None:
    await enqueued(store, deadline_at=START + MINUTE)
    worker = await Worker.open(store)
    failed = fail(await worker.one(), due_at=START + 30 * SECOND)
    await worker.settle(failed)
    await update_limits(store, LimitUpdate(subject="queue", name="default", pauses=("retry",)))
    expect_equal(await _expire_all(store, START + 40 * SECOND), [], "jobs that expire before their deadline")
    await _expect_expired(store, START + MINUTE + LATEST, [failed.job], "retries past their deadline")


async def check_job_that_was_given_back_expires(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 2, deadline_at=START + MINUTE))
    worker = await Worker.open(store)
    first, second = await worker.exactly(2)
    returned = [make(first, Return(started=False), START + 1), make(second, Return(), START + 1)]
    await worker.settle(*returned, at=START + 1)
    wanted = [one.job for one in returned]
    await _expect_expired(store, START + MINUTE + LATEST, wanted, "jobs that were given back")


async def check_job_that_runs_does_not_expire(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 3, deadline_at=START + MINUTE))
    worker = await Worker.open(store)
    leased = await worker.exactly(2)
    failed = fail(leased[0], due_at=START + 2)
    await worker.settle(failed, at=START + 1)
    again = await worker.exactly(2, START + 2)
    expect_equal(await _expire_all(store, START + HOUR), [], "running jobs that expire")
    for job in (leased[1], *again):
        expect_job(await get(store, job, START + HOUR), job, "a job that runs past its deadline")


async def check_jobs_of_one_lane_expire_each_at_its_own_time(store: Store) -> None:
    spans = [DAY, MINUTE, HOUR, None, 2 * MINUTE, 2 * DAY, MINUTE, None, 5 * MINUTE, HOUR]
    jobs = []
    for number, span in enumerate(spans):
        at = START + number * SECOND
        jobs.append(await enqueued(store, at, deadline_at=None if span is None else at + span))
    dead: set[str] = set()
    for at in sorted(job.deadline_at for job in jobs if job.deadline_at is not None):
        expired = {job.id for job in jobs if job.deadline_at is not None and job.deadline_at + LATEST <= at + LATEST}
        ended = {job.id for job in await _expire_all(store, at + LATEST)}
        early = [job for job in jobs if job.id in ended and (job.deadline_at is None or job.deadline_at > at + LATEST)]
        expect_equal(early, [], "jobs that ended before their deadline")
        dead |= ended
        expect_equal(expired - dead, set(), f"jobs that had not ended {LATEST} ms after their deadline")
    expect_equal(len(dead), len([span for span in spans if span is not None]), "jobs that ended in the end")


async def check_job_that_is_enqueued_late_expires(store: Store) -> None:
    early, late = new_job(store, deadline_at=START + 2 * MINUTE), new_job(store, START + 1, deadline_at=START + HOUR)
    await enqueue(store, late, at=START + SECOND)
    expect_equal(await _expire_all(store, START + MINUTE), [], "jobs that expire before their deadline")
    await enqueue(store, early, at=START + MINUTE)
    await _expect_expired(store, START + 2 * MINUTE + LATEST, [early], "jobs whose ids are older than their enqueue")


async def check_expiry_ends_at_most_as_many_jobs_as_asked_for(store: Store) -> None:
    jobs = new_jobs(store, 250, deadline_at=START + MINUTE)
    fine = new_jobs(store, 250, START + SECOND, deadline_at=START + SECOND + HOUR)
    await enqueue(store, *jobs)
    await enqueue(store, *fine, at=START + SECOND)
    at = START + MINUTE + LATEST
    expect_ids(await _expire_all(store, at, SLICE), jobs, "jobs past their deadline that ended")
    worker = await Worker.open(store, slots=10_000)
    taken: list[Job] = []
    for _ in range(50):
        taken += await worker.take(100, at)
    expect_ids(taken, fine, "jobs leased afterwards")


async def check_job_expires_behind_others_of_the_same_moment(store: Store) -> None:
    expired: list[Job] = []
    for number in range(6):
        jobs = new_jobs(store, 6, tenant=f"t{number}")
        jobs[number] = replace(jobs[number], deadline_at=START + MINUTE)
        await enqueue(store, *jobs)
        await enqueued(store, START + 1, tenant=f"t{number}")
        expired.append(jobs[number])
    ended = await _expire_all(store, START + MINUTE + LATEST, 1)
    expect_ids(ended, expired, "jobs that expire behind others")


async def _parked(store: Store, worker: Worker, **fields: Any) -> Job:  # noqa: ANN401 - the fields of a job
    """Return a job that is parked until a minute after the start, and due long before."""
    await enqueued(store, dependency="ses", **fields)
    leased = await worker.one(10)
    move = Park(gate="ses", due_at=START + 2 * SECOND, cause=CAUSE, parked_until_at=START + MINUTE)
    parked = make(leased, move, START + SECOND)
    await worker.settle(parked, at=START + SECOND)
    return parked.job


async def check_job_that_is_parked_for_long_enough_expires(store: Store) -> None:
    worker = await Worker.open(store)
    parked = await _parked(store, worker)
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=0), at=START + SECOND)
    expect_equal(await worker.take(10, START + 3 * SECOND), [], "jobs leased while the gate is held")
    expect_equal(await _expire_all(store, START + MINUTE - 1), [], "parked jobs that expire too early")
    await _expect_expired(store, START + MINUTE + LATEST, [parked], "jobs that were parked for long enough")


async def check_parked_job_expires_behind_a_default_or_a_pair_that_is_held(store: Store) -> None:
    worker = await Worker.open(store)
    for held in (
        LimitUpdate(subject="tenant_dependency", name="b", dependency="ses", permits=0),
        LimitUpdate(subject="tenant_dependency", name=None, permits=0),
        LimitUpdate(subject="dependency", name=None, permits=0),
    ):
        parked = await _parked(store, worker, tenant="b")
        await update_limits(store, held, at=START + SECOND)
        expect_ids(await _expire_all(store, START + MINUTE + LATEST), [parked], f"jobs that expire behind {held}")
        await update_limits(store, replace(held, permits="default"), at=START + SECOND)


async def check_parked_job_gets_its_last_attempt_if_the_gate_is_open(store: Store) -> None:
    worker = await Worker.open(store)
    parked = await _parked(store, worker)
    expect_equal(await _expire_all(store, START + MINUTE + LATEST), [], "jobs that expire although the gate is open")
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=0), at=START + MINUTE + LATEST)
    await _expect_expired(store, START + 2 * MINUTE, [parked], "parked jobs whose gate is held again")


async def check_job_that_expired_can_be_retried(store: Store) -> None:
    job = await enqueued(store, deadline_at=START + MINUTE)
    at = START + MINUTE + LATEST
    (ended,) = await _expire_all(store, at)
    retried = change.retry(ended, OPERATOR, at, 60.0)
    expect_equal(await store.apply([retried], at), ["applied"], "the result of a retry of an expired job")
    expect_equal(await _expire_all(store, at + 30 * SECOND), [], "jobs that expire before their new deadline")
    ended_again = await _expire_all(store, at + MINUTE + LATEST)
    expect_ids(ended_again, [job], "jobs that expire after their new deadline")


async def check_jobs_that_a_claim_took_leave_the_others_to_expire(store: Store) -> None:
    jobs = [new_job(store, START + number, deadline_at=START + number + MINUTE) for number in range(6)]
    for job in jobs:
        await enqueue(store, job, at=job.created_at)
    worker = await Worker.open(store)
    taken = {job.id for job in await worker.exactly(3, START + SECOND)}
    first, second, third = (job for job in jobs if job.id not in taken)
    cancelled = change.cancel(second, OPERATOR, START + SECOND)
    expect_equal(await store.apply([cancelled], START + SECOND), ["applied"], "the result of a cancel")
    wanted = [first, third]
    await _expect_expired(store, START + MINUTE + LATEST, wanted, "the jobs that were left")


async def check_jobs_that_ended_do_not_hold_up_the_expiry_of_others(store: Store) -> None:
    done = new_jobs(store, 10, START, deadline_at=START + DAY)
    done += new_jobs(store, 3 * SLICE, START + SECOND, deadline_at=START + MINUTE)
    await enqueue(store, *done, at=START + SECOND)
    await _run_all(store, done)
    late = await enqueued(store, START + SECOND, queue="unserved", deadline_at=START + MINUTE + SECOND)
    ended = await _expire_all(store, START + MINUTE + SECOND + LATEST, 1)
    expect_ids(ended, [late], "jobs that expire after many that ended in time")


async def check_lanes_without_jobs_do_not_hold_up_the_expiry_of_others(store: Store) -> None:
    done = [new_job(store, tenant=f"t{number}", deadline_at=START + MINUTE) for number in range(6 * SLICE)]
    await enqueue(store, *done)
    await _run_all(store, done)
    late = await enqueued(store, START + SECOND, queue="unserved", deadline_at=START + MINUTE + SECOND)
    ended = await _expire_all(store, START + MINUTE + SECOND + LATEST, SLICE)
    expect_ids(ended, [late], "jobs that expire after those of many empty lanes")


async def _run_all(store: Store, jobs: Sequence[Job]) -> None:
    """Claim these jobs and let them succeed."""
    worker = await Worker.open(store, slots=10_000)
    taken: list[Job] = []
    while len(taken) < len(jobs):
        some = await worker.take(100, START + SECOND)
        expect(bool(some), f"a claim leased nothing although {len(jobs) - len(taken)} jobs were ready")
        await worker.settle(*map(succeed, some), at=START + SECOND)
        taken += some
    expect_ids(taken, jobs, "jobs that were run")
