# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of records that cannot be read: their jobs keep their places, and no other job waits for them.

They damage records through `Damageable`; on a store that is not, they check nothing.
"""

from reprieve.core import change
from reprieve.core.headers import Headers
from reprieve.core.job import Job
from reprieve.core.move import Return
from reprieve.core.unreadable import unreadable_record
from reprieve.stores.capabilities import Damageable
from reprieve.stores.paginate import all_limit_states
from reprieve.stores.protocol import Annotation, Filter, LimitUpdate, Retention, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_ids
from reprieve.testing.conformance.stage import (
    CANCEL_REQUEST,
    DAY,
    HOUR,
    MINUTE,
    OPERATOR,
    START,
    Worker,
    enqueue,
    enqueued,
    fail,
    find_all,
    get,
    kill,
    new_job,
    new_jobs,
    succeed,
    update_limits,
)

DAMAGES = (
    b"",
    b"\xc1",
    b"\x94\xc4\x02",
    b"not a record at all",
    b"\x94\xc4\x00\xcb\x40\x14\x00\x00\x00\x00\x00\x00\xc0\xc0",
)
"""Nothing, no msgpack, a part of a record, a text, and a record whose limit is no whole number."""

LIMIT = 2


async def _damage(store: Store, *jobs: Job) -> bool:
    """Damage the records of jobs, each in another way; return False if the store cannot."""
    if not isinstance(store, Damageable):
        return False
    for number, job in enumerate(jobs):
        await store.damage(job.id, DAMAGES[number % len(DAMAGES)])
    return True


async def _statuses(store: Store, at: int = START) -> dict[str, int]:
    return {status: count for status, count in (await store.tally("status", Filter(), at)).counts.items() if count}


def _raw_of(job: Job | None) -> bytes | None:
    record = None if job is None else unreadable_record(job)
    return None if record is None else record.raw


async def check_job_that_cannot_be_read_is_leased_with_its_raw_bytes(store: Store) -> None:
    damaged, sound = new_jobs(store, len(DAMAGES), tenant="acme"), new_jobs(store, 5)
    await enqueue(store, *damaged, *sound)
    if not await _damage(store, *damaged):
        return
    worker = await Worker.open(store)
    leased = await worker.take(50)
    expect_ids(leased, [*damaged, *sound], "jobs leased, those that cannot be read among them")
    by_id = {job.id: job for job in leased}
    for number, job in enumerate(damaged):
        found = by_id[job.id]
        expect_equal(_raw_of(found), DAMAGES[number], "the raw bytes of a record that cannot be read")
        expect_equal((found.task, found.tenant, found.queue), (job.task, "acme", "default"), "what the lane says")
        expect_equal((found.version, found.session), (job.version + 1, worker.session), "its version and its session")
    expect_equal([_raw_of(by_id[job.id]) for job in sound], [None] * 5, "the raw bytes of the others")


async def check_job_that_cannot_be_read_dies_as_others_do_and_is_counted_once(store: Store) -> None:
    await update_limits(store, LimitUpdate(subject="tenant", queue="default", name="acme", max_running=LIMIT))
    damaged, sound = new_jobs(store, len(DAMAGES), tenant="acme"), new_jobs(store, 3, tenant="acme")
    await enqueue(store, *damaged, *sound)
    if not await _damage(store, *damaged):
        return
    worker = await Worker.open(store)
    names = {job.id for job in damaged}
    done = 0
    while leased := await worker.take(10):
        expect(len(leased) <= LIMIT, f"{len(leased)} jobs run, and {LIMIT} may")
        changes = [
            kill(job, death="undecodable", cause=job.cause) if job.id in names and job.cause else succeed(job)
            for job in leased
        ]
        expect_equal(await worker.settle(*changes), ["applied"] * len(leased), "the results of the settlements")
        done += len(leased)
    expect_equal(done, 8, "jobs that ran")
    dead = await find_all(store, Filter(death="undecodable"))
    expect_ids(dead, damaged, "the jobs that died as undecodable")
    expect_equal(sorted(_raw_of(job) or b"" for job in dead), sorted(DAMAGES), "their raw bytes")
    expect_equal(await _statuses(store), {"dead": 5, "succeeded": 3}, "the jobs by status")
    expect_equal([state.running for state in await all_limit_states(store, "tenant")], [0], "slots in use")
    expect_equal([event.name for _, event in await store.events() if event.job_id in names], ["JobDied"] * 5, "events")


async def check_search_goes_on_past_jobs_that_cannot_be_read(store: Store) -> None:
    ready, later = await enqueued(store), await enqueued(store, due_at=START + HOUR)
    worker = await Worker.open(store)
    held = await enqueued(store, queue="urgent")
    await worker.one(queues=("urgent",))
    dead, cancelled = await _ended(store, worker)
    sound = await enqueued(store)
    if not await _damage(store, ready, later, held, dead, cancelled):
        return
    everything = [ready, later, held, dead, cancelled, sound]
    expect_ids(await find_all(store, Filter()), everything, "the jobs of a search for all")
    expect_ids(await find_all(store, Filter(), limit=1), everything, "the same a job at a time")
    wanted = {
        "ready": [ready, sound],
        "scheduled": [later],
        "running": [held],
        "dead": [dead],
        "cancelled": [cancelled],
    }
    for status, jobs in wanted.items():
        found = await find_all(store, Filter(statuses=frozenset({status})))  # type: ignore[arg-type]  # a status
        expect_ids(found, jobs, f"jobs that are {status}")
    found = await find_all(store, Filter(ids=tuple(job.id for job in everything)))
    expect_ids(found, everything, "the jobs by their ids")
    for job in found:
        expect((job.id == sound.id) == (_raw_of(job) is None), f"{job.id} is shown as what it is")
    ended = {job.id: job.finished_at for job in found}
    expect_equal((ended[dead.id], ended[cancelled.id]), (START, START), "when they ended")
    counts = {status: len(jobs) for status, jobs in wanted.items()}
    expect_equal(await _statuses(store), counts, "the jobs by status")
    expect_ids(await find_all(store, Filter(session=worker.session)), [held], "the jobs of a session")


async def _ended(store: Store, worker: Worker) -> tuple[Job, Job]:
    """Return a dead and a cancelled job of another queue."""
    jobs = new_jobs(store, 2, queue="mail")
    await enqueue(store, *jobs)
    dead, cancelled = await worker.take(2, queues=("mail",))
    await worker.settle(kill(dead), change.settle(cancelled, Return(), START))
    waiting = await get(store, cancelled)
    await store.apply([change.cancel(waiting or cancelled, OPERATOR, START)], START)
    return dead, cancelled


async def check_jobs_of_a_dead_session_that_cannot_be_read_are_recovered(store: Store) -> None:
    jobs = new_jobs(store, 6)
    await enqueue(store, *jobs)
    worker = await Worker.open(store, lease=15.0)
    await worker.exactly(6)
    if not await _damage(store, *jobs[:5]):
        return
    now = START + MINUTE
    held = await store.recover(now)
    expect_ids(held, jobs, "the jobs of the dead session")
    changes = [change.settle(job, Return(crashed=True), now) for job in held]
    expect_equal(await store.apply(changes, now), ["applied"] * 6, "the results of taking them back")
    expect_equal(await store.recover(now), [], "jobs that are left to recover")
    other = await Worker.open(store, "worker-2", at=now)
    again = await other.take(10, now)
    expect_ids(again, jobs, "the jobs leased again")
    lost = [job for job in again if job.id in {job.id for job in jobs[:5]}]
    expect_equal(sorted(_raw_of(job) or b"" for job in lost), sorted(DAMAGES), "and their raw bytes are the same")


async def check_repeated_claim_returns_jobs_that_cannot_be_read(store: Store) -> None:
    jobs = new_jobs(store, 5)
    await enqueue(store, *jobs)
    worker = await Worker.open(store)
    await worker.exactly(5)
    if not await _damage(store, *jobs):
        return
    claimed = await worker.again(5)
    expect_ids(claimed.jobs, jobs, "the jobs of the repeated claim")
    expect_equal(await worker.settle(*(succeed(job) for job in claimed.jobs)), ["applied"] * 5, "the results")


async def check_people_act_on_jobs_that_cannot_be_read(store: Store) -> None:
    worker = await Worker.open(store)
    dead, _ = await _ended(store, worker)
    waiting, later = await enqueued(store), await enqueued(store, due_at=START + HOUR)
    running = await enqueued(store, queue="urgent")
    await worker.one(queues=("urgent",))
    if not await _damage(store, dead, waiting, later, running):
        return
    stored = {job.id: job for job in await find_all(store, Filter())}
    changes = [
        change.retry(stored[dead.id], OPERATOR, START, 60.0),
        change.cancel(stored[waiting.id], OPERATOR, START),
        change.cancel(stored[later.id], OPERATOR, START),
    ]
    expect_equal(await store.apply(changes, START), ["applied"] * 3, "the results of a retry and two cancels")
    request = Annotation(job_id=running.id, now=START, cancel=CANCEL_REQUEST)
    expect_equal(await store.annotate([request]), [True], "whether the cancel request met a running job")
    expect_equal(await worker.settle(fail(stored[running.id])), ["applied"], "the result of its settlement")
    counts = {"ready": 1, "cancelled": 4}
    expect_equal(await _statuses(store), counts, "the jobs by status")


async def check_dead_job_that_cannot_be_read_is_pruned_once_it_is_archived(store: Store) -> None:
    worker = await Worker.open(store)
    dead, cancelled = await _ended(store, worker)
    if not await _damage(store, dead, cancelled):
        return
    found = await find_all(store, Filter(statuses=frozenset({"dead"})))
    expect_ids(found, [dead], "dead jobs")
    now = START + 8 * DAY
    pruned = await store.prune(Retention(now=now, archived=tuple(found)))
    expect_equal((pruned.dead, pruned.cancelled), (1, 1), "dead and cancelled jobs that were deleted")
    expect_equal(await _statuses(store, now), {}, "the jobs by status")
    expect_equal(await find_all(store, Filter(), now), [], "the jobs that are left")


async def check_key_of_a_job_that_cannot_be_read_is_still_held(store: Store) -> None:
    job = await enqueued(store, key="k")
    if not await _damage(store, job):
        return
    expect_equal(await enqueue(store, new_job(store, key="k")), [job.id], "the job that has the key")


async def check_jobs_with_an_sla_that_cannot_be_read_leave_their_lane(store: Store) -> None:
    headers = Headers(sla_at=START + HOUR)
    waiting, held, ended, other = new_jobs(store, 4, headers=headers)
    later = new_job(store, due_at=START + MINUTE, headers=headers)
    worker = await Worker.open(store)
    await enqueue(store, held, ended)
    running = {job.id: job for job in await worker.exactly(2)}
    await worker.settle(kill(running[ended.id]))
    await enqueue(store, waiting, other, later)
    if not await _damage(store, waiting, held, ended, later):
        return
    stored = {job.id: job for job in await find_all(store, Filter())}
    back = change.settle(stored[held.id], Return(), START)
    expect_equal(await worker.settle(back), ["applied"], "the result of a return")
    retry = change.retry(stored[ended.id], OPERATOR, START, 60.0)
    expect_equal(await store.apply([retry], START), ["applied"], "the result of a retry")
    now = START + 2 * MINUTE
    stored = {job.id: job for job in await find_all(store, Filter(), now)}
    cancels = [change.cancel(stored[job.id], OPERATOR, now) for job in (waiting, held, ended, later)]
    expect_equal(await store.apply(cancels, now), ["applied"] * 4, "the results of the cancels")
    expect_ids(await worker.take(10, now), [other], "jobs that are left to lease")
    expect_equal(await _statuses(store, now), {"running": 1, "cancelled": 4}, "the jobs by status")
    await enqueue(store, *(more := new_jobs(store, 3, now, headers=headers)), at=now)
    expect_ids(await worker.take(10, now), more, "the jobs that came later")
