# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of manual actions: retry, cancel, revive, and two of them at once."""

import asyncio

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.status import STUCK_AFTER_SECONDS
from reprieve.stores.protocol import Filter, Store
from reprieve.testing.conformance.expect import expect_equal, expect_ids, expect_job
from reprieve.testing.conformance.settling import LATER, dead_job, running_job
from reprieve.testing.conformance.stage import (
    ANOTHER,
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
    new_job,
    succeed,
)


async def check_person_retries_a_dead_job(store: Store) -> None:
    worker, dead = await dead_job(store)
    wanted = change.retry(dead, OPERATOR, START, STUCK_AFTER_SECONDS)
    expect_equal(await store.apply([wanted], START), ["applied"], "the result of a manual retry")
    expect_job(await get(store, dead), wanted.job, "the job after a manual retry")
    again = await worker.one()
    expect_job(again, change.lease(wanted.job, worker.session, START).job, "the leased job")


async def check_person_retries_a_job_among_the_delayed(store: Store) -> None:
    worker, leased = await running_job(store)
    others = [new_job(store, due_at=START + seconds * SECOND) for seconds in (500, 600)]
    await enqueue(store, *others)
    failed = fail(leased, due_at=START + 550 * SECOND)
    await worker.settle(failed)
    await store.apply([change.retry(failed.job, OPERATOR, LATER, STUCK_AFTER_SECONDS)], LATER)
    again = await worker.one(10, LATER)
    expect_equal((again.id, again.attempt), (leased.id, 2), "the job that a person retried")
    await worker.settle(succeed(again, LATER), at=LATER)
    expect_ids(await worker.take(10, START + HOUR), others, "what the old retry time still brings")


async def check_manual_retry_may_wait(store: Store) -> None:
    worker, dead = await dead_job(store)
    request = replace(OPERATOR, delay=60.0)
    await store.apply([change.retry(dead, request, START, STUCK_AFTER_SECONDS)], START)
    claimed = await worker.ask(1)
    expect_equal((claimed.jobs, claimed.next_at), ((), START + 60 * SECOND), "jobs and next time before the retry")
    expect_equal(len(await worker.take(at=START + 60 * SECOND)), 1, "jobs leased at the time of the retry")


async def check_cancelled_job_is_not_leased(store: Store) -> None:
    ready, delayed = await enqueued(store), await enqueued(store, due_at=LATER)
    changes = [change.cancel(job, OPERATOR, START) for job in (ready, delayed)]
    expect_equal(await store.apply(changes, START), ["applied", "applied"], "the results of two cancels")
    worker = await Worker.open(store)
    claimed = await worker.ask(10)
    expect_equal((claimed.jobs, claimed.next_at), ((), None), "jobs and next time after all were cancelled")
    expect_equal(await worker.take(10, LATER), [], "jobs leased at the time of one that was cancelled")


async def check_job_that_left_the_queue_is_not_leased_in_place_of_the_next(store: Store) -> None:
    worker = await Worker.open(store)
    first, second = await enqueued(store), await enqueued(store)
    cancel = change.cancel(first, OPERATOR, START)
    expect_equal(await store.apply([cancel], START), ["applied"], "the result of the cancel of the first of two")
    expect_ids(await worker.take(10), [second], "jobs leased after the first of two was cancelled")
    third, fourth = await enqueued(store), await enqueued(store)
    cancel = change.cancel(third, OPERATOR, START)
    retry = change.retry(cancel.job, replace(OPERATOR, delay=60.0), START, STUCK_AFTER_SECONDS)
    results = [await store.apply([one], START) for one in (cancel, retry)]
    expect_equal(results, [["applied"], ["applied"]], "the results of a cancel and a retry that waits")
    expect_ids(await worker.take(10), [fourth], "jobs leased while the one before waits for its retry")
    expect_ids(await worker.take(10, START + 60 * SECOND), [third], "jobs leased at the time of the retry")


