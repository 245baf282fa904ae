"""How a job looks to people."""

from typing import get_args

import pytest
from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.job import Job, State, Wait
from reprieve.core.status import Status, is_stuck, matching, status_of
from reprieve.errors import ValidationError

NOW = 1_760_000_000_000
JOB = Job(id="j", task="send", created_at=NOW, due_at=NOW)


@pytest.mark.parametrize(
    ("waiting_for", "status"),
    [
        ("turn", "scheduled"),
        ("schedule", "scheduled"),
        ("retry", "retrying"),
        ("gate", "parked"),
        ("budget", "parked"),
    ],
)
def test_before_it_is_due_a_job_shows_what_it_waits_for(waiting_for: Wait, status: Status) -> None:
    job = replace(JOB, waiting_for=waiting_for, due_at=NOW + 1)
    assert status_of(job, NOW) == status
    assert status_of(job, NOW, held=True) == status
    assert status_of(job, NOW + 1) == "ready"


def test_a_due_job_behind_a_held_gate_is_parked() -> None:
    assert status_of(JOB, NOW, held=True) == "parked"
    assert status_of(JOB, NOW) == "ready"


def test_a_job_that_runs_too_long_is_stuck() -> None:
    running = replace(JOB, state="running", leased_at=NOW)
    assert status_of(running, NOW + 1_799_999) == "running"
    assert status_of(running, NOW + 1_800_000) == "stuck"
    assert status_of(running, NOW + 60_000, stuck_after=60) == "stuck"
    assert not is_stuck(JOB, NOW + 10**9, 60)


def test_a_job_is_not_stuck_before_the_time_that_its_task_gave_it() -> None:
    patient = replace(change.lease(JOB, "w", NOW).job, timeout=7_200.0)
    assert status_of(patient, NOW + 7_199_999) == "running"
    assert status_of(patient, NOW + 7_200_000) == "stuck"
    hasty = replace(patient, timeout=1.0)
    assert not is_stuck(hasty, NOW + 59_999, 60)


@pytest.mark.parametrize("state", ["succeeded", "dead", "cancelled"])
def test_what_has_ended_shows_its_state(state: State) -> None:
    assert status_of(replace(JOB, state=state), NOW) == state


@pytest.mark.parametrize(
    ("word", "statuses"),
    [
        ("failed", {"retrying", "parked", "dead"}),
        ("FAILED", {"retrying", "parked", "dead"}),
        ("pending", {"ready", "scheduled", "retrying", "parked"}),
        ("QUEUED", {"ready", "scheduled", "retrying", "parked"}),
        ("waiting", {"ready", "scheduled", "retrying", "parked"}),
        ("delayed", {"scheduled", "retrying"}),
        ("PROCESSING", {"running", "stuck"}),
        ("completed", {"succeeded"}),
        ("SENT", {"succeeded"}),
        ("done", {"succeeded"}),
        ("active", {"running", "stuck"}),
        ("permanently_failed", {"dead"}),
        ("canceled", {"cancelled"}),
    ],
)
def test_the_words_of_other_systems_are_understood(word: str, statuses: set[Status]) -> None:
    assert matching(word) == statuses


@pytest.mark.parametrize("status", get_args(Status))
def test_a_status_means_itself(status: Status) -> None:
    assert matching(status) == {status}


def test_an_unknown_word_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValidationError, match=r"the statuses are ready, scheduled.*; other systems' names are wait"):
        matching("broken")


@pytest.mark.parametrize(("word", "meant"), [("ded", "dead"), ("Parkd", "parked"), ("complete", "completed")])
def test_a_mistyped_status_is_answered_with_the_nearest(word: str, meant: str) -> None:
    with pytest.raises(ValidationError, match=rf"'{word}' is not a status; did you mean {meant}\?"):
        matching(word)
