# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of the audit log: what people did is in it once, in the write of the action, and nothing else is."""

from typing import Any

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.audit import AuditEntry
from reprieve.core.change import Request
from reprieve.core.job import CancelRequest, Job
from reprieve.core.move import ManualRetry
from reprieve.core.status import STUCK_AFTER_SECONDS
from reprieve.core.text import MAX_PERSON_CHARS, MAX_TEXT_CHARS
from reprieve.errors import InvalidCursor, ValidationError
from reprieve.stores.protocol import Annotation, AuditFilter, Retention, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error
from reprieve.testing.conformance.settling import dead_job, running_job
from reprieve.testing.conformance.stage import (
    ANOTHER,
    DAY,
    HOUR,
    OPERATOR,
    SECOND,
    START,
    Worker,
    enqueued,
    fail,
    kill,
    new_jobs,
    stop,
)


async def all_audit(store: Store, limit: int = 100, **fields: Any) -> list[AuditEntry]:  # noqa: ANN401 - of a filter
    """Return all pages of a filter."""
    found: list[AuditEntry] = []
    cursor = ""
    for _ in range(1_000):
        page = await store.audit_log(AuditFilter(**fields), cursor, limit)
        expect(len(page.entries) <= limit, f"a page of {len(page.entries)} entries with a limit of {limit}")
        found.extend(page.entries)
        cursor = page.cursor
        if not cursor:
            return found
    message = "the audit log had no end after 1,000 pages"
    raise AssertionError(message)


def unplaced(entries: list[AuditEntry]) -> list[AuditEntry]:
    """Return entries as they were before they were stored."""
    return [replace(entry, position=0) for entry in entries]


async def cancelled(store: Store, jobs: list[Job], request: Request = OPERATOR, at: int = START) -> None:
    """Enqueue jobs, and cancel each at a time of its own, a second apart."""
    await store.enqueue(jobs, at)
    for number, job in enumerate(jobs):
        then = at + number * SECOND
        expect_equal(await store.apply([change.cancel(job, request, then)], then), ["applied"], "a cancel")


async def check_manual_retry_has_its_audit_entry(store: Store) -> None:
    _, dead = await dead_job(store)
    request = replace(OPERATOR, request_id="req-7", operation="bulk-1")
    wanted = change.retry(dead, request, START + SECOND, STUCK_AFTER_SECONDS)
    await store.apply([wanted], START + SECOND)
    (entry,) = await all_audit(store)
    expect_equal(
        (entry.actor, entry.action, entry.reason), (OPERATOR.by, "retry", OPERATOR.reason), "who, what and why"
    )
    expect_equal((entry.kind, entry.name, entry.queue), ("job", dead.id, dead.queue), "the subject")
    expect_equal(
        (entry.at, entry.request_id, entry.operation), (START + SECOND, "req-7", "bulk-1"), "when, and in what"
    )
    expect_equal((entry.before["state"], entry.before["death"]), ("dead", "permanent"), "the job before")
    expect_equal((entry.after["state"], entry.after["due_at"]), ("waiting", START + SECOND), "the job after")
    expect_equal(entry.after["granted"], wanted.job.granted, "granted attempts")
    expect(entry.position > 0, "a stored entry has a position")


async def check_only_moves_by_people_are_audited(store: Store) -> None:
    worker, leased = await running_job(store)
    await worker.settle(fail(leased))
    again = await worker.one(at=START + 10 * SECOND)
    death = kill(again, START + 10 * SECOND)
    await worker.settle(death, at=START + 10 * SECOND)
    await store.apply([change.revive(death.job, START + 11 * SECOND)], START + 11 * SECOND)
    third = await worker.one(at=START + 11 * SECOND)
    await worker.settle(stop(third, START + 11 * SECOND), at=START + 11 * SECOND)
    expect_equal(await all_audit(store), [], "audit entries of moves that no person made")


