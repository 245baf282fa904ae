# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of what prune deletes besides jobs: names without jobs, unless they carry limits, weights or pauses."""

from typing import Any, get_args

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.job import Job
from reprieve.core.rate import Rate
from reprieve.core.status import STUCK_AFTER_SECONDS
from reprieve.stores.paginate import all_limit_states
from reprieve.stores.protocol import Filter, LimitUpdate, Retention, Store, Subject
from reprieve.testing.conformance.expect import expect, expect_equal, expect_ids
from reprieve.testing.conformance.stage import (
    DAY,
    HOUR,
    OPERATOR,
    SECOND,
    START,
    Worker,
    enqueue,
    enqueued,
    fail,
    find_all,
    kill,
    new_job,
    new_jobs,
    park,
    stop,
    succeed,
    update_limits,
)

LATER = START + DAY
"""When everything that ended is pruned."""


async def _prune_all(store: Store, at: int = LATER, archived: tuple[Job, ...] = ()) -> int:
    """Prune until nothing is left to delete; return how many names went."""
    names = 0
    for _ in range(100):
        pruned = await store.prune(
            Retention(now=at, succeeded=0, succeeded_for=0, cancelled_for=0, events_for=0.001, archived=archived)
        )
        names += pruned.names
        if pruned.is_all:
            return names
    message = "a prune had no end after 100 calls"
    raise AssertionError(message)


async def _names(store: Store) -> list[tuple[Subject, str, str]]:
    """Return everything that limit states are kept of."""
    return [
        (subject, state.name, state.queue)
        for subject in get_args(Subject)
        for state in await all_limit_states(store, subject)
    ]


async def _run(store: Store, jobs: list[Job], at: int = START) -> None:
    """Let jobs succeed."""
    worker = await Worker.open(store, f"worker-{at}", at=at)
    queues = sorted({job.queue for job in jobs})
    left = len(jobs)
    while left:
        taken = await worker.take(100, at, queues)
        expect(bool(taken), f"{left} jobs are left to claim")
        await worker.settle(*(succeed(job, at) for job in taken), at=at)
        left -= len(taken)


async def check_names_without_jobs_are_forgotten(store: Store) -> None:
    jobs = [
        new_job(
            store, queue=f"q{number % 2}", tenant=f"t{number}", task=f"k{number}", dependency=f"d{number}", group="g"
        )
        for number in range(12)
    ]
    await enqueue(store, *jobs)
    await _run(store, jobs)
    tenants = {name for subject, name, _ in await _names(store) if subject == "tenant"}
    expect_equal(tenants, {job.tenant for job in jobs}, "tenants after their jobs succeeded")
    await _prune_all(store)
    expect_equal(await _names(store), [], "names after a prune")
    expect_equal(await store.prune(Retention(now=LATER)), await store.prune(Retention(now=LATER + 1)), "further prunes")


async def check_name_of_a_job_that_is_kept_stays(store: Store) -> None:
    states = ("waiting", "delayed", "running", "retrying", "parked", "dead", "cancelled", "succeeded")
    jobs = {
        state: new_job(store, tenant=state, task=f"do {state}", due_at=START + (state == "delayed") * 90 * DAY)
        for state in states
    }
    await enqueue(store, *(job for state, job in jobs.items() if state != "waiting"))
    worker = await Worker.open(store)
    taken = {job.tenant: job for job in await worker.exactly(6)}
    await enqueue(store, jobs["waiting"])
    await worker.settle(
        fail(taken["retrying"], due_at=START + 90 * DAY),
        park(taken["parked"], due_at=START + 90 * DAY),
        kill(taken["dead"]),
        succeed(taken["succeeded"]),
        stop(taken["cancelled"]),
    )
    await store.prune(Retention(now=LATER - HOUR))
    tenants = {name for subject, name, _ in await _names(store) if subject == "tenant"}
    expect_equal(set(states) - tenants - {"succeeded"}, set(), "tenants of jobs that went")
    found = await find_all(store, Filter(), LATER - HOUR)
    expect_ids(found, list(jobs.values()), "jobs with their names")
    expect_equal({job.tenant: job.task for job in found}, {state: f"do {state}" for state in states}, "their names")


