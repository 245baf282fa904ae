# ruff: noqa: D103 - a check's name is its sentence, and its numbers stand beside what they are compared with
"""Checks of heartbeat, recover and annotation: sessions expire, and their jobs are recovered."""

from reprieve.core import change
from reprieve.core.change import Change
from reprieve.core.job import CancelRequest
from reprieve.core.move import Return
from reprieve.errors import PayloadTooLarge, SessionDead
from reprieve.stores.protocol import MAX_PAYLOAD_BYTES, Annotation, Claimed, Store
from reprieve.testing.conformance.expect import expect, expect_equal, expect_error, expect_ids, expect_job
from reprieve.testing.conformance.stage import (
    CANCEL_REQUEST,
    HOUR,
    MINUTE,
    OPERATOR,
    SECOND,
    START,
    Worker,
    enqueue,
    enqueued,
    fail,
    get,
    kill,
    make,
    new_job,
    new_jobs,
    park,
    snooze,
    succeed,
)

LEASE = 15.0
END = START + 15 * SECOND


async def check_first_heartbeat_opens_a_session(store: Store) -> None:
    await enqueued(store)
    worker = Worker(store, "worker-1")
    expect(await worker.heartbeat(is_new=True), "a session that was just opened lives")
    expect_equal(len(await worker.take()), 1, "jobs leased")


async def check_opening_heartbeat_can_be_repeated(store: Store) -> None:
    worker = Worker(store, "worker-1")
    for _ in range(2):
        expect(await worker.heartbeat(is_new=True), "a session that was just opened lives")
    expect(await worker.heartbeat(), "and goes on living")


async def check_heartbeat_of_an_unknown_session_is_answered_with_its_death(store: Store) -> None:
    expect(not await Worker(store, "stranger").heartbeat(), "a session that never was is dead")


async def check_session_lives_until_its_death_is_declared(store: Store) -> None:
    worker = await Worker.open(store, lease=LEASE)
    await store.recover(END)
    expect(await worker.heartbeat(END, lease=LEASE), "a session lives at the last moment of its lease")
    again = END + 15 * SECOND
    await store.recover(again)
    expect(await worker.heartbeat(again, lease=LEASE), "a heartbeat gives it another lease")
    await store.recover(again + 15 * SECOND + 1)
    expect(not await worker.heartbeat(again + 15 * SECOND + 1, lease=LEASE), "a millisecond too late it is dead")


async def check_session_past_its_lease_goes_on_until_recovery_declares_it_dead(store: Store) -> None:
    # After the store was unreachable for longer than a lease, all leases are over, but all workers live.
    await enqueue(store, *new_jobs(store, 2))
    worker = await Worker.open(store, lease=LEASE)
    leased = await worker.one()
    expect(await worker.heartbeat(END + HOUR, lease=LEASE), "a session that was not heard of for an hour")
    expect_equal(await store.recover(END + HOUR), [], "jobs to recover once it was heard again")
    expect_equal(len(await worker.take(at=END + HOUR)), 1, "jobs leased to it")
    expect_equal(await worker.settle(succeed(leased, END + HOUR), at=END + HOUR), ["applied"], "what it settles")


async def check_claim_works_until_death_is_declared(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 3))
    worker = await Worker.open(store, lease=LEASE)
    expect_equal(len(await worker.take(at=END)), 1, "jobs leased at the last moment")
    expect_equal(len(await worker.take(at=END + 1)), 1, "jobs leased after it")
    await store.recover(END + 1)
    await expect_error(worker.ask(1, END + 1), SessionDead, "a claim after death")


async def check_lease_of_zero_ends_the_session(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store)
    leased = await worker.one()
    await worker.heartbeat(lease=0)
    expect(not await worker.heartbeat(START + 1), "a session that ended is dead")
    expect_ids(await store.recover(START + 1), [leased], "jobs for recovery, at once")


async def check_session_that_ended_is_dead_at_any_time(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store, lease=LEASE)
    other = await Worker.open(store, "worker-2", lease=LEASE)
    leased = await worker.one()
    await worker.heartbeat(START + 1, lease=0)
    expect_ids(await store.recover(0), [leased], "jobs to recover before any other lease is over")
    expect(await other.heartbeat(START + 1), "a session that only looks dead to others lives")


async def check_recovery_answers_what_the_dead_held(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 3))
    dying, living = await Worker.open(store, "dying", lease=LEASE), await Worker.open(store, "living")
    lost = await dying.take(2)
    kept = await living.one()
    expect_equal(await store.recover(END), [], "jobs to recover while all sessions live")
    found = await store.recover(END + 1)
    expect_ids(found, lost, "jobs to recover")
    for job in found:
        wanted = next(other for other in lost if other.id == job.id)
        expect_job(job, wanted, "a job to recover is still leased")
        expect_job(await get(store, job, END + 1), wanted, "and stays so")
    expect_job(await get(store, kept, END + 1), kept, "the job of the session that lives")


