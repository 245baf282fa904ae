"""A dead-letter entry: a dead job in the words of the people who work with it. Its reason is never missing."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, TypeAlias

import msgspec

from reprieve.core.job import Death, Job
from reprieve.core.record import Record
from reprieve.errors import InvalidDeadLetter

TTL = 7 * 86_400_000
"""Milliseconds for which an entry is kept before it is archived."""

MAX_SIZE = 10_000
"""Entries of a queue that are kept before the oldest are archived."""

Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""A moment that says its time zone."""

_MAY_NEVER_HAVE_RUN: frozenset[Death] = frozenset({"expired", "undecodable", "manual"})


class DeadLetter(Record, omit_defaults=False):
    """One entry, as it is listed, exported and archived; moments are ISO 8601 on the wire, `ttl` milliseconds."""

    job_id: str
    outbox_id: str = ""
    company_id: str
    original_data: object
    failed_attempts: int
    last_failure_reason: str
    last_failure_code: str | None = None
    last_failure_timestamp: Moment
    enqueued_at: Moment
    moved_at: Moment = msgspec.field(name="movedToDLQAt")
    ttl: int = TTL
    reason_kind: Death = "exhausted"

    def __post_init__(self) -> None:
        """Refuse an entry that would leave the person who finds it in the dark."""
        least = 0 if self.reason_kind in _MAY_NEVER_HAVE_RUN else 1
        if not self.last_failure_reason.strip():
            message = "lastFailureReason is missing; say why the job died"
        elif not self.job_id.strip():
            message = "jobId is missing; say which job died"
        elif self.failed_attempts < least:
            message = f"failedAttempts is {self.failed_attempts}; a job that died as {self.reason_kind} has failed"
        elif self.ttl <= 0:
            message = f"ttl is {self.ttl}; give the milliseconds for which the entry is kept"
        else:
            return
        raise InvalidDeadLetter(message)


def entry_of(job: Job, original_data: object, ttl: int = TTL) -> DeadLetter:
    """Describe a dead job; `original_data` is its payload, decoded."""
    if job.death is None or job.cause is None or job.finished_at is None:
        message = f"job {job.id} is {job.state}, not dead"
        raise InvalidDeadLetter(message)
    moved_at = _moment(job.finished_at)
    return DeadLetter(
        job_id=job.id,
        outbox_id=job.key,
        company_id=job.tenant,
        original_data=original_data,
        failed_attempts=job.charged + job.spared + job.crashes,
        last_failure_reason=job.cause.reason,
        last_failure_code=job.cause.code or None,
        last_failure_timestamp=moved_at if job.failed_at is None else _moment(job.failed_at),
        enqueued_at=_moment(job.created_at),
        moved_at=moved_at,
        ttl=ttl,
        reason_kind=job.death,
    )


def validate_dlq_entry(entry: Mapping[str, object]) -> DeadLetter:
    """Read an entry from its JSON, and refuse one without a reason or with fields of the wrong kind."""
    try:
        return msgspec.convert(dict(entry), DeadLetter)
    except msgspec.ValidationError as error:
        message = f"the dead-letter entry cannot be read: {error}"
        raise InvalidDeadLetter(message) from error


def _moment(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1_000, UTC)
