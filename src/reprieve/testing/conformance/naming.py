# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of names that are suggested."""

from reprieve.core.job import Cause
from reprieve.errors import InvalidName, ValidationError
from reprieve.stores.protocol import MAX_NAMES, NameSubject, Retention, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error
from reprieve.testing.conformance.stage import (
    DAY,
    HOUR,
    SECOND,
    START,
    Worker,
    enqueue,
    fail,
    kill,
    new_job,
)


def _cause(code: str) -> Cause:
    return Cause(reason=code, code=code, kind="transient", fingerprint=f"f-{code}")


async def check_names_are_suggested_by_their_beginning_and_in_order(store: Store) -> None:
    jobs = [
        new_job(
            store, START + number, queue=f"q{number % 3}", tenant=tenant, task=task, dependency=task[:1], group=group
        )
        for number, (tenant, task, group) in enumerate(
            (
                ("bob", "mail.send", "g"),
                ("anna", "mail.read", ""),
                ("annabel", "mail", "ga"),
                ("ann", "möbel", "gä"),
            )
        )
    ]
    await enqueue(store, *jobs, new_job(store, START, queue="q1", tenant="", task="mail.send"), at=START)
    for _ in range(2):  # before a claim has counted what was enqueued, and after
        expect_equal(await store.names("queue"), ["q0", "q1", "q2"], "queues")
        expect_equal(await store.names("tenant"), ["ann", "anna", "annabel", "bob"], "tenants")
        expect_equal(await store.names("tenant", "anna"), ["anna", "annabel"], "tenants with a prefix")
        expect_equal(await store.names("tenant", "an", 2), ["ann", "anna"], "the first tenants")
        expect_equal(await store.names("task"), ["mail", "mail.read", "mail.send", "möbel"], "tasks")
        expect_equal(await store.names("task", "mail."), ["mail.read", "mail.send"], "tasks with a prefix")
        expect_equal(await store.names("dependency"), ["m"], "dependencies")
        expect_equal(await store.names("group", "g"), ["g", "ga", "gä"], "groups")
        for subject in ("queue", "tenant", "task", "dependency", "group", "code"):
            expect_equal(await store.names(subject, "nothing"), [], f"no {subject}")
        await (await Worker.open(store)).take(1, START + SECOND, queues=("other",))


async def check_names_of_many_are_the_first_of_all_partitions(store: Store) -> None:
    jobs = [new_job(store, START + number, tenant=f"t{number:03}", task=f"k{number % 7}") for number in range(130)]
    await enqueue(store, *jobs, at=START + SECOND)
    expect_equal(await store.names("tenant", "", MAX_NAMES), [f"t{number:03}" for number in range(100)], "a hundred")
    expect_equal(await store.names("tenant", "t12"), [f"t{number:03}" for number in range(120, 130)], "ten")
    expect_equal(await store.names("task", "k", 3), ["k0", "k1", "k2"], "tasks")


async def check_codes_of_dead_jobs_and_of_failures_are_suggested(store: Store) -> None:
    worker = await Worker.open(store)
    await enqueue(store, *(new_job(store, START + number) for number in range(3)), at=START + 10)
    first, second, third = await worker.take(3, START + SECOND)
    await worker.settle(
        kill(first, START + 2 * SECOND, "permanent", _cause("550")),
        fail(second, START + 2 * SECOND, START + HOUR, _cause("451")),
        kill(third, START + 2 * SECOND, "permanent", _cause("554")),
        at=START + 3 * SECOND,
    )
    expect_equal(await store.names("code"), ["451", "550", "554"], "codes")
    expect_equal(await store.names("code", "55"), ["550", "554"], "codes with a prefix")
    # A day later the failure that a job survived is not counted any more.
    pruned = await store.prune(Retention(now=START + 2 * DAY))
    while pruned.has_more:
        pruned = await store.prune(Retention(now=START + 2 * DAY))
    expect("451" not in await store.names("code"), "a failure of the day before last is suggested")


async def check_names_of_jobs_are_kept_while_searches_for_unused_ones_go_on(store: Store) -> None:
    jobs = [new_job(store, START + number, tenant=f"t{number}", task=f"k{number}", group="g") for number in range(4)]
    await enqueue(store, *jobs, at=START + SECOND)
    for number in range(3):
        pruned = await store.prune(Retention(now=START + number * DAY))
        while pruned.has_more:
            pruned = await store.prune(Retention(now=START + number * DAY))
        expect_equal(await store.names("task"), ["k0", "k1", "k2", "k3"], "tasks")
        expect_equal(await store.names("group"), ["g"], "groups")
        expect_equal(await store.names("tenant"), ["t0", "t1", "t2", "t3"], "tenants")


async def check_names_that_cannot_be_asked_for_are_refused(store: Store) -> None:
    unknown: NameSubject = "session"  # type: ignore[assignment]
    await expect_error(store.names(unknown), ValidationError, "names of sessions")
    for limit in (0, MAX_NAMES + 1):
        await expect_error(store.names("task", "", limit), ValidationError, f"{limit} names")
    await expect_error(store.names("task", "a\0b"), InvalidName, "a prefix with NUL")
