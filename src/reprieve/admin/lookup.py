"""Looking up one job by its id, for an action of a person."""

from typing import NamedTuple

from reprieve.clock import Clock
from reprieve.core.ids import parse_id
from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.errors import ConcurrentModification, JobNotFound
from reprieve.stores.protocol import Filter, Store

MAX_TRIES = 5
"""How often an action reads a job and tries to change it before it gives up: each time another process was first."""


class Found(NamedTuple):
    """A job, and its status in the store: a job whose gate is held is parked."""

    job: Job
    status: Status


async def get_job(store: Store, clock: Clock, job_id: str) -> Job:
    """Return a job by its id; raises `JobNotFound`."""
    return (await find_job(store, clock, job_id)).job


async def find_job(store: Store, clock: Clock, job_id: str) -> Found:
    """Return a job by its id, with its status; raises `JobNotFound`."""
    await clock.tune()
    page = await store.find(Filter(ids=(parse_id(job_id),)), clock.now())
    if not page.jobs:
        message = f"there is no job {job_id}; it may have ended long ago and been pruned"
        raise JobNotFound(message)
    return Found(page.jobs[0], page.statuses[0])


def kept_changing(job_id: str) -> ConcurrentModification:
    """Return the error of an action that gives up after `MAX_TRIES`."""
    message = f"another process changed job {job_id} {MAX_TRIES} times while it was being changed here; try again"
    return ConcurrentModification(message)
