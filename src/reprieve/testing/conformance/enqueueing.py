# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of enqueue: ids, repeats, keys, and what is refused."""

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.move import Cancel
from reprieve.core.policy import Override
from reprieve.core.values import MAX_NAME_CHARS
from reprieve.errors import InvalidName, PayloadTooLarge
from reprieve.stores.protocol import (
    KEY_RETENTION_SECONDS,
    MAX_PAYLOAD_BYTES,
    Filter,
    LimitUpdate,
    Retention,
    Store,
)
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error, expect_job
from reprieve.testing.conformance.stage import (
    DAY,
    HEADERS,
    SECOND,
    START,
    Worker,
    enqueue,
    enqueued,
    find_all,
    get,
    kill,
    new_job,
    new_jobs,
    succeed,
    update_limits,
)


async def check_new_ids_differ(store: Store) -> None:
    ids = [store.new_id(START, "default") for _ in range(1_000)]
    expect_equal(len(set(ids)), 1_000, "different ids among a thousand of one millisecond")


async def check_enqueue_answers_the_ids_in_order(store: Store) -> None:
    jobs = [*new_jobs(store, 3), new_job(store, queue="other"), new_job(store, tenant="acme")]
    expect_equal(await enqueue(store, *jobs), [job.id for job in jobs], "the ids of an enqueue")


async def check_enqueue_of_nothing_stores_nothing(store: Store) -> None:
    expect_equal(await store.enqueue([], START), [], "the ids of an empty enqueue")
    expect_equal(await find_all(store, Filter()), [], "jobs after an empty enqueue")


async def check_enqueued_job_keeps_every_field(store: Store) -> None:
    job = new_job(
        store,
        task="send.welcome",
        queue="mail",
        tenant="acme",
        dependency="ses",
        group="newsletter",
        key="welcome-42",
        key_ttl=60.5,
        priority=1,
        payload=b'\x00\xff{"user": 42}',
        override=Override(max_attempts=3, retry_delay=1.5),
        timeout=7_200.5,
        due_at=START + 5 * SECOND,
        deadline_at=START + DAY,
        max_attempts=None,
        headers=HEADERS,
    )
    await enqueue(store, job)
    expect_job(await get(store, job), job)


async def check_enqueue_stores_many_jobs_in_one_call(store: Store) -> None:
    jobs = new_jobs(store, 1_500)
    await enqueue(store, *jobs)
    expect_equal(len(await find_all(store, Filter(), limit=500)), 1_500, "jobs after one enqueue of 1,500")


async def check_repeated_enqueue_changes_nothing(store: Store) -> None:
    jobs = new_jobs(store, 3)
    first = await enqueue(store, *jobs)
    expect_equal(await enqueue(store, *jobs), first, "the result of a repeated enqueue")
    expect_equal(len(await find_all(store, Filter())), 3, "jobs after a repeated enqueue")


async def check_id_twice_in_one_call_is_one_job(store: Store) -> None:
    job = new_job(store)
    expect_equal(await enqueue(store, job, job), [job.id, job.id], "the ids of one job given twice")
    worker = await Worker.open(store)
    expect_equal(len(await worker.take(10)), 1, "jobs leased when one was given twice")


async def check_repeated_enqueue_leaves_a_job_that_moved_on_alone(store: Store) -> None:
    job = await enqueued(store)
    worker = await Worker.open(store)
    leased = await worker.one()
    await enqueue(store, job)
    expect_job(await get(store, job), leased, "a running job after its enqueue was repeated")
    done = succeed(leased)
    await worker.settle(done)
    await enqueue(store, job)
    expect_job(await get(store, job), done.job, "a succeeded job after its enqueue was repeated")
    expect_equal(await worker.take(10), [], "jobs leased after the enqueue of a succeeded one was repeated")


async def check_key_that_is_taken_answers_the_job_that_has_it(store: Store) -> None:
    first = await enqueued(store, key="welcome-42")
    second = new_job(store, key="welcome-42", payload=b"other")
    expect_equal(await enqueue(store, second), [first.id], "the result for a taken key")
    expect_equal(await get(store, second), None, "the job whose key was taken")
    expect_job(await get(store, first), first, "the job that has the key")


