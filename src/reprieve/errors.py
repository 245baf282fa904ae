"""Every exception that Reprieve raises, in one tree, each with a stable `code`.

The codes are the words of the Python API, the HTTP API and the CLI alike. A message says what happened
to which thing and what to do about it; the facts behind it are attributes.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol


class Stored(Protocol):
    """A call that was stored, as its receipt says."""

    @property
    def id(self) -> str:
        """The id of its job."""
        ...

    @property
    def is_new(self) -> bool | None:
        """Whether it made the job, and none had its key; None when an outbox cannot tell."""
        ...


class ReprieveError(Exception):
    """The root of every error that Reprieve raises."""

    code: ClassVar[str] = "reprieve_error"
    receipts: Sequence[Stored] = ()
    """What an enqueue of many calls had stored before the error, in their order; the rest can be enqueued again.

    Whatever else comes out of such an enqueue, an error of the caller's own for example, has them as well.
    """


class ValidationError(ReprieveError, ValueError):
    """A value that a person or a program supplied makes no sense."""

    code = "validation_error"


class InvalidDuration(ValidationError):
    """A text, number or timedelta that is no length of time."""

    code = "invalid_duration"


class InvalidBackoff(ValidationError):
    """A backoff or jitter whose numbers contradict each other."""

    code = "invalid_backoff"


class InvalidPolicy(ValidationError):
    """A policy that could never run a job, or an override of one that makes no sense."""

    code = "invalid_policy"


class UnknownPreset(ValidationError):
    """A preset name that does not exist."""

    code = "unknown_preset"


class InvalidRule(ValidationError):
    """A classification rule that matches nothing, says nothing, or cannot be read."""

    code = "invalid_rule"


class ContradictoryRules(InvalidRule):
    """Two rules match the same failure and disagree about it."""

    code = "contradictory_rules"


class InvalidWindow(ValidationError):
    """A retry window that cannot be read."""

    code = "invalid_window"


class WindowNeverOpens(InvalidWindow):
    """A retry window that would hold a job back for ever."""

    code = "window_never_opens"


class UnknownTimeZone(InvalidWindow):
    """A time zone that the time zone database does not know."""

    code = "unknown_time_zone"


class InvalidBudget(ValidationError):
    """A retry budget whose limits make no sense."""

    code = "invalid_budget"


class InvalidId(ValidationError):
    """A text that is no job id."""

    code = "invalid_id"


class AmbiguousId(ValidationError):
    """A part of a job id that several jobs have."""

    code = "ambiguous_id"


class InvalidDeadLetter(ValidationError):
    """A dead-letter entry without what an entry must say, above all without a reason."""

    code = "invalid_dead_letter"


class InvalidState(ReprieveError):
    """Raised by a task whose own subject is in the wrong state; retrying cannot help."""

    code = "invalid_state"


class IllegalMove(ReprieveError):
    """A change that the life of a job does not know, such as a start of a dead job."""

    code = "illegal_move"


class JobNotFound(ReprieveError):
    """No job has this id."""

    code = "job_not_found"


class InvalidRetryState(ReprieveError):
    """The job is in a state that a person cannot retry it from."""

    code = "invalid_retry_state"


class MaxRetriesExceeded(ReprieveError):
    """The job has used all its attempts, and the retry was not forced."""

    code = "max_retries_exceeded"


class ConcurrentModification(ReprieveError):
    """Somebody else holds the job, or changed it first."""

    code = "concurrent_modification"


class InsufficientCredits(ReprieveError):
    """The tenant cannot pay for this run of the job."""

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
    """The store could not do what it was asked. What was not acknowledged can be repeated."""

    code = "store_error"
    is_passing: ClassVar[bool] = True
    """Whether the same call may succeed a little later, without anybody mending anything."""


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
    """A cursor that this store did not hand out."""

    code = "invalid_cursor"


class SessionDead(StoreError):
    """The session's time was up: whatever it holds belongs to others now."""

    code = "session_dead"
    is_passing = False


