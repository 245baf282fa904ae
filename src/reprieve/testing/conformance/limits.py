# ruff: noqa: D103, PLR2004 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of limits and rates: they are exact, and released slots are counted."""

from typing import Any

from msgspec.structs import replace

from reprieve.core.job import HIGH, LOW, Job
from reprieve.core.move import Return
from reprieve.core.rate import Rate
from reprieve.stores.paginate import all_limit_states
from reprieve.stores.protocol import Filter, LimitUpdate, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_ids
from reprieve.testing.conformance.gates import SUBJECTS, affected, limit_update, open_worker
from reprieve.testing.conformance.stage import (
    SECOND,
    START,
    Worker,
    enqueue,
    enqueued,
    fail,
    kill,
    make,
    new_job,
    new_jobs,
    park,
    snooze,
    stop,
    succeed,
    update_limits,
)


async def check_limit_of_every_subject_is_kept(store: Store) -> None:
    worker = await open_worker(store)
    for subject in SUBJECTS:
        await update_limits(store, limit_update(subject, max_running=2))
        await enqueue(store, *new_jobs(store, 5, **affected(subject)))
        taken = await worker.take(10)
        expect_equal(len(taken), 2, f"jobs leased of a {subject} that may run two")
        expect_equal(await worker.take(10), [], f"jobs leased of a {subject} that is full")
        taken += (await worker.ask(10, changes=[succeed(taken[0])])).jobs
        expect_equal(len(taken), 3, f"jobs leased of a {subject} after one of two has ended")
        await update_limits(store, limit_update(subject, max_running=None))
        taken += await worker.take(10)
        expect_equal(len(taken), 5, f"jobs leased of a {subject} without limit")


async def check_limits_count_across_sessions_and_queues(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", max_running=3))
    await enqueue(store, *new_jobs(store, 3, dependency="ses"), *new_jobs(store, 3, dependency="ses", queue="x"))
    first, second = await Worker.open(store, "a"), await Worker.open(store, "b")
    second.queues = ("x",)
    expect_equal(len(await first.take(2)), 2, "jobs leased by the first")
    expect_equal(len(await second.take(5)), 1, "jobs leased by the second")
    expect_equal(await first.take(5), [], "jobs leased when the dependency is full")


async def check_limit_is_kept_by_a_claim_that_has_to_look_on(store: Store) -> None:
    # Among many tenants some are held, in whatever order they are met: what was taken before them still counts.
    await update_limits(store, LimitUpdate(subject="task", name="held", permits=0))
    worker = await open_worker(store)
    for round_number in range(10):
        dependency, queue = f"ses-{round_number}", f"queue-{round_number}"
        await update_limits(store, LimitUpdate(subject="dependency", name=dependency, max_running=1))
        for number in range(12):
            task, through = ("held", "") if number % 4 else ("send", dependency)
            await enqueued(store, queue=queue, tenant=f"tenant-{number}", task=task, dependency=through)
        taken = await worker.take(2, queues=(queue,))
        expect_equal(len(taken), 1, "jobs leased of a dependency that may run one")
        running = {limit_state.name: limit_state.running for limit_state in await all_limit_states(store, "dependency")}
        expect_equal(running[dependency], 1, "jobs that count as running")


async def check_limit_of_a_queue_is_used_up_by_a_claim_that_has_to_look_on(store: Store) -> None:
    # Most tenants are held, so the claim takes a few jobs, reads more tenants and goes on with the room that is left.
    await update_limits(store, LimitUpdate(subject="task", name="held", permits=0))
    worker = await open_worker(store)
    for round_number in range(5):
        queue = f"queue-{round_number}"
        await update_limits(store, LimitUpdate(subject="queue", name=queue, max_running=4))
        for number in range(60):
            task = "held" if (number + round_number) % 5 else "send"
            await enqueued(store, queue=queue, tenant=f"tenant-{number}", task=task)
        expect_equal(len(await worker.take(4, queues=(queue,))), 4, "jobs leased of a queue that may run four")
        expect_equal(await worker.take(4, queues=(queue,)), [], "jobs leased of a queue that is full")


async def check_limit_of_a_tenant_is_that_of_its_queue(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="tenant", name="acme", queue="default", max_running=1))
    await enqueue(store, *new_jobs(store, 3, tenant="acme"), *new_jobs(store, 3, tenant="acme", queue="x"))
    worker = await open_worker(store)
    taken = await worker.take(10)
    queues = [job.queue for job in taken]
    expect_equal((queues.count("default"), queues.count("x")), (1, 3), "jobs leased in the two queues")


