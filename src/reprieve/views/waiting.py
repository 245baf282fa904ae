"""What a parked job waits for, in a sentence."""

from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.views.moments import clock_time, length


def waits_for(job: Job, status: Status, now: int) -> str:
    """Return what a parked job waits for, since when, and when it is tried again; empty when it is not parked."""
    if status != "parked":
        return ""
    if job.waiting_for != "gate" or job.cause is None:
        return job.parked_on or job.dependency or job.group or job.task
    since_at = now if job.parked_since_at is None else job.parked_since_at
    # A dependency that asks to slow down does respond.
    what = "it asks to wait since" if job.cause.kind == "throttled" else "no answer since"
    since = f"{what} {clock_time(since_at, now)} ({length(now - since_at)})"
    again = f"next try in {length(job.due_at - now)}" if job.due_at > now else "next try as soon as its gate lets it"
    return f"{job.parked_on}: {job.cause.reason}; {since}, {again}"
