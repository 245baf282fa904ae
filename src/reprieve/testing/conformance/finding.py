# ruff: noqa: D103, PLR2004 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of what is read: find, tally, events and limit_states."""

from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import get_args

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.ids import PARTITIONS, make_id
from reprieve.core.job import Cause, Job
from reprieve.core.move import Return
from reprieve.core.rate import Rate
from reprieve.core.status import STUCK_AFTER_SECONDS, Status, status_of
from reprieve.errors import InvalidCursor
from reprieve.stores.paginate import all_limit_states
from reprieve.stores.protocol import Annotation, Filter, LimitState, LimitUpdate, Range, Store, Subject, Tally
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error, expect_ids, expect_job
from reprieve.testing.conformance.stage import (
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
    make,
    new_job,
    new_jobs,
    park,
    snooze,
    stop,
    succeed,
    update_limits,
)

NOW = START + HOUR
"""The time of the search: jobs that run since the start are stuck, and jobs that waited for seconds are due."""


async def populate(store: Store) -> dict[Status, list[Job]]:
    """Fill a store with jobs of every status; return them as they are at `NOW`."""
    worker = await Worker.open(store)
    jobs = [
        new_job(store, START + number, queue=f"q{number % 2}", tenant="ab"[number % 3 == 0], task="st"[number % 5 == 0])
        for number in range(16)
    ]
    await enqueue(store, *jobs, at=START + 100)
    taken = await worker.take(16, START + 100, queues=("q0", "q1"))
    at = START + 200
    other = Cause(reason="no such user", code="550", kind="permanent", fingerprint="unknown-user")
    changes = [succeed(taken[0], at), succeed(taken[1], at), stop(taken[2], at), kill(taken[3], at)]
    changes += [kill(taken[4], at, "exhausted", other), fail(taken[5], at, NOW + HOUR), fail(taken[6], at, at + 1)]
    changes += [park(taken[7], at, NOW + HOUR), snooze(taken[8], at, NOW + HOUR), make(taken[9], Return(), at)]
    await worker.settle(*changes, at=at)
    after = [item.job for item in changes]
    late = new_jobs(store, 2, START + 300, queue="q0", dependency="ses", key="late")[:1]
    held = new_jobs(store, 2, START + 300, queue="q1", dependency="down")
    await enqueue(store, *late, *held, at=START + 300)
    fresh = await worker.take(1, NOW - SECOND, queues=("q0",))
    await update_limits(store, LimitUpdate(subject="dependency", name="down", permits=0), at=NOW)
    crowd = [job for job in (*after, *late, *held) if job.id != fresh[0].id] + taken[10:] + fresh
    found: dict[Status, list[Job]] = {status: [] for status in get_args(Status)}
    for job in crowd:
        found[status_of(job, NOW, held=job.dependency == "down")].append(job)
    return found


async def check_search_says_when_a_running_job_is_stuck(store: Store) -> None:
    worker = await Worker.open(store)
    quick, slow = await enqueued(store), await enqueued(store, timeout=7_200.0)
    await worker.exactly(2)
    stuck: frozenset[Status] = frozenset({"stuck"})
    for seconds, at, expected in (
        (60.0, START + 60 * SECOND, [quick]),
        (60.0, START + 60 * SECOND - 1, []),
        (7_200.0, NOW, []),
    ):
        wanted = Filter(statuses=stuck, stuck_after=seconds)
        expect_ids(await find_all(store, wanted, at), expected, f"jobs that are stuck after {seconds:g} s")
        counts = (await store.tally("status", Filter(stuck_after=seconds), at)).counts
        expect_equal(counts.get("stuck", 0), len(expected), f"the count of jobs that are stuck after {seconds:g} s")
    page = await store.find(Filter(ids=(quick.id, slow.id), stuck_after=60.0), NOW)
    expect_equal(page.statuses, ("stuck", "running"), "the statuses of two running jobs")