class StaleCall(StoreError):
    """A call with a lower number than one that the session has made already."""

    code = "stale_call"
    is_passing = False


class StoreLocked(StoreError):
    """Somebody holds the store's write lock for too long."""

    code = "store_locked"


class StoreUnreachable(StoreError):
    """The store's server does not answer. What was not acknowledged may or may not be stored, and can be repeated."""

    code = "store_unreachable"


class StoreNotFound(StoreError):
    """There is no store where one was to be read."""

    code = "store_not_found"
    is_passing = False


class StoreReadOnly(StoreError):
    """The store cannot be written."""

    code = "store_read_only"
    is_passing = False


class StoreRefused(StoreReadOnly):
    """The server refuses this user, password, database or right; the URL or the server has to be corrected."""

    code = "store_refused"


class StoreFull(StoreError):
    """There is no room for more jobs; nothing of the call was stored."""

    code = "store_full"
    is_passing = False


class StoreCorrupt(StoreError):
    """The store's file is damaged."""

    code = "store_corrupt"
    is_passing = False


class ForeignStore(StoreError):
    """The file or database belongs to something else."""

    code = "foreign_store"
    is_passing = False


class NewerSchema(StoreError):
    """The store was made by a newer release."""

    code = "newer_schema"
    is_passing = False


class UnsafeStore(StoreError):
    """A server that would lose jobs without a word, as it is set up."""

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
    """An argument whose type is not what the function's annotation says."""

    code = "invalid_argument"

    def __init__(self, message: str, *, parameter: str, expected: str, got: str) -> None:
        """Keep the parameter's name, its annotation, and the name of the value's type."""
        super().__init__(message)
        self.parameter = parameter
        self.expected = expected
        self.got = got


class UndecodablePayload(ReprieveError):
    """A payload that does not fit its task: stored by another release, or by somebody else."""

    code = "undecodable_payload"


class InvalidTask(ValidationError):
    """A task that is declared in a way that cannot work."""

    code = "invalid_task"


class InvalidDependency(ValidationError):
    """A dependency that its function could not tell, or that is no name."""

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
    """A short task name that several tasks have."""

    code = "ambiguous_task"


class AppNotFound(ValidationError):
    """A module or app that cannot be imported under the name given."""

    code = "app_not_found"


class NoTasks(AppNotFound):
    """An app that declares no task, so that a worker would have nothing to run."""

    code = "no_tasks"


class AppImportFailed(ReprieveError):
    """The application's own code raised an error, or ended the program, while it was imported."""

    code = "app_import_failed"


class EnqueueDuringImport(ReprieveError):
    """A job was enqueued by a module of the application while a worker or a command imported it."""

    code = "enqueue_during_import"


class MissingExtra(ReprieveError):
    """An optional part that is not installed."""

    code = "missing_extra"


class BrokenPlugin(ReprieveError):
    """An entry point of another package that cannot be loaded, or that two packages register."""

    code = "broken_plugin"


class NotRunning(ReprieveError):
    """Something that only a running job can do was asked for outside of one."""

    code = "not_running"


class InvalidLifespan(ValidationError):
    """A function that cannot be the lifespan of an app."""

    code = "invalid_lifespan"


class LifespanFailed(ReprieveError):
    """A lifespan that raised, or took too long, when a worker process started."""

    code = "lifespan_failed"


class ResourceUnavailable(ReprieveError):
    """A resource that no lifespan has yielded, or that more than one has."""

    code = "resource_unavailable"


class ResultUnavailable(ReprieveError):
    """A result that is not there: its job has not succeeded (yet), or it was not kept."""

    code = "result_unavailable"


class EndlessDrain(ReprieveError):
    """A drain that had made all the attempts it may make while jobs were still coming."""

    code = "endless_drain"
