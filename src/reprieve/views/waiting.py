"""What a job waits for, in a sentence: for people who wonder why nothing happens."""

from datetime import UTC, datetime

from reprieve.core.duration import spell
from reprieve.core.job import Job


def waits_for(job: Job, now: int) -> str:
    """Return what a parked job waits for, since when, and when it is tried again; empty when it is not parked."""
    if job.state != "waiting" or job.waiting_for != "gate" or job.cause is None:
        return ""
    since_at = now if job.parked_since_at is None else job.parked_since_at
    silence = f"no answer since {_clock(since_at, now)} ({_length(now - since_at)})"
    again = f"next try in {_length(job.due_at - now)}" if job.due_at > now else "next try as soon as its gate lets it"
    return f"{job.parked_on}: {job.cause.reason}; {silence}, {again}"


def _clock(at: int, now: int) -> str:
    """Return the time of day, with its date unless that is today's; in local time."""
    moment, today = (datetime.fromtimestamp(each / 1_000, UTC).astimezone() for each in (at, now))
    return moment.strftime("%H:%M:%S" if moment.date() == today.date() else "%Y-%m-%d %H:%M:%S")


def _length(milliseconds: int) -> str:
    return spell(float(round(milliseconds / 1_000))) if milliseconds >= 1_000 else "less than 1s"  # noqa: PLR2004 - a second
