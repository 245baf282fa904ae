# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of events: their order in either direction, who is told what, and the job that they rebuild."""

from collections.abc import Callable

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.change import Change, Request
from reprieve.core.events import Event, replay
from reprieve.core.history import rebuild
from reprieve.core.job import Job
from reprieve.core.status import STUCK_AFTER_SECONDS
from reprieve.errors import InvalidCursor, ValidationError
from reprieve.stores.protocol import MAX_EXAMINED_EVENTS, Annotation, EventQuery, Retention, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error, expect_job
from reprieve.testing.conformance.stage import (
    CANCEL_REQUEST,
    DAY,
    HOUR,
    OPERATOR,
    START,
    Worker,
    enqueue,
    enqueued,
    fail,
    get,
    kill,
    new_job,
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


async def cancelled(store: Store, count: int, at: int = START, **fields: str) -> list[tuple[int, Event]]:
    """Cancel so many new jobs; return all events."""
    jobs = [await enqueued(store, at, **fields) for _ in range(count)]
    await store.apply([change.cancel(job, OPERATOR, at) for job in jobs], at)
    return await store.events(limit=10_000)


async def check_events_are_read_backwards(store: Store) -> None:
    events = await cancelled(store, 7)
    pages, before = [], None
    while True:
        page = await store.read_events(EventQuery(newest_first=True, before=before, limit=3))
        pages.append(list(page.events))
        before = page.position
        expect_equal(page.newest, events[-1][0], "the position of the newest event")
        if not page.has_more:
            break
    expect_equal([entry for page in pages for entry in page], events[::-1], "events read backwards, three at a time")
    first, last = events[1][0], events[5][0]
    within = await store.read_events(EventQuery(after=first, before=last, newest_first=True))
    expect_equal(list(within.events), events[2:5][::-1], "events between two positions, backwards")
    within = await store.read_events(EventQuery(after=first, before=last))
    expect_equal(list(within.events), events[2:5], "events between two positions")


async def check_events_of_many_writes_are_read_in_either_order(store: Store) -> None:
    jobs = [await enqueued(store) for _ in range(50)]
    for job in jobs[:48]:
        await store.apply([change.cancel(job, OPERATOR, START)], START)
    await store.apply([change.cancel(job, OPERATOR, START) for job in jobs[48:]], START)
    events = (await store.read_events(EventQuery())).events
    expect_equal([told.job_id for _, told in events if isinstance(told, Event)], [job.id for job in jobs], "the jobs")
    for limit in (1, 45, 49, 50, 1_000):
        page = await store.read_events(EventQuery(limit=limit))
        expect_equal(page.events, events[:limit], f"the oldest {limit} events")
        page = await store.read_events(EventQuery(limit=limit, newest_first=True))
        expect_equal(page.events, events[::-1][:limit], f"the newest {limit} events")
        middle = EventQuery(after=events[4][0], before=events[49][0], limit=limit)
        expect_equal((await store.read_events(middle)).events, events[5:49][:limit], f"{limit} events between two")
        back = (await store.read_events(replace(middle, newest_first=True))).events
        expect_equal(back, events[5:49][::-1][:limit], f"{limit} events between two, backwards")


async def check_newest_position_is_where_a_reader_begins(store: Store) -> None:
    empty = await store.read_events(EventQuery(newest_first=True, limit=1))
    expect_equal((empty.events, empty.newest, empty.has_more), ((), 0, False), "an empty stream")
    await cancelled(store, 3)
    page = await store.read_events(EventQuery(newest_first=True, limit=1))
    after = page.newest
    page = await store.read_events(EventQuery(after=after))
    expect_equal((page.events, page.position, page.has_more), ((), after, False), "what follows the newest event")
    events = await cancelled(store, 2)
    page = await store.read_events(EventQuery(after=after))
    expect_equal(list(page.events), events[3:], "what was told since")


async def check_events_are_found_by_what_they_say_of_their_job(store: Store) -> None:
    for queue, tenant, task in (("mail", "acme", "send"), ("mail", "", "send"), ("sms", "acme", "call")):
        await cancelled(store, 2, queue=queue, tenant=tenant, task=task)
    worker = await Worker.open(store)
    await enqueued(store, queue="sms", tenant="acme", task="send")
    await worker.settle(fail(await worker.one(queues=("sms",))))
    events = await store.events()
    queries: dict[EventQuery, Callable[[Event], bool]] = {
        EventQuery(queue="mail"): lambda event: event.queue == "mail",
        EventQuery(tenant="acme"): lambda event: event.tenant == "acme",
        EventQuery(tenant="", only="jobs"): lambda event: event.tenant == "",
        EventQuery(task="send", newest_first=True): lambda event: event.task == "send",
        EventQuery(names=frozenset({"RetryScheduled"})): lambda event: event.name == "RetryScheduled",
        EventQuery(queue="sms", task="send", names=frozenset({"JobCancelled"})): lambda _: False,
        EventQuery(tenant="unknown"): lambda _: False,
    }
    for query, is_wanted in queries.items():
        page = await store.read_events(query)
        found = list(page.events)[:: -1 if query.newest_first else 1]
        expect_equal(found, [entry for entry in events if is_wanted(entry[1])], f"the events of {query!r}")
        expect(not page.has_more, f"{query!r} has looked at all events")
    one = await store.read_events(EventQuery(task="send", limit=1))
    expect_equal((list(one.events), one.position, one.has_more), ([events[0]], events[0][0], True), "the first one")


async def check_search_for_events_says_how_far_it_got(store: Store) -> None:
    jobs = [new_job(store, task="send") for _ in range(MAX_EXAMINED_EVENTS + 10)]
    await enqueue(store, *jobs)
    await store.apply([change.cancel(job, OPERATOR, START) for job in jobs], START)
    (last,) = (await cancelled(store, 1, task="rare"))[-1:]
    page = await store.read_events(EventQuery(task="rare"))
    expect_equal((page.events, page.has_more), ((), True), "what the first look finds")
    page = await store.read_events(EventQuery(task="rare", after=page.position))
    expect_equal((list(page.events), page.has_more), ([last], False), "what the second look finds")
    page = await store.read_events(EventQuery(task="rare", newest_first=True))
    expect_equal((list(page.events), page.has_more), ([last], True), "what a look backwards finds")


async def check_events_of_a_job_with_many_are_read_in_pages(store: Store) -> None:
    job, count = await enqueued(store), 450
    other = await enqueued(store)
    for number in range(count):
        made = (change.cancel if number % 2 == 0 else _again)(job, OPERATOR, START + number)
        expect_equal(await store.apply([made], START), ["applied"], "the result of a change")
        job = made.job
    await store.apply([change.cancel(other, OPERATOR, START)], START)
    for newest_first in (False, True):
        versions: list[int] = []
        query = EventQuery(job_id=job.id, limit=100, newest_first=newest_first)
        while True:
            page = await store.read_events(query)
            versions += [event.version for _, event in page.events if isinstance(event, Event)]
            query = replace(query, **{"before" if newest_first else "after": page.position})
            if not page.has_more:
                break
        wanted = list(range(1, count + 1))
        expect_equal(versions, wanted[::-1] if newest_first else wanted, "the versions of a job with many events")
    page = await store.read_events(EventQuery(job_id=job.id, limit=1, newest_first=True))
    newest = [event.version for _, event in page.events if isinstance(event, Event)]
    expect_equal(newest, [count], "the newest event of the job")


def _again(job: Job, request: Request, now: int) -> Change:
    return change.retry(job, request, now, STUCK_AFTER_SECONDS)


async def check_reader_that_fell_behind_is_told_so(store: Store) -> None:
    await cancelled(store, 3)
    old = await store.events()
    page = await store.read_events(EventQuery(after=old[0][0]))
    expect(not page.missed, "nothing was deleted yet")
    await cancelled(store, 1, START + 8 * DAY)
    while not (await store.prune(Retention(now=START + 8 * DAY))).is_all:
        pass
    (kept,) = await store.events()
    page = await store.read_events(EventQuery(after=old[0][0]))
    expect_equal((page.missed, list(page.events)), (True, [kept]), "what a reader learns that fell behind")
    expect_equal(page.pruned_to, old[-1][0], "up to where events were deleted")
    page = await store.read_events(EventQuery(after=old[-1][0]))
    expect_equal((page.missed, list(page.events)), (False, [kept]), "what a reader learns that did not")
    for query in (EventQuery(newest_first=True), EventQuery(job_id=kept[1].job_id)):
        page = await store.read_events(query)
        expect_equal(
            (page.missed, list(page.events)), (False, [kept]), f"what is missed where no reader goes on: {query}"
        )
    while not (await store.prune(Retention(now=START + 30 * DAY))).is_all:
        pass
    page = await store.read_events(EventQuery(after=old[-1][0]))
    expect_equal((page.missed, page.events, page.newest), (True, (), kept[0]), "a stream that was deleted whole")
    page = await store.read_events(EventQuery(after=page.position))
    expect(not page.missed, "a reader that goes on is told once")


async def check_position_from_the_future_is_refused(store: Store) -> None:
    events = await cancelled(store, 2)
    newest = events[-1][0]
    for query in (EventQuery(after=newest + 1), EventQuery(before=newest + 2, newest_first=True)):
        await expect_error(store.read_events(query), InvalidCursor, f"reading {query!r}")
    page = await store.read_events(EventQuery(before=newest + 1, newest_first=True))
    expect_equal(list(page.events), events[::-1], "events before the position after the newest")


async def check_query_that_no_event_can_match_is_refused(store: Store) -> None:
    for query in (
        EventQuery(after=5, before=5),
        EventQuery(after=6, before=2),
        EventQuery(after=-1),
        EventQuery(limit=0),
        EventQuery(limit=10**9),
        EventQuery(names=frozenset({"JobVanished"})),
        EventQuery(task="a\nb"),
    ):
        await expect_error(store.read_events(query), ValidationError, f"reading {query!r}")
    for retention in (Retention(now=START, events_for=0), Retention(now=START, events=0)):
        await expect_error(store.prune(retention), ValidationError, f"a prune by {retention!r}")