async def check_recovery_repeats_what_was_not_taken_back(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 3))
    worker = await Worker.open(store, lease=LEASE)
    lost = await worker.take(3)
    expect_ids(await store.recover(END + 1), lost, "jobs to recover")
    await store.apply([make(lost[0], Return(crashed=True), END + 1)], END + 1)
    expect_ids(await store.recover(END + 2), lost[1:], "jobs still to recover")


async def check_recovery_answers_no_more_than_its_limit(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 5))
    worker = await Worker.open(store, lease=LEASE)
    lost = await worker.take(5)
    recovered = []
    for wanted in (2, 2, 1, 0):
        found = await store.recover(END + 1, 2)
        expect_equal(len(found), wanted, "jobs to recover at a time")
        await store.apply([make(job, Return(crashed=True), END + 1) for job in found], END + 1)
        recovered.extend(found)
    expect_ids(recovered, lost, "jobs recovered in all")


async def check_recovered_job_runs_again(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store, lease=LEASE)
    lost = await worker.one()
    await store.recover(END + 1)
    taken_back = make(lost, Return(crashed=True), END + 1)
    expect_equal(await store.apply([taken_back], END + 1), ["applied"], "the result of the take-back")
    other = await Worker.open(store, "other", at=END + 1)
    again = await other.one(at=END + 1)
    expect_job(again, change.lease(taken_back.job, "other", END + 1).job, "the job, leased again")


async def check_of_two_recoveries_exactly_one_takes_the_job_back(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store, lease=LEASE)
    await worker.take()
    first, second = (await store.recover(END + 1))[0], (await store.recover(END + 2))[0]
    expect_equal(await store.apply([make(first, Return(crashed=True), END + 1)], END + 1), ["applied"], "the first")
    expect_equal(await store.apply([kill(second, END + 2)], END + 2), ["refused"], "the second")


async def check_late_result_counts_until_the_job_is_taken_back(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 2))
    worker = await Worker.open(store, lease=LEASE)
    one, two = await worker.exactly(2)
    await store.recover(END + 1)
    done = succeed(one, END + 2)
    expect_equal(await store.apply([done], END + 2), ["applied"], "a result before the take-back")
    expect_equal(await store.apply([make(one, Return(crashed=True), END + 3)], END + 3), ["refused"], "the take-back")
    await store.apply([make(two, Return(crashed=True), END + 3)], END + 3)
    expect_equal(await store.apply([succeed(two, END + 4)], END + 4), ["refused"], "a result after the take-back")


async def check_changes_of_a_dead_session_are_judged_by_their_versions(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 3))
    worker = await Worker.open(store, lease=LEASE)
    one, two, rest = await worker.exactly(3)
    await store.recover(END + 1)
    taken_back = make(two, Return(crashed=True), END + 1)
    await store.apply([taken_back], END + 1)
    changes = [succeed(one, END + 2), succeed(two, END + 2)]
    claimed = await worker.ask(5, END + 2, changes)
    expect_equal((claimed.results, claimed.jobs), (("applied", "refused"), ()), "what a dead session gets")
    await expect_error(worker.ask(5, END + 2), SessionDead, "a claim of a dead session that settles nothing")
    expect_job(await get(store, one, END + 2), changes[0].job, "the job whose lease still stood")
    expect_job(await get(store, two, END + 2), taken_back.job, "the job that was taken back")
    expect_job(await get(store, rest, END + 2), rest, "the job that it did not settle")


async def check_dead_session_stays_dead(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store, lease=LEASE)
    await worker.one()
    await store.recover(END + 1)
    expect(not await worker.heartbeat(END + 2), "a heartbeat after death returns False")
    expect(not await worker.heartbeat(END - 1), "also when the clock went back")
    await expect_error(worker.ask(1, END - 1), SessionDead, "a claim after death when the clock went back")


async def check_cancel_request_is_taken_for_a_running_job(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 2))
    worker = await Worker.open(store)
    one, two = await worker.exactly(2)
    expect_equal(
        await store.annotate([Annotation(job_id=one.id, now=START, cancel=CANCEL_REQUEST)]),
        [True],
        "the result of an annotation",
    )
    found = await get(store, one)
    expect_equal(found and found.cancel_request, CANCEL_REQUEST, "the job shows the request")
    expect_equal(found and found.version, one.version, "the version of a job that is asked to stop")
    expect_job(await get(store, two), two, "its neighbour")


async def check_cancel_request_does_not_fence_an_honest_worker(store: Store) -> None:
    await enqueue(store, *new_jobs(store, 2))
    worker = await Worker.open(store)
    one, two = await worker.exactly(2)
    await store.annotate([Annotation(job_id=job.id, now=START, cancel=CANCEL_REQUEST) for job in (one, two)])
    changes = [succeed(one), kill(two)]
    expect_equal(await worker.settle(*changes), ["applied", "applied"], "the results of results after a request")
    for job, wanted in zip((one, two), changes, strict=True):
        expect_job(await get(store, job), wanted.job)