async def check_key_twice_in_one_call_is_one_job(store: Store) -> None:
    first, second = new_jobs(store, 2, key="welcome-42")
    expect_equal(await enqueue(store, first, second), [first.id, first.id], "the ids of one key given twice")


async def check_repeat_of_an_enqueue_with_a_taken_key_answers_the_same(store: Store) -> None:
    first = await enqueued(store, key="k")
    batch = [new_job(store, key="k"), new_job(store, key="l")]
    wanted = [first.id, batch[1].id]
    for _ in range(2):
        expect_equal(await enqueue(store, *batch), wanted, "the result of an enqueue with a taken key")


async def check_same_key_of_another_tenant_or_task_is_another_key(store: Store) -> None:
    jobs = [
        new_job(store, key="k"),
        new_job(store, key="k", tenant="acme"),
        new_job(store, key="k", task="other"),
        new_job(store, key="l"),
    ]
    expect_equal(await enqueue(store, *jobs), [job.id for job in jobs], "the ids of four different keys")


async def check_jobs_without_key_never_collide(store: Store) -> None:
    jobs = new_jobs(store, 2, key="")
    expect_equal(await enqueue(store, *jobs), [job.id for job in jobs], "the ids of two jobs without key")


async def check_key_of_a_running_job_is_taken(store: Store) -> None:
    job = await enqueued(store, key="k")
    await (await Worker.open(store)).take()
    expect_equal(await enqueue(store, new_job(store, key="k")), [job.id], "the result for a running job's key")


async def check_key_of_a_succeeded_job_is_taken(store: Store) -> None:
    job = await enqueued(store, key="k")
    worker = await Worker.open(store)
    await worker.settle(succeed(await worker.one()))
    expect_equal(await enqueue(store, new_job(store, key="k")), [job.id], "the result for a succeeded job's key")


async def check_key_of_a_dead_job_is_taken_however_old(store: Store) -> None:
    job = await enqueued(store, key="k", key_ttl=1.0)
    worker = await Worker.open(store)
    await worker.settle(kill(await worker.one()))
    later = START + 60 * DAY
    await store.prune(Retention(now=later))
    again = new_job(store, later, key="k")
    expect_equal(await enqueue(store, again, at=later), [job.id], "the result for a dead job's key after 60 days")


async def check_key_of_a_waiting_job_is_taken_however_old(store: Store) -> None:
    job = await enqueued(store, key="k", key_ttl=1.0)
    later = START + 60 * DAY
    await store.prune(Retention(now=later))
    again = new_job(store, later, key="k")
    expect_equal(await enqueue(store, again, at=later), [job.id], "the result for a waiting job's key after 60 days")


async def check_key_outlives_its_job_for_its_time(store: Store) -> None:
    job = await enqueued(store, key="k", key_ttl=100.0)
    worker = await Worker.open(store)
    await worker.settle(succeed(await worker.one()))
    soon, late = START + 50 * SECOND, START + 101 * SECOND
    pruned = await store.prune(Retention(now=soon, succeeded_for=1.0))
    expect_equal((pruned.succeeded, pruned.keys), (1, 0), "jobs and keys pruned while the key is still kept")
    again = new_job(store, soon, key="k")
    expect_equal(await enqueue(store, again, at=soon), [job.id], "the result for the key of a job that was pruned")
    pruned = await store.prune(Retention(now=late, succeeded_for=1.0))
    expect_equal(pruned.keys, 1, "keys pruned after their time")
    again = new_job(store, late, key="k")
    expect_equal(await enqueue(store, again, at=late), [again.id], "the result for a key whose time is up")
    expect_job(await get(store, again, late), again, "the second job of a key")


async def check_key_of_a_succeeded_job_is_free_after_its_time_though_the_job_is_kept(store: Store) -> None:
    job = await enqueued(store, key="k", key_ttl=100.0)
    worker = await Worker.open(store)
    await worker.settle(succeed(await worker.one()))
    soon, late = START + 99 * SECOND, START + 101 * SECOND
    expect_equal(await enqueue(store, new_job(store, soon, key="k"), at=soon), [job.id], "the result before its time")
    again = new_job(store, late, key="k")
    expect_equal(await enqueue(store, again, at=late), [again.id], "the result after its time")
    kept = await get(store, job, late)
    expect_equal(kept and kept.state, "succeeded", "the state of the first job, which is kept")
    third = new_job(store, late, key="k")
    expect_equal(await enqueue(store, third, at=late), [again.id], "the result while the second job waits")


