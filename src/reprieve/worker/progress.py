"""Progress: what tasks say of how far they have come, on its way to the store."""

import asyncio
from collections.abc import AsyncIterator

from reprieve.clock import Clock
from reprieve.core.job import Job
from reprieve.errors import StoreError
from reprieve.stores.protocol import Annotation, Store

WRITE_EVERY = 0.25
"""Seconds between two writes: of what is said more often, the latest is written."""


class Progress:
    """Takes progress from tasks, and writes the latest of each."""

    def __init__(self, store: Store, clock: Clock, session: str) -> None:
        """Write for a session, in the loop that runs here."""
        self._store = store
        self._clock = clock
        self._session = session
        self._latest: dict[str, bytes] = {}
        self._said = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def say(self, job: Job, data: bytes) -> None:
        """Take progress from a task, in whichever thread it runs."""
        self._loop.call_soon_threadsafe(self._keep, job.id, data)

    def _keep(self, job_id: str, data: bytes) -> None:
        self._latest[job_id] = data
        self._said.set()

    async def write(self) -> AsyncIterator[None]:
        """Write what is said, for ever; yields after every write."""
        while True:
            await self._said.wait()
            self._said.clear()
            said, self._latest = self._latest, {}
            now = self._clock.now()
            try:
                await self._store.annotate(
                    [
                        Annotation(job_id=name, now=now, session=self._session, progress=data)
                        for name, data in said.items()
                    ]
                )
            except StoreError:
                # It is said again later, unless there is something newer by then.
                self._latest = said | self._latest
                self._said.set()
                raise
            yield
            await asyncio.sleep(WRITE_EVERY)