async def check_job_that_was_asked_to_stop_never_waits_again(store: Store) -> None:
    worker = await Worker.open(store)
    for settle in (fail, park, snooze, lambda job: make(job, Return())):
        await enqueued(store, dependency="ses")
        leased = await worker.one()
        await store.annotate([Annotation(job_id=leased.id, now=START, cancel=CANCEL_REQUEST)])
        made = settle(leased)
        claimed = await worker.ask(1, changes=[made])
        expect_equal(claimed, Claimed(results=("applied",), jobs=(), next_at=claimed.next_at), "the result of a claim")
        await _expect_cancel(store, made)
        expect_equal(await store.apply([made], START), ["already"], f"the result of a second {made.event.name}")
    expect_equal(await worker.take(5, START + HOUR), [], "jobs that run again")


async def check_job_that_was_asked_to_stop_is_not_recovered_to_run_again(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store, lease=LEASE)
    leased = await worker.one()
    (found,) = await store.recover(END + 1)
    await store.annotate([Annotation(job_id=leased.id, now=END + 1, cancel=CANCEL_REQUEST)])
    taken_back = make(found, Return(crashed=True), END + 1)
    expect_equal(await store.apply([taken_back], END + 1), ["applied"], "the result of the take-back")
    await _expect_cancel(store, taken_back)
    other = await Worker.open(store, "other", at=END + 1)
    expect_equal(await other.take(5, END + HOUR), [], "jobs that run again")


async def check_retry_by_a_person_wins_over_an_older_cancel_request(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store)
    leased = await worker.one()
    await store.annotate([Annotation(job_id=leased.id, now=START, cancel=CANCEL_REQUEST)])
    retry = change.retry(leased, OPERATOR, START + HOUR, 60.0)
    expect_equal(await store.apply([retry], START + HOUR), ["applied"], "the result of a retry of a stuck job")
    again = await worker.one(at=START + HOUR)
    expect_job(again, change.lease(retry.job, worker.session, START + HOUR).job, "the job, leased again")


async def _expect_cancel(store: Store, made: Change) -> None:
    """Expect that a change was applied, followed by the requested cancellation."""
    cancel = change.give_up(made, CANCEL_REQUEST)
    expect(cancel is not None, f"{made.event.name} leaves something to cancel")
    if cancel is not None:
        expect_job(await get(store, made.job), cancel.job, f"the job after {made.event.name}")
        events = [event for _, event in await store.events(job_id=made.job.id)]
        expect_equal(events[-2:], [made.event, cancel.event], "its last events")


async def check_first_cancel_request_stands(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store)
    leased = await worker.one()
    annotations = [
        Annotation(job_id=leased.id, now=START, session=worker.session, progress=b"50%"),
        Annotation(job_id=leased.id, now=START, cancel=CANCEL_REQUEST),
        Annotation(job_id=leased.id, now=START, cancel=CancelRequest(by="bea", reason="sent twice")),
        Annotation(job_id=leased.id, now=START, session=worker.session, progress=b"60%"),
    ]
    expect_equal(await store.annotate(annotations), [True] * len(annotations), "the results of four annotations")
    found = await get(store, leased)
    expect_equal(found and found.cancel_request, CANCEL_REQUEST, "who asked first, and why")
    expect_equal(await store.progress(leased.id), b"60%", "the latest progress")


async def check_cancel_request_is_not_taken_for_a_job_that_does_not_run(store: Store) -> None:
    waiting, done = await enqueued(store, due_at=START + MINUTE), await enqueued(store)
    worker = await Worker.open(store)
    await worker.settle(succeed(await worker.one()))
    jobs = (waiting, done, new_job(store))
    annotations = [Annotation(job_id=job.id, now=START, cancel=CANCEL_REQUEST) for job in jobs]
    expect_equal(await store.annotate(annotations), [False, False, False], "the results of three annotations")
    expect_job(await get(store, waiting), waiting, "the waiting job")
    expect_equal(await store.apply([change.cancel(waiting, OPERATOR, START)], START), ["applied"], "its cancel")


async def check_progress_is_taken_from_the_session_that_runs_the_job(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store)
    leased = await worker.one()
    annotations = [
        Annotation(job_id=leased.id, now=START, session=name, progress=b"50%") for name in (worker.session, "other")
    ]
    expect_equal(await store.annotate(annotations), [True, False], "the results of progress of two sessions")
    expect_job(await get(store, leased), leased, "the job beside its progress")
    expect_equal(await worker.settle(succeed(leased)), ["applied"], "the result after progress")


async def check_progress_over_the_limit_is_refused(store: Store) -> None:
    await enqueued(store)
    worker = await Worker.open(store)
    leased = await worker.one()
    large = Annotation(job_id=leased.id, now=START, session=worker.session, progress=b"x" * (MAX_PAYLOAD_BYTES + 1))
    await expect_error(store.annotate([large]), PayloadTooLarge, "progress that is too large")
