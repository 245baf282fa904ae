"""Annotations of running jobs: cancel requests and progress, which do not change the version of a job."""

from collections.abc import Sequence

from reprieve.core.job import CancelRequest
from reprieve.stores.postgres.claim_lock import ClaimLock
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Annotation, cancel_requested
from reprieve.stores.record import pack_cancel_request, unpack_cancel_request
from reprieve.stores.sql.audit import record_audit


def cancels(tx: Tx) -> dict[str, CancelRequest]:
    """Return the cancel requests of running jobs, by job."""
    return {job: unpack_cancel_request(packed) for job, packed in tx.all(statements("annotations")["cancels"])}


def annotate(tx: Tx, lock: ClaimLock, requests: Sequence[Annotation]) -> list[bool]:
    """Store cancel requests and progress of running jobs; return for each whether its job runs."""
    sql = statements("annotations")
    lock.acquire(tx)
    held = [
        tx.execute(
            sql["is_held_by" if request.session else "is_held"], {"id": request.job_id, "session": request.session}
        )
        for request in requests
    ]
    running = []
    for request, result in zip(requests, held, strict=True):
        (is_running,) = result.one() or (False,)
        if is_running:
            cancel = None
            if request.cancel is not None:
                cancel = pack_cancel_request(request.cancel)
                for queue, tenant in tx.all(sql["unrequested"], {"id": request.job_id}):
                    entry = cancel_requested(request, request.cancel, tenant=tenant, queue=queue)
                    record_audit(tx, statements("audit"), (entry,))
            tx.execute(sql["annotate"], {"id": request.job_id, "cancel": cancel, "progress": request.progress})
        running.append(is_running)
    return running
