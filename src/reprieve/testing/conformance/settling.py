# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of settle and apply: a change is applied once, guarded by its version and lease, or refused."""

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.change import Change
from reprieve.core.job import Job, Suspicion
from reprieve.core.move import Return
from reprieve.stores.protocol import Filter, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_ids, expect_job
from reprieve.testing.conformance.stage import (
    HEADERS,
    HOUR,
    OPERATOR,
    SECOND,
    START,
    Worker,
    enqueue,
    enqueued,
    fail,
    find_all,
    get,
    kill,
    make,
    new_job,
    new_jobs,
    park,
    snooze,
    stop,
    succeed,
)

LATER = START + 100 * SECOND


async def running_job(store: Store) -> tuple[Worker, Job]:
    """Return a worker and its running job."""
    await enqueued(store, dependency="ses")
    worker = await Worker.open(store)
    leased = await worker.one()
    return worker, leased


async def dead_job(store: Store) -> tuple[Worker, Job]:
    """Return a worker and its dead job."""
    worker, leased = await running_job(store)
    death = kill(leased)
    await worker.settle(death)
    return worker, death.job


async def check_every_outcome_is_stored_as_it_was_decided(store: Store) -> None:
    worker = await Worker.open(store)
    for settle in (succeed, fail, kill, park, snooze, stop, lambda job: make(job, Return())):
        await enqueued(store, dependency="ses", task=f"task-{worker.number}")
        leased = await worker.one()
        wanted = settle(leased)
        expect_equal(await worker.settle(wanted), ["applied"], f"the result of {wanted.event.name}")
        expect_job(await get(store, leased), wanted.job, f"the job after {wanted.event.name}")
        if wanted.job.state == "waiting":
            await store.apply([change.cancel(wanted.job, OPERATOR, START)], START)


async def check_settled_job_is_no_longer_held(store: Store) -> None:
    worker, leased = await running_job(store)
    await worker.settle(fail(leased))
    expect_equal(await find_all(store, Filter(session=worker.session)), [], "jobs that the session holds")


async def check_settle_and_claim_are_one_step(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 2))
    worker = await Worker.open(store)
    one = await worker.one()
    claimed = await worker.ask(1, changes=[succeed(one)])
    expect_equal(claimed.results, ("applied",), "the result of the settled job")
    expect(len(claimed.jobs) == 1 and claimed.jobs[0].id != one.id, f"the other job is leased, not {claimed.jobs!r}")


async def check_job_returned_in_a_claim_can_be_taken_by_it(store: Store) -> None:
    worker, leased = await running_job(store)
    claimed = await worker.ask(1, changes=[make(leased, Return())])
    expect_equal([(job.id, job.attempt) for job in claimed.jobs], [(leased.id, 2)], "the job that was returned")


async def check_repeated_change_is_answered_already(store: Store) -> None:
    for settle in (succeed, fail, kill, snooze, stop):
        worker = await Worker.open(store, f"worker-{settle.__name__}")
        await enqueued(store, queue=settle.__name__)
        leased = await worker.one(queues=(settle.__name__,))
        wanted = settle(leased)
        await worker.settle(wanted)
        expect_equal(await store.apply([wanted], LATER), ["already"], f"the result of a second {wanted.event.name}")
        expect_equal(await worker.settle(wanted, at=LATER), ["already"], f"the result of a third {wanted.event.name}")
        expect_job(await get(store, leased, LATER), wanted.job, "the job after its change was repeated")
        events = await store.events(job_id=leased.id)
        places = [event for _, event in events if event == wanted.event]
        expect(len(places) <= 1, f"a repeated change leaves one event, not {len(places)}")


async def check_change_repeated_after_the_job_moved_on_is_answered_already(store: Store) -> None:
    worker, leased = await running_job(store)
    failed = fail(leased)
    await worker.settle(failed)
    again = await worker.one(at=LATER)
    expect_equal(await store.apply([failed], LATER), ["already"], "the result of an old change that was done")
    expect_job(await get(store, leased, LATER), again, "the job that runs again")


