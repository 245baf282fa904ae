"""The attempts of a job, read from its events."""

from reprieve.core import change
from reprieve.core.attempt import Attempt, cost_of, timeline
from reprieve.core.change import Change, Request
from reprieve.core.job import Cause, Job
from reprieve.core.move import Dead, Move, Park, Retry, Return, Snooze, Start

NOW = 1_760_000_000_000
CAUSE = Cause(reason="down", code="421", kind="transient")
WAITING = Job(id="j", task="send", created_at=NOW, due_at=NOW)


def history(*moves: Move) -> list[Change]:
    made, job = [], WAITING
    for number, move in enumerate(moves):
        made.append(change.lease(job, f"w{number}", NOW + 10 * number))
        made.append(change.make(made[-1].job, move, NOW + 10 * number + 5))
        job = made[-1].job
    return made


def test_each_lease_is_an_attempt_with_its_end() -> None:
    moves: list[Move] = [
        Retry(due_at=NOW, cause=CAUSE, delay=1),
        Park(gate="ses", due_at=NOW, cause=CAUSE),
        Return(),
        Dead(death="exhausted", cause=CAUSE),
    ]
    attempts = timeline(made.event for made in history(*moves))
    assert [attempt.number for attempt in attempts] == [1, 2, 3, 4]
    assert [attempt.ended_with for attempt in attempts] == [
        "RetryScheduled",
        "JobParked",
        "JobReturned",
        "JobDied",
    ]
    assert [attempt.cause for attempt in attempts] == [CAUSE, CAUSE, None, CAUSE]
    assert attempts[1] == Attempt(
        number=2,
        session="w1",
        started_at=NOW + 10,
        ended_at=NOW + 15,
        ended_with="JobParked",
        cost="spared",
        cause=CAUSE,
    )


def test_an_attempt_without_an_end_is_under_way() -> None:
    started = history(Return())[0]
    assert timeline([started.event]) == [Attempt(number=1, session="w0", started_at=NOW)]


def test_what_happens_between_attempts_ends_none() -> None:
    made = history(Retry(due_at=NOW + 1_000, cause=CAUSE, delay=1))
    manual = change.retry(made[-1].job, Request(by="ana", reason="now"), NOW + 99, 1_800)
    attempts = timeline([*(one.event for one in made), manual.event])
    assert [attempt.ended_at for attempt in attempts] == [NOW + 5]
    cancelled = change.cancel(WAITING, Request(by="ana", reason="no"), NOW)
    assert timeline([cancelled.event]) == []


def test_attempts_whose_start_was_not_kept_are_known_by_their_ends() -> None:
    made = history(Retry(due_at=NOW, cause=CAUSE, delay=1), Return())

    attempts = timeline(one.event for one in made if not isinstance(one.event.move, Start))

    assert [(attempt.number, attempt.started_at, attempt.cause) for attempt in attempts] == [
        (1, NOW, CAUSE),
        (2, NOW + 10, None),
    ]


def test_an_event_tells_who_held_the_job_and_since_when() -> None:
    started, ended = history(Retry(due_at=NOW, cause=CAUSE, delay=1))
    assert (started.event.session, started.event.started_at) == ("", None)
    assert (ended.event.session, ended.event.started_at) == ("w0", NOW)


def test_each_attempt_says_what_it_cost() -> None:
    moves: list[Move] = [
        Retry(due_at=NOW, cause=CAUSE, delay=1),
        Retry(due_at=NOW, cause=CAUSE, delay=1, charged=False),
        Park(gate="budget", due_at=NOW, cause=CAUSE, charged=True),
        Return(crashed=True),
        Snooze(due_at=NOW),
        Dead(death="expired", cause=CAUSE, spared=True),
    ]
    costs = [attempt.cost for attempt in timeline(made.event for made in history(*moves))]
    assert costs == ["charged", "spared", "charged", "crashed", "", "spared"]
    assert [cost_of(Dead(death="permanent", cause=CAUSE, charged=True))] == ["charged"]
    assert [cost_of(Dead(death="poison", cause=CAUSE, crashed=True))] == ["crashed"]
    assert [cost_of(Dead(death="expired", cause=CAUSE))] == [""]
