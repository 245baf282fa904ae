"""Every exception that Reprieve raises, in one tree, each with a stable `code`.

The Python API, the HTTP API and the command line use the same codes. A message says what happened to which thing and
what to do about it; the facts are attributes.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol


class Enqueued(Protocol):
    """A job that was stored, as its handle knows it."""

    @property
    def id(self) -> str:
        """The id of the job."""
        ...

    @property
    def is_new(self) -> bool | None:
        """Whether the enqueue made the job, since none had its key; None when an outbox cannot know."""
        ...


class ReprieveError(Exception):
    """The root of every error that Reprieve raises."""

    code: ClassVar[str] = "reprieve_error"
    enqueued: Sequence[Enqueued] = ()
    """The jobs that `enqueue_many` had stored before the error, in the order of their calls; the rest can be enqueued
    again. Any other exception that `enqueue_many` raises, such as one of the caller's own, has this attribute as well.
    """


class ValidationError(ReprieveError, ValueError):
    """A value that a person or a program supplied is invalid."""

    code = "validation_error"


class InvalidDuration(ValidationError):
    """A text, number or timedelta that is not a duration."""

    code = "invalid_duration"


class InvalidBackoff(ValidationError):
    """A backoff or jitter whose numbers contradict each other."""

    code = "invalid_backoff"


class InvalidPolicy(ValidationError):
    """A policy that could never run a job, or an invalid override of a policy."""

    code = "invalid_policy"


class UnknownPreset(ValidationError):
    """A preset name that does not exist."""

    code = "unknown_preset"


class InvalidRule(ValidationError):
    """A classification rule that matches nothing, decides nothing, or cannot be read; or a verdict of such a rule."""

    code = "invalid_rule"


class ContradictoryRules(InvalidRule):
    """Two rules match the same failure and disagree about it."""

    code = "contradictory_rules"


class InvalidWindow(ValidationError):
    """A retry window that cannot be read."""

    code = "invalid_window"


class WindowNeverOpens(InvalidWindow):
    """A retry window that is never open."""

    code = "window_never_opens"


class UnknownTimeZone(InvalidWindow):
    """A time zone that is not in the time zone database."""

    code = "unknown_time_zone"


class InvalidBudget(ValidationError):
    """A retry budget with invalid limits."""

    code = "invalid_budget"


class InvalidId(ValidationError):
    """A text that is not a job id."""

    code = "invalid_id"


class AmbiguousId(ValidationError):
    """A part of a job id that matches several jobs."""

    code = "ambiguous_id"


class InvalidDeadLetter(ValidationError):
    """A dead-letter entry without a mandatory field, above all without a reason."""

    code = "invalid_dead_letter"


class InvalidState(ReprieveError):
    """Raised by a task whose own subject is in the wrong state; retrying cannot help."""

    code = "invalid_state"


class IllegalMove(ReprieveError):
    """A change that is not allowed in the state of the job, such as a start of a dead job."""

    code = "illegal_move"


class MissingEvents(ReprieveError):
    """A job cannot be rebuilt, because some of its events are not kept any more."""

    code = "missing_events"


class JobNotFound(ReprieveError):
    """No job has this id."""

    code = "job_not_found"


class InvalidRetryState(ReprieveError):
    """The job is in a state in which it cannot be retried by a person."""

    code = "invalid_retry_state"


class MaxRetriesExceeded(ReprieveError):
    """The job has used all its attempts, and the retry was not forced."""

    code = "max_retries_exceeded"


class ConcurrentModification(ReprieveError):
    """A worker runs the job, or another caller changed it first."""

    code = "concurrent_modification"


class InsufficientCredits(ReprieveError):
    """The tenant does not have the credits for this run of the job."""

    code = "insufficient_credits"

    def __init__(self, *, required: int, available: int) -> None:
        """Keep both sides of the comparison for the caller."""
        super().__init__(f"{required} credits are required and {available} are available; add credits and retry")
        self.required = required
        self.available = available


class InvalidSetting(ValidationError):
    """A setting from the environment or the configuration file that cannot be used."""

    code = "invalid_setting"


class StoreError(ReprieveError):
    """The store could not carry out a call. A call that was not acknowledged can be repeated."""

    code = "store_error"
    is_passing: ClassVar[bool] = True
    """Whether the error is transient: the same call may succeed a little later."""


class InvalidUrl(ValidationError):
    """A store URL that cannot be read."""

    code = "invalid_url"


class InvalidName(ValidationError):
    """A name that is empty, too long, or holds control characters."""

    code = "invalid_name"


class PayloadTooLarge(ValidationError):
    """A payload, result or progress over the limit of the store."""

    code = "payload_too_large"


class InvalidCursor(ValidationError):
    """A cursor that this store did not return."""

    code = "invalid_cursor"


class SessionDead(StoreError):
    """The session is past its lease: the jobs it held may belong to other sessions."""

    code = "session_dead"
    is_passing = False


class StaleCall(StoreError):
    """A call with a lower number than one that the session has made already."""

    code = "stale_call"
    is_passing = False


class StoreLocked(StoreError):
    """Another transaction has held the write lock of the store for too long."""

    code = "store_locked"


class StoreUnreachable(StoreError):
    """The server of the store is not reachable. A call that was not acknowledged may be stored, and can be repeated."""

    code = "store_unreachable"


class StoreReplaced(StoreError):
    """The file of the store was deleted or replaced while it was open. What was not acknowledged can be repeated."""

    code = "store_replaced"


class StoreNotFound(StoreError):
    """No store exists at the URL."""

    code = "store_not_found"
    is_passing = False


class StoreReadOnly(StoreError):
    """The store cannot be written."""

    code = "store_read_only"
    is_passing = False


class StoreRefused(StoreReadOnly):
    """The server refuses this user, password, database or permission; correct the URL or the server."""

    code = "store_refused"


class StoreFull(StoreError):
    """The store is full; nothing of the call was stored."""

    code = "store_full"
    is_passing = False


class StoreCorrupt(StoreError):
    """The store's file is damaged."""

    code = "store_corrupt"
    is_passing = False