async def check_jobs_are_found_by_when_they_ended(store: Store) -> None:
    worker = await Worker.open(store)
    await enqueue(store, *(new_job(store, START + number, queue=f"q{number % 2}") for number in range(6)), at=START)
    taken = await worker.take(6, START + 100, queues=("q0", "q1"))
    for number, job in enumerate(taken[:4]):
        at = START + 1_000 * (number + 1)
        await worker.settle(succeed(job, at), at=at)
    await worker.settle(kill(taken[4], START + 3_000), at=START + 3_000)
    succeeded: frozenset[Status] = frozenset({"succeeded"})
    for since, expected in ((0, taken[:4]), (START + 3_000, taken[2:4]), (START + 3_001, taken[3:4]), (NOW, [])):
        found = await find_all(store, Filter(statuses=succeeded, ended=Range(since=since)), NOW, limit=1)
        expect_ids(found, expected, f"jobs that succeeded since {since}")
    found = await find_all(store, Filter(ended=Range(since=START + 3_000)), NOW)
    expect_ids(found, taken[2:5], "jobs that ended, in whatever way, since then")
    counts = (await store.tally("status", Filter(ended=Range(since=START + 3_000)), NOW)).counts
    expect_equal(counts, {"succeeded": 2, "dead": 1}, "what has ended since then")


async def check_every_status_is_found(store: Store) -> None:
    crowd = await populate(store)
    for status, jobs in crowd.items():
        expect(len(jobs) > 0, f"the crowd has a job that is {status}")
        found = await find_all(store, Filter(statuses=frozenset({status})), NOW)
        expect_ids(found, jobs, f"jobs that are {status}")
        for job in found:
            expect_job(job, next(other for other in jobs if other.id == job.id), f"a {status} job")
    two: frozenset[Status] = frozenset({"dead", "parked"})
    found = await find_all(store, Filter(statuses=two), NOW)
    expect_ids(found, [*crowd["dead"], *crowd["parked"]], "jobs that are dead or parked")


async def check_every_filter_narrows(store: Store) -> None:
    jobs = [job for jobs in (await populate(store)).values() for job in jobs]
    filters: dict[str, tuple[Filter, Callable[[Job], object]]] = {
        "queue": (Filter(queues=("q0",)), lambda job: job.queue == "q0"),
        "tenant": (Filter(tenants=("a",)), lambda job: job.tenant == "a"),
        "empty tenant": (Filter(tenants=("",)), lambda job: job.tenant == ""),
        "task": (Filter(tasks=("s",)), lambda job: job.task == "s"),
        "dependency": (Filter(dependencies=("ses",)), lambda job: job.dependency == "ses"),
        "no dependency": (Filter(dependencies=("",)), lambda job: job.dependency == ""),
        "key": (Filter(key="late"), lambda job: job.key == "late"),
        "death": (Filter(death="exhausted"), lambda job: job.death == "exhausted"),
        "code": (Filter(codes=("450",)), lambda job: job.cause is not None and job.cause.code == "450"),
        "fingerprint": (
            Filter(fingerprints=("unknown-user",)),
            lambda job: job.cause and job.cause.fingerprint == "unknown-user",
        ),
        "session": (Filter(session="worker-1"), lambda job: job.session == "worker-1"),
        "two": (Filter(queues=("q1",), tenants=("b",)), lambda job: job.queue == "q1" and job.tenant == "b"),
        "dead of a queue": (
            Filter(queues=("q0",), statuses=frozenset({"dead"})),
            lambda job: job.queue == "q0" and job.state == "dead",
        ),
        "no tenant": (Filter(tenants=("unknown",)), lambda _: False),
        "all": (Filter(), lambda _: True),
    }
    for name, (wanted, matches) in filters.items():
        found = await find_all(store, wanted, NOW)
        expect_ids(found, [job for job in jobs if matches(job)], f"jobs found by {name}")


async def _status_of_each(store: Store, at: int) -> dict[str, Status]:
    """Return the status of every job, read page by page."""
    found: dict[str, Status] = {}
    cursor, is_over = "", False
    while not is_over:
        page = await store.find(Filter(), at, cursor, 7)
        found |= {job.id: status for job, status in zip(page.jobs, page.statuses, strict=True)}
        cursor, is_over = page.cursor, not page.cursor
    return found