async def check_refused_or_repeated_action_leaves_no_second_entry(store: Store) -> None:
    _, dead = await dead_job(store)
    first, second = (change.retry(dead, request, START, STUCK_AFTER_SECONDS) for request in (OPERATOR, ANOTHER))
    results = [await store.apply([one], START) for one in (first, first, second)]
    expect_equal(results, [["applied"], ["already"], ["refused"]], "a retry, its repeat, and one that is too late")
    results = [await store.apply([first, second], START)]
    expect_equal(results, [["already", "refused"]], "both again in one call")
    expect_equal(unplaced(await all_audit(store)), [first.audit], "the audit log")


async def check_cancel_of_a_running_job_is_audited_when_it_is_requested(store: Store) -> None:
    worker = await Worker.open(store)
    await enqueued(store, tenant="acme", queue="default")
    leased = await worker.one()
    request = CancelRequest(by="ana", reason="the customer left")
    annotation = Annotation(job_id=leased.id, now=START, cancel=request, request_id="req-1")
    for _ in range(2):
        expect_equal(await store.annotate([annotation]), [True], "whether the job runs")
    await store.annotate([replace(annotation, cancel=CancelRequest(by="bea", reason="too late"))])
    await worker.settle(fail(leased, START + SECOND), at=START + SECOND)
    (entry,) = await all_audit(store)
    expect_equal((entry.actor, entry.action, entry.reason), ("ana", "cancel", "the customer left"), "who, what and why")
    expect_equal((entry.name, entry.tenant, entry.queue), (leased.id, "acme", "default"), "the subject")
    expect_equal((entry.at, entry.request_id), (START, "req-1"), "when, and in which request")
    expect_equal(entry.after, {"state": "running", "is_cancel_requested": True}, "the job after")
    gone = Annotation(job_id=leased.id, now=START, cancel=request)
    expect_equal(await store.annotate([gone]), [False], "whether a cancelled job runs")
    expect_equal(len(await all_audit(store)), 1, "audit entries after a request that came too late")


async def check_change_without_its_audit_entry_is_refused(store: Store) -> None:
    _, dead = await dead_job(store)
    retry = change.retry(dead, OPERATOR, START, STUCK_AFTER_SECONDS)
    audit = retry.audit
    expect(audit is not None, "a manual retry has an audit entry")
    if audit is None:
        return
    nameless = change.make(dead, ManualRetry(by="", reason="", due_at=START), START)
    lies = (
        replace(retry, audit=None),
        replace(retry, audit=replace(audit, actor="eve")),
        replace(retry, audit=replace(audit, name="another job")),
        replace(retry, audit=replace(audit, tenant="another tenant")),
        replace(retry, audit=replace(audit, reason="")),
        replace(change.revive(dead, START), audit=audit),
        nameless,
    )
    expect_equal(await store.apply(lies, START), ["refused"] * len(lies), "changes with another entry than theirs")
    expect_equal(await all_audit(store), [], "the audit log")
    expect_equal(await store.apply([retry], START), ["applied"], "the retry itself")