async def check_several_limits_all_count(store: Store) -> None:
    await update_limits(
        store,
        LimitUpdate(subject="queue", name="default", max_running=7),
        LimitUpdate(subject="tenant", name="acme", queue="default", max_running=3),
        LimitUpdate(subject="task", name="slow", max_running=2),
    )
    await enqueue(
        store,
        *new_jobs(store, 10, tenant="acme", task="slow"),
        *new_jobs(store, 10, tenant="acme", task="fast"),
        *new_jobs(store, 10, tenant="other", task="slow"),
        *new_jobs(store, 10, tenant="other", task="fast"),
    )
    worker = await Worker.open(store)
    taken = await worker.take(30)
    expect_equal(len(taken), 7, "jobs leased of the queue")
    expect_equal(sum(job.tenant == "acme" for job in taken), 3, "jobs leased of the tenant")
    expect(sum(job.task == "slow" for job in taken) <= 2, "no more than two slow ones run")


async def check_limit_leaks_no_slot_however_an_attempt_ends(store: Store) -> None:
    for subject in SUBJECTS:
        await update_limits(store, limit_update(subject, max_running=1))
    await enqueue(store, *new_jobs(store, 30, tenant="x", task="x", dependency="x", group="x", queue="x"))
    worker = await open_worker(store)
    endings = (succeed, fail, kill, park, snooze, stop, lambda job: make(job, Return()))
    for ending in endings * 2:
        leased = await worker.one(2)
        await worker.settle(ending(leased))
    # The other way out: taken back by recovery.
    leased = await worker.one(2)
    await store.apply([make(leased, Return(crashed=True))], START)
    expect_equal(len(await worker.take(2)), 1, "jobs leased after every way out")


async def check_refused_change_frees_no_slot(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="task", name="send", max_running=1))
    await enqueued(store)
    worker = await Worker.open(store)
    leased = await worker.one(3)
    await store.apply([make(leased, Return(crashed=True))], START)
    again = await worker.one(3)
    await enqueue(store, *new_jobs(store, 2))
    for _ in range(2):
        await worker.settle(succeed(leased))
    expect_equal(await worker.take(3), [], "jobs leased after a refused result")
    for _ in range(2):
        await worker.settle(succeed(again))
    expect_equal(len(await worker.take(3)), 1, "jobs leased after a result that was given twice")


async def check_lowered_limit_counts_at_once(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 10))
    worker = await Worker.open(store)
    running = await worker.take(4)
    await update_limits(store, LimitUpdate(subject="queue", name="default", max_running=2))
    expect_equal(await worker.take(10), [], "jobs leased when four run and two may")
    await worker.settle(*(succeed(job) for job in running[:3]))
    expect_equal(len(await worker.take(10)), 1, "jobs leased when one runs and two may")


async def check_raised_limit_frees_at_once_what_waited(store: Store) -> None:
    for subject in SUBJECTS:
        await update_limits(store, limit_update(subject, max_running=1))
    worker = await open_worker(store)
    for subject in SUBJECTS:
        await enqueue(store, *new_jobs(store, 6, **affected(subject)))
        expect_equal(len(await worker.take(10)), 1, f"jobs leased of a {subject} that may run one")
        await update_limits(store, limit_update(subject, max_running=4))
        expect_equal(len(await worker.take(10)), 3, f"jobs leased of a {subject} that may now run four")
        await update_limits(store, limit_update(subject, max_running=None))
        expect_equal(len(await worker.take(10)), 2, f"jobs leased of a {subject} without limit")