async def check_every_job_is_found_with_the_status_that_the_filter_goes_by(store: Store) -> None:
    crowd = await populate(store)
    wanted = {job.id: status for status, jobs in crowd.items() for job in jobs}
    expect_equal(await _status_of_each(store, NOW), wanted, "the statuses that jobs are found with")
    page = await store.find(Filter(ids=tuple(wanted)), NOW)
    by_id = {job.id: status for job, status in zip(page.jobs, page.statuses, strict=True)}
    expect_equal(by_id, wanted, "the statuses that jobs are found with by their ids")


async def check_jobs_of_a_held_gate_are_parked_also_when_they_are_due(store: Store) -> None:
    tried = await enqueued(store, dependency="ses")
    worker = await Worker.open(store)
    await worker.settle(park(await worker.one(), START, START + SECOND))
    untried = await enqueued(store, START + 1, dependency="ses")
    other = await enqueued(store, START + 2, dependency="sns")
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=0), at=START)
    at = START + HOUR
    found = await _status_of_each(store, at)
    expect_equal(found, {tried.id: "parked", untried.id: "parked", other.id: "ready"}, "the statuses in a page")
    by_status: dict[Status, list[Job]] = {"parked": [tried, untried], "ready": [other]}
    for status, jobs in by_status.items():
        expect_ids(await find_all(store, Filter(statuses=frozenset({status})), at), jobs, f"jobs that are {status}")
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=None), at=at)
    page = await store.find(Filter(ids=(tried.id,)), at)
    expect_equal(page.statuses, ("ready",), "the status when the gate is released")


async def check_find_answers_the_ids_that_exist(store: Store) -> None:
    jobs = [await enqueued(store, START + number) for number in range(5)]
    ids = (jobs[3].id, new_job(store).id, jobs[1].id)
    expect_ids(await find_all(store, Filter(ids=ids)), [jobs[1], jobs[3]], "jobs found by ids")
    expect_equal(await find_all(store, Filter(ids=())), [], "jobs found by no ids")
    expect_equal(await find_all(store, Filter(ids=ids, tenants=("other",))), [], "jobs found by ids of another tenant")


async def check_id_at_the_edge_of_its_range_is_not_found(store: Store) -> None:
    job = await enqueued(store)
    edges = [make_id(moment, chance, partition) for moment, chance, partition in product(*EDGES)]
    found = await store.find(Filter(ids=(*edges, job.id)), START)
    expect_ids(found.jobs, [job], "jobs found beside ids at the edges")
    requests = [Annotation(job_id=job_id, progress=b"1", now=START) for job_id in edges]
    expect_equal(await store.annotate(requests), [False] * len(edges), "the results of annotations")
    for job_id in edges:
        read = await store.events(job_id=job_id), await store.result(job_id), await store.progress(job_id)
        expect_equal(read, ([], None, None), f"events, result and progress of {job_id}")
        wanted = change.cancel(replace(job, id=job_id), OPERATOR, START)
        expect_equal(await store.apply([wanted], START), ["missing"], f"the result of a change of {job_id}")


EDGES = ((0, 1, (1 << 47) - 1, (1 << 48) - 1), (0, (1 << 62) - 1), (0, PARTITIONS - 1))
"""The smallest and largest moments, chances and partitions of ids."""


async def check_find_answers_the_ids_that_begin_or_end_so(store: Store) -> None:
    jobs = [job for jobs in (await populate(store)).values() for job in jobs]
    for job in jobs:
        digits = job.id.replace("-", "")
        for parts in ((digits[-8:],), (digits[:31],), (digits[-4:], "ffffffff"), (digits[-20:],), (digits[:13],)):
            wanted = [one for one in jobs if _has_any(one, parts)]
            expect(job in wanted, "the part is one of its own id")
            expect_ids(await find_all(store, Filter(id_parts=parts), NOW), wanted, f"jobs found by {parts!r}")
    expect_equal(await find_all(store, Filter(id_parts=("ffffffff",)), NOW), [], "jobs found by what no id has")


