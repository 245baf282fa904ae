"""A job in a table, on a page, and its attempts."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from reprieve.cli.output import Cell
from reprieve.core.attempt import Attempt
from reprieve.core.duration import spell
from reprieve.core.job import Job
from reprieve.core.status import Status, status_of
from reprieve.views.jobs import payload_of
from reprieve.views.waiting import waits_for

COLUMNS = ("job", "task", "tenant", "status", "attempt", "when", "why")

COLOURS: dict[Status, str] = {
    "ready": "cyan",
    "scheduled": "blue",
    "retrying": "yellow",
    "parked": "magenta",
    "running": "bold",
    "stuck": "bold red",
    "succeeded": "green",
    "dead": "red",
    "cancelled": "dim",
}

LONGEST = 60
"""Characters of a reason in a table."""


def row_of(job: Job, now: int) -> list[Cell]:
    """Answer a job as one row."""
    reason = job.cause.reason if job.cause is not None and job.state != "succeeded" else ""
    return [
        (job.id, "cyan"),
        job.task,
        job.tenant,
        _status(job, now),
        _attempts(job),
        _when(job, now),
        reason if len(reason) <= LONGEST else f"{reason[: LONGEST - 1]}…",
    ]


def facts_of(job: Job, now: int, progress: bytes | None) -> Iterator[tuple[str, Cell]]:
    """Answer everything about a job that people want to see."""
    yield "job", (job.id, "cyan")
    yield "task", job.task
    yield "arguments", json.dumps(payload_of(job), ensure_ascii=False)
    yield "status", _status(job, now)
    yield "when", _when(job, now)
    yield "queue", job.queue
    yield "tenant", job.tenant
    yield "dependency", job.dependency
    yield "parked on", job.parked_on
    yield "waits for", waits_for(job, now)
    yield "group", job.group
    yield "key", job.key
    yield "priority", str(job.priority)
    yield "attempts", _attempts(job)
    yield "charged", f"{job.charged} of {job.limit or '∞'}, {job.spared} spared"
    yield "crashes", str(job.crashes) if job.crashes else ""
    yield "snoozes", str(job.snoozes) if job.snoozes else ""
    yield "created", f"{_ago(now - job.created_at)} ago"
    yield "deadline", "" if job.deadline_at is None else _relative(job.deadline_at, now)
    yield "worker", job.session
    yield "progress", "" if progress is None else progress.decode("utf-8", "replace")
    if job.cancel_request is not None:
        yield "to be cancelled", f"asked by {job.cancel_request.by}: {job.cancel_request.reason}"
    yield "death", (job.death or "", "red")
    if job.cause is not None:
        yield "last error", job.cause.reason
        yield "error code", job.cause.code
        yield "error kind", job.cause.kind


def row_of_attempt(attempt: Attempt) -> list[Cell]:
    """Answer one attempt as a row."""
    ended = "" if attempt.ended_at is None else moment(attempt.ended_at)
    reason = attempt.cause.reason if attempt.cause is not None else ""
    return [str(attempt.number), ended, attempt.ended_with or "running", reason]


def _status(job: Job, now: int) -> Cell:
    status = status_of(job, now, held=bool(job.parked_on))
    return status, COLOURS[status]


def _attempts(job: Job) -> str:
    return f"{job.attempt}/{job.limit}" if job.limit is not None else str(job.attempt)


def _when(job: Job, now: int) -> str:
    if job.finished_at is not None:
        return f"ended {_relative(job.finished_at, now)}"
    if job.leased_at is not None:
        return f"started {_relative(job.leased_at, now)}"
    return f"due {_relative(job.due_at, now)}"


def _relative(at: int, now: int) -> str:
    return f"in {_ago(at - now)}" if at > now else f"{_ago(now - at)} ago"


def _ago(length: int) -> str:
    seconds = length / 1_000
    return spell(round(seconds, 3) if seconds < 1 else float(round(seconds)))


def moment(at: int) -> str:
    """Answer an instant as people write it, in UTC."""
    return datetime.fromtimestamp(at / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
