"""Manual retry: a person runs a job again, and it is known who and why."""

from collections.abc import Callable

from reprieve.admin.look import get
from reprieve.clock import Clock
from reprieve.core import change
from reprieve.core.change import Request
from reprieve.core.job import Job
from reprieve.core.record import Record
from reprieve.errors import ConcurrentModification
from reprieve.stores.protocol import Filter, Store

TRIES = 5
"""How often a job may change under our hands before we give up: each time somebody else has moved it on."""

FURTHEST = 1_000
"""The rank in a lane from which on nobody counts."""

MOST_PAGES = 20
"""How many pages are looked through for a rank at the most."""


class Retried(Record):
    """What a manual retry is answered with."""

    job_id: str
    message: str
    queue_position: str
    """The rank in its lane; "1000+" from there on, empty while the job waits for its time."""


async def retry(
    store: Store, clock: Clock, job_id: str, request: Request, stuck_after: Callable[[Job], float]
) -> Retried:
    """Run a job again: now, or after the request's delay. A retry that was scheduled is replaced in the same write.

    Raises `JobNotFound`, `InvalidRetryState`, `MaxRetriesExceeded`, or `ConcurrentModification` while it runs.
    """
    for _ in range(TRIES):
        job = await get(store, clock, job_id)
        now = clock.now()
        wanted = change.retry(job, request, now, stuck_after(job))
        (answer,) = await store.apply([wanted], now)
        if answer in ("applied", "already"):
            return await _answer(store, clock, wanted.job)
    message = f"job {job_id} keeps changing; somebody else is at work on it"
    raise ConcurrentModification(message)


async def _answer(store: Store, clock: Clock, job: Job) -> Retried:
    if job.due_at > clock.now():
        return Retried(job_id=job.id, message="the job will be retried after its delay", queue_position="")
    position = await _position(store, clock, job)
    return Retried(job_id=job.id, message="the job is queued to be retried", queue_position=position)


async def _position(store: Store, clock: Clock, job: Job) -> str:
    """Return how many jobs of its lane stand before it: those of a higher priority, and the older of its own."""
    lane = Filter(
        queue=job.queue,
        tenant=job.tenant,
        task=job.task,
        dependency=job.dependency,
        statuses=frozenset({"ready", "parked"}),
    )
    ahead, cursor = 0, ""
    for _ in range(MOST_PAGES):
        page = await store.find(lane, clock.now(), cursor)
        ahead += sum((other.priority, other.id) < (job.priority, job.id) for other in page.jobs)
        if ahead >= FURTHEST:
            return f"{FURTHEST}+"
        if not page.cursor:
            return str(ahead + 1)
        cursor = page.cursor
    return f"{ahead + 1}+"
