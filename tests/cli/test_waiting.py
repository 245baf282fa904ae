"""`reprieve jobs` and a job that waits for its dependency: the same status everywhere, and the reason."""

import re

from msgspec.structs import replace

from reprieve import Reprieve, clock
from reprieve.cli.summary import COLUMNS, row_of
from reprieve.core.job import Cause, Job
from reprieve.testing import FakeClock, drain
from tests.cli.shell import answer, reprieve

STORE = ("--store", "sqlite:///jobs.db")


def park() -> str:
    """Leave a job that was refused a moment ago, after an hour in which nothing listened."""
    fake = FakeClock(clock.now() - 3_600_000)
    with Reprieve(STORE[1], clock=fake) as app:

        @app.task(name="send", dependency="mail")
        def send() -> None:
            raise ConnectionRefusedError(111, "Connection refused")

        job = send.enqueue()
        drain(app, within="1h1m")
        return job.id


def test_a_parked_job_is_parked_wherever_it_is_shown_and_says_why() -> None:
    job = park()
    assert answer("jobs", "show", job, *STORE)["status"] == "parked"
    (listed,) = answer("jobs", "list", "--status", "parked", *STORE)["jobs"]
    assert (listed["id"], listed["status"], listed["parkedOn"]) == (job, "parked", "mail")
    shown = " ".join(reprieve("jobs", "show", job, *STORE).stdout.split())
    assert re.search(
        r"waits for mail: \[Errno 111\] Connection refused; no answer since [-\d: ]+ \(1h\w*\), next try in", shown
    )
    assert shown.count("waits for") == 1


def test_attempts_that_ended_alike_are_folded_into_the_first_the_last_and_a_count() -> None:
    job = park()
    attempts = answer("jobs", "show", job, *STORE)["attempts"]
    assert len(attempts) > 10
    told = reprieve("jobs", "show", job, *STORE).stdout.partition("enqueued")[2].partition("Traceback")[0]
    lines = [" ".join(line.split()) for line in told.splitlines() if line.strip()]
    last = len(attempts)
    assert len(lines) == 5
    assert re.search(r"attempt 1 failed .*, spared: \[Errno 111\] Connection refused", lines[0])
    assert lines[1] == lines[4] == "→ parked until mail answers again"
    assert re.search(rf"attempts 2–{last - 1}: {last - 2} more that ended like this, until [-\d: ]+$", lines[2])
    assert re.search(rf"attempt {last} failed .*, spared: \[Errno 111\] Connection refused", lines[3])


def test_a_parked_job_that_may_go_at_any_moment_says_for_how_long_it_has_waited() -> None:
    now = clock.now()
    cause = Cause(reason="connection refused")
    parked = Job(
        id="j", task="send", created_at=now, due_at=now + 2_000, waiting_for="gate", parked_on="mail", cause=cause
    )
    when = COLUMNS.index(next(column for column in COLUMNS if column.name == "when"))
    assert row_of(parked, "parked", now, "j")[when] == "in 2s"
    since = replace(parked, parked_since_at=now - 120_000, due_at=now - 2_000)
    assert row_of(since, "parked", now, "j")[when] == "for 2m"
    untried = replace(parked, due_at=now, cause=None)
    assert row_of(untried, "parked", now, "j")[when] == "for 1s"
