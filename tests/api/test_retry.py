"""Manual retry and cancel: what people may do to a job, and how they are refused."""

import asyncio

import pytest

from reprieve import Cancel, Fail, Policy, Reprieve, Task, current_job
from reprieve.admin.lookup import find_job
from reprieve.backoff import fixed
from reprieve.config import Settings
from reprieve.core import move
from reprieve.core.ids import make_id
from reprieve.core.move import ManualRetry
from reprieve.errors import (
    ConcurrentModification,
    InvalidId,
    InvalidRetryState,
    InvalidState,
    JobNotFound,
    MaxRetriesExceeded,
    ValidationError,
)
from reprieve.stores.protocol import Filter, LimitUpdate
from reprieve.testing import FakeClock, adrain, drain
from reprieve.testing.conformance.stage import PROGRAM

REFUSED = ConnectionError("refused")
HOPELESS = Fail("no such order")
ANA = {"by": "ana", "reason": "the provider is back"}


@pytest.fixture
def outage() -> list[Exception]:
    """What the task raises while it is not empty."""
    return [REFUSED]


@pytest.fixture
def charge(app: Reprieve, outage: list[Exception]) -> Task[[int], None]:
    @app.task(name="charge", policy=Policy(max_attempts=2, backoff=fixed("1h")))
    def charge(order: int) -> None:
        if outage:
            raise outage[0]

    return charge


def test_a_job_with_attempts_left_is_retried_at_once(
    app: Reprieve, charge: Task[[int], None], outage: list[Exception], clock: FakeClock
) -> None:
    outage[0] = HOPELESS
    job = charge.enqueue(1)
    assert drain(app).dead == 1
    answer = job.retry(by="ana", reason="the order is there now")
    assert (answer.job_id, answer.message) == (job.id, "the job is queued to be retried")
    assert answer.queue_position == 1
    outage.clear()
    assert drain(app, within=0).succeeded == 1
    assert job.fetch().attempt == 2


def test_a_retry_that_was_scheduled_is_replaced(
    app: Reprieve, charge: Task[[int], None], outage: list[Exception], clock: FakeClock
) -> None:
    job = charge.enqueue(1)
    assert drain(app, within=0).retried == 1
    outage.clear()
    job.retry(by="ana", reason="the bank is back")
    assert drain(app, within=0).succeeded == 1
    assert drain(app).ran == 0


def test_a_job_that_has_used_its_attempts_is_retried_only_by_force(
    app: Reprieve, charge: Task[[int], None], clock: FakeClock
) -> None:
    job = charge.enqueue(1)
    assert drain(app).dead == 1
    with pytest.raises(MaxRetriesExceeded, match="has used its 2 attempts; to grant one more, add --force") as refused:
        job.retry(by="ana", reason="the bank is back")
    assert refused.value.code == "max_retries_exceeded"
    job.retry(by="ana", reason="the bank is back", force=True)
    assert drain(app).dead == 1
    dead = job.fetch()
    assert (dead.granted, dead.charged, dead.attempt) == (1, 3, 3)


def test_a_cancelled_job_can_be_retried(app: Reprieve, clock: FakeClock) -> None:
    @app.task(name="give up")
    def give_up() -> None:
        if current_job().attempt == 1:
            raise Cancel

    job = give_up.enqueue()
    assert drain(app).cancelled == 1
    job.retry(by="ana", reason="we want it after all")
    assert drain(app).succeeded == 1


def test_a_retry_can_be_delayed(app: Reprieve, charge: Task[[int], None], clock: FakeClock) -> None:
    job = charge.enqueue(1)
    drain(app, within=0)
    answer = job.retry(by="ana", reason="in ten minutes", delay="10m")
    assert (answer.message, answer.queue_position) == ("the job will be retried after its delay", 0)
    assert job.fetch().due_at == clock.now() + 600_000


def test_the_position_counts_who_is_ahead(
    app: Reprieve, charge: Task[[int], None], outage: list[Exception], clock: FakeClock
) -> None:
    outage[0] = HOPELESS
    dead = charge.enqueue(1)
    drain(app)
    for number in range(3):
        charge.using(priority=1).enqueue(number)
    charge.using(tenant="acme", priority=1).enqueue(1)
    clock.advance("1s")
    charge.enqueue(2)
    assert dead.retry(by="ana", reason="again").queue_position == 4


