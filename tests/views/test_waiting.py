"""What a job waits for, in a sentence."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from reprieve.core.job import Cause, Job
from reprieve.core.status import Status
from reprieve.views.waiting import waits_for

NOW = int(datetime(2026, 3, 5, 14, 2, 59, tzinfo=UTC).timestamp() * 1_000)
PARKED = Job(
    id="j",
    task="send",
    dependency="mail",
    created_at=NOW - 60_000,
    due_at=NOW + 5_000,
    waiting_for="gate",
    parked_on="mail",
    parked_since_at=NOW - 48_000,
    cause=Cause(reason="[Errno 111] Connection refused"),
)


def local(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1_000, UTC).astimezone()


def test_a_parked_job_says_what_it_waits_for_since_when_and_until_when() -> None:
    assert waits_for(PARKED, "parked", NOW) == (
        f"mail: [Errno 111] Connection refused; no answer since {local(NOW - 48_000):%H:%M:%S} (48s), next try in 5s"
    )


def test_another_day_is_named() -> None:
    since_yesterday = replace(PARKED, parked_since_at=NOW - 86_400_000, due_at=NOW + 300)
    assert waits_for(since_yesterday, "parked", NOW).endswith(
        f"no answer since {local(NOW - 86_400_000):%Y-%m-%d %H:%M:%S} (1d), next try in 0.3s"
    )


def test_a_job_that_is_due_waits_for_its_gate() -> None:
    assert waits_for(replace(PARKED, due_at=NOW), "parked", NOW).endswith("next try as soon as its gate lets it")


def test_a_dependency_that_asks_to_wait_has_answered() -> None:
    slowed = replace(PARKED, cause=Cause(reason="429 Too Many Requests", kind="throttled"))
    assert "429 Too Many Requests; it asks to wait since" in waits_for(slowed, "parked", NOW)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (replace(PARKED, waiting_for="budget", parked_on="budget"), "budget"),
        # Never tried: its gate was held before its turn came.
        (replace(PARKED, waiting_for="turn", parked_on="", cause=None), "mail"),
    ],
)
def test_a_job_that_no_dependency_has_failed_names_what_holds_it(job: Job, words: str) -> None:
    assert waits_for(job, "parked", NOW) == words


@pytest.mark.parametrize("status", ["ready", "running", "retrying", "dead"])
def test_a_job_that_is_not_parked_waits_for_nothing(status: Status) -> None:
    assert waits_for(PARKED, status, NOW) == ""
