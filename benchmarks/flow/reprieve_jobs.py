"""Our jobs: `reprieve worker benchmarks.flow.reprieve_jobs:app`. Its store is `REPRIEVE_URL`."""

import time

from benchmarks.flow.track import SECOND, Track
from reprieve.app import Reprieve
from reprieve.context import current_job
from reprieve.core.backoff import fixed
from reprieve.core.policy import Policy

app = Reprieve()
track = Track()
_failed: dict[str, int] = {}


@app.task(name="nothing")
async def nothing(sent: int, payload: str) -> None:  # noqa: ARG001 - all tasks take the same
    """Do nothing."""
    track.count()


@app.task(name="flaky", policy=Policy(max_attempts=3, backoff=fixed("5ms")))
async def flaky(sent: int, payload: str) -> None:  # noqa: ARG001 - all tasks take the same
    """Fail once, then succeed."""
    track.count()
    if current_job().attempt == 1:
        raise ConnectionError


@app.task(name="prompt")
async def prompt(sent: int, payload: str) -> None:  # noqa: ARG001 - all tasks take the same
    """Write down how long it took from before the enqueue to here."""
    now = time.monotonic_ns()
    track.count()
    if sent:
        track.stamp(now - sent)


@app.task(name="late", policy=Policy(max_attempts=3, backoff=fixed("1s")))
async def late(sent: int, payload: str) -> None:  # noqa: ARG001 - all tasks take the same
    """Fail once, and write down how much later than a second the retry came."""
    now = time.monotonic_ns()
    job = current_job()
    track.count()
    if job.attempt == 1:
        _failed[job.id] = time.monotonic_ns()
        raise ConnectionError
    if sent:
        track.stamp(now - _failed.pop(job.id) - SECOND)
