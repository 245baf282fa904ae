"""The task and tenant of events: an event names only its job, which is read from the store."""

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from reprieve.core.job import Job
from reprieve.stores.protocol import Filter, Store

BATCH_JOBS = 500
"""Jobs that are read with one call."""

MAX_CACHED_JOBS = 10_000
"""Jobs that are cached; the oldest are read again."""


class Subject(NamedTuple):
    """The task and tenant of a job. Both are empty if the store no longer has the job."""

    task: str = ""
    tenant: str = ""


class Subjects:
    """Reads the tasks and tenants of jobs in batches, and caches them."""

    def __init__(self, store: Store) -> None:
        """Begin with an empty cache."""
        self._store = store
        self._known: dict[str, Subject] = {}

    def note(self, job: Job) -> None:
        """Cache a job that was read anyway."""
        self._known[job.id] = Subject(job.task, job.tenant)

    async def of(self, job_ids: Iterable[str]) -> dict[str, Subject]:
        """Return the subject of each job."""
        wanted = dict.fromkeys(job_ids)
        unknown = iter([job_id for job_id in wanted if job_id not in self._known])
        while batch := tuple(islice(unknown, BATCH_JOBS)):
            await self._read(batch)
        subjects = {job_id: self._known.get(job_id, Subject()) for job_id in wanted}
        for oldest in list(islice(self._known, max(0, len(self._known) - MAX_CACHED_JOBS))):
            del self._known[oldest]
        return subjects

    async def _read(self, job_ids: tuple[str, ...]) -> None:
        cursor = ""
        while True:
            page = await self._store.find(Filter(ids=job_ids), self._store.clock.now(), cursor, BATCH_JOBS)
            for job in page.jobs:
                self.note(job)
            cursor = page.cursor
            if not cursor:
                return
