"""A dead-letter entry: a dead job as it is listed, exported and archived. It always has a reason."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, TypeAlias

import msgspec

from reprieve.core.job import Death, Job
from reprieve.core.record import Record
from reprieve.errors import InvalidDeadLetter

TTL_MS = 7 * 86_400_000
"""Milliseconds for which an entry is kept before it is archived."""

MAX_ENTRIES = 10_000
"""Entries that a queue keeps before the oldest are archived."""

Time: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its time zone."""

_MAY_NEVER_HAVE_RUN: frozenset[Death] = frozenset({"expired", "undecodable", "unknown_task", "manual"})


class DeadLetter(Record, omit_defaults=False):
    """One entry, as it is listed, exported and archived; times are ISO 8601 in JSON, `ttl` is in milliseconds."""

    job_id: str
    outbox_id: str = ""
    company_id: str
    original_data: object
    failed_attempts: int
    last_failure_reason: str
    last_failure_code: str | None = None
    last_failure_timestamp: Time
    enqueued_at: Time
    moved_at: Time = msgspec.field(name="movedToDLQAt")
    ttl: int = TTL_MS
    reason_kind: Death = "exhausted"

    def __post_init__(self) -> None:
        """Refuse an entry without a reason, a job or a plausible count of failures."""
        least = 0 if self.reason_kind in _MAY_NEVER_HAVE_RUN else 1
        if not self.last_failure_reason.strip():
            message = "lastFailureReason must say why the job died, got an empty text"
        elif not self.job_id.strip():
            message = "jobId must name the job that died, got an empty text"
        elif self.failed_attempts < least:
            message = f"failedAttempts ({self.reason_kind}) must be {least} or more, got {self.failed_attempts}"
        elif self.ttl <= 0:
            message = f"ttl must be a positive number of milliseconds, got {self.ttl}"
        else:
            return
        raise InvalidDeadLetter(message)


def entry_of(job: Job, original_data: object, ttl: int = TTL_MS) -> DeadLetter:
    """Return the entry of a dead job; `original_data` is its decoded payload."""
    if job.death is None or job.cause is None or job.finished_at is None:
        message = f"job {job.id} is {job.state}, not dead"
        raise InvalidDeadLetter(message)
    moved_at = _time(job.finished_at)
    return DeadLetter(
        job_id=job.id,
        outbox_id=job.key,
        company_id=job.tenant,
        original_data=original_data,
        failed_attempts=job.charged + job.spared + job.crashes,
        last_failure_reason=job.cause.reason,
        last_failure_code=job.cause.code or None,
        last_failure_timestamp=moved_at if job.failed_at is None else _time(job.failed_at),
        enqueued_at=_time(job.created_at),
        moved_at=moved_at,
        ttl=ttl,
        reason_kind=job.death,
    )


def validate_dlq_entry(entry: Mapping[str, object]) -> DeadLetter:
    """Return the entry that this JSON holds; raise `InvalidDeadLetter` if a field is missing or has the wrong type."""
    try:
        return msgspec.convert(dict(entry), DeadLetter)
    except msgspec.ValidationError as error:
        message = f"the dead-letter entry cannot be read: {error}"
        raise InvalidDeadLetter(message) from error


def _time(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1_000, UTC)