async def check_limits_weights_and_pauses_survive_a_prune(store: Store) -> None:
    updates = [
        LimitUpdate(subject="tenant", name="heavy", queue="default", weight=3.0),
        LimitUpdate(subject="tenant", name="slow", queue="default", rate=Rate(count=5, window=10.0)),
        LimitUpdate(subject="task", name="send", max_running=2),
        LimitUpdate(subject="dependency", name="ses", permits=0),
        LimitUpdate(subject="group", name="g", rate=Rate(count=2, window=60.0)),
        LimitUpdate(subject="queue", name="paused", pauses=("retry",)),
    ]
    await update_limits(store, *updates)
    jobs = [new_job(store, tenant=tenant, group="g") for tenant in ("heavy", "slow")]
    await enqueue(store, *jobs)
    await _run(store, jobs)
    before = [state for subject in get_args(Subject) for state in await all_limit_states(store, subject)]
    await _prune_all(store)
    after = {
        (state.subject, state.name): state
        for subject in get_args(Subject)
        for state in await all_limit_states(store, subject)
    }
    kept = {(update.subject, update.name) for update in updates} | {("queue", "default")}
    expect_equal(after.keys(), kept, "names after a prune")
    wanted = {(state.subject, state.name): state for state in before if (state.subject, state.name) in kept}
    expect_equal(after, wanted, "their limits")
    open_again = [
        LimitUpdate(subject="tenant", name="heavy", queue="default", weight=1.0),
        LimitUpdate(subject="tenant", name="slow", queue="default", rate="default"),
        LimitUpdate(subject="task", name="send", max_running="default"),
        LimitUpdate(subject="dependency", name="ses", permits="default"),
        LimitUpdate(subject="group", name="g", rate="default"),
        LimitUpdate(subject="queue", name="paused", pauses="default"),
    ]
    await update_limits(store, *open_again, at=LATER)
    await _prune_all(store, LATER + DAY)
    expect_equal(await _names(store), [], "names after their limits were taken away")


async def check_lane_comes_back_with_its_order_and_counts(store: Store) -> None:
    for round_number in range(3):
        at = START + round_number * DAY
        jobs = new_jobs(store, 5, at, tenant="a", task="send", dependency="ses", group="g")
        await enqueue(store, *jobs, at=at)
        worker = await Worker.open(store, f"first-{at}", at=at)
        first = await worker.one(at=at)
        expect_equal(first.id, jobs[0].id, "the first job of a lane that came back")
        retry = fail(first, at, due_at=at + SECOND)
        await worker.settle(retry, at=at)
        await store.apply([change.cancel(jobs[2], OPERATOR, at)], at)
        tally = (await store.tally("status", Filter(), at)).counts
        counts = {status: count for status, count in tally.items() if count}
        expect_equal(counts, {"ready": 3, "retrying": 1, "cancelled": 1}, "the tally")
        later = at + 2 * SECOND
        taken = [await worker.one(at=later) for _ in range(4)]
        expect_equal(
            [job.id for job in taken],
            [jobs[number].id for number in (1, 3, 4, 0)],
            "the order of a lane that came back",
        )
        await worker.settle(*(succeed(job, later) for job in taken), at=later)
        await _prune_all(store, at + DAY // 2)
        expect_equal(await _names(store), [], "names after a prune")


async def check_lane_of_a_running_job_stays(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 2, tenant="a", dependency="ses"))
    worker = await Worker.open(store)
    one, other = await worker.exactly(2)
    await _prune_all(store)
    await worker.settle(fail(one, LATER), succeed(other, LATER), at=LATER)
    again = await worker.one(at=LATER + 20 * SECOND)
    expect_equal((again.id, again.tenant, again.dependency), (one.id, "a", "ses"), "the job that waits again")
    await worker.settle(succeed(again, LATER), at=LATER)
    expect_equal(await worker.take(at=LATER + HOUR), [], "jobs that are left")


