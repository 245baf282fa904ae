"""How an attempt ended, as reported by the worker, or by recovery when the worker died."""

from typing import TypeAlias

from reprieve.core.failure import Failure
from reprieve.core.job import Job
from reprieve.core.record import Record
from reprieve.core.verdict import Verdict

_UNDECODABLE, _DEADLINE = "undecodable", "deadline"


class Succeeded(Record, tag=True):
    """The task returned."""

    result: bytes | None = None


class Failed(Record, tag=True):
    """The task raised, ran out of time, or could not be started; the verdict classifies the failure."""

    failure: Failure
    verdict: Verdict
    retry_in: float | None = None
    """Seconds that the task itself asked to wait."""
    duration: float | None = None
    """Seconds that the attempt took."""

    @property
    def is_undecodable(self) -> bool:
        """Whether the task was not called, because its name or its arguments could not be resolved."""
        return self.verdict.rule == _UNDECODABLE

    @property
    def is_expired(self) -> bool:
        """Whether the attempt was stopped because the job's deadline passed."""
        return self.verdict.rule == _DEADLINE


class Snoozed(Record, tag=True):
    """The task asked to run again later. This is not a failure."""

    delay: float


class Stopped(Record, tag=True):
    """The task cancelled itself, or a person cancelled it while it ran."""

    reason: str = ""


class Interrupted(Record, tag=True):
    """The worker returned the job unfinished, because it is stopping; `started` is false for a prefetched job."""

    started: bool = True


class Crashed(Record, tag=True):
    """The process died that held the job; `started` is false for a job that it had only prefetched."""

    started: bool = True
    alone: bool = False
    """Whether the process ran no other job, and its worker outlived it: nothing but the job is likely to blame."""


Outcome: TypeAlias = Succeeded | Failed | Snoozed | Stopped | Interrupted | Crashed


def undecodable(message: str) -> Failed:
    """Return the outcome of a job whose payload cannot be decoded or whose task is unknown: no attempt can succeed."""
    failure = Failure(message=message, code=_UNDECODABLE)
    return Failed(failure=failure, verdict=Verdict(kind="permanent", code=_UNDECODABLE, rule=_UNDECODABLE))


def overran(job: Job, timeout: float, now: int) -> Failed:
    """Return the outcome of an attempt that was stopped at its timeout or at the job's deadline.

    After a timeout, most often the dependency is slow. A deadline says nothing about the dependency.
    """
    if job.deadline_at is not None and job.deadline_at <= now:
        late = Failure(message="its deadline passed while it ran", code="expired")
        return Failed(failure=late, verdict=Verdict(kind="transient", code="expired", rule=_DEADLINE))
    failure = Failure(message=f"timed out after {timeout:g} s", types=("TimeoutError",), code="timeout")
    return Failed(
        failure=failure, verdict=Verdict(kind="transient", scope="dependency", code="timeout", rule="timeout")
    )