async def check_person_takes_a_stuck_job_from_its_session(store: Store) -> None:
    worker, leased = await running_job(store)
    at = START + 31 * 60 * SECOND
    retry = change.retry(leased, OPERATOR, at, STUCK_AFTER_SECONDS)
    expect_equal(await store.apply([retry], at), ["applied"], "the result of the retry of a stuck job")
    again = await worker.one(at=at)
    expect_equal(await worker.settle(succeed(leased, at), at=at), ["refused"], "the result of the stuck attempt")
    expect_equal(await worker.settle(succeed(again, at), at=at), ["applied"], "the result of the new attempt")


async def check_dead_job_is_revived(store: Store) -> None:
    worker, dead = await dead_job(store)
    revived = change.revive(dead, START)
    expect_equal(await store.apply([revived], START), ["applied"], "the result of a revival")
    expect_job(await get(store, dead), revived.job, "the revived job")
    expect_equal(len(await worker.take()), 1, "jobs leased after a revival")


async def check_every_retry_gives_the_time_of_the_first_deadline(store: Store) -> None:
    worker = await Worker.open(store)
    job = await enqueued(store, deadline_at=START + HOUR)
    for at in (START + 5 * HOUR, START + 60 * HOUR):
        expect_equal(await worker.take(1, at), [], "jobs leased after the deadline")
        page = await store.find(Filter(ids=(job.id,)), at)
        retries = [change.retry(found, OPERATOR, at, STUCK_AFTER_SECONDS) for found in page.jobs]
        expect_equal(await store.apply(retries, at), ["applied"], "the result of the retry of an expired job")
        expect_job(await get(store, job, at), retries[0].job, "the retried job")
        expect_equal(retries[0].job.deadline_at, at + HOUR, "the deadline after a retry")


async def check_of_two_operators_exactly_one_is_heard(store: Store) -> None:
    _, dead = await dead_job(store)
    retries = [change.retry(dead, request, START, STUCK_AFTER_SECONDS) for request in (OPERATOR, ANOTHER)]
    results = await asyncio.gather(*(store.apply([retry], START) for retry in retries))
    expect_equal(sorted(result for (result,) in results), ["applied", "refused"], "the results of two operators")
    winner = retries[[result for (result,) in results].index("applied")]
    expect_job(await get(store, dead), winner.job, "the job after both")


async def check_of_a_cancel_and_a_claim_exactly_one_wins(store: Store) -> None:
    worker = await Worker.open(store)
    for _ in range(10):
        job = await enqueued(store)
        cancel = change.cancel(job, OPERATOR, START)
        taken, (result,) = await asyncio.gather(worker.take(), store.apply([cancel], START))
        expect_equal(len(taken), 1 if result == "refused" else 0, f"jobs leased when the cancel was {result}")
        if taken:
            await worker.settle(succeed(taken[0]))


async def check_of_two_operators_in_one_batch_the_first_is_heard(store: Store) -> None:
    worker = await Worker.open(store)
    for seconds in (0.0, 60.0):
        await enqueued(store)
        death = kill(await worker.one())
        await worker.settle(death)
        requests = [replace(request, delay=seconds) for request in (OPERATOR, ANOTHER, OPERATOR)]
        retries = [change.retry(death.job, request, START, STUCK_AFTER_SECONDS) for request in requests]
        results = await store.apply(retries, START)
        expect_equal(results, ["applied", "refused", "already"], "the results of two operators, one of them twice")
        expect_job(await get(store, death.job), retries[0].job, "the job after both")
        await store.apply([change.cancel(retries[0].job, OPERATOR, START)], START)


async def check_of_two_operators_the_first_cancel_of_a_waiting_job_is_heard(store: Store) -> None:
    for due_at in (START, LATER):
        job = await enqueued(store, due_at=due_at)
        cancels = [change.cancel(job, request, START) for request in (OPERATOR, ANOTHER, OPERATOR)]
        results = await store.apply(cancels, START)
        expect_equal(results, ["applied", "refused", "already"], "the results of two operators, one of them twice")
        expect_job(await get(store, job), cancels[0].job, "the job after both")
