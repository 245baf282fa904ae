# ruff: noqa: D103, PLR2004 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of the claim: what is leased, when, and what a repeated call returns."""

from reprieve.core import change
from reprieve.core.move import Dead
from reprieve.errors import SessionDead, StaleCall
from reprieve.stores.protocol import Claim, Filter, LimitUpdate, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error, expect_ids, expect_job
from reprieve.testing.conformance.stage import (
    HOUR,
    SECOND,
    START,
    Worker,
    enqueue,
    enqueued,
    fail,
    find_all,
    get,
    new_job,
    new_jobs,
    snooze,
    succeed,
    update_limits,
)


async def check_claim_leases_as_the_core_says(store: Store) -> None:
    job = await enqueued(store, tenant="acme", dependency="ses", payload=b"{}", priority=1, deadline_at=START + HOUR)
    worker = await Worker.open(store)
    leased = await worker.one(at=START + 7)
    wanted = change.lease(job, worker.session, START + 7).job
    expect_job(leased, wanted, "the leased job")
    expect_equal((leased.attempt, leased.version, leased.state), (1, 1, "running"), "attempt, version and state")
    expect_job(await get(store, job), wanted, "the leased job as it is stored")


async def check_attempt_is_counted_by_the_lease(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store)
    for attempt in range(1, 5):
        at = START + attempt * HOUR
        leased = await worker.one(at=at)
        expect_equal((leased.attempt, leased.charged), (attempt, attempt - 1), "attempt and charged of a lease")
        await worker.settle(fail(leased, at), at=at)


async def check_leased_job_is_leased_once(store: Store) -> None:
    jobs = new_jobs(store, 20)
    await enqueue(store, *jobs)
    workers = [await Worker.open(store, f"worker-{number}") for number in range(4)]
    taken = [job for _ in range(3) for worker in workers for job in await worker.take(3)]
    expect_ids(taken, jobs, "jobs leased by four workers")


async def check_claim_takes_no_more_than_its_limit(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 10))
    worker = await Worker.open(store)
    for limit, wanted in ((1, 1), (4, 4), (100, 5), (100, 0)):
        expect_equal(len(await worker.take(limit)), wanted, f"jobs leased with a limit of {limit}")


async def check_limit_of_zero_leases_nothing(store: Store) -> None:
    job = await enqueued(store)
    worker = await Worker.open(store)
    expect_equal(await worker.take(0), [], "jobs leased with a limit of 0")
    expect_job(await get(store, job), job)


async def check_claim_serves_only_the_queues_it_names(store: Store) -> None:
    mail, video = await enqueued(store, queue="mail"), await enqueued(store, queue="video")
    worker = await Worker.open(store)
    expect_equal(await worker.take(10, queues=()), [], "jobs leased from no queue")
    expect_equal(await worker.take(10, queues=("other",)), [], "jobs leased from a queue without jobs")
    expect_ids(await worker.take(10, queues=("video",)), [video], "jobs leased from video")
    expect_ids(await worker.take(10, queues=("mail", "video")), [mail], "jobs leased from mail and video")


async def check_queues_are_served_in_order(store: Store) -> None:
    await enqueue(store, *(new_job(store, queue=queue) for queue in "abcabcabc"))
    worker = await Worker.open(store)
    taken = await worker.take(5, queues=("b", "c", "a"))
    expect_equal([job.queue for job in taken], ["b", "b", "b", "c", "c"], "the queues of five jobs")
    taken = await worker.take(5, queues=("b", "c", "a"))
    expect_equal([job.queue for job in taken], ["c", "a", "a", "a"], "the queues of the rest")


async def check_due_job_is_taken_exactly_when_it_is_due(store: Store) -> None:
    due_at = START + 5 * SECOND
    job = await enqueued(store, due_at=due_at)
    worker = await Worker.open(store)
    for at in (START, due_at - 1):
        expect_equal(await worker.take(at=at), [], f"jobs leased {due_at - at} ms early")
    expect_ids(await worker.take(at=due_at), [job], "jobs leased at their time")


async def check_job_that_failed_is_taken_when_its_wait_is_over(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store)
    leased = await worker.one()
    claimed = await worker.ask(1, START, [fail(leased, due_at=START + 3 * SECOND)])
    expect_equal((claimed.jobs, claimed.next_at), ((), START + 3 * SECOND), "jobs and next time after a failure")
    expect_equal(await worker.take(at=START + 3 * SECOND - 1), [], "jobs leased a millisecond early")
    again = await worker.one(at=START + 3 * SECOND)
    expect_equal((again.id, again.attempt, again.waiting_for), (leased.id, 2, "turn"), "the second lease")


