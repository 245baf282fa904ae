# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of gates and pauses: jobs that are held are not leased until the release."""

from typing import Any

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.move import Return
from reprieve.core.status import STUCK_AFTER_SECONDS
from reprieve.stores.protocol import LimitUpdate, Store, Subject
from reprieve.testing.conformance.expect import expect_equal, expect_ids, expect_job
from reprieve.testing.conformance.stage import (
    CAUSE,
    HOUR,
    OPERATOR,
    SECOND,
    START,
    Worker,
    enqueue,
    enqueued,
    fail,
    get,
    kill,
    make,
    new_job,
    new_jobs,
    park,
    succeed,
    update_limits,
)

SUBJECTS: tuple[Subject, ...] = ("queue", "tenant", "task", "dependency", "group", "tenant_dependency")


def limit_update(subject: Subject, **fields: Any) -> LimitUpdate:  # noqa: ANN401 - whatever an update carries
    """Update the limits of the subject that is named "x", in the queue of the check."""
    queue, dependency = "default" if subject == "tenant" else "", "x" if subject == "tenant_dependency" else ""
    return LimitUpdate(subject=subject, name="x", queue=queue, dependency=dependency, **fields)


def affected(subject: Subject) -> dict[str, Any]:
    """Return the fields of a job that belongs to the subject named "x"."""
    return {"tenant": "x", "dependency": "x"} if subject == "tenant_dependency" else {subject: "x"}


async def open_worker(store: Store) -> Worker:
    """Open a worker that serves the queue "x" as well."""
    worker = await Worker.open(store)
    worker.queues = ("default", "x")
    return worker


async def check_held_subject_yields_nothing(store: Store) -> None:
    for subject in SUBJECTS:
        await enqueue(store, *new_jobs(store, 3, **affected(subject)))
        await update_limits(store, limit_update(subject, permits=0))
    free = await enqueued(store)
    worker = await open_worker(store)
    claimed = await worker.ask(100)
    expect_ids(claimed.jobs, [free], "jobs leased while every subject is held")
    expect_equal((await worker.ask(100)).next_at, None, "the next time when all that waits is held")


async def check_released_subject_yields_all_that_waited(store: Store) -> None:
    worker = await open_worker(store)
    for subject in SUBJECTS:
        await update_limits(store, limit_update(subject, permits=0))
        jobs = new_jobs(store, 3, **affected(subject))
        await enqueue(store, *jobs)
        expect_equal(await worker.take(10), [], f"jobs leased while the {subject} is held")
        await update_limits(store, limit_update(subject, permits=None))
        expect_ids(await worker.take(10), jobs, f"jobs leased after the {subject} was released")


async def check_hold_affects_no_other_lane(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 3, dependency="ses", tenant="a"))
    others = [new_job(store, dependency="smtp", tenant="a"), new_job(store, dependency="", tenant="a")]
    await enqueue(store, *others)
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=0))
    worker = await Worker.open(store)
    expect_ids(await worker.take(10), others, "jobs leased while one dependency is held")


async def check_hold_lets_running_jobs_finish(store: Store) -> None:
    await enqueued(store, dependency="ses")
    worker = await Worker.open(store)
    leased = await worker.one()
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=0))
    expect_equal(await worker.settle(succeed(leased)), ["applied"], "the result of a job whose gate was held")


async def check_jobs_that_return_to_a_held_lane_stay_there(store: Store) -> None:
    jobs = new_jobs(store, 3, dependency="ses")
    await enqueue(store, *jobs)
    worker = await Worker.open(store)
    returned, failed, dead = await worker.exactly(3)
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=0))
    death = kill(dead)
    await worker.settle(make(returned, Return()), fail(failed, due_at=START + SECOND), death)
    await store.apply([change.retry(death.job, OPERATOR, START, STUCK_AFTER_SECONDS)], START)
    at = START + 2 * SECOND
    expect_equal(await worker.take(10, at), [], "jobs leased of a held lane that jobs returned to")
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=None), at=at)
    expect_ids(await worker.take(10, at), jobs, "jobs leased after the release")


async def check_delayed_job_of_a_held_lane_waits_for_the_release(store: Store) -> None:
    job = await enqueued(store, dependency="ses", due_at=START + SECOND)
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=0))
    worker = await Worker.open(store)
    for at in (START, START + SECOND, START + HOUR):
        expect_equal(await worker.take(10, at), [], "jobs leased of a held lane")
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=None), at=START + HOUR)
    expect_ids(await worker.take(10, START + HOUR), [job], "jobs leased after the release")


