# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of causes: dead jobs, and failures that jobs survived, are counted by what they have in common."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.change import Change
from reprieve.core.job import Cause, Death, Job
from reprieve.core.move import Park, Retry
from reprieve.errors import InvalidCursor, ValidationError
from reprieve.stores.capabilities import Damageable
from reprieve.stores.protocol import Annotation, CauseGroup, CauseRequest, Filter, Retention, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error
from reprieve.testing.conformance.stage import (
    CANCEL_REQUEST,
    DAY,
    HOUR,
    MINUTE,
    OPERATOR,
    SECOND,
    START,
    Worker,
    enqueue,
    enqueued,
    get,
    kill,
    make,
    new_job,
)

BUSY = Cause(reason="450 mailbox busy", code="450", kind="transient", fingerprint="busy")
FULL = Cause(reason="552 mailbox full", code="552", kind="permanent", fingerprint="full")
SLOW = Cause(reason="450 slow down, größe", code="450", kind="transient", fingerprint="slow")
THIS_HOUR = START - START % HOUR


async def groups(store: Store, at: int = START, **fields: Any) -> dict[str, CauseGroup]:  # noqa: ANN401 - of a request
    """Return all groups of a request by their names."""
    found: dict[str, CauseGroup] = {}
    request = CauseRequest(**fields)
    for _ in range(1_000):
        page = await store.causes(request, at)
        found |= {group.name: group for group in page.groups}
        if not page.cursor:
            return found
        request = replace(request, cursor=page.cursor)
    message = "the groups of causes had no end after 1,000 pages"
    raise AssertionError(message)


async def counts(store: Store, at: int = START, **fields: Any) -> dict[str, int]:  # noqa: ANN401 - as above
    """Return the count of each group of a request."""
    return {name: group.count for name, group in (await groups(store, at, **fields)).items()}


async def died(store: Store, worker: Worker, cause: Cause, at: int = START, **fields: Any) -> Job:  # noqa: ANN401 - of a job
    """Let a new job die; return it as it is then."""
    death: Death = fields.pop("death", "permanent")
    job = await enqueued(store, **fields)
    (leased,) = [one for one in await worker.take(100, at) if one.id == job.id]
    made = kill(leased, at, death, cause)
    expect_equal(await worker.settle(made, at=at), ["applied"], "the result of a death")
    return made.job


async def failed(store: Store, worker: Worker, cause: Cause, at: int = START, **fields: Any) -> Change:  # noqa: ANN401 - as above
    """Let a new job fail and wait for a retry; return the change."""
    job = await enqueued(store, **fields)
    (leased,) = [one for one in await worker.take(100, at) if one.id == job.id]
    made = make(leased, Retry(due_at=at + 30 * DAY, cause=cause, delay=1.0), at)
    expect_equal(await worker.settle(made, at=at), ["applied"], "the result of a failure")
    return made


async def check_dead_jobs_are_counted_by_their_causes(store: Store) -> None:
    worker = await Worker.open(store)
    first = await died(store, worker, BUSY, START, tenant="acme")
    await died(store, worker, SLOW, START + SECOND, tenant="acme", death="exhausted")
    last = await died(store, worker, BUSY, START + MINUTE, task="other")
    at = START + HOUR
    expect_equal(await counts(store, at), {"busy": 2, "slow": 1}, "dead jobs by fingerprint")
    expect_equal(await counts(store, at, by="code"), {"450": 3}, "dead jobs by code")
    expect_equal(await counts(store, at, by="tenant"), {"acme": 2, "": 1}, "dead jobs by tenant")
    expect_equal(await counts(store, at, by="task"), {"send": 2, "other": 1}, "dead jobs by task")
    expect_equal(await counts(store, at, by="death"), {"permanent": 2, "exhausted": 1}, "dead jobs by kind of death")
    wanted = CauseGroup(
        name="busy",
        count=2,
        first_at=START,
        last_at=START + MINUTE,
        sample_id=last.id,
        hours=((THIS_HOUR, 2),),
    )
    expect_equal((await groups(store, at))["busy"], wanted, "a group of dead jobs")
    expect(first.id != last.id, "two jobs have two ids")
    expect_equal(await counts(store, at, of="living"), {}, "failures that jobs survived")