async def check_jobs_wait_for_a_limit_in_their_order(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", max_running=1))
    jobs = [await enqueued(store, START + number, dependency="ses") for number in range(6)]
    worker = await Worker.open(store)
    taken = []
    for _ in jobs:
        leased = await worker.one(3, START + SECOND)
        taken.append(leased.id)
        await worker.settle(succeed(leased, START + SECOND), at=START + SECOND)
    expect_equal(taken, [job.id for job in jobs], "the order of jobs that waited for a limit")


async def check_no_window_sees_more_than_the_rate(store: Store) -> None:
    rate = Rate(count=5, window=10.0)
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", rate=rate))
    await enqueue(store, *new_jobs(store, 60, dependency="ses"))
    worker = await Worker.open(store)
    times: list[int] = []
    at = START
    for _ in range(100):
        claimed = await worker.ask(2, at)
        times.extend([at] * len(claimed.jobs))
        await worker.settle(*(succeed(job, at) for job in claimed.jobs), at=at)
        at += 1_333
    for start in times:
        seen = sum(start <= time < start + 10 * SECOND for time in times)
        expect(seen <= 5, f"{seen} jobs were leased in a window of ten seconds that allows five")
    # A sixty-fourth of a window may go unused, and the claim asks only now and then.
    expect(len(times) >= 55, f"only {len(times)} of 60 jobs were leased in the time of 13 windows")


async def check_rate_says_exactly_when_to_look_again(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="queue", name="default", rate=Rate(count=3, window=60.0)))
    await enqueue(store, *new_jobs(store, 10))
    worker = await Worker.open(store)
    at, taken = START, 0
    for _ in range(4):
        claimed = await worker.ask(10, at)
        expect(len(claimed.jobs) >= 1, "the time that a claim named brings a job")
        taken += len(claimed.jobs)
        if taken == 10:
            return
        if claimed.next_at is None or claimed.next_at <= at:
            claimed = await worker.ask(10, at)
        expect(claimed.next_at is not None, "a claim that met a rate says when to look again")
        next_at = claimed.next_at or 0
        expect(at + 60 * SECOND <= next_at <= at + 62 * SECOND, f"in a minute, not in {next_at - at} ms")
        expect_equal(await worker.take(10, next_at - 1), [], "jobs leased a millisecond before that")
        at = next_at
    expect_equal(taken, 10, "jobs leased in four windows")


async def check_rate_of_every_subject_is_kept(store: Store) -> None:
    worker = await open_worker(store)
    for subject in SUBJECTS:
        await update_limits(store, limit_update(subject, rate=Rate(count=2, window=60.0)))
        jobs = new_jobs(store, 5, **affected(subject))
        await enqueue(store, *jobs)
        taken = await worker.take(10)
        expect_equal(len(taken), 2, f"jobs leased of a {subject} with a rate of two")
        await worker.settle(*(succeed(job) for job in taken))
        expect_equal(await worker.take(10), [], f"jobs leased after they have ended: the {subject} has spent its rate")
        await update_limits(store, limit_update(subject, rate=None))
        expect_equal(len(await worker.take(10)), 3, f"jobs leased of a {subject} without rate")


async def check_rate_of_every_subject_has_room_again_in_time(store: Store) -> None:
    worker = await open_worker(store)
    at = START
    for subject in SUBJECTS:
        await update_limits(store, limit_update(subject, rate=Rate(count=2, window=60.0)), at=at)
        await enqueue(store, *new_jobs(store, 6, **affected(subject)))
        for window in range(3):
            taken = await worker.take(10, at)
            expect_equal(len(taken), 2, f"jobs leased of a {subject} in window {window} of its rate of two")
            await worker.settle(*(succeed(job) for job in taken), at=at)
            expect_equal(await worker.take(10, at), [], f"jobs leased of a {subject} that has spent its rate")
            at += 62 * SECOND
        await update_limits(store, limit_update(subject, rate=None), at=at)


