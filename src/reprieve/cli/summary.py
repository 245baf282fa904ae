"""A job as a page of facts, and as a row of a table."""

import json
from collections.abc import Iterator

from reprieve.cli.output import Cell
from reprieve.cli.table import Column
from reprieve.core.duration import spell
from reprieve.core.headers import NO_HEADERS
from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.views.jobs import payload_of
from reprieve.views.moments import both, clock_time, lasting, length, roughly
from reprieve.views.waiting import waits_for

COLUMNS = (
    Column("job"),
    Column("task", shrinks="start", min_width=8, weight=2),
    Column("tenant", shrinks="middle", min_width=6, is_optional=True),
    Column("status"),
    Column("charged"),
    Column("spared", is_optional=True),
    Column("when"),
    Column("why", shrinks="end", min_width=8, weight=2),
)
"""What a list shows of each job. `charged` shows charged failures and the limit."""

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


def row_of(job: Job, status: Status, now: int, name: str) -> list[Cell]:
    """Return a job as one row of a list; `name` is its id as shown."""
    return [
        (name, "cyan"),
        job.task,
        job.tenant,
        (status, COLOURS[status]),
        f"{job.charged}/{job.limit or '∞'}",
        str(job.spared) if job.spared else "",
        _when(job, status, now),
        _why(job, status, now),
    ]


def facts_of(job: Job, status: Status, now: int, progress: bytes | None) -> Iterator[tuple[str, Cell]]:
    """Yield the facts about a job as names and values; empty values are not printed."""
    yield "job", (job.id, "cyan")
    yield "task", job.task
    yield "arguments", _arguments(payload_of(job))
    yield "status", (status, COLOURS[status])
    yield "attempts", attempts_of(job)
    yield _time_name(job), both(_time(job), now)
    yield "waits for", waits_for(job, status, now)
    yield "queue", job.queue
    yield "tenant", job.tenant
    yield "dependency", job.dependency
    yield "group", job.group
    yield "key", job.key
    yield "priority", str(job.priority)
    yield "crashes", _crashes(job)
    yield "snoozes", str(job.snoozes) if job.snoozes else ""
    yield "deadline", _deadline(job, now)
    yield from _headers_of(job, now)
    yield "worker", job.session
    yield "progress", "" if progress is None else progress.decode("utf-8", "replace")
    yield "death", (job.death or "", "red")
    if job.cause is not None:
        cause = job.cause
        yield "last error", cause.reason
        yield "error type", cause.type
        yield "error code", cause.code
        yield "error kind", f"{cause.kind}, of the {cause.scope}{f', by rule {cause.rule}' if cause.rule else ''}"
        yield "attempt took", "" if cause.duration is None else spell(cause.duration)
        yield "fingerprint", cause.fingerprint


def _crashes(job: Job) -> str:
    """Return how often a worker died with a job, and what was lost since an attempt last ended by itself."""
    if job.suspicion is None:
        return str(job.crashes) if job.crashes else ""
    lost = job.suspicion
    parts = [f"{lost.sessions} worker{'s' * (lost.sessions > 1)}"] if lost.sessions else []
    parts += [f"{lost.processes} process{'es' * (lost.processes > 1)} of its own"] if lost.processes else []
    return f"{job.crashes}; lost since its last attempt that ended: {', '.join(parts)}; it runs alone"


def _deadline(job: Job, now: int) -> str:
    """Return until when a job may run, how long that is, and since when it counts if that is not the enqueue."""
    if job.deadline_at is None:
        return ""
    from_at = job.created_at if job.deadline_from_at is None else job.deadline_from_at
    since = "" if job.deadline_from_at is None else f" from {clock_time(from_at, now)}"
    return f"{both(job.deadline_at, now)}, {length(job.deadline_at - from_at)}{since}"


def _headers_of(job: Job, now: int) -> Iterator[tuple[str, Cell]]:
    headers = job.headers or NO_HEADERS
    yield "SLA", _sla(job, now)
    yield "user", headers.user
    yield "tags", ", ".join(headers.tags)
    yield "headers", ", ".join(f"{name}={value}" for name, value in headers.own.items())
    yield "trace", " ".join(filter(None, (headers.traceparent, headers.tracestate)))
    yield "parent", headers.parent
    yield "linked to", headers.linked
    yield "operation", headers.operation
    yield "credits", str(headers.credits) if headers.credits else ""
    yield "region", headers.region


def _sla(job: Job, now: int) -> str:
    """Return until when a job should have ended, and the time left; of an ended job, whether it kept to that."""
    sla_at = (job.headers or NO_HEADERS).sla_at
    if sla_at is None:
        return ""
    if job.finished_at is None:
        return both(sla_at, now)
    late = job.finished_at - sla_at
    return f"{clock_time(sla_at, now)} ({f'missed by {length(late)}' if late > 0 else 'met'})"


def attempts_of(job: Job) -> str:
    """Return the attempts of a job and how they count: `attempt 4, 0 of 5 charged, 4 spared`."""
    tried = f"attempt {job.attempt}" if job.attempt else "not tried yet"
    limit = f"{job.charged} of {job.limit} charged" if job.limit is not None else f"{job.charged} charged, no limit"
    granted = f" ({job.granted} granted)" if job.granted else ""
    return f"{tried}, {limit}{granted}, {job.spared} spared"


def _arguments(payload: object) -> str:
    """Return the arguments as in a Python call; any other payload as JSON."""
    match payload:
        case [list(values), dict(keywords)]:
            parts = [*map(_value, values), *(f"{name}={_value(value)}" for name, value in keywords.items())]
            return ", ".join(parts)
        case _:
            return _value(payload)


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _when(job: Job, status: Status, now: int) -> str:
    """Return when a job is due, started or ended; for a parked job that is due, how long it has waited."""
    if status == "parked" and job.due_at <= now:
        since_at = job.due_at if job.parked_since_at is None else job.parked_since_at
        return lasting(since_at, now)
    return roughly(_time(job), now)


def _time(job: Job) -> int:
    if job.finished_at is not None:
        return job.finished_at
    return job.due_at if job.leased_at is None else job.leased_at


def _time_name(job: Job) -> str:
    if job.finished_at is not None:
        return "ended"
    return "due" if job.leased_at is None else "started"


def _why(job: Job, status: Status, now: int) -> str:
    if job.cause is not None and job.state != "succeeded":
        return job.cause.reason
    return f"waits for {waits_for(job, status, now)}" if status == "parked" else ""
