"""The status that people see: derived from a job's state, the clock and the gates, and never stored."""

from typing import Literal, TypeAlias, assert_never, get_args

from reprieve.core.duration import milliseconds
from reprieve.core.job import Job
from reprieve.core.suggestion import nearest
from reprieve.errors import ValidationError

Status: TypeAlias = Literal[
    "ready", "scheduled", "retrying", "parked", "running", "stuck", "succeeded", "dead", "cancelled"
]

STUCK_AFTER_SECONDS = 30 * 60.0
"""Seconds after which a running job counts as stuck, unless its task says otherwise."""

_WAITING: frozenset[Status] = frozenset({"ready", "scheduled", "retrying", "parked"})
ALIASES: dict[str, frozenset[Status]] = {
    "waiting": _WAITING,
    "pending": _WAITING,
    "queued": _WAITING,
    "delayed": frozenset({"scheduled", "retrying"}),
    "active": frozenset({"running", "stuck"}),
    "processing": frozenset({"running", "stuck"}),
    "completed": frozenset({"succeeded"}),
    "done": frozenset({"succeeded"}),
    "success": frozenset({"succeeded"}),
    "sent": frozenset({"succeeded"}),
    "failed": frozenset({"retrying", "parked", "dead"}),
    "permanently_failed": frozenset({"dead"}),
    "canceled": frozenset({"cancelled"}),
}
"""Status names of other systems, and the statuses that they stand for."""


def status_of(job: Job, now: int, *, held: bool = False, stuck_after: float = STUCK_AFTER_SECONDS) -> Status:
    """Return the status of a job; `held` says that its gate is held."""
    match job.state:
        case "running":
            return "stuck" if is_stuck(job, now, stuck_after) else "running"
        case "waiting":
            return _status_of_waiting(job, now, held=held)
        case _:
            return job.state


def is_stuck(job: Job, now: int, stuck_after: float) -> bool:
    """Whether the job has been running for longer than `stuck_after` seconds and its task's timeout."""
    expected = max(stuck_after, job.timeout or 0.0)
    return job.leased_at is not None and now - job.leased_at >= milliseconds(expected)


def matching(word: str) -> frozenset[Status]:
    """Return the statuses that a word in a filter stands for: a status, or a name from another system."""
    wanted = word.lower()
    if wanted in ALIASES:
        return ALIASES[wanted]
    found = frozenset(status for status in get_args(Status) if status == wanted)
    if not found:
        close = nearest(word, (*get_args(Status), *ALIASES))
        known = f"the statuses are {', '.join(get_args(Status))}; other systems' names are {', '.join(ALIASES)}"
        message = f"{word!r} is not a status; {known if close is None else f'did you mean {close}?'}"
        raise ValidationError(message)
    return found


def _status_of_waiting(job: Job, now: int, *, held: bool) -> Status:
    if job.due_at <= now:
        return "parked" if held else "ready"
    match job.waiting_for:
        case "retry":
            return "retrying"
        case "gate" | "budget":
            return "parked"
        case "turn" | "schedule":
            return "scheduled"
        case _:
            assert_never(job.waiting_for)
