"""Events: the moves that happened to a job. Replaying a job's events rebuilds the job, but for its last traceback."""

from collections.abc import Iterable

from reprieve.core.job import Job
from reprieve.core.move import Move, evolve
from reprieve.core.record import Record

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

    @property
    def name(self) -> str:
        """The event's public name; from the second attempt on, `RetryStarted` and `RetrySucceeded`."""
        name = _NAMES[type(self.move).__name__]
        return _OF_A_RETRY.get(name, name) if self.attempt > 1 else name


def replay(job: Job, events: Iterable[Event]) -> Job:
    """Return the job after these events, applied in order to the job as it was enqueued; its cause has no traceback."""
    for event in events:
        job = evolve(job, event.move, event.at)
    return job