async def check_dead_jobs_are_counted_by_tenant_and_fingerprint(store: Store) -> None:
    worker = await Worker.open(store)
    for tenant, cause in (("acme", BUSY), ("acme", BUSY), ("acme", FULL), ("bolt", BUSY), ("", FULL)):
        await died(store, worker, cause, tenant=tenant)
    expect_equal(await counts(store, tenant="acme"), {"busy": 2, "full": 1}, "the fingerprints of a tenant")
    expect_equal(await counts(store, tenant=""), {"full": 1}, "the fingerprints of jobs without a tenant")
    expect_equal(await counts(store, tenant="none"), {}, "the fingerprints of a tenant that has no jobs")
    hit = await store.causes(CauseRequest(by="tenant", fingerprint="busy", limit=1), START)
    expect_equal([(one.name, one.count) for one in hit.groups], [("acme", 2)], "the tenant that is hit most")
    expect_equal(hit.groups[0].hours, ((THIS_HOUR, 2),), "when that tenant was hit")
    expect_equal((hit.total, hit.is_total_exact), (2, True), "how many tenants are hit")
    named = await counts(store, names=("full", "none"))
    expect_equal(named, {"full": 2}, "groups by name")


async def check_retried_and_revived_jobs_leave_their_causes(store: Store) -> None:
    worker = await Worker.open(store)
    first = await died(store, worker, BUSY, START, tenant="acme")
    last = await died(store, worker, BUSY, START + MINUTE, tenant="bolt")
    at = START + HOUR
    retried = change.retry(last, OPERATOR, at, 60.0)
    for _ in range(2):
        await store.apply([retried], at)
        found = (await groups(store, at))["busy"]
        facts = (found.count, found.first_at, found.last_at, found.sample_id)
        expect_equal(facts, (1, START, START, first.id), "the group after a retry of its last job, and its repeat")
    expect_equal(await counts(store, at, by="tenant", fingerprint="busy"), {"acme": 1}, "the tenants that are hit")
    newest = await store.causes(CauseRequest(order="last"), at)
    expect_equal([one.last_at for one in newest.groups], [START], "the order of the last deaths")
    await store.apply([change.revive(first, at)], at)
    for by in ("fingerprint", "code", "tenant", "task", "death"):
        expect_equal(await counts(store, at, by=by), {}, f"dead jobs by {by} after all are waiting again")
    expect_equal(await counts(store, at, tenant="acme"), {}, "the fingerprints of the tenant")


async def check_order_of_causes_is_that_of_the_jobs_that_are_left(store: Store) -> None:
    worker = await Worker.open(store)
    await died(store, worker, BUSY, START)
    await died(store, worker, SLOW, START + SECOND)
    last = await died(store, worker, BUSY, START + MINUTE)
    at = START + HOUR
    expect_equal(await _paged(store, at, CauseRequest(order="last")), ["busy", "slow"], "the order before a retry")
    await store.apply([change.retry(last, OPERATOR, at, 60.0)], at)
    for limit in (1, 100):
        found = await _paged(store, at, CauseRequest(order="last", limit=limit))
        expect_equal(found, ["slow", "busy"], "the order after a retry of the last job")


async def check_archived_jobs_leave_their_causes(store: Store) -> None:
    worker = await Worker.open(store)
    gone = await died(store, worker, BUSY)
    kept = await died(store, worker, BUSY)
    for _ in range(2):
        await store.prune(Retention(now=START, archived=(gone,)))
        expect_equal(await counts(store), {"busy": 1}, "dead jobs after one was archived")
    expect_equal((await groups(store))["busy"].sample_id, kept.id, "the sample of those that are left")
    await store.prune(Retention(now=START, archived=(kept,)))
    expect_equal(await counts(store, by="code"), {}, "dead jobs after all were archived")


