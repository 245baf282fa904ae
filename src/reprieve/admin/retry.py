"""Manual retry: a person runs a job again; the job keeps who it was and why."""

from collections.abc import Callable

from reprieve.admin.lookup import MAX_TRIES, find_job, kept_changing
from reprieve.clock import Clock
from reprieve.core import change
from reprieve.core.change import Request
from reprieve.core.job import Job
from reprieve.core.record import Record
from reprieve.stores.protocol import Filter, Store

MAX_POSITION = 1_000
"""The position in a lane from which on positions are not counted."""

MAX_PAGES = 20
"""Pages of jobs that are read to find a position."""


class Retried(Record):
    """The result of a manual retry."""

    job_id: str
    message: str
    queue_position: int
    """The position in its lane, counted up to 1,000; 0 while the job waits for its time."""
    queue_position_is_bounded: bool = False
    """Whether the counting stopped there: the position is at least this."""


async def retry(
    store: Store, clock: Clock, job_id: str, request: Request, stuck_after: Callable[[Job], float]
) -> Retried:
    """Run a job again: now, or after the request's delay. The same write replaces a scheduled retry.

    Raises `JobNotFound`, `InvalidRetryState`, `MaxRetriesExceeded`, or `ConcurrentModification` while it runs.
    """
    for _ in range(MAX_TRIES):
        job, status = await find_job(store, clock, job_id)
        now = clock.now()
        wanted = change.retry(job, request, now, stuck_after(job), held=status == "parked")
        (result,) = await store.apply([wanted], now)
        if result in ("applied", "already"):
            return await _retried(store, clock, wanted.job)
    raise kept_changing(job_id)


async def _retried(store: Store, clock: Clock, job: Job) -> Retried:
    if job.due_at > clock.now():
        return Retried(job_id=job.id, message="the job will be retried after its delay", queue_position=0)
    position, is_bounded = await _position(store, clock, job)
    message = "the job is queued to be retried"
    return Retried(job_id=job.id, message=message, queue_position=position, queue_position_is_bounded=is_bounded)


async def _position(store: Store, clock: Clock, job: Job) -> tuple[int, bool]:
    """Return the position of a job in its lane, and whether the counting stopped there.

    Jobs of higher priority come first, then older ones.
    """
    lane = Filter(
        queues=(job.queue,),
        tenants=(job.tenant,),
        tasks=(job.task,),
        dependencies=(job.dependency,),
        statuses=frozenset({"ready", "parked"}),
    )
    ahead, cursor = 0, ""
    for _ in range(MAX_PAGES):
        page = await store.find(lane, clock.now(), cursor)
        ahead += sum((other.priority, other.id) < (job.priority, job.id) for other in page.jobs)
        if ahead >= MAX_POSITION:
            return MAX_POSITION, True
        if not page.cursor:
            return ahead + 1, False
        cursor = page.cursor
    return ahead + 1, True