async def check_key_is_kept_for_a_day_unless_it_says_otherwise(store: Store) -> None:
    job = await enqueued(store, key="k")
    await store.apply([change.make(job, Cancel(), START)], START)
    soon, late = (
        START + round(KEY_RETENTION_SECONDS) * SECOND - SECOND,
        START + round(KEY_RETENTION_SECONDS) * SECOND + SECOND,
    )
    pruned = await store.prune(Retention(now=soon, cancelled_for=1.0))
    expect_equal(pruned.cancelled, 1, "cancelled jobs pruned")
    expect_equal(await enqueue(store, new_job(store, soon, key="k"), at=soon), [job.id], "the result before a day")
    await store.prune(Retention(now=late, cancelled_for=1.0))
    again = new_job(store, late, key="k")
    expect_equal(await enqueue(store, again, at=late), [again.id], "the result after a day")


async def check_names_that_are_none_are_refused(store: Store) -> None:
    names = ("queue", "tenant", "task", "dependency", "group", "key")
    bad = {"control": "a\x00b", "newline": "a\nb", "delete": "a\x7fb", "too long": "n" * (MAX_NAME_CHARS + 1)}
    for name in names:
        for what, value in bad.items():
            job = replace(new_job(store), **{name: value})
            await expect_error(enqueue(store, job), InvalidName, f"enqueue with a {name} ({what})")
    expect_equal(await find_all(store, Filter()), [], "jobs after enqueues that were refused")


async def check_queue_and_task_must_be_named(store: Store) -> None:
    for name in ("queue", "task"):
        job = replace(new_job(store), **{name: ""})
        await expect_error(enqueue(store, job), InvalidName, f"enqueue with an empty {name}")


async def check_names_may_be_long_and_in_any_script(store: Store) -> None:
    longest = "n" * MAX_NAME_CHARS
    jobs = [new_job(store, tenant=longest, task=longest, key=longest), new_job(store, tenant="größe 東京 🙂 'x'; --%_")]
    await enqueue(store, *jobs)
    for job in jobs:
        expect_job(await get(store, job), job)
    found = await find_all(store, Filter(tenants=(jobs[1].tenant,)))
    expect_equal([job.id for job in found], [jobs[1].id], "jobs of a tenant in many scripts")


async def check_payload_over_the_limit_is_refused(store: Store) -> None:
    fits = new_job(store, payload=b"x" * MAX_PAYLOAD_BYTES)
    await enqueue(store, fits)
    expect_job(await get(store, fits), fits, "a job whose payload just fits")
    large = new_job(store, payload=b"x" * (MAX_PAYLOAD_BYTES + 1))
    await expect_error(enqueue(store, large), PayloadTooLarge, "enqueue of a payload that is too large")
    expect_equal(await get(store, large), None, "the job whose payload is too large")


async def check_refused_enqueue_stores_nothing_at_all(store: Store) -> None:
    good, keyed = new_job(store), new_job(store, key="k")
    for error, bad in (
        (InvalidName, new_job(store, tenant="a\x00b")),
        (PayloadTooLarge, new_job(store, payload=b"x" * (MAX_PAYLOAD_BYTES + 1))),
    ):
        await expect_error(enqueue(store, good, keyed, bad), error, "enqueue of good jobs and a bad one")
    expect_equal(await find_all(store, Filter()), [], "jobs after an enqueue that was refused")
    worker = await Worker.open(store)
    expect_equal(await worker.take(10), [], "jobs leased after an enqueue that was refused")
    again = new_job(store, key="k")
    expect_equal(await enqueue(store, again), [again.id], "the result for a key of an enqueue that was refused")


async def check_held_lane_stays_held_when_jobs_join_it(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", permits=0))
    worker = await Worker.open(store)
    await enqueue(store, *new_jobs(store, 2, dependency="ses"))
    expect_equal(await worker.take(10), [], "jobs leased of a lane that was held before they came")
    await enqueue(store, *new_jobs(store, 2, dependency="ses"))
    free = await enqueued(store, dependency="smtp")
    taken = await worker.take(10)
    expect([job.id for job in taken] == [free.id], f"only the job of the open lane is leased, not {taken!r}")