class ForeignStore(StoreError):
    """The file or database belongs to another application."""

    code = "foreign_store"
    is_passing = False


class NewerSchema(StoreError):
    """The store was made by a newer release."""

    code = "newer_schema"
    is_passing = False


class UnsafeStore(StoreError):
    """The configuration of the server would lose jobs silently."""

    code = "unsafe_store"
    is_passing = False


class StoreClosed(StoreError):
    """The store was closed."""

    code = "store_closed"
    is_passing = False

    def __init__(self, message: str = "the store was closed; open it again") -> None:
        """Say what was closed; by default, the store."""
        super().__init__(message)


class UnserialisableArgument(ValidationError, TypeError):
    """An argument or result that cannot be stored, or that the function does not take."""

    code = "unserialisable_argument"


class InvalidArgument(ValidationError, TypeError):
    """An argument that does not fit the annotation of its parameter."""

    code = "invalid_argument"

    def __init__(self, message: str, *, parameter: str, expected: str, got: str) -> None:
        """Keep the parameter's name, its annotation, and the name of the value's type."""
        super().__init__(message)
        self.parameter = parameter
        self.expected = expected
        self.got = got


class UndecodablePayload(ReprieveError):
    """A stored payload or result that does not fit the annotations of its task."""

    code = "undecodable_payload"


class InvalidTask(ValidationError):
    """A task with invalid options, or a function that cannot be a task."""

    code = "invalid_task"


class InvalidDependency(ValidationError):
    """A dependency that is not a name, or whose function failed."""

    code = "invalid_dependency"


class DuplicateTask(ReprieveError):
    """Two tasks under one name."""

    code = "duplicate_task"


class UnknownTask(ReprieveError):
    """No task is registered under this name."""

    code = "unknown_task"


class TaskNotImportable(ReprieveError):
    """A task that is defined where no worker can import it from: a prompt, a notebook, `python -c`."""

    code = "task_not_importable"


class AmbiguousTask(ValidationError):
    """A short task name that matches several tasks."""

    code = "ambiguous_task"


class AppNotFound(ValidationError):
    """A module or app that cannot be imported under the name given."""

    code = "app_not_found"


class NoTasks(AppNotFound):
    """An app without tasks: a worker would have nothing to run."""

    code = "no_tasks"


class AppImportFailed(ReprieveError):
    """The application's own code raised an error, or ended the program, while it was imported."""

    code = "app_import_failed"


class EnqueueDuringImport(ReprieveError):
    """A job was enqueued by a module of the application while a worker or a command imported it."""

    code = "enqueue_during_import"


class MissingExtra(ReprieveError):
    """An optional dependency that is not installed."""

    code = "missing_extra"


class BrokenPlugin(ReprieveError):
    """An entry point of another package that cannot be loaded, or that two packages register."""

    code = "broken_plugin"


class NotRunning(ReprieveError):
    """A function for running jobs was called outside of one."""

    code = "not_running"


class AppInUse(ReprieveError):
    """An app was to be closed in a process whose worker uses it."""

    code = "app_in_use"


class InvalidLifespan(ValidationError):
    """A function that cannot be the lifespan of an app."""

    code = "invalid_lifespan"


class LifespanFailed(ReprieveError):
    """A lifespan raised, or took too long, when a worker process started."""

    code = "lifespan_failed"


class ResourceUnavailable(ReprieveError):
    """A resource that no lifespan has yielded, or that more than one has."""

    code = "resource_unavailable"


class ResultUnavailable(ReprieveError):
    """A job has no result to return: it has not succeeded, or its result is not kept."""

    code = "result_unavailable"


class ResultTimeout(ResultUnavailable, TimeoutError):
    """A job that was awaited has not ended in time."""

    code = "result_timeout"

    def __init__(self, message: str, *, status: str) -> None:
        """Keep the status that the job had at the end of the wait."""
        super().__init__(message)
        self.status = status


class JobDead(ResultUnavailable):
    """A job that was awaited is dead."""

    code = "job_dead"

    def __init__(self, message: str, *, death: str, reason: str, cause_code: str) -> None:
        """Keep why the job is dead (`exhausted`, `permanent`, …), and the reason and code of its last failure."""
        super().__init__(message)
        self.death = death
        self.reason = reason
        self.cause_code = cause_code


class JobCancelled(ResultUnavailable):
    """A job that was awaited was cancelled."""

    code = "job_cancelled"

    def __init__(self, message: str, *, by: str, reason: str) -> None:
        """Keep who cancelled the job, empty for its own task, and why."""
        super().__init__(message)
        self.by = by
        self.reason = reason


class EndlessDrain(ReprieveError):
    """A drain made the maximum number of attempts while jobs were still waiting."""

    code = "endless_drain"
