"""How an attempt ended, as the worker (or recovery, in its place) reports it."""

from typing import TypeAlias

from reprieve.core.failure import Failure
from reprieve.core.record import Record
from reprieve.core.verdict import Verdict


class Succeeded(Record, tag=True):
    """The task returned."""

    result: bytes | None = None


class Failed(Record, tag=True):
    """The task raised, ran out of time, or could not be started; the verdict says what to make of it."""

    failure: Failure
    verdict: Verdict
    retry_in: float | None = None
    """Seconds that the task itself asked to wait."""


class Snoozed(Record, tag=True):
    """The task asked to be called again later: not a failure."""

    delay: float


class Stopped(Record, tag=True):
    """The task gave itself up, or a person cancelled it while it ran."""

    reason: str = ""


class Interrupted(Record, tag=True):
    """The worker gave the job back unfinished, because it stops or never started it."""


class Crashed(Record, tag=True):
    """The worker died with the job in its hands; `started` is false for jobs it had only fetched."""

    started: bool = True


Outcome: TypeAlias = Succeeded | Failed | Snoozed | Stopped | Interrupted | Crashed


def undecodable(message: str) -> Failed:
    """Report a payload that nobody can read, or a task that nobody knows: no attempt can ever succeed."""
    failure = Failure(message=message, code="undecodable")
    return Failed(failure=failure, verdict=Verdict(kind="permanent", code="undecodable", rule="undecodable"))


def overran(timeout: float) -> Failed:
    """Report an attempt that was stopped because it ran for too long: more often its dependency's fault."""
    failure = Failure(message=f"stopped after {timeout:g} s without an end", types=("TimeoutError",), code="timeout")
    return Failed(
        failure=failure, verdict=Verdict(kind="transient", scope="dependency", code="timeout", rule="timeout")
    )
