# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of groups of failures, and of what is stored of the last failure of a job."""

from msgspec.structs import replace

from reprieve.core.job import Cause
from reprieve.core.move import Dead, Park, Retry
from reprieve.errors import ValidationError
from reprieve.stores.protocol import MAX_FAILURE_BYTES, FailureGroup, Retention, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error, expect_job
from reprieve.testing.conformance.stage import DAY, HOUR, SECOND, START, Worker, enqueued, get, make

GROUP = FailureGroup(
    fingerprint="5be1c0de",
    template="no route to <host> for größe <n>",
    type="builtins.ConnectionError",
    traceback='Traceback (most recent call last):\n  File "shop.py", line 7, in send\nConnectionError: größe',
    first_seen_at=START,
    last_seen_at=START,
)
CAUSE = Cause(
    reason="no route to mx7.example.com",
    code="EHOSTUNREACH",
    kind="transient",
    fingerprint="5be1c0de",
    type="builtins.ConnectionError",
    rule="python:ConnectionError",
    scope="dependency",
    duration=1.25,
    traceback=GROUP.traceback,
)


async def check_cause_of_a_failure_is_kept_with_its_job(store: Store) -> None:
    worker = await Worker.open(store)
    for move in (
        Retry(due_at=START + SECOND, cause=CAUSE, delay=1.0),
        Park(gate="smtp", due_at=START + SECOND, cause=CAUSE),
        Dead(death="permanent", cause=CAUSE, charged=True),
    ):
        job = await enqueued(store, task=f"task-{worker.number}")
        made = make(await worker.one(), move)
        expect_equal(await worker.settle(made), ["applied"], f"the result of {made.event.name}")
        expect_job(await get(store, job), made.job, f"the job after {made.event.name}")


async def check_events_have_no_traceback(store: Store) -> None:
    worker = await Worker.open(store)
    job = await enqueued(store)
    await worker.settle(make(await worker.one(), Retry(due_at=START + SECOND, cause=CAUSE, delay=1.0)))
    (move,) = [event.move for _, event in await store.events(job_id=job.id) if isinstance(event.move, Retry)]
    expect_equal(move.cause, replace(CAUSE, traceback=""), "the cause in the event")


async def check_group_of_failures_is_kept(store: Store) -> None:
    expect_equal(await store.failure_groups(["5be1c0de"]), [], "groups before any failure")
    other = replace(GROUP, fingerprint="other", type="", traceback="")
    await store.describe_failures([GROUP, other])
    found = await store.failure_groups(["other", "5be1c0de", "unknown", "other"])
    expect_equal(sorted(found, key=lambda group: group.fingerprint), [GROUP, other], "the groups that are kept")
    expect_equal(await store.failure_groups([]), [], "the groups of no fingerprints")


async def check_first_description_of_a_group_stays_and_its_last_time_grows(store: Store) -> None:
    await store.describe_failures([GROUP])
    later = replace(GROUP, template="another", traceback="", first_seen_at=START + HOUR, last_seen_at=START + HOUR)
    earlier = replace(later, first_seen_at=START - HOUR, last_seen_at=START - HOUR)
    for group in (later, earlier, later):
        await store.describe_failures([group])
    found = await store.failure_groups(["5be1c0de"])
    expect_equal(found, [replace(GROUP, last_seen_at=START + HOUR)], "the group after it was seen again")


async def check_group_twice_in_one_call_is_one_group(store: Store) -> None:
    await store.describe_failures([GROUP, replace(GROUP, last_seen_at=START + SECOND)])
    found = await store.failure_groups(["5be1c0de"])
    expect_equal(found, [replace(GROUP, last_seen_at=START + SECOND)], "the group")


async def check_large_traceback_of_a_group_is_kept_and_a_larger_one_is_refused(store: Store) -> None:
    large = replace(GROUP, traceback="\u00f6" * (MAX_FAILURE_BYTES // 2))
    await store.describe_failures([large])
    expect_equal(await store.failure_groups(["5be1c0de"]), [large], "a group with a large traceback")
    for wrong in (
        replace(GROUP, fingerprint="a", traceback=large.traceback + "x"),
        replace(GROUP, fingerprint=""),
        replace(GROUP, fingerprint="a\0b"),
        replace(GROUP, fingerprint="a", last_seen_at=1.5),
        replace(GROUP, fingerprint="a", template=None),
    ):
        good = replace(GROUP, fingerprint="good")
        await expect_error(store.describe_failures([good, wrong]), ValidationError, f"{wrong!r:.80}")
    expect_equal(await store.failure_groups(["a", "good"]), [], "groups of calls that were refused")


async def check_groups_of_failures_go_when_they_were_not_seen_for_long(store: Store) -> None:
    again = replace(GROUP, fingerprint="again")
    await store.describe_failures([GROUP, again])
    await store.describe_failures([replace(again, last_seen_at=START + DAY)])
    kept_for = 30 * 86_400.0
    pruned = await store.prune(Retention(now=START + 30 * DAY, failures_for=kept_for))
    expect_equal(pruned.failures, 0, "groups that were pruned in time")
    pruned = await store.prune(Retention(now=START + 30 * DAY + 1, failures_for=kept_for))
    expect_equal(pruned.failures, 1, "groups that were pruned")
    expect(not pruned.is_all, "there may be more to prune")
    (left,) = await store.failure_groups(["5be1c0de", "again"])
    expect_equal(left.fingerprint, "again", "the group that was seen again")
    pruned = await store.prune(Retention(now=START + 30 * DAY + 1, failures_for=kept_for))
    expect(pruned.is_all, "nothing is left to prune")


async def check_groups_of_failures_that_are_too_many_go_oldest_first(store: Store) -> None:
    names = [f"{number:03}" for number in range(50)]
    await store.describe_failures(
        [replace(GROUP, fingerprint=name, last_seen_at=START + number) for number, name in enumerate(names)]
    )
    pruned = await store.prune(Retention(now=START + SECOND, failures=20))
    expect_equal(pruned.failures, 30, "groups that were pruned")
    left = sorted(group.fingerprint for group in await store.failure_groups(names))
    expect_equal(left, names[30:], "the groups that were seen last")