async def check_older_job_that_is_retried_after_a_younger_one_is_taken(store: Store) -> None:
    older, younger = new_jobs(store, 2)
    await enqueue(store, older, younger)
    worker = await Worker.open(store)
    leased = {job.id: job for job in await worker.take(2)}
    waits = {older.id: 10 * SECOND, younger.id: SECOND}
    await worker.settle(*(fail(leased[job_id], due_at=START + wait) for job_id, wait in waits.items()))
    expect_ids(await worker.take(at=START + SECOND), [younger], "jobs leased when the younger is due")
    expect_ids(await worker.take(at=START + 10 * SECOND), [older], "jobs leased when the older is due")


async def check_job_that_snoozed_is_taken_when_its_wait_is_over(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store)
    leased = await worker.one()
    await worker.settle(snooze(leased, due_at=START + SECOND))
    expect_equal(await worker.take(at=START + SECOND - 1), [], "jobs leased a millisecond early")
    expect_equal(len(await worker.take(at=START + SECOND)), 1, "jobs leased at their time")


async def check_claim_says_when_the_next_job_is_due(store: Store) -> None:
    worker = await Worker.open(store)
    expect_equal((await worker.ask()).next_at, None, "the next time when there is nothing")
    for seconds in (9, 3, 6):
        await enqueued(store, due_at=START + seconds * SECOND)
    await enqueued(store, queue="other", due_at=START + SECOND)
    expect_equal((await worker.ask()).next_at, START + 3 * SECOND, "the next time when three jobs wait")
    claimed = await worker.ask(at=START + 4 * SECOND)
    expect_equal(len(claimed.jobs), 1, "jobs leased after the first was due")
    expect_equal((await worker.ask(at=START + 4 * SECOND)).next_at, START + 6 * SECOND, "the next time after that")


async def check_next_time_is_that_of_every_queue_named(store: Store) -> None:
    await enqueued(store, queue="a", due_at=START + 9 * SECOND)
    await enqueued(store, queue="b", due_at=START + 4 * SECOND)
    worker = await Worker.open(store)
    expect_equal((await worker.ask(queues=("a", "b"))).next_at, START + 4 * SECOND, "the next time of two queues")


async def check_claim_that_left_jobs_behind_does_not_wait_for_a_notification(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 5))
    worker = await Worker.open(store)
    claimed = await worker.ask(3)
    expect(len(claimed.jobs) == 3, f"three of five jobs are leased, not {len(claimed.jobs)}")
    again = await worker.ask(3)
    expect_equal((len(again.jobs), again.next_at), (2, None), "the rest, and nothing to look for afterwards")


async def check_job_past_its_deadline_dies_instead(store: Store) -> None:
    late = await enqueued(store, deadline_at=START + SECOND, key="late")
    fine = await enqueued(store, deadline_at=START + HOUR)
    worker = await Worker.open(store)
    at = START + 2 * SECOND
    expect_ids(await worker.take(10, at), [fine], "jobs leased")
    dead = await get(store, late, at)
    expect_job(dead, change.expire(late, at).job, "the job past its deadline")
    events = [event for _, event in await store.events(job_id=late.id)]
    expect_equal(events, [change.expire(late, at).event], "its events")
    expect(isinstance(events[0].move, Dead), "its event is a death")


async def check_retry_past_its_deadline_dies_instead(store: Store) -> None:
    await enqueued(store, deadline_at=START + 5 * SECOND)
    worker = await Worker.open(store)
    leased = await worker.one()
    failed = fail(leased, due_at=START + 2 * SECOND)
    await worker.settle(failed)
    at = START + 6 * SECOND
    expect_equal(await worker.take(10, at), [], "jobs leased after the deadline")
    expect_job(await get(store, leased, at), change.expire(failed.job, at).job, "the job past its deadline")


async def check_many_jobs_past_their_deadline_hide_none_behind_them(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 300, deadline_at=START + SECOND))
    fine = await enqueued(store, at=START + 1)
    worker = await Worker.open(store)
    taken = [job for _ in range(310) for job in await worker.take(1, START + 2 * SECOND)]
    expect_ids(taken, [fine], "jobs leased behind 300 that are past their deadline")


async def check_repeated_claim_answers_the_same_jobs(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 5))
    worker = await Worker.open(store)
    first = await worker.ask(3)
    again = await worker.again(3)
    expect_equal(again.jobs, first.jobs, "the jobs of a repeated claim")
    late = await worker.again(3, START + SECOND)
    expect_equal(late.jobs, first.jobs, "the jobs of a claim that was repeated later")
    expect_equal(len(await find_all(store, Filter(session=worker.session))), 3, "jobs that the session holds")
    expect_equal(len(await worker.take(3)), 2, "jobs leased by the next claim")