async def check_cancelled_ready_jobs_leave_their_lane(store: Store) -> None:
    held = LimitUpdate(subject="dependency", name="ses", permits=0)
    await update_limits(store, held)
    jobs = new_jobs(store, 6, dependency="ses")
    await enqueue(store, *jobs)
    worker = await Worker.open(store)
    expect_equal(await worker.take(), [], "jobs behind a gate that is held")
    await store.apply([change.cancel(job, OPERATOR, START) for job in jobs], START)
    retried = change.cancel(jobs[3], OPERATOR, START).job
    await store.apply([change.retry(retried, OPERATOR, START, STUCK_AFTER_SECONDS)], START)
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits="default"))
    again = await worker.one(limit=10)
    expect_equal(again.id, jobs[3].id, "the job that was retried")
    await worker.settle(succeed(again))
    await _prune_all(store)
    expect_equal(await _names(store), [], "names after a prune")
    later = await enqueued(store, LATER, dependency="ses")
    expect_equal((await worker.one(limit=10, at=LATER)).id, later.id, "the next job of the lane")


async def check_tenant_that_was_just_served_keeps_its_place(store: Store) -> None:
    busy, quiet = new_jobs(store, 30, tenant="busy"), new_jobs(store, 2, tenant="quiet")
    await enqueue(store, *busy, *quiet)
    worker = await Worker.open(store)
    taken = await worker.exactly(4)
    await worker.settle(*(succeed(job) for job in taken))
    await store.prune(Retention(now=START))
    again = new_jobs(store, 2, tenant="quiet")
    await enqueue(store, *again)
    served = [(await worker.one()).tenant for _ in range(4)]
    expect(served.count("busy") >= 1, f"a tenant that was just served goes before one that waits: {served}")


async def check_dead_job_that_was_archived_takes_its_name_along(store: Store) -> None:
    await enqueued(store, tenant="a")
    worker = await Worker.open(store)
    death = kill(await worker.one())
    await worker.settle(death)
    await _prune_all(store)
    expect(("tenant", "a", "default") in await _names(store), "the tenant of a dead job is kept")
    await _prune_all(store, LATER + DAY, archived=(death.job,))
    expect_equal(await _names(store), [], "names after the dead job was archived")


async def check_name_with_the_limits_of_a_default_is_forgotten(store: Store) -> None:
    defaults = [
        *(LimitUpdate(subject=subject, name=None, max_running=5) for subject in get_args(Subject)),
        LimitUpdate(subject="queue", name=None, pauses=("retry",)),
    ]
    await update_limits(store, *defaults)
    for at in (START, LATER + DAY):
        jobs = new_jobs(store, 5, at, tenant="a", dependency="ses", group="g")
        await enqueue(store, *jobs, at=at)
        states = [state for subject in get_args(Subject) for state in await all_limit_states(store, subject)]
        expect_equal({(state.max_running, state.own) for state in states}, {(5, ())}, "the limits of all names")
        await _run(store, jobs, at)
        await _prune_all(store, at + DAY)
        expect_equal(await _names(store), [], "names after a prune")


async def check_name_stays_that_is_free_of_the_default(store: Store) -> None:
    updates = [
        LimitUpdate(subject="task", name="send", max_running=None),
        LimitUpdate(subject="tenant", name="a", queue="default", rate=None),
        LimitUpdate(subject="queue", name="x", pauses=()),
        LimitUpdate(subject="tenant_dependency", name="a", dependency="ses", permits=None),
    ]
    await update_limits(store, *updates)
    jobs = new_jobs(store, 2, tenant="a", dependency="ses", group="g")
    await enqueue(store, *jobs)
    await _run(store, jobs)
    await _prune_all(store)
    await update_limits(
        store,
        *(LimitUpdate(subject=subject, name=None, max_running=0) for subject in get_args(Subject)),
        LimitUpdate(subject="queue", name=None, pauses=("retry",)),
        at=LATER,
    )
    kept = {
        (state.subject, state.name): state.own
        for subject in get_args(Subject)
        for state in await all_limit_states(store, subject)
    }
    wanted = {
        ("queue", "default"): (),
        ("queue", "x"): ("pauses",),
        ("task", "send"): ("max_running",),
        ("tenant", "a"): ("rate",),
        ("tenant_dependency", "a"): ("permits",),
    }
    expect_equal(kept, wanted, "names that have something of their own")


