"""Outages on virtual time, decided by a real worker: which jobs are spared or charged, and when they are done."""

from collections.abc import Callable

import pytest

from reprieve import Policy, Reprieve, presets
from reprieve.testing import FakeClock, drain
from reprieve.testing.drained import Drained

MINUTE = 60_000


def outage(app: Reprieve, clock: FakeClock, jobs: int, error: Callable[[], Exception]) -> tuple[Drained, float]:
    """Let so many jobs meet an outage of a minute; return what happened, and after how many seconds all was done."""
    back_at = clock.now() + MINUTE

    @app.task(dependency="mail", policy=presets.smtp)
    def send(number: int) -> None:
        if clock.now() < back_at:
            raise error()

    app.enqueue_many(send.call(number) for number in range(jobs))
    return drain(app), (clock.now() - back_at) / 1_000


@pytest.mark.parametrize("jobs", [1, 2, 3, 10])
def test_few_jobs_survive_an_outage_and_are_done_within_a_tenth_of_it(
    app: Reprieve, clock: FakeClock, jobs: int
) -> None:
    drained, late = outage(app, clock, jobs, ConnectionRefusedError)
    assert (drained.succeeded, drained.dead, drained.retried) == (jobs, 0, 0)
    assert drained.parked == drained.ran - jobs
    assert 0 <= late <= 6
    assert all(attempt.job.charged == 0 for attempt in drained.attempts)


def test_one_job_alone_that_always_times_out_dies_after_its_attempts(app: Reprieve, clock: FakeClock) -> None:
    drained, _ = outage(app, clock, 1, TimeoutError)
    assert (drained.ran, drained.dead, drained.parked) == (5, 1, 0)


def test_one_job_alone_never_closes_the_gate(app: Reprieve, clock: FakeClock) -> None:
    @app.task(dependency="webhooks", policy=Policy(max_attempts=3))
    def call(host: str) -> None:
        if host == "dead":
            raise ConnectionRefusedError

    bad = call.enqueue("dead")
    drain(app, within="1h")
    assert bad.fetch().spared > 100
    good = call.enqueue("alive")
    drained = drain(app, within="1s")
    assert [attempt.job.id for attempt in drained.attempts] == [good.id]
    assert drained.succeeded == 1


def test_a_dead_host_beside_healthy_ones_is_charged_and_dies(app: Reprieve, clock: FakeClock) -> None:
    @app.task(dependency="webhooks", policy=Policy(max_attempts=3))
    def call(host: str) -> None:
        if host == "dead":
            raise ConnectionRefusedError

    bad = call.enqueue("dead")
    app.enqueue_many(call.using(delay=second / 2).call("alive") for second in range(120))
    drained = drain(app)
    assert (drained.succeeded, drained.dead) == (120, 1)
    dead = bad.fetch()
    assert (dead.death, dead.charged, dead.spared) == ("exhausted", 3, 1)


def test_the_wait_ends_with_the_deadline_of_the_job(app: Reprieve, clock: FakeClock) -> None:
    began = clock.now()

    @app.task(dependency="mail", policy=Policy(max_attempts=3, deadline="1m"))
    def send() -> None:
        raise ConnectionRefusedError

    job = send.enqueue()
    drained = drain(app)
    assert (drained.dead, job.fetch().death, job.fetch().charged) == (1, "expired", 0)
    assert clock.now() - began < MINUTE