async def check_expired_jobs_are_counted(store: Store) -> None:
    worker = await Worker.open(store)
    made = await failed(store, worker, BUSY, tenant="acme", deadline_at=START + HOUR)
    await enqueued(store, tenant="bolt", deadline_at=START + HOUR)
    late = START + 2 * HOUR
    while (await store.expire(late)).has_more:
        pass
    await enqueued(store, late, tenant="bolt", task="urgent", deadline_at=late + SECOND)
    expect_equal(await worker.take(10, late + MINUTE), [], "jobs leased past their deadline")
    expect_equal(await counts(store, late, by="code"), {"450": 1, "expired": 2}, "expired jobs by code")
    expect_equal(await counts(store, late, by="death"), {"expired": 3}, "expired jobs by kind of death")
    expect_equal(await counts(store, late), {"busy": 1}, "expired jobs by fingerprint")
    expect_equal((await groups(store, late))["busy"].sample_id, made.job.id, "the job that had failed before")
    stored = await get(store, made.job, late)
    expect(stored is not None, "the expired job is stored")
    await store.apply([change.retry(stored or made.job, OPERATOR, late, 60.0)], late)
    expect_equal(await counts(store, late, by="code"), {"expired": 2}, "expired jobs after a retry")


async def check_failures_that_jobs_survive_are_counted(store: Store) -> None:
    worker = await Worker.open(store)
    await failed(store, worker, BUSY, START, tenant="acme")
    await failed(store, worker, SLOW, START + SECOND, tenant="acme")
    job = await enqueued(store, task="other")
    (leased,) = await worker.take(10, START + MINUTE)
    parked = make(leased, Park(gate="ses", due_at=START + DAY, cause=BUSY), START + MINUTE)
    await worker.ask(0, START + MINUTE, [parked])
    await worker.again(0, START + MINUTE, [parked])
    await worker.settle(parked, at=START + MINUTE)
    at = START + MINUTE
    expect_equal(await counts(store, at, of="living"), {"busy": 2, "slow": 1}, "failures by fingerprint")
    expect_equal(await counts(store, at, of="living", by="code"), {"450": 3}, "failures by code")
    expect_equal(await counts(store, at, of="living", by="tenant"), {"acme": 2, "": 1}, "failures by tenant")
    expect_equal(await counts(store, at, of="living", by="task"), {"send": 2, "other": 1}, "failures by task")
    expect_equal(await counts(store, at, of="living", tenant="acme"), {"busy": 1, "slow": 1}, "failures of a tenant")
    hit = await counts(store, at, of="living", by="tenant", fingerprint="busy")
    expect_equal(hit, {"acme": 1, "": 1}, "tenants hit by failures")
    wanted = CauseGroup(name="busy", count=2, first_at=START, last_at=at, sample_id=job.id, hours=((THIS_HOUR, 2),))
    expect_equal((await groups(store, at, of="living"))["busy"], wanted, "a group of failures")
    expect_equal(await counts(store, at), {}, "dead jobs")


async def check_failures_are_forgotten_after_a_day(store: Store) -> None:
    worker = await Worker.open(store)
    await failed(store, worker, BUSY, START)
    await failed(store, worker, BUSY, START + 2 * HOUR)
    await failed(store, worker, FULL, START)
    later = THIS_HOUR + 24 * HOUR
    expect_equal(await counts(store, later - 1, of="living"), {"busy": 2, "full": 1}, "failures within a day")
    expect_equal(await counts(store, later, of="living"), {"busy": 1}, "failures of the last day")
    recent = await groups(store, START + 2 * HOUR, of="living", hours=1)
    expect_equal(recent["busy"].hours, ((THIS_HOUR + 2 * HOUR, 1),), "failures of the last hour")
    while (await store.prune(Retention(now=later))).causes:
        pass
    expect_equal(await counts(store, later, of="living"), {"busy": 1}, "failures after a prune")
    last = THIS_HOUR + 26 * HOUR
    while (await store.prune(Retention(now=last))).causes:
        pass
    page = await store.causes(CauseRequest(of="living"), last)
    expect_equal((page.groups, page.total), ((), 0), "failures after the last was pruned")
    await failed(store, worker, BUSY, last + DAY)
    again = (await groups(store, last + DAY, of="living"))["busy"]
    expect_equal((again.count, again.first_at), (1, last + DAY), "a failure that is seen again")