async def check_limit_of_a_pair_holds_again_after_a_prune(store: Store) -> None:
    pair = LimitUpdate(subject="tenant_dependency", name="a", dependency="ses", max_running=1)
    await enqueue(store, *new_jobs(store, 3, tenant="a", dependency="ses"))
    await update_limits(store, pair)
    await update_limits(store, replace(pair, max_running="default"))
    await _prune_all(store)
    await update_limits(store, pair, at=LATER)
    worker = await Worker.open(store, at=LATER)
    expect_equal(len(await worker.take(10, LATER)), 1, "jobs leased when a tenant may run one of a dependency")


async def check_what_the_rate_of_a_default_has_granted_outlives_a_prune(store: Store) -> None:
    rate = Rate(count=3, window=3 * DAY / SECOND)
    facts: dict[str, Any] = {"queue": "q", "tenant": "a", "task": "call", "dependency": "ses", "group": "g"}
    for number, subject in enumerate(get_args(Subject)):
        at = START + number * 30 * DAY
        worker = await Worker.open(store, f"worker-{at}", at=at)
        await update_limits(store, LimitUpdate(subject=subject, name=None, rate=rate), at=at)
        for time, count in ((at, 3), (at + DAY, 0), (at + 6 * DAY, 3)):
            jobs = new_jobs(store, 5, time, **facts)
            await enqueue(store, *jobs, at=time)
            taken = await worker.take(5, time, ["q"])
            expect_equal(len(taken), count, f"jobs leased after {(time - at) // DAY} days, at 3 for every {subject}")
            await worker.settle(*(succeed(job, time) for job in taken), at=time)
            left = {job.id for job in jobs} - {job.id for job in taken}
            await store.apply([change.cancel(job, OPERATOR, time) for job in jobs if job.id in left], time)
            await _prune_all(store, time + DAY)
        expect(
            subject in {name for name, *_ in await _names(store)}, f"the {subject} was deleted with what it has spent"
        )
        await _prune_all(store, at + 20 * DAY)
        expect_equal(await _names(store), [], f"names once the rate of every {subject} counts nothing any more")
        await update_limits(store, LimitUpdate(subject=subject, name=None, rate="default"), at=at + 20 * DAY)


async def check_nothing_waits_for_the_limits_of_tenants_that_were_forgotten(store: Store) -> None:
    every = LimitUpdate(subject="tenant", name=None, permits=0)
    await update_limits(store, every)
    jobs = [new_job(store, tenant=f"t{number}") for number in range(40)]
    await enqueue(store, *jobs)
    worker = await Worker.open(store)
    expect_equal(await worker.take(50), [], "jobs leased while every tenant is held")
    await store.apply([change.cancel(job, OPERATOR, START) for job in jobs], START)
    await _prune_all(store)
    await update_limits(store, replace(every, permits="default"), at=LATER)
    await update_limits(store, LimitUpdate(subject="task", name="slow", rate=Rate(count=1, window=10.0)), at=LATER)
    await enqueue(store, *new_jobs(store, 3, LATER, task="slow"), at=LATER)
    taken: list[Job] = []
    for number in range(12):
        # A store of several partitions may need a few claims until the one with the share of the rate is asked.
        taken += await worker.take(10, LATER + number * 11 * SECOND)
    expect_equal(len(taken), 3, "jobs leased of a task with a rate, after the tenants were forgotten")
    await worker.settle(*(succeed(job, LATER + HOUR) for job in taken), at=LATER + HOUR)
    last = await worker.ask(10, LATER + HOUR)
    expect_equal((last.jobs, last.next_at), ((), None), "jobs, and when there may be more, once all have ended")
