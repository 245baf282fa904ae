"""A job: one stored call of a task, with its state."""

from typing import Literal, TypeAlias

from msgspec.structs import force_setattr

from reprieve.core.headers import Headers
from reprieve.core.policy import Override
from reprieve.core.record import Record
from reprieve.core.text import MAX_PERSON_CHARS, clean
from reprieve.core.values import text
from reprieve.core.verdict import Kind, Scope
from reprieve.errors import ValidationError

State: TypeAlias = Literal["waiting", "running", "succeeded", "dead", "cancelled"]
"""The five stored states. There is no "failed": a failed attempt, the decision and the new state are one write."""

Wait: TypeAlias = Literal["turn", "schedule", "retry", "gate", "budget"]
"""What a waiting job waits for: its turn, a time set by its caller, a retry, its dependency, or a budget."""

Death: TypeAlias = Literal[
    "exhausted", "permanent", "expired", "poison", "futile", "undecodable", "unknown_task", "manual"
]
"""Why a job is dead."""

HIGH, NORMAL, LOW = 1, 5, 9
"""Priorities run from 1 (first) to 9 (last)."""


class Cause(Record):
    """Why an attempt failed, as stored with the job and its event."""

    reason: str
    code: str = ""
    kind: Kind = "unknown"
    fingerprint: str = ""
    type: str = ""
    """The exception's class with its module; empty when there was no exception."""
    rule: str = ""
    """The rule that classified the failure."""
    scope: Scope = "job"
    duration: float | None = None
    """Seconds that the attempt took; None when that is not known."""
    traceback: str = ""
    """The end of the traceback, of the last failure only: events are stored without it."""


class Signed(Record):
    """What a person asked for: who, and why. Both are kept as one printable line, and cut if they are too long."""

    by: str
    reason: str

    def __post_init__(self) -> None:
        """Clean both texts; raise a `ValidationError` for what is not text."""
        force_setattr(self, "by", clean(text(self.by, "by", ValidationError), MAX_PERSON_CHARS))
        force_setattr(self, "reason", clean(text(self.reason, "reason", ValidationError)))


class CancelRequest(Signed):
    """Who asked a running job to stop, and why."""


class Suspicion(Record):
    """What was lost with a job since its last attempt that ended by itself: the job may be to blame, or not."""

    sessions: int = 0
    """Whole sessions, whose other jobs, machine or operator may be to blame."""
    processes: int = 0
    """Processes that ran this job alone, and that a worker saw end."""


class Job(Record):
    """One stored call of a task.

    `attempt` counts leases and only grows. `charged` counts the failures that use up the limit, `spared` those
    that do not, `crashes` the attempts in which the worker died. `granted` is what people added to the limit. None of
    them ever goes down.
    """

    id: str
    task: str
    queue: str = "default"
    tenant: str = ""
    dependency: str = ""
    group: str = ""
    key: str = ""
    key_ttl: float | None = None
    priority: int = NORMAL
    payload: bytes = b""
    override: Override | None = None
    timeout: float | None = None
    """Seconds that an attempt may take, copied from the task at enqueue for processes that do not import the task."""

    state: State = "waiting"
    version: int = 0
    created_at: int
    due_at: int
    waiting_for: Wait = "turn"
    deadline_at: int | None = None
    parked_since_at: int | None = None
    parked_on: str = ""
    parked_until_at: int | None = None
    """When the job has waited long enough for its dependency: `max_parked` after `parked_since_at`."""

    max_attempts: int | None = None
    granted: int = 0
    attempt: int = 0
    charged: int = 0
    spared: int = 0
    crashes: int = 0
    snoozes: int = 0
    delay: float = 0.0
    is_manual: bool = False

    session: str = ""
    leased_at: int | None = None
    cancel_request: CancelRequest | None = None
    """Set when a person asked the running job to stop; cleared when the attempt ends."""

    cause: Cause | None = None
    failed_at: int | None = None
    death: Death | None = None
    finished_at: int | None = None
    suspicion: Suspicion | None = None
    """Set when a worker died with the job; cleared when an attempt ends by itself."""
    deadline_from_at: int | None = None
    """The instant from which the time until the deadline counts: that of the last manual retry or revival; None: of
    the enqueue."""
    headers: Headers | None = None
    """What travels with the job besides its arguments; None when it has none."""

    @property
    def limit(self) -> int | None:
        """The number of charged failures that ends this job; None when only its deadline does."""
        return None if self.max_attempts is None else self.max_attempts + self.granted

    @property
    def has_attempts_left(self) -> bool:
        """Whether another charged failure would still be within the limit."""
        return self.limit is None or self.charged < self.limit

    @property
    def sla_at(self) -> int | None:
        """The instant by which this job should have ended; None when it has no SLA."""
        return None if self.headers is None else self.headers.sla_at

    @property
    def tells_all(self) -> bool:
        """Whether its enqueue, its starts and its success are events as well."""
        return self.headers is not None and self.headers.tells_all

    @property
    def lane_priority(self) -> int:
        """The priority of its lane: an even number, or the odd one before it for jobs with an SLA: they come first."""
        return 2 * self.priority - (self.headers is not None and self.headers.sla_at is not None)

    @property
    def expires_at(self) -> int | None:
        """When this job ends if it still waits then: at its deadline, or when it has been parked for `max_parked`.

        An attempt that is due later than `max_parked` is still made.
        """
        if self.parked_until_at is None:
            return self.deadline_at
        parked_until_at = max(self.parked_until_at, self.due_at)
        return parked_until_at if self.deadline_at is None else min(parked_until_at, self.deadline_at)

    @property
    def retries(self) -> int:
        """The retries that charged failures caused: one for each, but none for the failure that ended the job."""
        is_ended_by_failure = self.state == "dead" and self.death != "poison" and self.failed_at == self.finished_at
        retries = max(0, self.charged - is_ended_by_failure)
        return retries if self.limit is None else min(retries, self.limit - 1)

    @property
    def is_suspect(self) -> bool:
        """Whether a worker died with this job: it runs in a process of its own until an attempt ends by itself."""
        return self.suspicion is not None
