"""Cancel: a person gives a job up. One that runs is asked to stop, and ends as soon as it does."""

from typing import Literal, TypeAlias

from reprieve.admin.look import get
from reprieve.clock import Clock
from reprieve.core import change
from reprieve.core.change import Request
from reprieve.core.job import CancelRequest
from reprieve.errors import ConcurrentModification, InvalidState
from reprieve.stores.protocol import Annotation, Store

TRIES = 5

Cancelled: TypeAlias = Literal["cancelled", "stopping"]
"""It will never run; or it runs, and its worker was asked to stop it."""


async def cancel(store: Store, clock: Clock, job_id: str, request: Request) -> Cancelled:
    """Give up a job that waits, or ask the worker of one that runs to stop it."""
    for _ in range(TRIES):
        job = await get(store, clock, job_id)
        now = clock.now()
        if job.state not in ("waiting", "running"):
            message = f"job {job_id} is {job.state}; only a job that waits or runs can be cancelled"
            raise InvalidState(message)
        if job.state == "running":
            wish = CancelRequest(by=request.by, reason=request.reason)
            (is_asked,) = await store.annotate([Annotation(job_id=job.id, now=now, cancel=wish)])
            if is_asked:
                return "stopping"
            continue
        (answer,) = await store.apply([change.cancel(job, request, now)], now)
        if answer in ("applied", "already"):
            return "cancelled"
    message = f"job {job_id} keeps changing; somebody else is at work on it"
    raise ConcurrentModification(message)
