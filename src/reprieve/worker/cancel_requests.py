"""Cancel requests: ends the attempts whose jobs should not go on, because of a request or a lost lease."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from reprieve.clock import Clock
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
        # An attempt that starts during the read is not in what is read.
        running = list(self._attempts.running)
        held = await find_all(self._store, Filter(session=self._session), self._clock.now())
        jobs = {job.id: job for job in held}
        for attempt in [self._attempts.running[job_id] for job_id in running if job_id in self._attempts.running]:
            job = jobs.get(attempt.job.id)
            if job is None:
                if attempt.reason is None:
                    log_lease_lost(attempt.job)
                attempt.stop("stopped")
            elif job.cancel_request is not None:
                attempt.cancel(job)
