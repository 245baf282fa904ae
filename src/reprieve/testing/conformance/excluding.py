# ruff: noqa: D103, PLR2004 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of claims that exclude tasks, because their session cannot run them."""

from reprieve.core.job import HIGH, LOW, Job
from reprieve.core.move import Return
from reprieve.stores.protocol import MAX_EXCLUDED_TASKS, Filter, LimitUpdate, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_ids
from reprieve.testing.conformance.stage import (
    HOUR,
    SECOND,
    START,
    Worker,
    enqueue,
    enqueued,
    find_all,
    make,
    new_job,
    new_jobs,
    succeed,
    update_limits,
)

MANY_TENANTS = 600
MANY_LANES = 5_000
MAX_CLAIMS = 200
"""Claims within which a job must be found, however many others are excluded."""


async def _old_worker(store: Store, *tasks: str, session: str = "old", slots: int = 1_000) -> Worker:
    """Open a session that excludes the task `new`, or others."""
    worker = await Worker.open(store, session, slots=slots)
    worker.exclude = tasks or ("new",)
    return worker


async def check_claim_leases_no_job_of_an_excluded_task(store: Store) -> None:
    known = new_jobs(store, 3)
    await enqueue(store, *new_jobs(store, 3, task="new"), *known, new_job(store, task="newer"))
    worker = await _old_worker(store, "new", "newer", "not-stored")
    expect_ids(await worker.take(10), known, "the jobs that a session can run")


async def _leased_after_exclusion(store: Store) -> tuple[list[Job], list[Job]]:
    """Enqueue jobs that one session excludes and another leases; return them as they were enqueued, and as leased."""
    jobs = [await enqueued(store, START + number, task="new") for number in range(5)]
    old = await _old_worker(store)
    for number in range(5):
        expect_equal(await old.take(10, START + 10 + number), [], "jobs of a session that excludes them")
    worker = await Worker.open(store)
    return jobs, await worker.take(10, START + 20)


async def check_excluded_jobs_stay_for_other_sessions(store: Store) -> None:
    jobs, leased = await _leased_after_exclusion(store)
    expect_ids(leased, jobs, "the jobs of a session that knows the task")
    expect_equal([(job.attempt, job.charged) for job in leased], [(1, 0)] * 5, "their attempts and charged failures")


async def check_excluded_jobs_stay_in_their_order(store: Store) -> None:
    jobs, leased = await _leased_after_exclusion(store)
    expect_equal([job.id for job in leased], [job.id for job in jobs], "the jobs in their order")


async def check_excluded_job_hides_no_other_job_of_its_tenant(store: Store) -> None:
    await enqueued(store, task="new", priority=HIGH)
    known = new_jobs(store, 3, START + 1, priority=LOW)
    await enqueue(store, *known, at=START + 1)
    worker = await _old_worker(store)
    for _ in range(3):
        leased = await worker.one(at=START + 2)
        await worker.settle(succeed(leased, START + 2), at=START + 2)
        known = [job for job in known if job.id != leased.id]
    expect_equal(known, [], "jobs that were left behind")
    later = await enqueued(store, START + 3)
    expect_ids([await worker.one(at=START + 3)], [later], "a job that came later")


async def check_claim_that_skips_jobs_is_due_again_within_a_second_and_not_at_once(store: Store) -> None:
    await enqueued(store, task="new")
    worker = await _old_worker(store)
    for limit in (1, 10):
        claimed = await worker.ask(limit)
        expect_equal(claimed.jobs, (), "jobs that were leased")
        at = claimed.next_at
        expect(at is not None and START < at <= START + SECOND, f"the next claim is due within a second, not at {at}")


async def check_claim_that_skips_nothing_is_due_as_without_an_exclusion(store: Store) -> None:
    await enqueued(store, due_at=START + HOUR)
    worker = await _old_worker(store)
    expect_equal((await worker.ask(10)).next_at, START + HOUR, "when to claim again")


