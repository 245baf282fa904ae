"""Cancel requests: ends the attempts whose jobs should not go on, because of a request or a lost lease."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from reprieve.clock import Clock
from reprieve.core.job import Job
from reprieve.stores.paginate import find_all
from reprieve.stores.protocol import Filter, Store
from reprieve.worker.attempts import Attempts
from reprieve.worker.job_logging import log_lease_lost
from reprieve.worker.notifier import wake_ups

MAX_INTERVAL_SECONDS = 5.0
"""Seconds after which cancel requests are read even without a notification."""


class CancelRequests:
    """Watches the jobs of one session."""

    def __init__(self, store: Store, clock: Clock, session: str, attempts: Attempts) -> None:
        """Take the session, and the attempts that it makes."""
        self._store = store
        self._clock = clock
        self._session = session
        self._attempts = attempts

    async def watch(self, queues: Sequence[str]) -> AsyncIterator[None]:
        """Read cancel requests after every notification while any attempt runs, until cancelled."""
        async with aclosing(wake_ups(self._store, queues, MAX_INTERVAL_SECONDS)) as woken:
            async for _ in woken:
                if self._attempts.running:
                    await self._stop_unwanted()
                # Also while nothing runs: a success ends the outage that this loop may have reported.
                yield

    async def _stop_unwanted(self) -> None:
        """End the attempts that are asked to stop, and those whose jobs this session no longer holds."""
        # An attempt that starts during the read is not in what is read, not even if its job ran before.
        running = list(self._attempts.running.values())
        held = await find_all(self._store, Filter(session=self._session), self._clock.now())
        jobs = {job.id: job for job in held}
        lost = [attempt.job for attempt in running if attempt.job.id not in jobs]
        jobs |= {job.id: job for job in await self._gone_back(lost)}
        for attempt in running:
            if self._attempts.running.get(attempt.job.id) is not attempt:
                continue
            job = jobs.get(attempt.job.id)
            if job is None or _lease(job) > _lease(attempt.job):
                if attempt.reason is None:
                    log_lease_lost(attempt.job)
                attempt.stop("stopped")
            elif job.cancel_request is not None and _lease(job) == _lease(attempt.job):
                attempt.cancel(job)

    async def _gone_back(self, lost: Sequence[Job]) -> list[Job]:
        """Return the jobs that wait in the store as they were before this session claimed them.

        The store was restored to an earlier state. No session runs them, and this one may claim them again; then the
        attempt goes on.
        """
        if not lost:
            return []
        versions = {job.id: job.version for job in lost}
        page = await self._store.find(Filter(ids=tuple(versions)), self._clock.now())
        return [job for job in page.jobs if job.state == "waiting" and job.version < versions[job.id]]


def _lease(job: Job) -> tuple[int, int]:
    """Return which lease of a job this is: a later one is greater."""
    return job.attempt, job.version
