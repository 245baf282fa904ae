"""Progress: writes to the store what tasks report of how far they have come."""

import asyncio
from collections.abc import AsyncIterator

from reprieve.clock import Clock
from reprieve.core.job import Job
from reprieve.errors import StoreError
from reprieve.stores.protocol import Annotation, Store

WRITE_INTERVAL_SECONDS = 0.25
"""Seconds between two writes; of several reports of a job in between, the latest is written."""


class Progress:
    """Takes reports from tasks, and writes the latest of each job."""

    def __init__(self, store: Store, clock: Clock, session: str) -> None:
        """Write for a session, in the running event loop."""
        self._store = store
        self._clock = clock
        self._session = session
        self._latest: dict[str, bytes] = {}
        self._is_reported = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def report(self, job: Job, data: bytes) -> None:
        """Take the progress of a job, from any thread."""
        self._loop.call_soon_threadsafe(self._keep, job.id, data)

    def _keep(self, job_id: str, data: bytes) -> None:
        self._latest[job_id] = data
        self._is_reported.set()

    async def run(self) -> AsyncIterator[None]:
        """Write what is reported, until cancelled; yields after every write."""
        while True:
            await self._is_reported.wait()
            self._is_reported.clear()
            reported, self._latest = self._latest, {}
            now = self._clock.now()
            try:
                await self._store.annotate(
                    [
                        Annotation(job_id=job_id, now=now, session=self._session, progress=data)
                        for job_id, data in reported.items()
                    ]
                )
            except StoreError:
                # Written again later, unless there is a newer report by then.
                self._latest = reported | self._latest
                self._is_reported.set()
                raise
            yield
            await asyncio.sleep(WRITE_INTERVAL_SECONDS)
