# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of jobs that tell all: their enqueues, starts and successes are events, each of them once, and in order."""

from collections.abc import Iterable

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.events import Event
from reprieve.core.headers import Headers
from reprieve.core.history import rebuild
from reprieve.core.job import Job
from reprieve.errors import SessionDead, ValidationError
from reprieve.stores.protocol import Claim, Claimed, EventQuery, Filter, Store
from reprieve.testing.conformance.expect import expect_equal, expect_error
from reprieve.testing.conformance.stage import (
    HOUR,
    OPERATOR,
    SECOND,
    START,
    Worker,
    enqueue,
    enqueued,
    fail,
    get,
    new_job,
    succeed,
)

TELLS_ALL = Headers(tells_all=True)


async def telling(worker: Worker, starts: Iterable[Job], *changes: change.Change, at: int = START) -> Claimed:
    """Tell starts and settle changes with one claim, and repeat it as after a lost reply."""
    worker.number += 1
    claim = Claim(session=worker.session, number=worker.number, now=at, changes=changes, starts=tuple(starts))
    claimed = await worker.store.claim(claim)
    expect_equal(await worker.store.claim(claim), claimed, "the repeat of a claim that tells starts")
    return claimed


async def names_of(store: Store, job: Job) -> list[str]:
    return [event.name for _, event in await store.events(job_id=job.id)]


async def check_job_that_tells_all_has_events_from_its_enqueue_to_its_success(store: Store) -> None:
    job = await enqueued(store, headers=TELLS_ALL, queue="default", tenant="acme", task="send")
    worker = await Worker.open(store)
    first = await worker.one()
    await telling(worker, [first])
    failure = fail(first)
    await worker.settle(failure)
    second = await worker.one(at=START + HOUR)
    await telling(worker, [second], succeed(second, START + HOUR + 1), at=START + HOUR)
    found = await store.events(job_id=job.id)
    names = ["JobEnqueued", "JobStarted", "RetryScheduled", "RetryStarted", "RetrySucceeded"]
    expect_equal([event.name for _, event in found], names, "the events of a job that tells all")
    expect_equal([event.version for _, event in found], [0, 1, 2, 3, 4], "their versions")
    ats = [START, START, failure.event.at, START + HOUR, START + HOUR + 1]
    expect_equal([event.at for _, event in found], ats, "when they happened")
    expect_equal(
        {(event.queue, event.tenant, event.task) for _, event in found}, {("default", "acme", "send")}, "names"
    )
    stored = await get(store, job)
    rebuilt = rebuild(stored, [event for _, event in found]) if stored is not None else None
    expect_equal(rebuilt, stored, "the job that its events rebuild")
    page = await store.read_events(EventQuery(job_id=job.id, newest_first=True))
    expect_equal(list(page.events), found[::-1], "the events of the job, backwards")


async def check_jobs_that_do_not_ask_leave_no_event_when_all_goes_well(store: Store) -> None:
    await enqueue(store, new_job(store), new_job(store, headers=Headers(tags=("a",))))
    worker = await Worker.open(store)
    jobs = await worker.exactly(2)
    await worker.settle(*map(succeed, jobs))
    expect_equal(await store.events(), [], "events of jobs that do not ask for them")


async def check_batch_that_tells_all_is_told_once_and_in_order(store: Store) -> None:
    jobs = [new_job(store, headers=TELLS_ALL if number % 3 else None, tenant=f"t{number % 2}") for number in range(30)]
    await enqueue(store, *jobs)
    await enqueue(store, *jobs)
    worker = await Worker.open(store)
    leased = await worker.exactly(30)
    told = [job for job in leased if job.tells_all]
    await telling(worker, told, *map(succeed, leased))
    wanted = {job.id for job in jobs if job.tells_all}
    found = [(event.name, event.job_id) for _, event in await store.events()]
    expect_equal(sorted(found[:20]), sorted(("JobEnqueued", job_id) for job_id in wanted), "the enqueues, told first")
    rest = sorted(("JobStarted", job_id) for job_id in wanted) + sorted(("JobSucceeded", job_id) for job_id in wanted)
    expect_equal(sorted(found[20:]), rest, "the starts and the successes")
    places = [place for place, _ in await store.events()]
    expect_equal(places, sorted(set(places)), "positions that only grow")
    for job in jobs[:4]:
        names = ["JobEnqueued", "JobStarted", "JobSucceeded"] if job.tells_all else []
        expect_equal(await names_of(store, job), names, "the events of one job")
    page = await store.read_events(EventQuery(tenant="t1", names=frozenset({"JobSucceeded"})))
    of_tenant = [event.job_id for _, event in page.events if isinstance(event, Event)]
    expect_equal(
        sorted(of_tenant), sorted(job.id for job in jobs if job.tells_all and job.tenant == "t1"), "those of a tenant"
    )