async def check_deaths_are_counted_by_the_hour_for_a_week(store: Store) -> None:
    worker = await Worker.open(store)
    first = await died(store, worker, BUSY, START)
    await died(store, worker, BUSY, START + 3 * HOUR)
    at = START + 3 * HOUR
    hours = ((THIS_HOUR, 1), (THIS_HOUR + 3 * HOUR, 1))
    expect_equal((await groups(store, at))["busy"].hours, hours, "deaths by the hour")
    expect_equal((await groups(store, at, hours=3))["busy"].hours, hours[1:], "deaths of the last three hours")
    expect_equal((await groups(store, at, hours=0))["busy"].hours, (), "deaths of no hours")
    await store.apply([change.retry(first, OPERATOR, at, 60.0)], at)
    expect_equal((await groups(store, at))["busy"].hours, hours, "deaths by the hour, after a retry")
    late = THIS_HOUR + 168 * HOUR
    pruned = await store.prune(Retention(now=late))
    expect(pruned.causes > 0, "a prune deletes counts of hours")
    found = (await groups(store, late, hours=168))["busy"]
    expect_equal((found.count, found.hours), (1, hours[1:]), "the dead job and the hours that are left")


async def check_cancelled_jobs_have_no_cause(store: Store) -> None:
    worker = await Worker.open(store)
    job = await enqueued(store)
    leased = await worker.one()
    await store.annotate([Annotation(job_id=job.id, now=START, cancel=CANCEL_REQUEST)])
    await worker.settle(make(leased, Retry(due_at=START + SECOND, cause=BUSY, delay=1.0)))
    stored = await get(store, job)
    expect_equal(stored and stored.state, "cancelled", "the state of a job with a cancel request")
    expect_equal(await counts(store), {}, "dead jobs")
    expect_equal(await counts(store, of="living"), {"busy": 1}, "failures, that of the cancelled job among them")


async def check_damaged_record_leaves_the_cause_that_was_counted(store: Store) -> None:
    if not isinstance(store, Damageable):
        return
    worker = await Worker.open(store)
    dead = await died(store, worker, BUSY, tenant="acme")
    await store.damage(dead.id, b"\xc1")
    expect_equal(await counts(store), {"busy": 1}, "dead jobs after a record was damaged")
    stored = await get(store, dead)
    expect(stored is not None, "a damaged job is found")
    await store.apply([change.retry(stored or dead, OPERATOR, START, 60.0)], START)
    for by in ("fingerprint", "code", "tenant", "death"):
        expect_equal(await counts(store, by=by), {}, f"dead jobs by {by} after the damaged one is retried")


async def check_causes_are_read_in_order_and_in_pages(store: Store) -> None:
    worker = await Worker.open(store)
    made: list[tuple[str, int]] = [("a", 1), ("b", 3), ("c", 1), ("d", 2), ("e", 1)]
    minutes = 0
    for name, count in made:
        for _ in range(count):
            minutes += 1
            await died(store, worker, replace(BUSY, fingerprint=name), START + minutes * MINUTE)
    at = START + HOUR
    by_count = ["b", "d", "e", "c", "a"]
    for limit in (1, 2, 5, 100):
        expect_equal(await _paged(store, at, CauseRequest(limit=limit)), by_count, f"pages of {limit} by count")
        newest = await _paged(store, at, CauseRequest(limit=limit, order="last"))
        expect_equal(newest, ["e", "d", "c", "b", "a"], f"pages of {limit} by the last death")
    named = await store.causes(CauseRequest(names=("a", "d", "x")), at)
    expect_equal([group.name for group in named.groups], ["d", "a"], "named groups in order")
    expect_equal(named.cursor, "", "the cursor of named groups")


async def _paged(store: Store, at: int, request: CauseRequest) -> Sequence[str]:
    names: list[str] = []
    for _ in range(100):
        page = await store.causes(request, at)
        expect(len(page.groups) <= request.limit, f"a page of {request.limit} has {len(page.groups)} groups")
        names += [group.name for group in page.groups]
        if not page.cursor:
            break
        request = replace(request, cursor=page.cursor)
    return names