async def check_same_change_twice_in_one_batch_is_done_once(store: Store) -> None:
    worker, leased = await running_job(store)
    expect_equal(await worker.settle(fail(leased), fail(leased)), ["applied", "already"], "the results of a batch")
    expect_equal(len(await store.events(job_id=leased.id)), len(set(await _moves(store, leased))), "events")


async def _moves(store: Store, job: Job) -> list[int]:
    return [event.version for _, event in await store.events(job_id=job.id)]


async def check_change_of_an_unknown_job_is_missing(store: Store) -> None:
    ghost = new_job(store)
    expect_equal(await store.apply([change.cancel(ghost, OPERATOR, START)], START), ["missing"], "the result")
    expect_equal(await get(store, ghost), None, "the job that never was")


async def check_change_with_a_stale_version_is_refused(store: Store) -> None:
    job = await enqueued(store)
    old = change.cancel(job, OPERATOR, START)
    worker = await Worker.open(store)
    leased = await worker.one()
    expect_equal(await store.apply([old], START), ["refused"], "the result of a change of a version that is gone")
    expect_job(await get(store, job), leased)
    expect_equal(await store.events(job_id=job.id), await _happy(store, job), "events of a refused change")


async def _happy(store: Store, job: Job) -> list[tuple[int, object]]:
    return [(place, event) for place, event in await store.events(job_id=job.id) if event.name.endswith("Started")]


async def check_change_with_a_future_version_is_refused(store: Store) -> None:
    job = await enqueued(store)
    forged = change.cancel(replace(job, version=5), OPERATOR, START)
    expect_equal(await store.apply([forged], START), ["refused"], "the result of a version that is not there yet")
    expect_job(await get(store, job), job)


async def check_change_of_a_foreign_session_is_refused(store: Store) -> None:
    _, leased = await running_job(store)
    stranger = await Worker.open(store, "stranger")
    for session in ("stranger", ""):
        foreign = replace(succeed(leased), session=session)
        results = [*await stranger.settle(foreign), *await store.apply([foreign], START)]
        expect_equal(results, ["refused", "refused"], f"the results of a result of session {session!r}")
    expect_job(await get(store, leased), leased)


async def check_late_result_of_a_lost_attempt_is_refused(store: Store) -> None:
    worker, leased = await running_job(store)
    expect_equal(await store.apply([make(leased, Return(crashed=True))], START), ["applied"], "the take-back")
    other = await Worker.open(store, "other")
    again = await other.one()
    for late in (succeed(leased), fail(leased), kill(leased)):
        expect_equal(await worker.settle(late), ["refused"], f"the result of a late {late.event.name}")
    expect_job(await get(store, leased), again, "the job that another session runs")


async def check_another_change_of_the_same_version_is_refused(store: Store) -> None:
    worker, leased = await running_job(store)
    await worker.settle(fail(leased))
    for other in (succeed(leased), fail(leased, START + 1), fail(leased, due_at=LATER), kill(leased)):
        expect_equal(await store.apply([other], START), ["refused"], f"the result of another {other.event.name}")


async def check_bad_change_does_not_spoil_its_neighbours(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 3))
    worker = await Worker.open(store)
    one, two, three = await worker.exactly(3)
    ghost = change.lease(new_job(store), worker.session, START).job
    stale = replace(succeed(two), version=two.version + 7)
    results = await worker.settle(succeed(one), stale, succeed(ghost), succeed(three))
    expect_equal(results, ["applied", "refused", "missing", "applied"], "the results of a batch with bad changes")
    states = [job.state for job in await find_all(store, Filter())]
    expect_equal(sorted(states), ["running", "succeeded", "succeeded"], "the states of the three jobs")


async def check_events_are_stored_with_their_change(store: Store) -> None:
    worker, leased = await running_job(store)
    failed = fail(leased)
    await worker.settle(failed)
    events = [event for _, event in await store.events(job_id=leased.id)]
    expect(failed.event in events, f"the event of a failure is stored, beside {events!r}")