async def check_only_the_job_that_has_a_key_tells_its_enqueue(store: Store) -> None:
    job = await enqueued(store, headers=TELLS_ALL, key="k")
    other = new_job(store, headers=TELLS_ALL, key="k")
    expect_equal(await enqueue(store, other), [job.id], "the id for a key that is taken")
    await enqueued(store, headers=TELLS_ALL, key="k2", due_at=START + HOUR)
    worker = await Worker.open(store)
    await worker.exactly(1)
    enqueues = [event for _, event in await store.events() if event.name == "JobEnqueued"]
    expect_equal(len(enqueues), 2, "enqueues that were told")
    expect_equal(await names_of(store, other), [], "the events of a job that was not stored")


async def check_enqueue_is_told_before_a_job_is_cancelled(store: Store) -> None:
    job = await enqueued(store, headers=TELLS_ALL, due_at=START + HOUR)
    await store.apply([change.cancel(job, OPERATOR, START)], START)
    expect_equal(await names_of(store, job), ["JobEnqueued", "JobCancelled"], "the events of a cancelled job")


async def check_dead_session_tells_no_starts(store: Store) -> None:
    worker = await Worker.open(store, lease=10)
    job = await enqueued(store, headers=TELLS_ALL)
    leased = await worker.one()
    lost = await store.recover(START + 20 * SECOND)
    expect_equal([one.id for one in lost], [job.id], "the jobs of the dead session")
    claim = Claim(session=worker.session, number=worker.number + 1, now=START + 20 * SECOND, starts=(leased,))
    await expect_error(store.claim(claim), SessionDead, "a claim of a dead session that only tells starts")
    success = succeed(leased, START + 20 * SECOND)
    claimed = await store.claim(replace(claim, number=claim.number + 1, changes=(success,)))
    wanted = ["JobEnqueued", *(["JobSucceeded"] if claimed.results == ("applied",) else [])]
    expect_equal(await names_of(store, job), wanted, "what is told of the job")
    stored = await get(store, job)
    events = [event for _, event in await store.events(job_id=job.id)]
    expect_equal(rebuild(stored, events) if stored is not None else None, stored, "the job that its events rebuild")


async def check_refused_success_tells_nothing(store: Store) -> None:
    job = await enqueued(store, headers=TELLS_ALL)
    worker = await Worker.open(store)
    leased = await worker.one()
    await telling(worker, [leased], fail(leased))
    claimed = await telling(worker, [], succeed(leased))
    expect_equal(claimed.results, ("refused",), "the result of a success that comes too late")
    expect_equal(await names_of(store, job), ["JobEnqueued", "JobStarted", "RetryScheduled"], "what is told of the job")


async def check_start_of_a_job_that_is_not_leased_is_refused(store: Store) -> None:
    job = await enqueued(store, headers=TELLS_ALL)
    worker = await Worker.open(store)
    other = await Worker.open(store, "worker-2")
    leased = await worker.one()
    for session, one in ((worker.session, job), (other.session, leased)):
        claim = Claim(session=session, number=9, now=START, starts=(one,))
        await expect_error(store.claim(claim), ValidationError, f"telling the start of {one!r} in {session}")
    page = await store.find(Filter(ids=(job.id,)), START)
    expect_equal([one.session for one in page.jobs], [worker.session], "the session that runs the job")
