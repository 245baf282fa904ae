"""The running job, as the task that runs it sees it."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from types import MappingProxyType

from reprieve.config import Settings
from reprieve.core.headers import NO_HEADERS
from reprieve.core.job import Job
from reprieve.errors import NotRunning, PayloadTooLarge
from reprieve.json_data import dump

MAX_PROGRESS_BYTES = Settings().largest_payload
"""Bytes of progress that a store accepts by default."""


class Running:
    """The job that is running, as its task sees it."""

    __slots__ = ("_max_progress_bytes", "_note", "begin", "is_stopping", "job", "thread")

    def __init__(
        self, job: Job, note: Callable[[Job, bytes], None], max_progress_bytes: int = MAX_PROGRESS_BYTES
    ) -> None:
        """Take the job as it was leased, the function that stores its progress, and the limit of that in bytes."""
        self.job = job
        self.is_stopping = False
        """Whether the attempt should end: it was cancelled, ran out of time, or the worker stops. A function in a
        thread cannot be interrupted; it should check this from time to time, and return."""
        self.thread: Future[object] | None = None
        """The function in its thread, if the attempt runs in one: it may outlast the attempt."""
        self.begin: Callable[[], None] | None = None
        """Called when the attempt begins in a process of its own: its timeout counts from there."""
        self._note = note
        self._max_progress_bytes = max_progress_bytes

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def tenant(self) -> str:
        """The tenant that the job belongs to."""
        return self.job.tenant

    @property
    def attempt(self) -> int:
        """Which attempt this is, counted from 1."""
        return self.job.attempt

    @property
    def tags(self) -> tuple[str, ...]:
        """The job's tags."""
        return (self.job.headers or NO_HEADERS).tags

    @property
    def user(self) -> str:
        """The person or account that the job is done for."""
        return (self.job.headers or NO_HEADERS).user

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of your own that the job was enqueued with."""
        return MappingProxyType((self.job.headers or NO_HEADERS).own)

    @property
    def traceparent(self) -> str:
        """The W3C trace context in which the job was enqueued; empty if there was none."""
        return (self.job.headers or NO_HEADERS).traceparent

    @property
    def tracestate(self) -> str:
        """What tracing systems keep beside the `traceparent`."""
        return (self.job.headers or NO_HEADERS).tracestate

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt of this job, and in no other job: pass it to a service that must not act twice."""
        return self.job.id

    @property
    def fencing_token(self) -> int:
        """Higher in every attempt than in those before: a service that has seen a higher one can refuse this one."""
        return self.job.version

    def progress(self, value: object) -> None:
        """Note how far the job has come, as anything that JSON can hold.

        Of several notes in quick succession only the last may be stored. Raises `PayloadTooLarge`.
        """
        data = dump(value, "progress")
        if len(data) > self._max_progress_bytes:
            message = (
                f"the progress of job {self.id} has {len(data):,} bytes, and the store takes "
                f"{self._max_progress_bytes:,}; note less, or a reference to it"
            )
            raise PayloadTooLarge(message)
        self.note(data)

    def note(self, data: bytes) -> None:
        """Note how far the job has come, as encoded JSON."""
        self._note(self.job, data)


_current: ContextVar[Running] = ContextVar("reprieve_current_job")


def current_job() -> Running:
    """Return the job that is running; raises `NotRunning` outside of a task."""
    try:
        return _current.get()
    except LookupError:
        message = "no job runs here; call current_job() inside a task that a worker runs"
        raise NotRunning(message) from None


def running_job() -> Running | None:
    """Return the job that is running; None outside of a task."""
    return _current.get(None)


def enter(running: Running) -> None:
    """Make a job the current one, for the rest of this context."""
    _current.set(running)