def _has_any(job: Job, parts: tuple[str, ...]) -> bool:
    digits = job.id.replace("-", "")
    return any(digits.startswith(part) or digits.endswith(part) for part in parts)


async def check_cursors_lead_through_everything_exactly_once(store: Store) -> None:
    jobs = [job for jobs in (await populate(store)).values() for job in jobs]
    for wanted in (Filter(), Filter(queues=("q0",)), Filter(statuses=frozenset({"ready", "running", "stuck", "dead"}))):
        whole = [job.id for job in await find_all(store, wanted, NOW, 1_000)]
        for limit in (1, 2, 7):
            pages = [job.id for job in await find_all(store, wanted, NOW, limit)]
            expect_equal(pages, whole, f"jobs found in pages of {limit}")
    page = await store.find(Filter(), NOW, limit=4)
    expect(len(page.jobs) <= 4, f"a page of four has no more, not {len(page.jobs)}")
    expect(bool(page.cursor), f"it leads on, since there are {len(jobs)} jobs")


async def check_newest_first_finds_the_same_jobs(store: Store) -> None:
    await populate(store)
    every = (Filter(), Filter(queues=("q0",)), *(Filter(statuses=frozenset({status})) for status in get_args(Status)))
    for wanted in every:
        whole = sorted(job.id for job in await find_all(store, wanted, NOW))
        for limit in (1, 3, 100):
            pages = [job.id for job in await find_all(store, wanted, NOW, limit, "newest")]
            expect_equal(sorted(pages), whole, f"jobs found newest first in pages of {limit}")


async def check_job_that_changes_between_pages_is_not_lost(store: Store) -> None:
    jobs = [await enqueued(store, START + number) for number in range(10)]
    page = await store.find(Filter(), START, limit=4)
    await store.apply([change.cancel(jobs[7], OPERATOR, START), change.cancel(jobs[0], OPERATOR, START)], START)
    seen, cursor = list(page.jobs), page.cursor
    while cursor:
        page = await store.find(Filter(), START, cursor, 4)
        seen, cursor = [*seen, *page.jobs], page.cursor
    expect_equal({job.id for job in seen}, {job.id for job in jobs}, "jobs seen while two of them changed")
    expect_equal(len(seen), len(jobs) + 1, "the one that was seen before it was cancelled comes again where it ended")


async def check_broken_cursor_is_refused(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 3))
    for cursor in ("nonsense", "-1", "\x00", "💥", "a" * 500):
        await expect_error(store.find(Filter(), START, cursor), InvalidCursor, f"find with the cursor {cursor[:20]!r}")


async def check_tally_equals_a_recount(store: Store) -> None:
    crowd = await populate(store)
    for wanted in (
        Filter(),
        Filter(queues=("q0",)),
        Filter(tenants=("a",)),
        Filter(statuses=frozenset({"dead", "running"})),
    ):
        ids = {job.id for job in await find_all(store, wanted, NOW)}
        for by in get_args(Tally):
            counts: Counter[str] = Counter()
            for status, jobs in crowd.items():
                counts.update(_label(job, by, status) for job in jobs if job.id in ids)
            result = (await store.tally(by, wanted, NOW)).counts
            expect_equal(_named(result, by), _named(counts, by), f"the tally by {by} of {wanted!r}")


def _label(job: Job, by: Tally, status: Status) -> str:
    match by:
        case "status":
            return status
        case "code" | "fingerprint":
            return getattr(job.cause, by) if job.cause else ""
        case _:
            return getattr(job, by) or ""


def _named(counts: dict[str, int] | Counter[str], by: Tally) -> dict[str, int]:
    # Whether those count that have no dependency, death, code or fingerprint is left to the store.
    optional = by in ("dependency", "death", "code", "fingerprint")
    return {name: count for name, count in counts.items() if count and (name or not optional)}


