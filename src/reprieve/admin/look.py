"""Looking up one job, or saying that there is none."""

from reprieve.clock import Clock
from reprieve.core.ids import parse_id
from reprieve.core.job import Job
from reprieve.errors import JobNotFound
from reprieve.stores.protocol import Filter, Store


async def get(store: Store, clock: Clock, job_id: str) -> Job:
    """Answer a job by its id; raises `JobNotFound`."""
    await clock.tune()
    page = await store.find(Filter(ids=(parse_id(job_id),)), clock.now())
    if not page.jobs:
        message = f"there is no job {job_id}; it may have ended long ago and been pruned"
        raise JobNotFound(message)
    return page.jobs[0]