async def check_audit_log_is_read_by_each_of_its_fields(store: Store) -> None:
    acme = new_jobs(store, 3, tenant="acme")
    await cancelled(store, [*acme, *new_jobs(store, 2, tenant="bravo"), *new_jobs(store, 2)])
    await cancelled(store, new_jobs(store, 2, tenant="acme"), ANOTHER, START + HOUR)
    again = change.retry(change.cancel(acme[0], OPERATOR, START).job, ANOTHER, START + 2 * HOUR, STUCK_AFTER_SECONDS)
    await store.apply([again], START + 2 * HOUR)
    newest = await all_audit(store)
    expect_equal(len(newest), 10, "all entries")
    expect_equal(newest, sorted(newest, key=lambda entry: (-entry.at, -entry.position)), "the newest first")
    expect_equal(await all_audit(store, is_newest_first=False), newest[::-1], "the oldest first")
    for fields, count in (
        ({"tenant": "acme"}, 6),
        ({"tenant": ""}, 2),
        ({"actor": ANOTHER.by}, 3),
        ({"action": "retry"}, 1),
        ({"kind": "job"}, 10),
        ({"kind": "queue"}, 0),
        ({"kind": "job", "name": acme[0].id}, 2),
        ({"tenant": "acme", "actor": ANOTHER.by, "action": "cancel"}, 2),
        ({"since_at": START + HOUR}, 3),
        ({"until_at": START + HOUR}, 7),
        ({"since_at": START + SECOND, "until_at": START + 3 * SECOND}, 2),
        ({"tenant": "acme", "since_at": START + HOUR, "until_at": START + 2 * HOUR}, 2),
        ({"tenant": "unknown"}, 0),
    ):
        found = await all_audit(store, **fields)
        expect_equal(len(found), count, f"entries with {fields}")
        expect_equal(await all_audit(store, limit=1, **fields), found, f"entries with {fields}, one by one")
        expect_equal(
            await all_audit(store, limit=1, is_newest_first=False, **fields), found[::-1], "the same backwards"
        )


async def check_entries_of_one_instant_are_all_on_pages(store: Store) -> None:
    jobs = new_jobs(store, 25, tenant="acme")
    await store.enqueue(jobs, START)
    await store.apply([change.cancel(job, OPERATOR, START) for job in jobs], START)
    for fields in ({}, {"tenant": "acme"}, {"actor": OPERATOR.by, "action": "cancel"}):
        for is_newest_first in (True, False):
            found = await all_audit(store, 7, is_newest_first=is_newest_first, **fields)
            expect_equal(sorted(entry.name for entry in found), sorted(job.id for job in jobs), "the subjects")


async def check_scoped_reader_sees_one_tenant_only(store: Store) -> None:
    await cancelled(
        store, [*new_jobs(store, 2, tenant="acme"), *new_jobs(store, 1, tenant="bravo"), *new_jobs(store, 1)]
    )
    expect_equal({entry.tenant for entry in await all_audit(store, scope="acme")}, {"acme"}, "tenants in the scope")
    expect_equal(len(await all_audit(store, scope="acme", tenant="acme")), 2, "entries of the tenant by its name")
    expect_equal(
        len(await all_audit(store, scope="acme", actor=OPERATOR.by)), 2, "entries by their actor, in the scope"
    )
    for foreign in ("bravo", "unknown", ""):
        wanted = AuditFilter(scope="acme", tenant=foreign)
        await expect_error(store.audit_log(wanted), ValidationError, f"tenant {foreign!r} in the scope of another")
    await expect_error(store.audit_log(AuditFilter(scope="")), ValidationError, "a scope without a name")


async def check_cursor_of_a_scoped_reader_tells_of_no_other_tenant(store: Store) -> None:
    ours = new_jobs(store, 1, START + HOUR, tenant="acme")
    for jobs, at in ((new_jobs(store, 3, tenant="bravo"), START), (ours, START + HOUR)):
        await cancelled(store, jobs, at=at)
    filters: tuple[dict[str, Any], ...] = ({}, {"actor": OPERATOR.by}, {"action": "cancel"}, {"kind": "job"})
    for fields in filters:
        page = await store.audit_log(AuditFilter(scope="acme", **fields), limit=1)
        expect_equal([entry.name for entry in page.entries], [ours[0].id], f"the entries of the tenant by {fields}")
        expect_equal(page.cursor, "", f"a cursor behind the last entry of the tenant by {fields}")


async def check_audit_filter_without_sense_is_refused(store: Store) -> None:
    for fields in (
        {"since_at": START, "until_at": START},
        {"since_at": START + 1, "until_at": START},
        {"since_at": -1},
        {"until_at": 1 << 60},
        {"name": "mail"},
        {"kind": "planet", "name": "mars"},
        {"action": "invent"},
        {"actor": "a\0b"},
        {"tenant": "x" * 300},
        {"is_newest_first": "yes"},
    ):
        wanted = AuditFilter(**fields)
        await expect_error(store.audit_log(wanted), ValidationError, f"a filter with {fields}")
    for limit in (0, -1, 201, 10_000):
        await expect_error(store.audit_log(AuditFilter(), "", limit), ValidationError, f"a limit of {limit}")


