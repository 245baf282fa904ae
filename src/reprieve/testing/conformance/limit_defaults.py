# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of the defaults of limits: they hold for every name that has no limit of its own, also for later ones."""

from collections import Counter
from typing import Any

from msgspec.structs import replace

from reprieve.core.rate import Rate
from reprieve.stores.paginate import all_limit_states
from reprieve.stores.protocol import LimitUpdate, Store, Subject
from reprieve.testing.conformance.expect import expect_equal, expect_ids
from reprieve.testing.conformance.gates import SUBJECTS, affected, limit_update, open_worker
from reprieve.testing.conformance.stage import SECOND, START, enqueue, enqueued, new_jobs, succeed, update_limits

OWN = {("x", ""), ("x", "default")}
"""Name and queue of the subject that `limit_update` names."""


def default_of(subject: Subject, **fields: Any) -> LimitUpdate:  # noqa: ANN401 - whatever an update carries
    """Update the default of all names of a subject."""
    return LimitUpdate(subject=subject, name=None, **fields)


async def check_default_holds_for_every_name_also_for_those_that_appear_later(store: Store) -> None:
    worker = await open_worker(store)
    for subject in SUBJECTS:
        before = new_jobs(store, 2, **affected(subject))
        await enqueue(store, *before)
        await update_limits(store, default_of(subject, permits=0))
        expect_equal(await worker.take(10), [], f"jobs leased while every {subject} is held")
        names: dict[str, Any] = dict.fromkeys(affected(subject), "later")
        later = new_jobs(store, 2, **names)
        await enqueue(store, *later)
        worker.queues = ("default", "x", "later")
        expect_equal(await worker.take(10), [], f"jobs leased of a {subject} that appeared later")
        await update_limits(store, default_of(subject, permits="default"))
        taken = await worker.take(10)
        expect_ids(taken, [*before, *later], f"jobs leased after the default of every {subject} was removed")
        await worker.settle(*(succeed(job) for job in taken))
    expect_equal(await store.limit_defaults(), [], "defaults that are left")


async def check_own_limit_comes_before_the_default_field_by_field(store: Store) -> None:
    worker = await open_worker(store)
    rate = Rate(count=100, window=60.0)
    for subject in SUBJECTS:
        await update_limits(store, default_of(subject, permits=0, max_running=2, rate=rate))
        await update_limits(store, limit_update(subject, permits=None))
        jobs = new_jobs(store, 5, **affected(subject))
        await enqueue(store, *jobs)
        taken = await worker.take(10)
        if subject == "queue":
            expect_equal(len({job.queue for job in taken}), 1, "queues that are not held")
        await worker.settle(*(succeed(job) for job in taken))
        (state,) = [one for one in await all_limit_states(store, subject) if (one.name, one.queue) in OWN]
        expect_equal((state.own, state.permits, state.rate), (("permits",), None, rate), f"the limits of a {subject}")
        await update_limits(store, limit_update(subject, permits="default", max_running=None))
        expect_equal(await worker.take(10), [], f"jobs leased of a {subject} that has the default again")
        (state,) = [one for one in await all_limit_states(store, subject) if (one.name, one.queue) in OWN]
        found = (state.own, state.permits, state.max_running)
        expect_equal(found, (("max_running",), 0, None), f"the limits of a {subject} after another own one")
        await update_limits(store, default_of(subject, permits="default", max_running="default", rate="default"))
        left = await worker.take(10)
        expect_equal(len(taken) + len(left), 5, f"jobs leased of a {subject} in all")
        await worker.settle(*(succeed(job) for job in left))


async def check_default_number_is_that_of_each_name(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="tenant", name=None, max_running=2))
    await enqueue(store, *new_jobs(store, 4, tenant="a"), *new_jobs(store, 4, tenant="b"))
    worker = await open_worker(store)
    taken = await worker.take(10)
    expect_equal(sorted(job.tenant for job in taken), ["a", "a", "b", "b"], "tenants of the jobs that were leased")
    await update_limits(store, LimitUpdate(subject="tenant", name=None, max_running=3))
    expect_equal(len(await worker.take(10)), 2, "jobs leased after the default was raised")
    await worker.settle(*(succeed(job) for job in taken))
    expect_equal(len(await worker.take(10)), 2, "jobs leased after four have ended")


async def check_default_of_a_queue_comes_before_that_of_all(store: Store) -> None:
    general = LimitUpdate(subject="tenant", name=None, max_running=1)
    of_queue = LimitUpdate(subject="tenant", name=None, queue="x", max_running=3)
    await update_limits(store, of_queue, general)
    await enqueue(store, *new_jobs(store, 5, tenant="a"), *new_jobs(store, 5, tenant="a", queue="x"))
    worker = await open_worker(store)
    queues = [job.queue for job in await worker.take(10)]
    expect_equal((queues.count("default"), queues.count("x")), (1, 3), "jobs leased in the two queues")
    found = sorted(await store.limit_defaults(), key=lambda update: update.queue)
    expect_equal(found, [general, of_queue], "the defaults that are set")
    await update_limits(store, replace(of_queue, max_running="default"), replace(general, max_running=4))
    queues = [job.queue for job in await worker.take(10)]
    expect_equal((queues.count("default"), queues.count("x")), (3, 1), "jobs leased with the default of all alone")


async def check_default_of_pairs_counts_what_runs_already(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 4, tenant="acme", dependency="ses"))
    worker = await open_worker(store)
    await worker.exactly(2)
    each = LimitUpdate(subject="tenant_dependency", name=None, dependency="ses", max_running=3)
    await update_limits(store, each)
    await enqueue(
        store,
        *new_jobs(store, 4, tenant="other", dependency="ses"),
        *new_jobs(store, 4, tenant="acme", dependency="smtp"),
    )
    taken = Counter((job.tenant, job.dependency) for job in await worker.take(20))
    wanted = {("acme", "ses"): 1, ("other", "ses"): 3, ("acme", "smtp"): 4}
    expect_equal(dict(taken), wanted, "jobs leased when each tenant may run three of one dependency")


async def check_rate_of_a_default_is_that_of_each_name(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="dependency", name=None, rate=Rate(count=2, window=60.0)))
    await enqueue(store, *new_jobs(store, 5, dependency="ses"), *new_jobs(store, 5, dependency="smtp"))
    worker = await open_worker(store)
    await worker.settle(*(succeed(job) for job in await worker.exactly(4)))
    expect_equal(await worker.take(10), [], "jobs leased after each dependency has spent its rate")
    await update_limits(store, LimitUpdate(subject="dependency", name=None, rate=Rate(count=3, window=3_600.0)))
    expect_equal(len(await worker.take(10)), 2, "jobs leased at a rate of three, of which two were granted")


async def check_pauses_of_every_queue_hold_for_one_that_appears_later(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="queue", name=None, pauses=("schedule",)))
    job = await enqueued(store, queue="x", due_at=START + SECOND)
    worker = await open_worker(store)
    expect_equal(await worker.take(5, START + 2 * SECOND), [], "jobs leased while schedules are paused")
    await update_limits(store, LimitUpdate(subject="queue", name="x", pauses=()), at=START + 2 * SECOND)
    expect_ids(await worker.take(5, START + 2 * SECOND), [job], "jobs leased of a queue that is not paused itself")
