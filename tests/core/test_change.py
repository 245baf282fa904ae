"""Changes: the one way to write a job."""

import pytest
from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.change import Request
from reprieve.core.events import Event, replay
from reprieve.core.job import CancelRequest, Cause, Job
from reprieve.core.move import Cancel, Dead, ManualRetry, Move, Park, Retry, Return, Revive, Snooze, Succeed
from reprieve.errors import (
    ConcurrentModification,
    IllegalMove,
    InvalidRetryState,
    MaxRetriesExceeded,
    ValidationError,
)

NOW = 1_760_000_000_000
STUCK_AFTER_SECONDS = 1_800.0
CAUSE = Cause(reason="down", code="421", kind="transient")
WAITING = Job(id="j", task="send", created_at=NOW, due_at=NOW, max_attempts=3)
RUNNING = change.lease(WAITING, "w1", NOW).job
RETRYING = change.settle(RUNNING, Retry(due_at=NOW + 25_000, cause=CAUSE, delay=25, max_attempts=3), NOW).job
DEAD = change.settle(RUNNING, Dead(death="permanent", cause=CAUSE, charged=True), NOW).job
EXHAUSTED = replace(DEAD, charged=3, death="exhausted")
CANCEL_REQUEST = CancelRequest(by="bea", reason="sent twice")
ANA = Request(by="ana", reason="the provider is back")
ANA_INSISTS = Request(by="ana", reason="the provider is back", force=True)


def test_a_change_guards_the_version_that_was_read_and_carries_its_event() -> None:
    made = change.settle(RUNNING, Succeed(), NOW + 7)
    assert (made.version, made.job.version, made.job.state) == (1, 2, "succeeded")
    assert made.event == Event(
        job_id="j",
        at=NOW + 7,
        attempt=1,
        version=2,
        move=Succeed(),
        session=RUNNING.session,
        started_at=RUNNING.leased_at,
        queue="default",
        task="send",
    )


def test_a_manual_retry_replaces_the_one_that_was_scheduled() -> None:
    made = change.retry(RETRYING, ANA, NOW + 15_000, STUCK_AFTER_SECONDS)
    assert (made.job.state, made.job.due_at, made.job.is_manual) == ("waiting", NOW + 15_000, True)
    assert made.version == RETRYING.version
    assert made.event.move == ManualRetry(by="ana", reason="the provider is back", due_at=NOW + 15_000)
    assert made.job.cause == CAUSE


def test_a_manual_retry_may_wait() -> None:
    later = Request(by="ana", reason="at night", delay=60)
    assert change.retry(DEAD, later, NOW, STUCK_AFTER_SECONDS).job.due_at == NOW + 60_000


def test_a_job_with_attempts_left_needs_no_force() -> None:
    assert change.retry(DEAD, ANA, NOW, STUCK_AFTER_SECONDS).job.granted == 0
    assert change.retry(DEAD, ANA_INSISTS, NOW, STUCK_AFTER_SECONDS).job.granted == 0


def test_a_job_without_attempts_left_needs_force_which_grants_one() -> None:
    with pytest.raises(MaxRetriesExceeded, match="job j has used its 3 attempts; to grant one more, add --force"):
        change.retry(EXHAUSTED, ANA, NOW, STUCK_AFTER_SECONDS)
    with pytest.raises(MaxRetriesExceeded, match="job j has used its only attempt; "):
        change.retry(replace(EXHAUSTED, max_attempts=1), ANA, NOW, STUCK_AFTER_SECONDS)
    forced = change.retry(EXHAUSTED, ANA_INSISTS, NOW, STUCK_AFTER_SECONDS).job
    assert (forced.granted, forced.limit, forced.charged, forced.attempt) == (1, 4, 3, EXHAUSTED.attempt)
    assert change.retry(replace(EXHAUSTED, charged=5), ANA_INSISTS, NOW, STUCK_AFTER_SECONDS).job.limit == 6


def test_a_job_without_a_limit_is_never_exceeded() -> None:
    unlimited = replace(EXHAUSTED, max_attempts=None)
    assert change.retry(unlimited, ANA, NOW, STUCK_AFTER_SECONDS).job.granted == 0


def test_a_running_job_is_retried_only_when_it_is_stuck() -> None:
    with pytest.raises(ConcurrentModification, match="leased to w1"):
        change.retry(RUNNING, ANA, NOW + 1_799_999, STUCK_AFTER_SECONDS)
    freed = change.retry(RUNNING, ANA, NOW + 1_800_000, STUCK_AFTER_SECONDS)
    assert (freed.job.state, freed.job.session) == ("waiting", "")
    assert freed.job.version > RUNNING.version


