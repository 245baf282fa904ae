"""Looking up one job, or saying that there is none."""

from typing import NamedTuple

from reprieve.clock import Clock
from reprieve.core.ids import parse_id
from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.errors import JobNotFound
from reprieve.stores.protocol import Filter, Store


class Found(NamedTuple):
    """A job, and its status as the store knows it: a job whose gate is held is parked."""

    job: Job
    status: Status


async def get(store: Store, clock: Clock, job_id: str) -> Job:
    """Return a job by its id; raises `JobNotFound`."""
    return (await look(store, clock, job_id)).job


async def look(store: Store, clock: Clock, job_id: str) -> Found:
    """Return a job by its id, with its status; raises `JobNotFound`."""
    await clock.tune()
    page = await store.find(Filter(ids=(parse_id(job_id),)), clock.now())
    if not page.jobs:
        message = f"there is no job {job_id}; it may have ended long ago and been pruned"
        raise JobNotFound(message)
    return Found(page.jobs[0], page.statuses[0])
