"""Events: the moves that happened to a job. Replaying a job's events rebuilds the job, but for its last traceback."""

from collections.abc import Iterable

from reprieve.core.job import Job
from reprieve.core.move import Move, Start, evolve
from reprieve.core.record import Record
from reprieve.errors import MissingEvents

_NAMES = {
    "Start": "JobStarted",
    "Succeed": "JobSucceeded",
    "Retry": "RetryScheduled",
    "Park": "JobParked",
    "Dead": "JobDied",
    "Snooze": "JobSnoozed",
    "Return": "JobReturned",
    "Cancel": "JobCancelled",
    "ManualRetry": "ManualRetryRequested",
    "Revive": "JobRevived",
}
_OF_A_RETRY = {"JobStarted": "RetryStarted", "JobSucceeded": "RetrySucceeded"}

EVENT_NAMES = frozenset({*_NAMES.values(), *_OF_A_RETRY.values()})
"""The public names of all events."""


class Event(Record):
    """One move of one job. `attempt` and `version` are those after the move."""

    job_id: str
    at: int
    attempt: int
    version: int
    move: Move
    session: str = ""
    """The worker's session whose lease the move ended; empty when the job was not running."""
    started_at: int | None = None
    """When that lease began."""
    queue: str = ""
    tenant: str = ""
    task: str = ""

    @property
    def name(self) -> str:
        """The event's public name; from the second attempt on, `RetryStarted` and `RetrySucceeded`."""
        return name_of(type(self.move), self.attempt)


def name_of(move: type[Move], attempt: int) -> str:
    """Return the public name of the event of such a move that ended with this attempt."""
    name = _NAMES[move.__name__]
    return _OF_A_RETRY.get(name, name) if attempt > 1 else name


def replay(job: Job, events: Iterable[Event]) -> Job:
    """Return the job after these events, applied in order to the job as it was enqueued; its cause has no traceback.

    A start need not be among them: the event that ended the attempt says when it began, and in which session. Raises
    `MissingEvents` when another move is missing.
    """
    for event in events:
        if event.version == job.version + 2 and event.started_at is not None and job.state == "waiting":
            job = evolve(job, Start(session=event.session), event.started_at)
        if event.version != job.version + 1:
            message = (
                f"the events of job {job.id} between versions {job.version} and {event.version} are not kept any more"
            )
            raise MissingEvents(message)
        job = evolve(job, event.move, event.at)
    return job