@pytest.mark.parametrize(("by", "reason"), [("", "because"), ("ana", ""), (" ", "because"), ("ana", " \n")])
def test_a_retry_and_a_cancel_need_who_and_why(app: Reprieve, charge: Task[[int], None], by: str, reason: str) -> None:
    job = charge.enqueue(1)
    drain(app, within=0)
    for act in (job.retry, job.cancel):
        with pytest.raises(ValidationError, match="needs a name") as refused:
            act(by=by, reason=reason)
        assert refused.value.code == "validation_error"


async def test_who_and_why_are_kept_beside_the_last_error(
    app: Reprieve, charge: Task[[int], None], clock: FakeClock
) -> None:
    job = await charge.aenqueue(1)
    await adrain(app, within=0)
    await job.aretry(by="ana", reason="the bank is back")
    moves = [event.move for _, event in await app.store.events(job_id=job.id)]
    (retried,) = [move for move in moves if isinstance(move, ManualRetry)]
    assert (retried.by, retried.reason) == ("ana", "the bank is back")
    waiting = await job.afetch()
    assert waiting.cause is not None
    assert (waiting.cause.reason, waiting.is_manual) == ("refused", True)


@pytest.mark.parametrize("state", ["ready and has not failed", "succeeded"])
def test_a_job_that_has_not_failed_cannot_be_retried(
    app: Reprieve, charge: Task[[int], None], outage: list[Exception], state: str
) -> None:
    outage.clear()
    job = charge.enqueue(1)
    if state == "succeeded":
        drain(app)
    with pytest.raises(InvalidRetryState, match=f"is {state}; retry it when it is dead") as refused:
        job.retry(by="ana", reason="why not")
    assert refused.value.code == "invalid_retry_state"


@pytest.mark.parametrize("act", ["retry", "cancel", "fetch", "result"])
def test_a_job_that_does_not_exist_is_not_found(app: Reprieve, clock: FakeClock, act: str) -> None:
    unknown = make_id(clock.now(), 1)
    options = ANA if act in ("retry", "cancel") else {}
    with pytest.raises(JobNotFound, match=f"there is no job {unknown}") as refused:
        getattr(app.job(unknown), act)(**options)
    assert refused.value.code == "job_not_found"
    with pytest.raises(InvalidId, match="'42' is not a job id"):
        getattr(app.job("42"), act)(**options)


async def test_a_job_that_runs_cannot_be_retried_until_it_is_stuck(app: Reprieve, clock: FakeClock) -> None:
    refusals: list[str] = []

    @app.task(name="slow")
    async def slow() -> None:
        if current_job().attempt > 1:
            return
        clock.advance("29m")
        with pytest.raises(ConcurrentModification, match="is running") as refused:
            await app.job(current_job().id).aretry(by="ana", reason="it hangs")
        refusals.append(refused.value.code)
        clock.advance("2m")
        await app.job(current_job().id).aretry(by="ana", reason="it hangs")

    job = await slow.aenqueue()
    await adrain(app)
    assert refusals == ["concurrent_modification"]
    # What the first attempt said came too late: it had been fenced off.
    done = await job.afetch()
    assert (done.state, done.attempt) == ("succeeded", 2)


async def test_a_job_is_not_stuck_before_its_own_time_is_up(app: Reprieve, clock: FakeClock) -> None:
    @app.task(name="patient", timeout="2h")
    async def patient() -> None:
        clock.advance("31m")
        with pytest.raises(ConcurrentModification, match="is running"):
            await app.job(current_job().id).aretry(by="ana", reason="it hangs")

    job = await patient.aenqueue()
    await adrain(app)
    assert ((await job.afetch()).state, (await job.afetch()).attempt) == ("succeeded", 1)


def test_a_job_that_waits_can_be_cancelled_and_never_runs(app: Reprieve, charge: Task[[int], None]) -> None:
    job = charge.enqueue(1)
    assert job.cancel(by="ana", reason="sold out") == "cancelled"
    assert drain(app).ran == 0
    with pytest.raises(InvalidState, match="is cancelled; only a job that waits or runs can be cancelled"):
        job.cancel(by="ana", reason="sold out")