async def check_job_past_its_deadline_leaks_no_slot(store: Store) -> None:
    worker = await open_worker(store)
    at = START + 2 * SECOND
    for subject in SUBJECTS:
        await update_limits(store, limit_update(subject, max_running=1))
        late = new_jobs(store, 3, deadline_at=START + SECOND, **affected(subject))
        await enqueue(store, *late, *new_jobs(store, 3, **affected(subject)))
        ended = 0
        for _ in range(12):
            taken = await worker.take(2, at)
            expect(len(taken) <= 1, f"one job of the {subject} runs at a time, not {len(taken)}")
            await worker.settle(*(succeed(job, at) for job in taken), at=at)
            ended += len(taken)
        expect_equal(ended, 3, f"jobs of a {subject} that ran when three others had expired")
        await update_limits(store, limit_update(subject, max_running=None))


async def check_raised_rate_frees_at_once_what_waited(store: Store) -> None:
    limit = LimitUpdate(subject="tenant", name="", queue="default")
    await update_limits(store, replace(limit, rate=Rate(count=1, window=3_600.0)))
    await enqueue(store, *new_jobs(store, 6))
    worker = await Worker.open(store)
    expect_equal(len(await worker.take(10)), 1, "jobs leased at a rate of one")
    await update_limits(store, replace(limit, rate=Rate(count=4, window=3_600.0)))
    taken = len(await worker.take(10))
    expect(3 <= taken <= 4, f"a rate of four lets three more through, or four if it began anew, not {taken}")


async def check_rate_that_is_set_again_goes_on_counting(store: Store) -> None:
    limit = LimitUpdate(subject="queue", name="default", rate=Rate(count=2, window=60.0))
    await update_limits(store, limit)
    await enqueue(store, *new_jobs(store, 5))
    worker = await Worker.open(store)
    expect_equal(len(await worker.take(5)), 2, "jobs leased at a rate of two")
    await update_limits(store, limit)
    expect_equal(await worker.take(5), [], "jobs leased after the same rate was set again")


async def check_rate_with_a_shorter_window_counts_what_lies_in_it(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="queue", name="default", rate=Rate(count=2, window=600.0)))
    await enqueue(store, *new_jobs(store, 6))
    worker = await Worker.open(store)
    await worker.one(1)
    await worker.one(1, START + 290 * SECOND)
    at = START + 300 * SECOND
    await update_limits(store, LimitUpdate(subject="queue", name="default", rate=Rate(count=2, window=60.0)), at=at)
    taken = len(await worker.take(10, at))
    expect(1 <= taken <= 2, f"two a minute, and one of them ten seconds ago: one more, or two anew, not {taken}")


async def check_rate_whose_window_changes_often_comes_round(store: Store) -> None:
    limit = LimitUpdate(subject="queue", name="default", rate=Rate(count=1, window=60.0))
    await update_limits(store, limit)
    await enqueue(store, *new_jobs(store, 2))
    worker = await Worker.open(store)
    await worker.one()
    taken: list[Job] = []
    for number in range(1, 10):
        at = START + 10 * number * SECOND
        await update_limits(store, replace(limit, rate=Rate(count=1, window=60.0 - number % 2)), at=at)
        taken += await worker.take(1, at)
    expect_equal(len(taken), 1, "jobs leased in the 90 s after another, at one a minute that was set every 10 s")


