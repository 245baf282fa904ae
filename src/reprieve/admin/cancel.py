"""Cancel: a person ends a job. The worker of a running job is asked to stop it."""

from typing import Literal, TypeAlias

from reprieve.admin.lookup import MAX_TRIES, get_job, kept_changing
from reprieve.clock import Clock
from reprieve.core import change
from reprieve.core.change import Request
from reprieve.core.job import CancelRequest
from reprieve.errors import InvalidState
from reprieve.stores.protocol import Annotation, Store

Cancelled: TypeAlias = Literal["cancelled", "stopping"]
"""The job will never run; or it runs, and its worker was asked to stop it."""


async def cancel(store: Store, clock: Clock, job_id: str, request: Request) -> Cancelled:
    """Cancel a job that waits, or ask the worker of a running job to stop it.

    Raises `JobNotFound`, `InvalidState` for a job that has ended, or `ConcurrentModification`.
    """
    for _ in range(MAX_TRIES):
        job = await get_job(store, clock, job_id)
        now = clock.now()
        if job.state not in ("waiting", "running"):
            message = f"job {job_id} is {job.state}; only a job that waits or runs can be cancelled"
            raise InvalidState(message)
        if job.state == "running":
            cancel_request = CancelRequest(by=request.by, reason=request.reason)
            annotation = Annotation(
                job_id=job.id,
                now=now,
                cancel=cancel_request,
                request_id=request.request_id,
                operation=request.operation,
            )
            (is_asked,) = await store.annotate([annotation])
            if is_asked:
                return "stopping"
            continue
        (result,) = await store.apply([change.cancel(job, request, now)], now)
        if result in ("applied", "already"):
            return "cancelled"
    raise kept_changing(job_id)
