# ruff: noqa: D103, PLR2004 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of every cell of the table of what is indexed, against a naive search, and of filters that are not."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.job import Cause, Death, Job
from reprieve.core.status import Status, status_of
from reprieve.errors import InvalidCursor, ValidationError
from reprieve.stores.finding_table import FINDING_TABLE, Field, Fields
from reprieve.stores.protocol import Filter, LimitUpdate, Order, Page, Range, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error
from reprieve.testing.conformance.stage import (
    HOUR,
    MINUTE,
    OPERATOR,
    SECOND,
    START,
    Worker,
    enqueue,
    fail,
    kill,
    new_job,
    park,
    snooze,
    succeed,
    update_limits,
)

NOW = START + HOUR
QUEUES, TENANTS, TASKS = ("q0", "q1"), ("", "a", "b", "c"), ("s", "t", "u")
DEPENDENCIES = ("", "ses", "sns", "down")
CAUSES = tuple(
    Cause(reason=f"failure {number}: mailbox BUSY", code=f"45{number}", kind="transient", fingerprint=f"f{number}")
    for number in range(3)
)
DEATHS: tuple[Death, ...] = ("exhausted", "permanent", "futile")
ATTEMPTS_END_AT = START + 400
SETTLED_TOGETHER = 25
"""Successes that are stored together: among them there is no order."""

PAGE_JOBS = 7
"""Small, so that every search takes several pages."""


class Known(NamedTuple):
    """A job as it must be found."""

    job: Job
    status: Status