async def check_two_holds_both_count(store: Store) -> None:
    job = await enqueued(store, task="report", dependency="ses")
    task, dependency = LimitUpdate(subject="task", name="report"), LimitUpdate(subject="dependency", name="ses")
    await update_limits(store, replace(task, permits=0), replace(dependency, permits=0))
    worker = await Worker.open(store)
    expect_equal(await worker.take(), [], "jobs leased while both are held")
    await update_limits(store, replace(task, permits=None))
    expect_equal(await worker.take(), [], "jobs leased while one is held")
    await update_limits(store, replace(dependency, permits=None))
    expect_ids(await worker.take(), [job], "jobs leased when neither is held")


async def check_ramp_lets_so_many_be_under_way(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 40, dependency="ses"))
    worker = await Worker.open(store)
    running = await worker.take(3)
    for step in (1, 2, 4, 8):
        await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=step))
        taken = await worker.take(40)
        running += taken
        wanted = max(step, 3)
        expect_equal(len(running), wanted, f"jobs under way at step {step}, those that ran before included")
    await worker.settle(*(succeed(job) for job in running[:5]))
    expect_equal(len(await worker.take(40)), 5, "jobs leased after five of eight have ended")


async def check_permits_are_free_again_however_an_attempt_ends(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 30, dependency="ses"))
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=1))
    worker = await Worker.open(store)
    endings = (succeed, fail, kill, park, lambda job: make(job, Return()))
    for ending in endings * 3:
        taken = await worker.take(5)
        expect_equal(len(taken), 1, "jobs leased with one permit")
        expect_equal(await worker.take(5), [], "jobs leased when the permit is taken")
        await worker.settle(ending(taken[0]))


async def check_pause_of_retries_keeps_them_waiting(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store)
    leased = await worker.one()
    await worker.settle(fail(leased, due_at=START + SECOND))
    await update_limits(store, LimitUpdate(subject="queue", name="default", pauses=("retry",)))
    plain, scheduled = await enqueued(store), await enqueued(store, due_at=START + SECOND)
    at = START + HOUR
    expect_ids(await worker.take(10, at), [plain, scheduled], "jobs leased while retries are paused")
    claimed = await worker.ask(10, at)
    expect_equal((claimed.jobs, claimed.next_at), ((), None), "jobs and next time while all that waits is paused")
    await update_limits(store, LimitUpdate(subject="queue", name="default", pauses=()), at=at)
    expect_ids(await worker.take(10, at), [leased], "jobs leased after the pause")


async def check_pause_of_schedules_keeps_them_waiting(store: Store) -> None:
    scheduled = await enqueued(store, due_at=START + 2 * SECOND)
    await enqueued(store)
    worker = await Worker.open(store)
    leased = await worker.one()
    await worker.settle(fail(leased, due_at=START + SECOND))
    await update_limits(store, LimitUpdate(subject="queue", name="default", pauses=("schedule",)))
    at = START + HOUR
    expect_ids(await worker.take(10, at), [leased], "jobs leased while schedules are paused")
    await update_limits(store, LimitUpdate(subject="queue", name="default", pauses=()), at=at)
    expect_ids(await worker.take(10, at), [scheduled], "jobs leased after the pause")


async def check_pause_is_that_of_one_queue(store: Store) -> None:
    here = await enqueued(store, due_at=START + SECOND)
    there = await enqueued(store, queue="x", due_at=START + SECOND)
    await update_limits(store, LimitUpdate(subject="queue", name="default", pauses=("schedule", "retry")))
    worker = await open_worker(store)
    expect_ids(await worker.take(10, START + HOUR), [there], "jobs leased while another queue is paused")
    expect_job(await get(store, here), here, "the job of the paused queue")


async def check_parked_job_is_no_retry_to_a_pause(store: Store) -> None:
    await enqueued(store, dependency="ses")
    worker = await Worker.open(store)
    leased = await worker.one()
    parked = park(leased, due_at=START + SECOND)
    await worker.settle(parked)
    expect_equal(parked.job.cause, CAUSE, "the cause of a parked job")
    await update_limits(store, LimitUpdate(subject="queue", name="default", pauses=("schedule", "retry")))
    expect_ids(await worker.take(10, START + SECOND), [leased], "jobs leased when a parked one is due")


async def check_limit_updates_of_one_call_count_together(store: Store) -> None:
    await enqueue(store, new_job(store, task="a"), new_job(store, task="b"), new_job(store, task="c"))
    await update_limits(store, *(LimitUpdate(subject="task", name=name, permits=0) for name in "ab"))
    worker = await Worker.open(store)
    expect_equal([job.task for job in await worker.take(10)], ["c"], "tasks leased while two are held")


async def check_what_a_limit_update_leaves_unset_stays(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 10, dependency="ses"))
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", max_running=2))
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=0))
    worker = await Worker.open(store)
    expect_equal(await worker.take(10), [], "jobs leased while held")
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=None))
    expect_equal(len(await worker.take(10)), 2, "jobs leased within the limit that was set before")