async def check_job_given_back_unstarted_is_not_leased_again_in_the_same_claim(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 2, task="new"))
    worker = await Worker.open(store)
    leased = await worker.one(at=START + 5)
    worker.exclude = ("new",)
    claimed = await worker.ask(10, START + 6, [make(leased, Return(started=False), START + 6)])
    expect_equal((claimed.results, claimed.jobs), (("applied",), ()), "what the claim settled and leased")


async def check_excluded_jobs_keep_no_slots_free(store: Store) -> None:
    await enqueued(store, task="new", tenant="a")
    known = new_jobs(store, 4, tenant="b")
    await enqueue(store, *known)
    worker = await _old_worker(store, slots=4)
    expect_ids(await worker.take(4), known, "the jobs of the only tenant that the session can serve")


async def check_excluded_task_is_within_limits_for_others(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="task", name="new", max_running=1))
    await enqueue(store, *new_jobs(store, 3, task="new"))
    old, worker = await _old_worker(store), await Worker.open(store)
    expect_equal(await old.take(10), [], "jobs of a session that excludes them")
    leased = await worker.one(10)
    expect_equal(await old.take(10), [], "jobs of a session that excludes them")
    expect_equal(len((await worker.ask(10, changes=[succeed(leased)])).jobs), 1, "jobs within the limit")


async def _find_behind(store: Store, known: list[str], at: int, session: str = "old") -> None:
    """Expect that a session which excludes `new` and `newer` gets the other jobs, and does not claim in a loop."""
    worker = await _old_worker(store, "new", "newer", session=session)
    found: list[str] = []
    for _ in range(MAX_CLAIMS):
        claimed = await worker.ask(10, at)
        expect(all(job.task == "send" for job in claimed.jobs), "no job of an excluded task is leased")
        found += [job.id for job in claimed.jobs]
        if len(found) == len(known):
            break
        at = max(at, claimed.next_at or at)
    expect_equal(sorted(found), sorted(known), "the jobs that were found behind excluded ones")
    claimed = await worker.ask(10, at)
    expect(claimed.next_at is not None and at < claimed.next_at <= at + SECOND, "and it goes on to look")


async def check_many_excluded_tenants_hide_no_other(store: Store) -> None:
    jobs = [
        new_job(store, tenant=f"t-{number:04}", task=("new", "newer")[number % 2]) for number in range(MANY_TENANTS)
    ]
    await enqueue(store, *jobs)
    # A tenant that runs jobs is behind all that run none.
    await enqueue(store, *new_jobs(store, 3, tenant="busy"))
    busy = await _old_worker(store, "new", "newer", session="busy")
    running = 0
    for _ in range(MAX_CLAIMS):
        running += len(await busy.take(3))
        if running == 3:
            break
    known = await enqueue(store, *new_jobs(store, 5, START + 1, tenant="busy"), at=START + 1)
    known.append((await enqueued(store, START + 1, tenant="t-0300")).id)
    await _find_behind(store, known, START + 1)
    expect_equal(
        len(await find_all(store, Filter(statuses=frozenset({"ready"})), START + 1)), MANY_TENANTS, "jobs left"
    )


async def check_many_excluded_lanes_hide_no_other(store: Store) -> None:
    jobs = [
        new_job(store, group=f"g-{number:04}", task=("new", "newer")[number % 2], priority=HIGH)
        for number in range(MANY_LANES)
    ]
    for start in range(0, MANY_LANES, 1_000):
        await enqueue(store, *jobs[start : start + 1_000])
    known = await enqueue(store, *new_jobs(store, 3), new_job(store, priority=LOW), new_job(store, group="g"))
    await _find_behind(store, known, START)
    for number in range(3):
        # A lane that was served goes behind all that were not.
        known = await enqueue(store, *new_jobs(store, 2, priority=HIGH, group="known"))
        await _find_behind(store, known, START, f"old-{number}")


async def check_claim_excludes_as_many_tasks_as_it_may(store: Store) -> None:
    known = await enqueued(store)
    await enqueued(store, task="task-9999")
    worker = await _old_worker(store, *(f"task-{number}" for number in range(MAX_EXCLUDED_TASKS)))
    expect_ids(await worker.take(10), [known], "the jobs of tasks that are not excluded")