async def check_rate_of_one_lane_does_not_stop_another(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", rate=Rate(count=1, window=60.0)))
    await enqueue(store, *new_jobs(store, 3, dependency="ses"))
    others = new_jobs(store, 3, dependency="smtp")
    await enqueue(store, *others)
    worker = await Worker.open(store)
    taken = await worker.take(10)
    expect_ids([job for job in taken if job.dependency == "smtp"], others, "jobs leased of the other lane")
    expect_equal(len(taken), 4, "jobs leased in all")


async def check_job_past_its_deadline_spends_no_rate(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", rate=Rate(count=1, window=3_600.0)))
    await enqueue(store, *new_jobs(store, 5, dependency="ses", deadline_at=START + SECOND))
    fine = await enqueued(store, START + 1, dependency="ses")
    worker = await Worker.open(store)
    taken = [job for _ in range(10) for job in await worker.take(2, START + 2 * SECOND)]
    expect_ids(taken, [fine], "jobs leased behind five whose time is up, at a rate of one an hour")


async def check_refused_grant_spends_no_rate(store: Store) -> None:
    await update_limits(
        store,
        LimitUpdate(subject="queue", name="default", rate=Rate(count=2, window=60.0)),
        LimitUpdate(subject="task", name="held", permits=0),
    )
    await enqueue(store, *new_jobs(store, 5, task="held"))
    worker = await Worker.open(store)
    for _ in range(5):
        expect_equal(await worker.take(5), [], "jobs leased of a held task")
    await enqueue(store, *new_jobs(store, 5))
    expect_equal(len(await worker.take(5)), 2, "jobs leased within the rate")


async def check_blocked_job_is_leased_though_the_clock_goes_back(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="task", name="send", max_running=1))
    late = new_job(store, priority=HIGH, deadline_at=START + SECOND)
    blocked = new_job(store, priority=LOW)
    await enqueue(store, late, blocked)
    worker = await Worker.open(store)
    # The first job takes the only slot, so the other is blocked; then the first turns out to be past its deadline.
    leased = await worker.take(2, START + 2 * SECOND)
    for _ in range(3):
        leased += await worker.take(2, START + 2 * SECOND - 50)
    expect_ids(leased, [blocked], "jobs leased after the slot was free again")


async def check_limit_of_a_tenant_and_dependency_counts_what_runs_already(store: Store) -> None:
    of_acme: dict[str, Any] = {"tenant": "acme", "dependency": "ses"}
    others = [new_job(store, tenant="acme"), new_job(store, tenant="other", dependency="ses")]
    await enqueue(store, *new_jobs(store, 3, **of_acme), *new_jobs(store, 3, queue="x", task="other", **of_acme))
    worker = await open_worker(store)
    running = await worker.exactly(2)
    pair = LimitUpdate(subject="tenant_dependency", name="acme", dependency="ses")
    await update_limits(store, replace(pair, max_running=3))
    taken = await worker.take(10)
    expect_equal(len(taken), 1, "jobs leased of a tenant and dependency that run two and may run three, in all queues")
    await enqueue(store, *others)
    expect_ids(await worker.take(10), others, "jobs leased of other tenants, and of this one without the dependency")
    await worker.settle(*(succeed(job) for job in running))
    expect_equal(len(await worker.take(10)), 2, "jobs leased after two of three have ended")
    limited = [one for one in await all_limit_states(store, "tenant_dependency") if one.max_running is not None]
    found = [(one.name, one.dependency, one.max_running, one.running) for one in limited]
    expect_equal(found, [("acme", "ses", 3, 3)], "the limits of tenants and dependencies together")


async def check_limit_of_a_tenant_and_dependency_is_kept_for_later(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="tenant_dependency", name="acme", dependency="ses", permits=0))
    held = new_jobs(store, 2, tenant="acme", dependency="ses")
    free = new_jobs(store, 2, tenant="acme", dependency="smtp")
    await enqueue(store, *held, *free)
    worker = await Worker.open(store)
    expect_ids(await worker.take(10), free, "jobs leased while the tenant's calls of one dependency are held")
    counts = (await store.tally("status", Filter(dependencies=("ses",)), START)).counts
    expect_equal({status: count for status, count in counts.items() if count}, {"parked": 2}, "jobs by status")
    await update_limits(store, LimitUpdate(subject="tenant_dependency", name="acme", dependency="ses", permits=None))
    expect_ids(await worker.take(10), held, "jobs leased after the release")