async def test_a_job_that_runs_is_asked_to_stop(app: Reprieve) -> None:
    answers: list[str] = []

    @app.task(name="slow")
    async def slow() -> None:
        answers.append(await app.job(current_job().id).acancel(by="ana", reason="sold out"))
        await asyncio.Event().wait()

    job = await slow.aenqueue()
    await adrain(app)
    assert answers == ["stopping"]
    assert (await job.afetch()).state == "cancelled"
    (*_, (_, event)) = await app.store.events(job_id=job.id)
    assert event.move == move.Cancel(by="ana", reason="sold out")


async def test_a_job_that_fails_while_it_is_asked_to_stop_is_cancelled(app: Reprieve) -> None:
    @app.task(name="unlucky", policy=Policy(max_attempts=9, backoff=fixed("1h")))
    async def unlucky() -> None:
        await app.job(current_job().id).acancel(by="ana", reason="sold out")
        raise REFUSED

    job = await unlucky.aenqueue()
    assert (await adrain(app)).ran == 1
    assert (await job.afetch()).state == "cancelled"
    (*_, (_, event)) = await app.store.events(job_id=job.id)
    assert event.move == move.Cancel(by="ana", reason="sold out")


def test_a_job_that_is_ready_is_not_retried_again(
    app: Reprieve, charge: Task[[int], None], outage: list[Exception], clock: FakeClock
) -> None:
    job = charge.enqueue(1)
    drain(app, within=0)
    job.retry(by="ana", reason="the provider is back")
    with pytest.raises(InvalidRetryState, match=f"job {job.id} is ready; retry it when it is dead") as refused:
        job.retry(by="ana", reason="the provider is back")
    assert refused.value.code == "invalid_retry_state"
    manual = [
        event for _, event in app.portal.run(app.store.events(job_id=job.id)) if isinstance(event.move, ManualRetry)
    ]
    assert len(manual) == 1


def test_a_job_behind_a_held_gate_is_retried_although_it_is_due(app: Reprieve, clock: FakeClock) -> None:
    @app.task(name="call", dependency="ses")
    def call() -> None:
        raise REFUSED

    job = call.enqueue()
    drain(app, within=0)
    clock.advance("1h")
    app.portal.run(
        app.store.update_limits([LimitUpdate(subject="dependency", name="ses", permits=0)], clock.now(), PROGRAM)
    )
    assert job.retry(by="ana", reason="the provider is back").job_id == job.id


def test_retries_by_hand_do_not_stretch_the_deadline(
    app: Reprieve, charge: Task[[int], None], clock: FakeClock
) -> None:
    job = charge.using(deadline="1h").enqueue(1)
    for _ in range(4):
        clock.advance("25h")
        drain(app, within=0)
        assert job.fetch().death == "expired"
        job.retry(by="ana", reason="again", force=True)
        assert job.fetch().deadline_at == clock.now() + 3_600_000


def test_an_attempt_is_stopped_at_the_deadline_of_its_job(app: Reprieve, clock: FakeClock) -> None:
    @app.task(name="hang", timeout="1h", policy=Policy(max_attempts=1))
    async def hang() -> None:
        # The clock of the job jumps, and the timer of the attempt runs in real time.
        clock.advance("1h")
        await asyncio.Event().wait()

    job = hang.using(deadline="50ms").enqueue()
    assert drain(app, within=0).dead == 1
    dead = job.fetch()
    assert (dead.death, dead.charged, dead.cause and dead.cause.code) == ("expired", 1, "expired")
    assert dead.cause is not None
    assert dead.cause.reason == "its deadline passed while it ran"


async def test_the_setting_says_everywhere_when_a_job_is_stuck(clock: FakeClock) -> None:
    seen: list[object] = []
    app = Reprieve(settings=Settings(url="sqlite://:memory:", stuck_after=600.0), clock=clock)

    @app.task(name="slow")
    async def slow() -> None:
        if current_job().attempt > 1:
            return
        clock.advance("9m")
        seen.append((await find_job(app.store, clock, current_job().id)).status)
        clock.advance("1m")
        seen.append((await find_job(app.store, clock, current_job().id)).status)
        seen.append((await app.store.tally("status", Filter(), clock.now())).counts)
        await app.job(current_job().id).aretry(by="ana", reason="it hangs")

    job = await slow.aenqueue()
    await adrain(app)
    assert seen == ["running", "stuck", {"stuck": 1}]
    assert (await job.afetch()).state == "succeeded"
    await app.aclose()
