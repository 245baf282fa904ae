"""Whose jobs events are about: an event names its job, and the job is looked up for its task and tenant."""

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from reprieve.core.job import Job
from reprieve.stores.protocol import Filter, Store

BATCH = 500
"""Jobs that are looked up with one call."""

MAX_KNOWN = 10_000
"""Jobs that are remembered; the oldest are looked up again."""


class Subject(NamedTuple):
    """What never changes about a job. Both are empty if the store no longer has it."""

    task: str = ""
    tenant: str = ""


class Subjects:
    """Looks up the tasks and tenants of jobs, in batches, each job once as long as it is remembered."""

    def __init__(self, store: Store) -> None:
        """Begin without knowing any."""
        self._store = store
        self._known: dict[str, Subject] = {}

    def note(self, job: Job) -> None:
        """Remember a job that was read anyway."""
        self._known[job.id] = Subject(job.task, job.tenant)

    async def of(self, job_ids: Iterable[str]) -> dict[str, Subject]:
        """Return the subject of each job."""
        wanted = dict.fromkeys(job_ids)
        unknown = iter([job_id for job_id in wanted if job_id not in self._known])
        while batch := tuple(islice(unknown, BATCH)):
            await self._look_up(batch)
        subjects = {job_id: self._known.get(job_id, Subject()) for job_id in wanted}
        for oldest in list(islice(self._known, max(0, len(self._known) - MAX_KNOWN))):
            del self._known[oldest]
        return subjects

    async def _look_up(self, job_ids: tuple[str, ...]) -> None:
        cursor = ""
        while True:
            page = await self._store.find(Filter(ids=job_ids), self._store.clock.now(), cursor, BATCH)
            for job in page.jobs:
                self.note(job)
            cursor = page.cursor
            if not cursor:
                return