async def check_tally_follows_every_move(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 6))
    worker = await Worker.open(store)
    taken = await worker.take(5)
    death = kill(taken[1])
    await worker.settle(succeed(taken[0]), death, fail(taken[2]), fail(taken[2]), make(taken[3], Return()))
    wanted = {"ready": 2, "running": 1, "succeeded": 1, "dead": 1, "retrying": 1}
    expect_equal(await _statuses(store, START), wanted, "the tally by status")
    wanted = {"ready": 3, "stuck": 1, "succeeded": 1, "dead": 1}
    expect_equal(await _statuses(store, START + HOUR), wanted, "the tally an hour later")
    retry = change.retry(death.job, OPERATOR, START, STUCK_AFTER_SECONDS)
    await store.apply([retry], START)
    wanted = {"ready": 3, "running": 1, "succeeded": 1, "retrying": 1}
    expect_equal(await _statuses(store, START), wanted, "the tally after the dead job was retried")
    await store.apply([change.cancel(retry.job, OPERATOR, START)], START)
    wanted = {"ready": 2, "running": 1, "succeeded": 1, "retrying": 1, "cancelled": 1}
    expect_equal(await _statuses(store, START), wanted, "the tally after it was cancelled")


async def _statuses(store: Store, at: int) -> dict[str, int]:
    """Return the tally by status; that of the only tenant, which a store may count otherwise, must be the same."""
    of_all, of_tenant = [
        {name: count for name, count in (await store.tally("status", wanted, at)).counts.items() if count}
        for wanted in (Filter(), Filter(tenants=("",)))
    ]
    expect_equal(of_tenant, of_all, "the tally by status of the only tenant")
    return of_all


async def check_gauges_say_what_runs(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 4, tenant="acme", task="send", dependency="ses", group="news"))
    worker = await Worker.open(store)
    for job in (await worker.take(3, START + 5))[:1]:
        await worker.settle(succeed(job))
    subjects: dict[Subject, str] = {"queue": "default", "tenant": "acme", "task": "send"}
    subjects |= {"dependency": "ses", "group": "news"}
    for subject, name in subjects.items():
        limit_state = await _gauge(store, subject, name)
        expect_equal(limit_state.running, 2, f"running jobs of the {subject}")
    tenant = await _gauge(store, "tenant", "acme")
    expect_equal((tenant.queue, tenant.served, tenant.served_at), ("default", 3, START + 5), "what the tenant got")


async def check_gauges_say_what_was_regulated(store: Store) -> None:
    rate = Rate(count=5, window=60.0)
    await update_limits(
        store,
        LimitUpdate(subject="dependency", name="ses", permits=4, max_running=9, rate=rate),
        LimitUpdate(subject="tenant", name="acme", queue="default", weight=2.5, max_running=3),
        LimitUpdate(subject="queue", name="default", pauses=("retry",)),
        LimitUpdate(subject="group", name="news", max_running=1),
        LimitUpdate(subject="task", name="send", permits=0),
    )
    ses = await _gauge(store, "dependency", "ses")
    expect_equal((ses.permits, ses.max_running, ses.rate, ses.running), (4, 9, rate, 0), "what holds for ses")
    acme = await _gauge(store, "tenant", "acme")
    expect_equal((acme.weight, acme.max_running, acme.permits), (2.5, 3, None), "what holds for acme")
    expect_equal((await _gauge(store, "queue", "default")).pauses, ("retry",), "what is paused")
    expect_equal((await _gauge(store, "group", "news")).max_running, 1, "what holds for news")
    expect_equal((await _gauge(store, "task", "send")).permits, 0, "what holds for send")
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=None, rate=None))
    left = [limit_state for limit_state in await all_limit_states(store, "dependency") if limit_state.name == "ses"]
    expect_equal([(g.permits, g.max_running, g.rate) for g in left], [(None, 9, None)], "what still holds for ses")


async def _gauge(store: Store, subject: Subject, name: str) -> LimitState:
    limit_states = await all_limit_states(store, subject, "default" if subject == "tenant" else "")
    found = [limit_state for limit_state in limit_states if limit_state.name == name]
    expect_equal(len(found), 1, f"limit_states of the {subject} {name}")
    return found[0]