async def populate(store: Store) -> list[Known]:
    """Fill a store with jobs of every status, cause and lane; return them as they are at `NOW`."""
    worker = await Worker.open(store)
    jobs = [
        new_job(
            store,
            START + number,
            queue=QUEUES[number % 2],
            tenant=TENANTS[number % 4],
            task=TASKS[number % 3],
            dependency=DEPENDENCIES[number // 3 % 3],
            priority=1 + 4 * (number % 2),
            group="g" if number % 5 == 0 else "",
            key=f"key-{number}" if number % 7 == 0 else "",
        )
        for number in range(180)
    ]
    await enqueue(store, *jobs, at=START + 200)
    taken: list[Job] = []
    for _ in range(20):
        taken += await worker.take(30, START + 300, queues=QUEUES)
    changes = [_ending(job, number) for number, job in enumerate(taken)]
    after: dict[str, Job] = {}
    for start in range(0, len(changes), SETTLED_TOGETHER):
        some = [one for one in changes[start : start + SETTLED_TOGETHER] if one is not None]
        await worker.settle(*some, at=START + 600 + start)
        after |= {one.job.id: one.job for one in some}
    late = await worker.take(3, NOW - SECOND, queues=QUEUES)
    left = [
        new_job(store, START + MINUTE + number, queue=QUEUES[number % 2], tenant=TENANTS[number % 4], dependency=name)
        for number, name in enumerate(DEPENDENCIES * 8)
    ]
    later = [replace(job, due_at=NOW + MINUTE * (1 + number)) for number, job in enumerate(_more(store, 12))]
    await enqueue(store, *left, *later, at=START + MINUTE + 100)
    cancelled = [change.cancel(job, OPERATOR, START + 2 * MINUTE + number) for number, job in enumerate(left[:9])]
    await store.apply(cancelled, START + 3 * MINUTE)
    await update_limits(store, LimitUpdate(subject="dependency", name="down", permits=0), at=NOW)
    everything = {job.id: job for job in (*jobs, *left, *later, *taken)}
    everything |= after | {job.id: job for job in late} | {one.job.id: one.job for one in cancelled}
    return [Known(job, status_of(job, NOW, held=job.dependency == "down")) for job in everything.values()]


def _more(store: Store, count: int) -> Iterator[Job]:
    for number in range(count):
        yield new_job(store, START + 2 * MINUTE + number, queue=QUEUES[number % 2], tenant=TENANTS[number % 4])


def _ending(job: Job, number: int) -> change.Change | None:
    """Return how an attempt ends; None: it runs on."""
    at, cause = ATTEMPTS_END_AT + number, CAUSES[number % 3]
    match number % 9:
        case 0 | 1:
            return succeed(job, at)
        case 2 | 3:
            return kill(job, at, DEATHS[number % 3], cause)
        case 4 | 5:
            return fail(job, at, NOW + number * SECOND, cause)
        case 6:
            return park(job, at, NOW + number * SECOND)
        case 7:
            return snooze(job, at, START + SECOND + number)
        case _:
            return None


async def check_every_indexed_search_finds_all_jobs_in_order(store: Store) -> None:
    crowd = await populate(store)
    for row in FINDING_TABLE:
        for fields in row.filters:
            for wanted in _filters(row.status, fields, crowd):
                for order in row.orders:
                    pages = await _pages(store, wanted, order)
                    _expect_pages(pages, [one.job for one in crowd if _is_wanted(one, wanted)], wanted, order)
                    for page in pages:
                        expect(
                            page.examined <= 2 * PAGE_JOBS + len(page.jobs) + 20,
                            f"{page.examined} jobs looked at to find {len(page.jobs)} by {wanted!r}",
                        )


def _filters(status: Status, fields: Fields, crowd: Sequence[Known]) -> Iterator[Filter]:
    """Return a filter for the names of a job that has this status, and one for those of two."""
    some = [one.job for one in crowd if one.status == status]
    expect(len(some) > 1, f"the crowd has jobs that are {status}")
    for chosen in (some[:1], [some[0], some[-1]]):
        wanted = Filter(statuses=frozenset({status}))
        for field in fields:
            wanted = replace(wanted, **_named(field, chosen))
        yield wanted
        if not fields:
            return


_LISTS: dict[Field, str] = {
    "queue": "queues",
    "tenant": "tenants",
    "task": "tasks",
    "dependency": "dependencies",
    "code": "codes",
    "fingerprint": "fingerprints",
}


def _named(field: Field, jobs: Sequence[Job]) -> dict[str, object]:
    if field in ("death", "session"):
        return {field: getattr(jobs[0], field)}
    return {_LISTS[field]: tuple(dict.fromkeys(_name(field, job) for job in jobs))}


def _name(field: Field, job: Job) -> str:
    return str(getattr(job.cause if field in ("code", "fingerprint") else job, field))


def _is_wanted(one: Known, wanted: Filter) -> bool:
    job, cause = one.job, one.job.cause
    return (
        (not wanted.statuses or one.status in wanted.statuses)
        and (not wanted.queues or job.queue in wanted.queues)
        and (not wanted.tenants or job.tenant in wanted.tenants)
        and (not wanted.tasks or job.task in wanted.tasks)
        and (not wanted.dependencies or job.dependency in wanted.dependencies)
        and (not wanted.session or job.session == wanted.session)
        and (wanted.death is None or job.death == wanted.death)
        and (not wanted.codes or (cause is not None and cause.code in wanted.codes))
        and (not wanted.fingerprints or (cause is not None and cause.fingerprint in wanted.fingerprints))
    )


async def _pages(store: Store, wanted: Filter, order: Order = "oldest", limit: int = PAGE_JOBS) -> list[Page]:
    pages = [await store.find(wanted, NOW, "", limit, order)]
    while pages[-1].cursor:
        pages.append(await store.find(wanted, NOW, pages[-1].cursor, limit, order))
        expect(len(pages) < 500, f"a search by {wanted!r} comes to an end")
    return pages


def _expect_pages(pages: Sequence[Page], jobs: Sequence[Job], wanted: Filter, order: Order) -> None:
    found = [job for page in pages for job in page.jobs]
    expect_equal(sorted(job.id for job in found), sorted(job.id for job in jobs), f"{order} jobs found by {wanted!r}")
    for page in pages:
        expect(len(page.jobs) <= PAGE_JOBS, "a page has no more jobs than it may have")
        expect((page.reached_at is None) == (not page.cursor), "a page says how far it got if there may be more")
    times = [_time(job) for job in found]
    if wanted.statuses == {"succeeded"}:
        times = [(at - ATTEMPTS_END_AT) // SETTLED_TOGETHER for at in times]
    turns = sum((one < other if order == "newest" else one > other) for one, other in pairwise(times))
    # Parked and ready jobs are in two places, each of which is in order.
    most = 1 if wanted.statuses & {"parked", "ready"} or not wanted.statuses else 0
    expect(turns <= most, f"{order} jobs found by {wanted!r} are in order, not {times!r}")


def _time(job: Job) -> int:
    if job.finished_at is not None:
        return job.finished_at
    return job.leased_at if job.leased_at is not None else max(job.due_at, job.created_at)


async def check_jobs_of_a_tenant_are_found_in_any_status_at_once(store: Store) -> None:
    crowd = await populate(store)
    wanted = Filter(tenants=("a",))
    found = [job.id for page in await _pages(store, wanted) for job in page.jobs]
    expect_equal(sorted(found), sorted(one.job.id for one in crowd if one.job.tenant == "a"), "the tenant's jobs")


async def check_filters_without_an_index_find_all_jobs(store: Store) -> None:
    crowd = await populate(store)
    middle = START + 90
    searches = {
        "group": (Filter(group="g"), [one for one in crowd if one.job.group == "g"]),
        "no group": (Filter(group=""), [one for one in crowd if not one.job.group]),
        "priority": (Filter(priority=1), [one for one in crowd if one.job.priority == 1]),
        "key": (Filter(key="key-7"), [one for one in crowd if one.job.key == "key-7"]),
        "attempts": (Filter(attempts=Range(since=1)), [one for one in crowd if one.job.attempt >= 1]),
        "untried": (Filter(attempts=Range(until=1)), [one for one in crowd if one.job.attempt < 1]),
        "created": (
            Filter(created=Range(since=middle, until=middle + 20)),
            [one for one in crowd if middle <= one.job.created_at < middle + 20],
        ),
        "due": (Filter(due=Range(since=NOW)), [one for one in crowd if one.job.due_at >= NOW]),
        "ended": (
            Filter(ended=Range(since=START + 440, until=START + 480)),
            [one for one in crowd if START + 440 <= (one.job.finished_at or 0) < START + 480],
        ),
        "text": (
            Filter(text="1: mailbox busy"),
            [one for one in crowd if one.job.cause is not None and "1: mailbox BUSY" in one.job.cause.reason],
        ),
        "tenants and tasks": (
            Filter(tenants=("a", "b"), tasks=("s", "u"), queues=("q1", "q0")),
            [one for one in crowd if one.job.tenant in ("a", "b") and one.job.task in ("s", "u")],
        ),
    }
    orders: tuple[Order, ...] = ("oldest", "newest")
    for name, (wanted, jobs) in searches.items():
        for order in orders:
            found = [job.id for page in await _pages(store, wanted, order) for job in page.jobs]
            expect_equal(sorted(found), sorted(one.job.id for one in jobs), f"{order} jobs found by {name}")


async def check_filter_that_contradicts_itself_is_refused(store: Store) -> None:
    waiting: frozenset[Status] = frozenset({"ready", "retrying"})
    wrong: list[tuple[Filter, Order]] = [
        (Filter(created=Range(since=5, until=5)), "oldest"),
        (Filter(due=Range(since=6, until=5)), "oldest"),
        (Filter(ended=Range(since=6, until=5)), "oldest"),
        (Filter(attempts=Range(since=-1)), "oldest"),
        (Filter(statuses=waiting, ended=Range(since=5)), "oldest"),
        (Filter(statuses=waiting, death="expired"), "oldest"),
        (Filter(statuses=frozenset({"cancelled"}), death="expired"), "oldest"),
        (Filter(statuses=waiting, session="worker-1"), "oldest"),
        (Filter(session="worker-1", death="expired"), "oldest"),
        (Filter(statuses=frozenset({"dead"})), "due"),
        (Filter(), "due"),
        (Filter(statuses=waiting), "longest"),
        (Filter(priority=0), "oldest"),
        (Filter(queues=tuple(f"q{number}" for number in range(51))), "oldest"),
        (Filter(), "latest"),  # type: ignore[list-item]  # that is the point
    ]
    for wanted, order in wrong:
        await expect_error(store.find(wanted, START, order=order), ValidationError, f"{order} jobs by {wanted!r}")


async def check_cursor_of_another_search_is_refused(store: Store) -> None:
    await enqueue(store, *(new_job(store, START + number, tenant="ab"[number % 2]) for number in range(30)))
    page = await store.find(Filter(), START, limit=5)
    expect(bool(page.cursor), "there are more jobs than the page has")
    others: list[tuple[Filter, Order]] = [
        (Filter(tenants=("a",)), "oldest"),
        (Filter(statuses=frozenset({"ready"})), "oldest"),
        (Filter(), "newest"),
    ]
    for wanted, order in others:
        await expect_error(
            store.find(wanted, START, page.cursor, 5, order),
            InvalidCursor,
            f"{order} jobs by {wanted!r}",
        )
    again = await store.find(Filter(), START, page.cursor, 5)
    expect(not {job.id for job in page.jobs} & {job.id for job in again.jobs}, "its own search goes on with it")


async def check_search_that_finds_nothing_looks_at_few_jobs_and_says_how_far_it_got(store: Store) -> None:
    jobs = [new_job(store, START + number, tenant=f"t{number % 20}") for number in range(2_500)]
    for start in range(0, len(jobs), 500):
        await enqueue(store, *jobs[start : start + 500], at=START + 3_000)
    page = await store.find(Filter(key="no job has it"), START + 4_000, limit=10)
    expect_equal(page.jobs, (), "jobs found")
    expect(bool(page.cursor), "the look was bounded")
    expect(page.examined <= 250, f"it looked at few jobs, not {page.examined}")
    expect(page.reached_at is not None and START < page.reached_at < START + 2_500, "it says how far it got")
    pages = 1
    while page.cursor:
        page, pages = await store.find(Filter(key="no job has it"), START + 4_000, page.cursor, 10), pages + 1
        expect(pages < 20, "the search comes to an end")