async def check_succeeded_job_is_found(store: Store) -> None:
    worker, leased = await running_job(store)
    done = succeed(leased)
    await worker.settle(done)
    found = await find_all(store, Filter(statuses=frozenset({"succeeded"})))
    expect_ids(found, [leased], "succeeded jobs")
    expect_job(found[0], done.job, "the succeeded job")


async def check_result_is_kept(store: Store) -> None:
    worker, leased = await running_job(store)
    await enqueued(store)
    other = await worker.one()
    await worker.settle(succeed(leased, result=b"\x00answer", ttl=60.0), succeed(other))
    expect_equal(await store.result(leased.id), b"\x00answer", "the result")
    expect_equal(await store.result(other.id), None, "the result of a job that kept none")
    expect_equal(await store.result(new_job(store).id), None, "the result of a job that never was")


async def check_dead_job_has_cause_and_death(store: Store) -> None:
    _, dead = await dead_job(store)
    found = await get(store, dead)
    expect_job(found, dead, "the dead job")
    expect(found is not None and found.cause is not None and found.death == "permanent", "it says why it died")


async def check_settled_jobs_are_not_leased_again(store: Store) -> None:
    worker = await Worker.open(store)
    for settle in (succeed, kill, stop):
        await enqueued(store)
        leased = await worker.one(at=START)
        await worker.settle(settle(leased))
    expect_equal(await worker.take(10, START + HOUR), [], "jobs leased after all have ended")


async def check_large_batch_is_settled_in_one_call(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 300))
    worker = await Worker.open(store)
    changes: list[Change] = []
    while jobs := await worker.take(300):
        # A store may lease fewer at a time.
        changes += map(succeed, jobs)
    expect_equal(await worker.settle(*changes), ["applied"] * 300, "the results of 300 changes")


async def check_repeated_claim_keeps_a_job_whose_change_was_refused(store: Store) -> None:
    job = await enqueued(store)
    worker = await Worker.open(store)
    leased = await worker.one()
    not_ours = replace(succeed(leased), session="")
    for _ in range(2):
        expect_equal(await worker.settle(not_ours), ["refused"], "the result of a change that names no session")
        expect_equal((await worker.again(0, changes=[not_ours])).results, ("refused",), "and of its repeat")
    found = await get(store, job)
    expect(found is not None and found.state == "running", "the job is still leased")


async def check_suspicion_is_kept_until_an_attempt_ends(store: Store) -> None:
    worker, leased = await running_job(store)
    for alone in (False, True):
        lost = make(leased, Return(crashed=True, alone=alone))
        expect_equal(await store.apply([lost], START), ["applied"], "the take-back")
        leased = await worker.one()
        expect_equal(leased.suspicion, lost.job.suspicion, "the suspicion of a job that is leased again")
    expect_equal(leased.suspicion, Suspicion(sessions=1, processes=1), "what was lost with the job")
    ended = fail(leased)
    await worker.settle(ended)
    expect_job(await get(store, leased), ended.job, "a suspect whose attempt has ended")
    expect_equal((ended.job.suspicion, ended.job.crashes), (None, 2), "suspicion and crashes after that")


async def check_headers_stay_with_a_job_however_its_attempts_end(store: Store) -> None:
    worker = await Worker.open(store)
    for settle in (succeed, fail, kill, park, snooze, stop, lambda job: make(job, Return(crashed=True))):
        job = await enqueued(store, dependency="ses", task=f"task-{worker.number}", headers=HEADERS)
        leased = await worker.one()
        expect_equal(leased.headers, HEADERS, "the headers of a leased job")
        made = settle(leased)
        await worker.settle(made)
        expect_job(await get(store, job), made.job, f"the job after {made.event.name}")
        if made.job.state == "waiting":
            cancelled = change.cancel(made.job, OPERATOR, START)
            await store.apply([cancelled], START)
            expect_job(await get(store, job), cancelled.job, "the job after it was cancelled")
