"""The running job, as the task that runs it sees it."""

from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar

from reprieve.codec import dump
from reprieve.config import Settings
from reprieve.core.job import Job
from reprieve.errors import NotRunning, PayloadTooLarge

LARGEST_PROGRESS = Settings().largest_payload
"""Bytes of progress that a store accepts unless it is told otherwise."""


class Running:
    """The job that is being run, and what its task can do with it."""

    __slots__ = ("_largest_progress", "_note", "begin", "is_stopping", "job", "thread")

    def __init__(self, job: Job, note: Callable[[Job, bytes], None], largest_progress: int = LARGEST_PROGRESS) -> None:
        """Take the job as it was leased, what takes its progress, and how many bytes of it."""
        self.job = job
        self.is_stopping = False
        """Whether the attempt should end: it was cancelled, ran out of time, or the worker stops. A function in a
        thread cannot be interrupted: one that looks at this now and then ends in good order."""
        self.thread: Future[object] | None = None
        """What runs in a thread, if the attempt does: it may outlast the attempt."""
        self.begin: Callable[[], None] | None = None
        """What wants to know when the attempt begins in a process of its own: its time counts from there."""
        self._note = note
        self._largest_progress = largest_progress

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def tenant(self) -> str:
        """Whose job it is."""
        return self.job.tenant

    @property
    def attempt(self) -> int:
        """Which attempt this is, counted from 1."""
        return self.job.attempt

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt of this job, and in no other job: hand it to whoever must not act twice."""
        return self.job.id

    @property
    def fencing_token(self) -> int:
        """Higher in every attempt than in those before: whoever has seen a higher one can refuse this one."""
        return self.job.version

    def progress(self, value: object) -> None:
        """Say how far the job has come, with anything that JSON can hold; what is said quickly is stored at times.

        Raises `PayloadTooLarge` for more than the store takes.
        """
        data = dump(value, "progress")
        if len(data) > self._largest_progress:
            message = (
                f"the progress of job {self.id} has {len(data):,} bytes, and the store takes "
                f"{self._largest_progress:,}; say less, or a reference to it"
            )
            raise PayloadTooLarge(message)
        self.note(data)

    def note(self, data: bytes) -> None:
        """Say how far the job has come, in JSON."""
        self._note(self.job, data)


_current: ContextVar[Running] = ContextVar("reprieve_current_job")


def current_job() -> Running:
    """Return the job that this code runs for."""
    try:
        return _current.get()
    except LookupError:
        message = "no job runs here; current_job() answers inside a task that a worker runs"
        raise NotRunning(message) from None


def running_job() -> Running | None:
    """Return the job that this code runs for; None outside of a task."""
    return _current.get(None)


def enter(running: Running) -> None:
    """Make a job the current one, for the rest of this context."""
    _current.set(running)
