# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of events: their order, and the job that they rebuild."""

from collections.abc import Callable

from reprieve.core import change
from reprieve.core.change import Change
from reprieve.core.events import replay
from reprieve.core.history import rebuild
from reprieve.core.job import Job
from reprieve.core.status import STUCK_AFTER_SECONDS
from reprieve.stores.protocol import Annotation, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_job
from reprieve.testing.conformance.stage import (
    CANCEL_REQUEST,
    HOUR,
    OPERATOR,
    START,
    Worker,
    enqueued,
    fail,
    get,
    kill,
    park,
    snooze,
)


async def check_events_come_in_order(store: Store) -> None:
    jobs = [await enqueued(store) for _ in range(5)]
    changes = [change.cancel(job, OPERATOR, START + number) for number, job in enumerate(jobs)]
    for item in changes:
        await store.apply([item], START)
    events = await store.events()
    expect_equal([event for _, event in events], [item.event for item in changes], "the events of five cancels")
    places = [place for place, _ in events]
    expect(places == sorted(set(places)) and places[0] > 0, f"places in the stream only grow, not {places!r}")
    expect_equal(await store.events(after=places[2]), events[3:], "events after the third")
    expect_equal(await store.events(limit=2), events[:2], "the first two events")
    expect_equal(await store.events(after=places[-1]), [], "events after the last")
    expect_equal(await store.events(job_id=jobs[3].id), [events[3]], "events of one job")


async def check_events_rebuild_the_job(store: Store) -> None:
    job = await enqueued(store, dependency="ses")
    worker = await Worker.open(store)
    at = START
    endings: tuple[Callable[[Job, int], Change], ...] = (fail, snooze, park, kill)
    for number, ending in enumerate(endings):
        at += HOUR
        leased = await worker.one(at=at)
        last = ending(leased, at + number)
        await worker.settle(last, at=at)
    retry = change.retry(last.job, OPERATOR, at, STUCK_AFTER_SECONDS)
    cancel = change.cancel(retry.job, OPERATOR, at + 1)
    for item in (retry, cancel):
        await store.apply([item], at)
    events = [event for _, event in await store.events(job_id=job.id)]
    told = [event for event in events if event.name not in ("JobStarted", "RetryStarted")]
    names = ["RetryScheduled", "JobSnoozed", "JobParked", "JobDied", "ManualRetryRequested", "JobCancelled"]
    expect_equal([event.name for event in told], names, "what happened to the job")
    expect_job(replay(job, events), cancel.job, "the job that its events rebuild")
    stored = await get(store, job)
    expect(stored is not None and rebuild(stored, events) == stored, f"the events of {stored!r} rebuild it")


async def check_events_say_where_their_job_belongs(store: Store) -> None:
    worker = await Worker.open(store)
    job = await enqueued(store, queue="mail", tenant="acme", task="send")
    leased = await worker.one(queues=("mail",))
    await worker.settle(fail(leased))
    late = await enqueued(store, queue="mail", tenant="zeta", task="bill", deadline_at=START + 10)
    await store.expire(START + HOUR)
    stopped = await enqueued(store, queue="mail", tenant="beta", task="stop")
    running = await worker.one(at=START + 1, queues=("mail",))
    await store.annotate([Annotation(job_id=running.id, now=START, cancel=CANCEL_REQUEST)])
    await worker.settle(snooze(running))
    for one, session in ((job, worker.session), (late, ""), (stopped, worker.session)):
        (first, *rest) = [event for _, event in await store.events(job_id=one.id)]
        expect_equal(
            (first.queue, first.tenant, first.task, first.session),
            ("mail", one.tenant, one.task, session),
            f"what the event {first.name} says of its job",
        )
        expect_equal([(event.tenant, event.session) for event in rest], [(one.tenant, "")] * len(rest), "what follows")
    expect_equal(len(rest), 1, "the cancel that followed the snooze")