async def check_cursor_of_another_audit_filter_is_refused(store: Store) -> None:
    await cancelled(store, new_jobs(store, 3, tenant="acme"))
    cursor = (await store.audit_log(AuditFilter(tenant="acme"), "", 1)).cursor
    expect(bool(cursor), "a page of one of three entries has a cursor")
    for wanted, text in (
        (AuditFilter(), cursor),
        (AuditFilter(tenant="bravo"), cursor),
        (AuditFilter(tenant="acme", is_newest_first=False), cursor),
        (AuditFilter(tenant="acme"), "x" + cursor),
        (AuditFilter(tenant="acme"), "1.2"),
        (AuditFilter(tenant="acme"), "9" * 400),
    ):
        await expect_error(store.audit_log(wanted, text, 1), InvalidCursor, f"the cursor {text[:40]} for {wanted}")


async def check_request_without_a_name_or_a_reason_is_refused(store: Store) -> None:
    for by, reason in (("", "why"), ("ana", ""), (" \n", "why"), ("ana", "\t")):
        try:
            Request(by=by, reason=reason)
        except ValidationError:
            continue
        message = f"a request by {by!r} because of {reason!r} was made"
        raise AssertionError(message)
    _, leased = await running_job(store)
    blank = Annotation(job_id=leased.id, now=START, cancel=CancelRequest(by=" ", reason="why"))
    await expect_error(store.annotate([blank]), ValidationError, "a cancel request without a name")


async def check_long_reason_is_cut_in_the_audit_log(store: Store) -> None:
    _, dead = await dead_job(store)
    request = Request(by="ana", reason="x" * 1_000_000, request_id="r" * 1_000, force=True)
    await store.apply([change.retry(dead, request, START, STUCK_AFTER_SECONDS)], START)
    (entry,) = await all_audit(store)
    expect(len(entry.reason) <= MAX_TEXT_CHARS, f"a reason of {len(entry.reason)} characters")
    expect(len(entry.request_id) <= MAX_PERSON_CHARS, f"a request id of {len(entry.request_id)} characters")


async def check_audit_log_outlives_its_jobs_for_its_own_time(store: Store) -> None:
    await cancelled(store, new_jobs(store, 5, tenant="acme"))
    await cancelled(store, new_jobs(store, 2, tenant="acme"), ANOTHER, START + 300 * DAY)
    for kept in (0.0, -1.0, float("nan")):
        retention = Retention(now=START, audit_for=kept)
        await expect_error(store.prune(retention), ValidationError, f"an audit log that is kept for {kept} s")
    retention = Retention(now=START + 399 * DAY)
    expect_equal((await pruned(store, retention)), 0, "entries that go before their time")
    expect_equal(len(await all_audit(store)), 7, "entries that outlive their jobs")
    expect_equal(await pruned(store, Retention(now=START + 401 * DAY)), 5, "entries that go at their time")
    for wanted in (AuditFilter(), AuditFilter(tenant="acme"), AuditFilter(actor=ANOTHER.by)):
        expect_equal(len((await store.audit_log(wanted)).entries), 2, f"entries that stay, by {wanted}")
    expect_equal(await all_audit(store, actor=OPERATOR.by), [], "entries that went, by their actor")


async def pruned(store: Store, retention: Retention) -> int:
    """Prune until nothing is left to delete; return how many audit entries went."""
    count = 0
    for _ in range(1_000):
        result = await store.prune(retention)
        count += result.audit
        if result.is_all:
            return count
    message = "a prune had no end after 1,000 calls"
    raise AssertionError(message)
