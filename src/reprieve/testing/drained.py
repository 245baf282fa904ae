"""The result of a drain, for assertions."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from reprieve import signals
from reprieve.core.change import Change
from reprieve.core.job import Job
from reprieve.core.move import (
    Cancel,
    Dead,
    Enqueue,
    ManualRetry,
    Move,
    Park,
    Retry,
    Return,
    Revive,
    Snooze,
    Start,
    Succeed,
)
from reprieve.errors import ReprieveError

Ending: TypeAlias = Literal["succeeded", "retried", "parked", "dead", "cancelled", "snoozed", "returned"]
"""How an attempt was settled; a job is returned when its worker could not finish it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """One attempt, and how it was settled."""

    job: Job
    """The job after the attempt."""
    ending: Ending
    error: BaseException | None = None
    """What the task raised, if it did."""

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.job.task

    @property
    def reason(self) -> str:
        """Why it failed; empty when it did not."""
        return self.job.cause.reason if self.ending in ("retried", "parked", "dead") and self.job.cause else ""

    def __repr__(self) -> str:
        """Return it in one line."""
        why = f": {self.reason}" if self.reason else ""
        return f"<{self.task} {self.job.id} {self.ending} after attempt {self.job.attempt}{why}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """Every attempt that a drain made, in order, and how many ended in which way."""

    attempts: tuple[Attempted, ...] = ()
    waiting: int = 0
    """Jobs that still wait: for a later time, or for a person to resume or release them."""

    def __repr__(self) -> str:
        """Return what happened, one attempt in a line."""
        lines = "".join(f"\n  {attempt!r}" for attempt in self.attempts)
        return f"<{self.ran} ran, {self.waiting} still waiting{lines}>"

    @property
    def ran(self) -> int:
        """How many attempts were made."""
        return len(self.attempts)

    @property
    def succeeded(self) -> int:
        """How many attempts succeeded."""
        return self._count("succeeded")

    @property
    def retried(self) -> int:
        """How many attempts failed and were scheduled again."""
        return self._count("retried")

    @property
    def parked(self) -> int:
        """How many attempts were parked until their dependency is back."""
        return self._count("parked")

    @property
    def dead(self) -> int:
        """How many attempts were the last of their job, which is a dead letter now."""
        return self._count("dead")

    @property
    def cancelled(self) -> int:
        """How many attempts ended with the cancellation of their job."""
        return self._count("cancelled")

    @property
    def snoozed(self) -> int:
        """How many attempts asked to be called again later."""
        return self._count("snoozed")

    def _count(self, ending: Ending) -> int:
        return sum(attempt.ending == ending for attempt in self.attempts)


def attempted(change: Change, error: BaseException | None) -> Attempted:
    """Return an attempt by the change that settles it."""
    return Attempted(job=change.job, ending=_ending_of(change.event.move), error=error)


def failure_of(attempt: Attempted) -> BaseException | None:
    """Return what a failed attempt raised, or an error that says why it failed; None when it did not fail."""
    error = attempt.error
    signal = None if error is None else signals.signal_in(error)
    if error is not None and (signal is None or isinstance(signal, signals.Retry | signals.Fail)):
        return error
    if attempt.reason:
        return ReprieveError(f"job {attempt.job.id} of {attempt.task} is {attempt.ending}: {attempt.reason}")
    return None


def _ending_of(move: Move | Enqueue) -> Ending:
    match move:
        case Succeed():
            return "succeeded"
        case Retry():
            return "retried"
        case Park():
            return "parked"
        case Dead():
            return "dead"
        case Cancel():
            return "cancelled"
        case Snooze():
            return "snoozed"
        case Return():
            return "returned"
        case Enqueue() | Start() | ManualRetry() | Revive():
            message = f"no attempt ends with {type(move).__name__}"
            raise AssertionError(message)
        case _:
            assert_never(move)
