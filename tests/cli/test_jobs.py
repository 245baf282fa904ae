"""`reprieve jobs`, without the app: what it can know of a job must stand in the store."""

import asyncio

from reprieve import Reprieve, clock
from reprieve.stores.protocol import Claim, Heartbeat
from reprieve.testing import FakeClock
from tests.cli.shell import answer, complaint

STORE = ("--store", "sqlite:///jobs.db")
HOUR = 3_600_000


def run_for_an_hour(timeout: str | None) -> str:
    """Return a job that a worker has been running for an hour."""
    then = clock.now() - HOUR

    async def lease() -> str:
        async with Reprieve(STORE[1], clock=FakeClock(then)) as app:

            @app.task(name="render", timeout=timeout)
            def render() -> None: ...

            await render.aenqueue()
            await app.store.heartbeat(Heartbeat(session="w", now=then, lease=2 * HOUR, slots=1, is_new=True))
            claim = Claim(session="w", number=1, now=then, queues=("default",), limit=1)
            (job,) = (await app.store.claim(claim)).jobs
            return job.id

    return asyncio.run(lease())


def test_a_job_that_may_take_long_is_not_stuck() -> None:
    job = run_for_an_hour(timeout="2h")
    assert answer("jobs", "show", job, *STORE)["status"] == "running"
    assert "is running (leased to w)" in complaint("jobs", "retry", job, "--reason", "it hangs", *STORE, status=4)


def test_a_job_that_takes_longer_than_expected_is_stuck() -> None:
    job = run_for_an_hour(timeout=None)
    assert answer("jobs", "show", job, *STORE)["status"] == "stuck"
    (retried,) = answer("jobs", "retry", job, "--reason", "it hangs", *STORE)
    assert retried["jobId"] == job
    assert answer("jobs", "show", job, *STORE)["status"] == "ready"
