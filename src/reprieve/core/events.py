"""Events: the moves that happened to a job. Replaying a job's events rebuilds the job, but for its last traceback."""

from collections.abc import Iterable

from reprieve.core.job import Job
from reprieve.core.move import Enqueue, Move, Start, evolve
from reprieve.core.record import Record
from reprieve.errors import MissingEvents

_NAMES = {
    "Enqueue": "JobEnqueued",
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
    """One move of one job, or its enqueue. `attempt` and `version` are those after it."""

    job_id: str
    at: int
    attempt: int
    version: int
    move: Move | Enqueue
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


def name_of(move: type[Move | Enqueue], attempt: int) -> str:
    """Return the public name of the event of such a move that ended with this attempt."""
    name = _NAMES[move.__name__]
    return _OF_A_RETRY.get(name, name) if attempt > 1 else name


def enqueued(job: Job) -> Event:
    """Return the event of a job's enqueue, which happened when the job was created."""
    return _event(job, Enqueue(), job.created_at)


def started(job: Job) -> Event:
    """Return the event of the start of a job that runs."""
    return _event(job, Start(session=job.session), job.leased_at or 0)


def _event(job: Job, move: Move | Enqueue, at: int) -> Event:
    return Event(
        job_id=job.id,
        at=at,
        attempt=job.attempt,
        version=job.version,
        move=move,
        queue=job.queue,
        tenant=job.tenant,
        task=job.task,
    )


def replay(job: Job, events: Iterable[Event]) -> Job:
    """Return the job after these events, applied in order to the job as it was enqueued; its cause has no traceback.

    A start need not be among them: the event that ended the attempt says when it began, and in which session. Raises
    `MissingEvents` when another move is missing.
    """
    for event in events:
        is_late = isinstance(event.move, Start) and event.version <= job.version
        if isinstance(event.move, Enqueue) or is_late:
            # A worker tells a start with its next claim; another change may have ended the attempt by then.
            continue
        if event.version == job.version + 2 and event.started_at is not None and job.state == "waiting":
            job = evolve(job, Start(session=event.session), event.started_at)
        if event.version != job.version + 1:
            message = (
                f"the events of job {job.id} between versions {job.version} and {event.version} are not kept any more"
            )
            raise MissingEvents(message)
        job = evolve(job, event.move, event.at)
    return job
