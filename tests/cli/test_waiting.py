"""`reprieve jobs` and a job that waits for its dependency: the same status everywhere, and the reason."""

import re

from reprieve import Reprieve, clock
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
        r"waits for mail: \[Errno 111\] Connection refused; no answer since .* UTC \(1h\w*\), next try in", shown
    )
