"""A job as JSON: its record, its status, and the same facts under the names that other systems use."""

import json
from base64 import b64encode
from typing import Any

from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.core.unreadable import unreadable_record
from reprieve.views.fields import all_fields


def view(job: Job, status: Status, *, progress: bytes | None = None) -> dict[str, Any]:
    """Return all fields of a job; instants are in milliseconds. The status is the store's."""
    return all_fields(job) | {
        "payload": payload_of(job),
        "status": status,
        "progress": None if progress is None else json.loads(progress),
        "retryCount": job.retries,
        "maxRetries": None if job.limit is None else job.limit - 1,
        "nextRetryAt": job.due_at if job.state == "waiting" and job.cause is not None else None,
        "lastFailureReason": None if job.cause is None else job.cause.reason,
        "isRetryable": job.state in ("waiting", "running") and job.has_attempts_left,
        "retryType": "MANUAL" if job.is_manual else "AUTOMATIC",
        "lockedBy": job.session or None,
        "lockedAt": job.leased_at,
    }


def payload_of(job: Job) -> object:
    """Return the arguments of a job; a payload that is not JSON is returned as text.

    Of a job whose record cannot be read, return why and the raw record in base64.
    """
    record = unreadable_record(job)
    if record is not None:
        return {"unreadable": record.why, "record": b64encode(record.raw).decode()}
    try:
        return json.loads(job.payload)
    except ValueError:
        return job.payload.decode("utf-8", "replace")
