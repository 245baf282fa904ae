"""The life of a job: which moves it knows, and what each leaves behind."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from reprieve.core.job import CancelRequest, Cause, Job, State, Suspicion
from reprieve.core.move import (
    LEGAL,
    Cancel,
    Dead,
    ManualRetry,
    Move,
    Park,
    Retry,
    Return,
    Revive,
    Snooze,
    Start,
    Succeed,
    evolve,
)
from reprieve.errors import IllegalMove

NOW = 1_760_000_000_000
CAUSE = Cause(reason="down", code="421", kind="transient")
WAITING = Job(id="j", task="send", created_at=NOW, due_at=NOW, waiting_for="schedule", max_attempts=3)
RUNNING = evolve(WAITING, Start(session="w1"), NOW + 5)
DEAD = evolve(RUNNING, Dead(death="exhausted", cause=CAUSE, charged=True), NOW + 9)
MOVES: list[Move] = [
    Start(session="w"),
    Succeed(),
    Retry(due_at=NOW, cause=CAUSE, delay=1),
    Park(gate="ses", due_at=NOW, cause=CAUSE),
    Dead(death="expired", cause=CAUSE),
    Snooze(due_at=NOW),
    Return(),
    Cancel(),
    ManualRetry(by="ana", reason="fixed", due_at=NOW),
    Revive(due_at=NOW),
]


def test_every_move_is_known() -> None:
    assert {type(move) for move in MOVES} == set(LEGAL) == set(get_args(Move))


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("state", get_args(State))
def test_a_move_starts_only_where_it_may(move: Move, state: State) -> None:
    job = replace(WAITING, state=state)
    origins, destination = LEGAL[type(move)]
    if state in origins:
        after = evolve(job, move, NOW)
        assert (after.state, after.version) == (destination, job.version + 1)
    else:
        with pytest.raises(IllegalMove, match=f"job j is {state}") as caught:
            evolve(job, move, NOW)
        assert caught.value.code == "illegal_move"


def test_success_is_final() -> None:
    assert not any("succeeded" in origins for origins, _ in LEGAL.values())


def test_a_start_takes_the_lease_and_counts_the_attempt() -> None:
    assert (RUNNING.session, RUNNING.leased_at, RUNNING.attempt) == ("w1", NOW + 5, 1)
    assert RUNNING.waiting_for == "turn"


def test_whatever_ends_an_attempt_gives_up_the_lease() -> None:
    asked = replace(RUNNING, cancel_request=CancelRequest(by="ana", reason="sent twice"))
    for move in MOVES:
        if "running" in LEGAL[type(move)][0]:
            after = evolve(asked, move, NOW)
            assert (after.session, after.leased_at, after.cancel_request) == ("", None, None), move


def test_a_charged_retry_counts_and_ends_the_parking() -> None:
    parked = replace(RUNNING, parked_since_at=NOW, parked_on="ses", is_manual=True)
    after = evolve(parked, Retry(due_at=NOW + 60, cause=CAUSE, delay=2.5, max_attempts=7), NOW + 9)
    assert (after.charged, after.spared, after.due_at, after.delay, after.max_attempts) == (
        1,
        0,
        NOW + 60,
        2.5,
        7,
    )
    assert (after.waiting_for, after.cause, after.failed_at) == ("retry", CAUSE, NOW + 9)
    assert (after.parked_since_at, after.parked_on, after.is_manual) == (None, "", False)


def test_a_spared_retry_does_not_move_the_limit_and_leaves_the_parking() -> None:
    parked = replace(RUNNING, parked_since_at=NOW, parked_on="ses")
    after = evolve(parked, Retry(due_at=NOW, cause=CAUSE, delay=1, charged=False), NOW)
    assert (after.charged, after.spared, after.parked_since_at, after.parked_on) == (0, 1, NOW, "ses")
    first = evolve(RUNNING, Retry(due_at=NOW, cause=CAUSE, delay=1, charged=False), NOW + 7)
    assert first.parked_since_at == NOW + 7
    assert first.max_attempts == RUNNING.max_attempts


def test_a_wait_for_a_budget_may_be_charged() -> None:
    after = evolve(RUNNING, Park(gate="budget", due_at=NOW, cause=CAUSE, waiting_for="budget", charged=True), NOW)
    assert (after.charged, after.spared, after.parked_since_at, after.waiting_for) == (1, 0, NOW, "budget")


def test_parking_counts_from_the_first_time() -> None:
    park = Park(gate="ses", due_at=NOW + 1_000, cause=CAUSE)
    once = evolve(RUNNING, park, NOW + 10)
    assert (once.parked_since_at, once.parked_on, once.waiting_for) == (NOW + 10, "ses", "gate")
    assert (once.charged, once.spared, once.cause, once.failed_at) == (0, 1, CAUSE, NOW + 10)
    assert once.due_at == NOW + 1_000
    twice = evolve(evolve(once, Start(session="w2"), NOW + 20), park, NOW + 30)
    assert (twice.parked_since_at, twice.spared, twice.attempt) == (NOW + 10, 2, 2)


def test_a_snooze_is_counted_apart() -> None:
    after = evolve(replace(RUNNING, parked_since_at=NOW, parked_on="ses"), Snooze(due_at=NOW + 7), NOW)
    assert (after.parked_since_at, after.parked_on) == (None, "")
    assert (after.snoozes, after.charged, after.spared) == (1, 0, 0)
    assert (after.due_at, after.waiting_for) == (NOW + 7, "schedule")


def test_a_returned_job_is_due_at_once_and_remembers_a_crash() -> None:
    assert evolve(RUNNING, Return(), NOW + 50).due_at == NOW + 50
    assert evolve(RUNNING, Return(started=False), NOW + 50).due_at == RUNNING.due_at
    assert evolve(RUNNING, Return(), NOW).crashes == 0
    crashed = evolve(RUNNING, Return(crashed=True), NOW)
    assert (crashed.crashes, crashed.is_suspect, crashed.suspicion) == (1, True, Suspicion(sessions=1))
    assert not RUNNING.is_suspect
    again = evolve(replace(crashed, state="running"), Return(crashed=True, alone=True), NOW)
    assert (again.crashes, again.suspicion) == (2, Suspicion(sessions=1, processes=1))
    assert evolve(replace(again, state="running"), Return(), NOW).suspicion == again.suspicion


@pytest.mark.parametrize(
    "move",
    [
        Retry(due_at=NOW, cause=CAUSE, delay=1),
        Park(gate="ses", due_at=NOW, cause=CAUSE),
        Snooze(due_at=NOW),
        Dead(death="permanent", cause=CAUSE, charged=True),
    ],
    ids=lambda move: type(move).__name__,
)
def test_an_attempt_that_ends_clears_the_suspicion_and_keeps_the_crashes(move: Move) -> None:
    suspect = replace(RUNNING, crashes=7, suspicion=Suspicion(sessions=9, processes=2))
    after = evolve(suspect, move, NOW)
    assert (after.crashes, after.is_suspect) == (7, False)


@pytest.mark.parametrize(
    "move", [Dead(death="expired", cause=CAUSE), Cancel(by="ana", reason="no"), Start(session="w")], ids=str
)
def test_what_happens_to_a_waiting_suspect_clears_nothing(move: Move) -> None:
    suspect = replace(RUNNING, state="waiting", suspicion=Suspicion(sessions=1))
    assert evolve(suspect, move, NOW).suspicion == Suspicion(sessions=1)


def test_death_has_a_reason_and_a_moment() -> None:
    assert (DEAD.death, DEAD.cause, DEAD.failed_at, DEAD.finished_at) == (
        "exhausted",
        CAUSE,
        NOW + 9,
        NOW + 9,
    )
    assert (DEAD.charged, DEAD.crashes) == (1, 0)
    poisoned = evolve(RUNNING, Dead(death="poison", cause=CAUSE, crashed=True), NOW)
    assert (poisoned.charged, poisoned.crashes, poisoned.suspicion) == (0, 1, Suspicion(sessions=1))
    expired = evolve(RUNNING, Dead(death="expired", cause=CAUSE, spared=True, max_attempts=7), NOW)
    assert (expired.charged, expired.spared, expired.max_attempts) == (0, 1, 7)


def test_success_and_cancel_end_the_job() -> None:
    assert evolve(RUNNING, Succeed(), NOW + 9).finished_at == NOW + 9
    parked = replace(WAITING, parked_since_at=NOW, parked_on="ses")
    cancelled = evolve(parked, Cancel(), NOW + 9)
    assert (cancelled.finished_at, cancelled.parked_since_at, cancelled.parked_on) == (NOW + 9, None, "")


def test_a_manual_retry_brings_a_job_back_with_its_history() -> None:
    after = evolve(DEAD, ManualRetry(by="ana", reason="fixed", due_at=NOW + 20, granted=1), NOW + 20)
    assert (after.death, after.finished_at, after.is_manual, after.granted) == (None, None, True, 1)
    assert (after.charged, after.attempt, after.cause) == (1, 1, CAUSE)
    assert (after.due_at, after.waiting_for) == (NOW + 20, "turn")
    later = evolve(DEAD, ManualRetry(by="ana", reason="fixed", due_at=NOW + 21), NOW + 20)
    assert (later.waiting_for, later.granted) == ("retry", 0)


def test_a_revival_is_not_manual() -> None:
    after = evolve(replace(DEAD, is_manual=True), Revive(due_at=NOW + 20, granted=2), NOW + 20)
    assert (after.is_manual, after.granted, after.death) == (False, 2, None)


def test_the_limit_is_what_the_policy_allows_and_people_granted() -> None:
    assert replace(WAITING, granted=2).limit == 5
    assert replace(WAITING, max_attempts=None).limit is None
    assert replace(WAITING, charged=2).has_attempts_left
    assert not replace(WAITING, charged=3).has_attempts_left
    assert replace(WAITING, charged=3, granted=1).has_attempts_left
    assert replace(WAITING, charged=99, max_attempts=None).has_attempts_left


@given(st.lists(st.sampled_from(MOVES), max_size=30))
def test_attempts_and_versions_only_grow(moves: list[Move]) -> None:
    job = WAITING
    for move in moves:
        if job.state in LEGAL[type(move)][0]:
            after = evolve(job, move, NOW)
            assert after.version > job.version
            assert after.attempt >= job.attempt
            assert after.charged >= job.charged
            assert (after.death is not None) == (after.state == "dead")
            assert (after.leased_at is not None) == (after.state == "running")
            job = after


def test_a_job_survives_its_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(DEAD), type=Job) == DEAD
    assert b'"createdAt"' in msgspec.json.encode(DEAD)


def test_a_record_cannot_be_changed_or_built_by_position() -> None:
    with pytest.raises(AttributeError):
        WAITING.state = "dead"  # type: ignore[misc]  # which is the point
    with pytest.raises(TypeError):
        Cause("down")  # type: ignore[call-arg]  # which is the point


def test_a_job_is_parked_until_a_time_as_long_as_it_is_spared() -> None:
    park = Park(gate="ses", due_at=NOW + 20, cause=CAUSE, parked_until_at=NOW + 99)
    parked = evolve(RUNNING, park, NOW + 10)
    assert parked.parked_until_at == NOW + 99
    running = replace(parked, state="running")
    spared = evolve(
        running, Retry(due_at=NOW + 40, cause=CAUSE, delay=1.0, charged=False, parked_until_at=NOW + 99), NOW
    )
    assert spared.parked_until_at == NOW + 99
    charged = evolve(running, Retry(due_at=NOW + 40, cause=CAUSE, delay=1.0), NOW + 30)
    dead = evolve(running, Dead(death="expired", cause=CAUSE, spared=True), NOW + 30)
    assert (charged.parked_until_at, dead.parked_until_at) == (None, None)