@pytest.mark.parametrize("job", [WAITING, replace(RUNNING, state="succeeded")])
def test_a_job_that_has_not_failed_is_not_retried(job: Job) -> None:
    with pytest.raises(InvalidRetryState, match="; retry it when it is dead, cancelled") as caught:
        change.retry(job, ANA, NOW, STUCK_AFTER_SECONDS)
    assert caught.value.code == "invalid_retry_state"


def test_a_parked_and_a_cancelled_job_can_be_retried() -> None:
    parked = change.settle(RUNNING, Park(gate="ses", due_at=NOW + 9, cause=CAUSE), NOW).job
    cancelled = change.cancel(WAITING, ANA, NOW).job
    for job in (parked, cancelled):
        assert change.retry(job, ANA, NOW, STUCK_AFTER_SECONDS).job.waiting_for == "turn"


@pytest.mark.parametrize(("by", "reason"), [("", "why"), ("ana", ""), ("ana", "  "), (" ", "why")])
def test_a_request_says_who_and_why(by: str, reason: str) -> None:
    with pytest.raises(ValidationError, match="audit trail"):
        Request(by=by, reason=reason)


def test_a_waiting_job_is_cancelled_at_once() -> None:
    made = change.cancel(RETRYING, ANA, NOW)
    assert made.job.state == "cancelled"
    assert made.event.move == Cancel(by="ana", reason="the provider is back")


def test_a_running_job_must_be_asked_to_stop() -> None:
    with pytest.raises(ConcurrentModification, match="send a cancel request"):
        change.cancel(RUNNING, ANA, NOW)


@pytest.mark.parametrize(
    "move", [Retry(due_at=NOW + 9, cause=CAUSE, delay=1), Park(gate="ses", due_at=NOW, cause=CAUSE), Snooze(due_at=NOW)]
)
def test_a_cancel_request_follows_an_attempt_that_would_be_tried_again(move: Move) -> None:
    made = change.make(RUNNING, move, NOW + 5)
    cancel = change.give_up(made, CANCEL_REQUEST)
    assert cancel is not None
    assert (cancel.job.state, cancel.job.cause, cancel.job.finished_at) == ("cancelled", made.job.cause, NOW + 5)
    assert cancel.event.move == Cancel(by="bea", reason="sent twice")
    assert replay(RUNNING, [made.event, cancel.event]) == cancel.job


def test_a_cancel_request_leaves_success_death_and_later_wishes_alone() -> None:
    later = change.retry(replace(RUNNING, leased_at=0), ANA, NOW, STUCK_AFTER_SECONDS)
    for made in (
        change.make(RUNNING, Succeed(), NOW),
        change.make(RUNNING, Dead(death="permanent", cause=CAUSE), NOW),
        change.make(RUNNING, Cancel(), NOW),
        later,
    ):
        assert change.give_up(made, CANCEL_REQUEST) is None


def test_what_has_ended_is_not_cancelled() -> None:
    with pytest.raises(IllegalMove):
        change.cancel(DEAD, ANA, NOW)


def test_a_revived_job_has_all_its_attempts_anew() -> None:
    revived = change.revive(EXHAUSTED, NOW + 9).job
    assert (revived.limit, revived.charged, revived.due_at) == (6, 3, NOW + 9)
    assert change.revive(replace(EXHAUSTED, granted=1, charged=4), NOW).job.limit == 7
    assert change.revive(replace(EXHAUSTED, granted=5), NOW).job.granted == 5
    assert change.revive(replace(EXHAUSTED, max_attempts=None), NOW).job.granted == 0


def test_another_chance_comes_with_its_time_anew() -> None:
    expired = change.expire(replace(RETRYING, deadline_at=NOW + 60_000), NOW + 60_000).job
    retried = change.retry(expired, ANA, NOW + 90_000, STUCK_AFTER_SECONDS).job
    assert (retried.due_at, retried.deadline_at) == (NOW + 90_000, NOW + 150_000)
    assert change.revive(expired, NOW + 90_000).job.deadline_at == NOW + 150_000


def test_every_retry_by_hand_gives_the_span_of_the_enqueue() -> None:
    span = 3_600_000
    job = replace(RETRYING, created_at=NOW, deadline_at=NOW + span)
    for hours in (5, 30, 100):
        at = NOW + hours * 3_600_000
        job = change.retry(change.expire(job, at).job, ANA, at, STUCK_AFTER_SECONDS).job
        assert (job.deadline_at, job.deadline_from_at) == (at + span, at)
    at += 9 * 3_600_000
    assert change.revive(change.expire(job, at).job, at).job.deadline_at == at + span
    later = change.retry(change.expire(job, at).job, replace(ANA, delay=60.0), at, STUCK_AFTER_SECONDS).job
    assert (later.due_at, later.deadline_at) == (at + 60_000, at + 60_000 + span)