async def check_bad_requests_for_causes_are_refused(store: Store) -> None:
    worker = await Worker.open(store)
    for name in ("a", "b", "c"):
        await died(store, worker, replace(BUSY, fingerprint=name, code=name))
    cursor = (await store.causes(CauseRequest(limit=1), START)).cursor
    expect(bool(cursor), "a short page has a cursor")
    others = (
        CauseRequest(by="code", cursor=cursor),
        CauseRequest(order="last", cursor=cursor),
        CauseRequest(of="living", cursor=cursor),
        CauseRequest(tenant="", cursor=cursor),
        CauseRequest(cursor="nonsense"),
        CauseRequest(cursor="größe"),
    )
    for request in others:
        await expect_error(store.causes(request, START), InvalidCursor, f"a foreign cursor for {request!r}")
    wrong: tuple[dict[str, Any], ...] = (
        {"by": "queue"},
        {"of": "all"},
        {"order": "name"},
        {"limit": 0},
        {"limit": 101},
        {"hours": -1},
        {"hours": 169},
        {"by": "code", "tenant": "acme"},
        {"fingerprint": "busy"},
        {"by": "death", "of": "living"},
        {"names": ("a",) * 101},
        {"names": ("a",), "cursor": cursor},
        {"names": ("a\nb",)},
        {"tenant": "a\0b"},
    )
    for fields in wrong:
        await expect_error(store.causes(CauseRequest(**fields), START), ValidationError, f"a request with {fields}")


async def check_long_codes_are_counted_by_their_beginning(store: Store) -> None:
    worker = await Worker.open(store)
    code = "ö" * 3_000
    dead = await died(store, worker, replace(BUSY, code=code, fingerprint=code), tenant="ü" * 255)
    expect_equal(await counts(store, by="code"), {code[:255]: 1}, "dead jobs by a long code")
    await store.apply([change.retry(dead, OPERATOR, START, 60.0)], START)
    expect_equal(await counts(store), {}, "dead jobs by a long fingerprint after a retry")


async def check_codes_are_found_as_they_are_counted(store: Store) -> None:
    worker = await Worker.open(store)
    for number, odd in enumerate(("4\u00a050", "tab\there", "x" * 300, "größe", "zero\u200bwidth")):
        dead = await died(store, worker, replace(BUSY, code=odd, fingerprint=f"{number}{odd}"), tenant="acme")
        (name,) = await counts(store, by="code")
        (fingerprint,) = await counts(store)
        found = await store.find(Filter(codes=(name,), fingerprints=(fingerprint,)), START)
        expect_equal([job.id for job in found.jobs], [dead.id], f"jobs with the code {name!r}")
        cause = found.jobs[0].cause
        expect(cause is not None and (cause.code, cause.fingerprint) == (name, fingerprint), f"the cause {cause!r}")
        hit = await counts(store, by="tenant", fingerprint=fingerprint)
        expect_equal(hit, {"acme": 1}, f"tenants that {fingerprint!r} hits")
        again = change.retry(found.jobs[0], OPERATOR, START, 60.0)
        await store.apply([again, change.cancel(again.job, OPERATOR, START)], START)


async def check_many_failures_of_several_tenants_are_counted_in_one_call(store: Store) -> None:
    worker = await Worker.open(store)
    jobs = [new_job(store, tenant=f"t{number % 7}") for number in range(40)]
    await enqueue(store, *jobs)
    leased = await worker.take(100)
    while len(leased) < len(jobs):
        leased += await worker.take(100)
    changes = [
        kill(job) if number % 4 == 0 else make(job, Retry(due_at=START + DAY, cause=SLOW, delay=1.0))
        for number, job in enumerate(leased)
    ]
    await worker.settle(*changes)
    expect_equal(await counts(store, by="death"), {"permanent": 10}, "dead jobs")
    expect_equal(await counts(store, of="living"), {"slow": 30}, "failures")
    by_tenant = await counts(store, by="tenant", of="living", fingerprint="slow")
    wanted: dict[str, int] = {}
    for number, job in enumerate(leased):
        if number % 4:
            wanted[job.tenant] = wanted.get(job.tenant, 0) + 1
    expect_equal(by_tenant, wanted, "the tenants of the failures")
