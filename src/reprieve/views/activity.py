"""What a job that has not ended is doing, in a clause: for errors about jobs that were awaited in vain."""

from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.views.moments import both, length
from reprieve.views.waiting import waits_for


def activity(job: Job, status: Status, now: int) -> str:
    """Return what a job that waits or runs is doing, and what it waits for."""
    failed = "" if job.cause is None else f" after a failure ({job.cause.reason})"
    match status:
        case "running" | "stuck":
            since = "" if job.leased_at is None else f" for {length(max(0, now - job.leased_at))}"
            return f"it is {status}, attempt {job.attempt} on {job.session}{since}"
        case "parked":
            return f"it is parked on {waits_for(job, status, now)}"
        case "scheduled" | "retrying":
            return f"it is {status}{failed} and starts at {both(job.due_at, now)}"
        case _:
            return f"it is {status}{failed} in queue {job.queue!r}, and no worker has taken it yet"