def test_a_job_that_is_ready_or_scheduled_needs_no_retry() -> None:
    ready = replace(RETRYING, due_at=NOW)
    snoozed = replace(RETRYING, due_at=NOW + 9, waiting_for="schedule")
    for job, status in ((ready, "ready"), (snoozed, "scheduled")):
        with pytest.raises(InvalidRetryState, match=f"is {status}; retry it when it is dead, cancelled, retrying"):
            change.retry(job, ANA, NOW, STUCK_AFTER_SECONDS)
    assert change.retry(ready, ANA, NOW, STUCK_AFTER_SECONDS, held=True).job.is_manual
    with pytest.raises(InvalidRetryState, match="job j is parked and has not failed; retry it"):
        change.retry(WAITING, ANA, NOW, STUCK_AFTER_SECONDS, held=True)


def test_a_job_whose_time_is_up_dies_with_its_last_cause() -> None:
    expired = change.expire(RETRYING, NOW).job
    assert (expired.state, expired.death) == ("dead", "expired")
    assert (expired.cause, expired.failed_at) == (CAUSE, RETRYING.failed_at)
    never_ran = change.expire(WAITING, NOW).job
    assert never_ran.cause is not None
    assert (never_ran.cause.reason, never_ran.cause.code) == ("its deadline passed before it could run", "expired")


def test_a_job_whose_task_no_worker_knows_dies_when_it_has_been_ready_for_long_enough() -> None:
    assert change.end_unknown(WAITING, 3_600.0, WAITING.due_at + 3_599_999) is None
    made = change.end_unknown(WAITING, 3_600.0, WAITING.due_at + 3_600_000)
    assert made is not None
    assert (made.job.state, made.job.death, made.job.charged) == ("dead", "unknown_task", 0)
    assert made.job.cause is not None
    assert made.job.cause.reason == (
        f"no live worker has known a task named {WAITING.task!r} for 1h; deploy the code that has it, then retry"
    )
    retried = change.retry(made.job, ANA, made.event.at, STUCK_AFTER_SECONDS).job
    assert (retried.state, retried.due_at, retried.granted) == ("waiting", made.event.at, 0)


NAMES: list[tuple[Move, str]] = [
    (Succeed(), "JobSucceeded"),
    (Retry(due_at=NOW, cause=CAUSE, delay=1), "RetryScheduled"),
    (Park(gate="ses", due_at=NOW, cause=CAUSE), "JobParked"),
    (Dead(death="permanent", cause=CAUSE), "JobDied"),
    (Snooze(due_at=NOW), "JobSnoozed"),
    (Return(), "JobReturned"),
    (Cancel(), "JobCancelled"),
    (ManualRetry(by="ana", reason="x", due_at=NOW), "ManualRetryRequested"),
    (Revive(due_at=NOW), "JobRevived"),
]


@pytest.mark.parametrize(("move", "name"), NAMES)
def test_events_have_public_names(move: Move, name: str) -> None:
    assert Event(job_id="j", at=NOW, attempt=1, version=2, move=move).name == name


def test_from_the_second_attempt_on_it_is_a_retry_that_starts_and_succeeds() -> None:
    start = change.lease(WAITING, "w1", NOW)
    again = change.lease(RETRYING, "w2", NOW)
    assert (start.event.name, again.event.name) == ("JobStarted", "RetryStarted")
    assert change.settle(again.job, Succeed(), NOW).event.name == "RetrySucceeded"


def test_replaying_the_events_of_a_job_rebuilds_it() -> None:
    job, events = WAITING, []
    moves: list[Move] = [
        Retry(due_at=NOW + 5, cause=CAUSE, delay=5, max_attempts=3),
        Park(gate="ses", due_at=NOW + 9, cause=CAUSE),
        Dead(death="exhausted", cause=CAUSE, charged=True),
    ]
    for number, move in enumerate(moves):
        started = change.lease(job, f"w{number}", NOW + number)
        ended = change.make(started.job, move, NOW + number)
        events += [started.event, ended.event]
        job = ended.job
    revived = change.revive(job, NOW + 99)
    assert replay(WAITING, [*events, revived.event]) == revived.job


def test_a_waiting_job_expires_at_its_deadline_or_when_it_was_parked_for_long_enough() -> None:
    assert WAITING.expires_at is None
    assert replace(WAITING, deadline_at=NOW + 60_000).expires_at == NOW + 60_000
    parked = replace(WAITING, due_at=NOW, parked_until_at=NOW + 30_000)
    assert parked.expires_at == NOW + 30_000
    assert replace(parked, deadline_at=NOW + 10_000).expires_at == NOW + 10_000
    assert replace(parked, deadline_at=NOW + 60_000).expires_at == NOW + 30_000
    # An attempt that is due later is still made.
    assert replace(parked, due_at=NOW + 45_000).expires_at == NOW + 45_000
