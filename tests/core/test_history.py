"""The history of a job: what its stored events rebuild, although stores keep neither starts nor successes."""

import pytest
from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.change import Request
from reprieve.core.events import Event, enqueued, replay, started
from reprieve.core.headers import Headers
from reprieve.core.history import History, as_enqueued, rebuild, untold
from reprieve.core.job import CancelRequest, Cause, Job
from reprieve.core.move import Dead, Move, Park, Retry, Return, Snooze, Start, Succeed
from reprieve.errors import MissingEvents

NOW = 1_760_000_000_000
CAUSE = Cause(reason="down", code="421", kind="transient", traceback="line 1")
SCHEDULED = Job(
    id="j",
    task="send",
    tenant="acme",
    created_at=NOW,
    due_at=NOW + 500,
    waiting_for="schedule",
    deadline_at=NOW + 60_000,
    max_attempts=3,
    payload=b"{}",
)
ANA = Request(by="ana", reason="the provider is back", force=True)
FAILED = Retry(due_at=NOW + 5_000, cause=CAUSE, delay=5.0)


def lived(*moves: Move, job: Job = SCHEDULED) -> tuple[Job, list[Event]]:
    """Return the job after these moves, and the events that a store keeps: neither starts nor successes."""
    events: list[Event] = []
    for number, move in enumerate(moves):
        made = change.make(job, move, NOW + 1_000 * number)
        job = made.job
        if not isinstance(move, Start | Succeed):
            events.append(made.event)
    return job, events


def told(job: Job) -> Job:
    return job if job.cause is None else replace(job, cause=replace(job.cause, traceback=""))


HISTORIES: list[list[Move]] = [
    [],
    [Start(session="w")],
    [Start(session="w"), Succeed()],
    [Start(session="w"), FAILED],
    [Start(session="w"), FAILED, Start(session="v"), Succeed()],
    [Start(session="w"), Return(started=False)],
    [Start(session="w"), Return(crashed=True), Start(session="v")],
    [Start(session="w"), Park(gate="ses", due_at=NOW + 9_000, cause=CAUSE, parked_until_at=NOW + 30_000)],
    [Start(session="w"), Snooze(due_at=NOW + 7_000), Dead(death="expired", cause=CAUSE)],
    [Dead(death="expired", cause=CAUSE)],
    [Start(session="w"), Retry(due_at=NOW, cause=CAUSE, delay=1.0, max_attempts=5)],
]


@pytest.mark.parametrize(
    "moves", HISTORIES, ids=lambda moves: "-".join(type(move).__name__ for move in moves) or "none"
)
def test_the_stored_events_of_a_job_rebuild_it(moves: list[Move]) -> None:
    job, events = lived(*moves)
    assert rebuild(job, events) == told(job)
    assert replay(SCHEDULED, [*events, *untold(job, events)]) == told(job)


def test_a_manual_retry_moves_the_deadline_and_the_history_knows_the_first_one() -> None:
    dead, events = lived(Start(session="w"), Dead(death="permanent", cause=CAUSE, charged=True))
    retried = change.retry(dead, ANA, NOW + 90_000, 1_800.0)
    events.append(retried.event)
    assert retried.job.deadline_at == NOW + 150_000
    assert as_enqueued(retried.job, events).deadline_at == SCHEDULED.deadline_at
    assert rebuild(retried.job, events) == told(retried.job)


def test_a_cancel_request_is_beside_the_history() -> None:
    job, events = lived(Start(session="w"))
    asked = replace(job, cancel_request=CancelRequest(by="ana", reason="sent twice"))
    assert rebuild(asked, events) == asked


def test_starts_and_successes_that_were_stored_are_used() -> None:
    started = change.lease(SCHEDULED, "w", NOW)
    ended = change.settle(started.job, Succeed(), NOW + 5)
    assert untold(ended.job, [started.event, ended.event]) == []
    assert [event.move for event in untold(ended.job, [started.event])] == [Succeed()]
    assert rebuild(ended.job, [started.event]) == rebuild(ended.job, [started.event, ended.event]) == ended.job


def test_a_start_that_is_told_after_the_end_of_its_attempt_changes_nothing() -> None:
    started = change.lease(SCHEDULED, "w", NOW)
    ended = change.settle(started.job, Succeed(), NOW + 5)
    assert replay(SCHEDULED, [ended.event, started.event]) == ended.job


@pytest.mark.parametrize("lost", [0, 1])
def test_a_job_with_missing_events_is_not_rebuilt(lost: int) -> None:
    job, events = lived(Start(session="w"), FAILED, Start(session="v"), FAILED, Start(session="u"), FAILED)
    del events[lost]
    with pytest.raises(
        MissingEvents, match=r"the events of job j between versions [02] and [46] are not kept any more"
    ):
        rebuild(job, events)


def test_an_event_of_a_waiting_job_is_no_proof_of_a_start() -> None:
    job, events = lived(Start(session="w"), FAILED, Start(session="v"), FAILED)
    cancelled = change.cancel(job, ANA, NOW + 9_000)
    with pytest.raises(MissingEvents):
        replay(SCHEDULED, [events[0], cancelled.event])


def test_a_history_has_the_attempts_and_the_job() -> None:
    job, events = lived(Start(session="w"), FAILED, Start(session="v"))
    history = History(job=job, events=tuple(events))
    assert [(attempt.number, attempt.session, attempt.ended_with) for attempt in history.attempts] == [
        (1, "w", "RetryScheduled"),
        (2, "v", ""),
    ]
    assert history.replay() == told(job)


def test_events_of_a_job_that_tells_all_rebuild_it_with_and_without_its_starts() -> None:
    told = replace(SCHEDULED, headers=Headers(tells_all=True))
    events = [enqueued(told)]
    job = told
    moves: tuple[Move, ...] = (FAILED, Succeed())
    for number, move in enumerate(moves):
        job = change.lease(job, "worker-1", NOW + 1_000 * number).job
        events.append(started(job))
        made = change.make(job, move, NOW + 1_000 * number + 500)
        events.append(made.event)
        job = made.job
    names = ["JobEnqueued", "JobStarted", "RetryScheduled", "RetryStarted", "RetrySucceeded"]
    assert [event.name for event in events] == names
    assert (events[0].at, events[0].version, events[3].at) == (NOW, 0, NOW + 1_000)
    stored = replace(job, cause=replace(CAUSE, traceback=""))
    assert History(job=stored, events=tuple(events)).replay() == stored
    assert [attempt.number for attempt in History(job=stored, events=tuple(events)).attempts] == [1, 2]
    without_starts = [event for event in events if not isinstance(event.move, Start)]
    assert replay(told, without_starts) == replay(told, events) == stored