async def check_repeated_claim_that_found_nothing_leases_each_job_once(store: Store) -> None:
    worker = await Worker.open(store)
    await worker.ask(3)
    await enqueued(store)
    # Such a call need not be remembered, so the repeat may find what has come since; the next must not find it again.
    found = (await worker.again(3)).jobs
    expect_equal(len(found) + len(await worker.take(3)), 1, "jobs leased by a repeated claim and the next")


async def check_repeated_claim_answers_its_changes_as_before(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 3))
    worker = await Worker.open(store)
    one, two, three = await worker.exactly(3)
    await store.apply([fail(two)], START)
    ghost = new_job(store)
    changes = [succeed(one), succeed(two), succeed(three), succeed(change.lease(ghost, worker.session, START).job)]
    first = await worker.ask(2, changes=changes)
    expect_equal(first.results, ("applied", "refused", "applied", "missing"), "the results of four changes")
    # What was refused or missing the first time must not be judged anew, whatever has happened since.
    await enqueue(store, ghost)
    again = await worker.again(2, changes=changes)
    expect_equal((again.results, again.jobs), (first.results, first.jobs), "the results of a repeated claim")


async def check_claim_with_a_lower_number_is_refused_whole(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 3))
    worker = await Worker.open(store)
    one = await worker.one()
    await worker.one()
    stale = Claim(session=worker.session, number=1, now=START, queues=("default",), limit=5, changes=(succeed(one),))
    await expect_error(store.claim(stale), StaleCall, "a claim with a lower number")
    expect_job(await get(store, one), one, "the job that a stale call would settle")
    expect_equal(len(await find_all(store, Filter(session=worker.session))), 2, "jobs that the session holds")


async def check_numbers_count_for_each_session_alone(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 4))
    first, second = await Worker.open(store, "a"), await Worker.open(store, "b")
    for worker in (first, first, second, second):
        expect_equal(len(await worker.take()), 1, f"jobs leased by {worker.session} with number {worker.number}")


async def check_unknown_session_leases_nothing(store: Store) -> None:
    job = await enqueued(store)
    stranger = Worker(store, "stranger")
    await expect_error(stranger.ask(5), SessionDead, "a claim of a session that never was")
    forged = succeed(change.lease(job, "stranger", START).job)
    await expect_error(stranger.ask(5, changes=[forged]), SessionDead, "its settlement")
    expect_job(await get(store, job), job)


async def check_dead_session_leases_nothing(store: Store) -> None:
    job = await enqueued(store)
    worker = await Worker.open(store, lease=10.0)
    await store.recover(START + 10 * SECOND + 1)
    await expect_error(worker.ask(5, START + 10 * SECOND + 1), SessionDead, "a claim of a session that died")
    expect_job(await get(store, job), job)


async def check_session_that_ended_leases_nothing(store: Store) -> None:
    job = await enqueued(store)
    worker = await Worker.open(store)
    await worker.heartbeat(lease=0)
    await expect_error(worker.ask(5, START + 1), SessionDead, "a claim of a session that ended")
    expect_job(await get(store, job), job)


async def check_claim_that_answers_too_few_left_nothing_behind(store: Store) -> None:
    await update_limits(
        store,
        LimitUpdate(subject="dependency", name="ses", max_running=2),
        LimitUpdate(subject="task", name="held", permits=0),
    )
    for number in range(40):
        tenant, task = f"tenant-{number % 5}", ("send", "held")[number % 8 == 0]
        dependency = ("", "ses")[number % 3 == 0]
        await enqueued(store, tenant=tenant, task=task, dependency=dependency, priority=1 + number % 9)
    worker = await Worker.open(store)
    taken: list[str] = []
    for _ in range(60):
        claimed = await worker.ask(7)
        taken.extend(job.id for job in claimed.jobs)
        if len(claimed.jobs) < 7 and (claimed.next_at is None or claimed.next_at > START):
            break
    else:
        message = "the claim asked to look again at once for 60 times"
        raise AssertionError(message)
    waiting = [job for job in await find_all(store, Filter()) if job.state == "waiting" and job.task == "send"]
    expect(all(job.dependency == "ses" for job in waiting), f"nothing open is left behind, but {waiting!r} is")
    expect(len(taken) == len(set(taken)), "every job is leased once")
