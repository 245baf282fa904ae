"""A change: the only way to write a job. It holds the new job, the version that was read, and the event.

Workers, recovery, people and expiry all make their changes here; the store applies a change whole or refuses it.
"""

from msgspec.structs import force_setattr, replace

from reprieve.core.audit import Audit, AuditEntry, facts_of_job
from reprieve.core.decide import Decision
from reprieve.core.duration import milliseconds, seconds, spell
from reprieve.core.events import Event
from reprieve.core.job import CancelRequest, Cause, Job
from reprieve.core.move import Cancel, Dead, ManualRetry, Move, Park, Retry, Revive, Start, evolve
from reprieve.core.record import Record
from reprieve.core.status import Status, status_of
from reprieve.core.values import flag
from reprieve.errors import ConcurrentModification, InvalidRetryState, MaxRetriesExceeded, ValidationError

RETRYABLE: frozenset[Status] = frozenset({"dead", "cancelled", "retrying", "parked", "stuck"})
"""The statuses that a manual retry starts from. A job that is ready or scheduled runs without one."""


class Change(Record):
    """An atomic write. The store refuses it when it no longer holds `version`: another writer was first."""

    job: Job
    version: int
    event: Event
    session: str = ""
    """The session whose lease this ends; empty when the job was not running."""
    result: bytes | None = None
    """What the task returned, if it is to be kept, for `result_ttl` seconds."""
    result_ttl: float = 0.0
    audit: AuditEntry | None = None
    """The audit entry that is stored in the same write; a move by a person has one, any other has none."""


class Request(Audit):
    """What a person asks for, with their name and reason."""

    force: bool = False
    delay: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a request without a name or a reason: both go to the audit trail."""
        Audit.__post_init__(self)
        flag(self.force, "force", ValidationError)
        force_setattr(self, "delay", seconds(self.delay, "delay"))


def make(job: Job, move: Move, now: int, request: Request | None = None) -> Change:
    """Return the change that carries out a move; of a person's move the request says what it is part of."""
    after = evolve(job, move, now)
    event = Event(
        job_id=job.id,
        at=now,
        attempt=after.attempt,
        version=after.version,
        move=_told(move),
        session=job.session,
        started_at=job.leased_at,
        queue=job.queue,
        tenant=job.tenant,
        task=job.task,
    )
    audit = _audit_entry(job, after, move, now, request)
    return Change(job=after, version=job.version, event=event, session=job.session, audit=audit)


def is_by_person(move: Move, session: str) -> bool:
    """Whether a person made this move, so that it has an audit entry.

    A cancel that ends an attempt follows a cancel request, which has the entry.
    """
    return isinstance(move, ManualRetry) or (isinstance(move, Cancel) and bool(move.by) and not session)


def is_audited(made: Change) -> bool:
    """Whether a change has the audit entry that its move asks for: that of the same act, or none."""
    move, audit, job = made.event.move, made.audit, made.job
    if not isinstance(move, ManualRetry | Cancel) or not is_by_person(move, made.session):
        return audit is None
    return (
        audit is not None
        and bool(audit.actor and audit.reason)
        and (audit.at, audit.actor, audit.reason) == (made.event.at, move.by, move.reason)
        and (audit.kind, audit.name, audit.tenant, audit.queue) == ("job", job.id, job.tenant, job.queue)
    )


def _audit_entry(before: Job, after: Job, move: Move, now: int, request: Request | None) -> AuditEntry | None:
    if not isinstance(move, ManualRetry | Cancel) or not is_by_person(move, before.session):
        return None
    return AuditEntry(
        at=now,
        actor=move.by,
        action="retry" if isinstance(move, ManualRetry) else "cancel",
        kind="job",
        name=after.id,
        tenant=after.tenant,
        queue=after.queue,
        reason=move.reason,
        before=facts_of_job(before),
        after=facts_of_job(after),
        request_id=request.request_id if request else "",
        operation=request.operation if request else "",
    )


def _told(move: Move) -> Move:
    """Return a move as its event tells it: without the traceback, of which only the job keeps the last one."""
    if isinstance(move, Retry | Park | Dead) and move.cause.traceback:
        return replace(move, cause=replace(move.cause, traceback=""))
    return move


def lease(job: Job, session: str, now: int) -> Change:
    """Return the change that leases the job to a worker's session."""
    return make(job, Start(session=session), now)


def settle(job: Job, decision: Decision, now: int) -> Change:
    """Return the change that carries out a decision about an attempt."""
    return make(job, decision, now)


def retry(job: Job, request: Request, now: int, stuck_after: float, *, held: bool = False) -> Change:
    """Return the change of a manual retry; it replaces a scheduled retry in the same write.

    `held` says that the job's gate is held.
    """
    status = status_of(job, now, held=held, stuck_after=stuck_after)
    if status == "running":
        message = f"job {job.id} is running (leased to {job.session}); retry it after it ends, or cancel it first"
        raise ConcurrentModification(message)
    is_untried = job.state == "waiting" and job.cause is None
    if status not in RETRYABLE or is_untried:
        known = f"job {job.id} is {status}{' and has not failed' if is_untried else ''}"
        message = f"{known}; retry it when it is dead, cancelled, retrying, parked or stuck"
        raise InvalidRetryState(message)
    if not job.has_attempts_left and not request.force:
        used = "its only attempt" if job.limit == 1 else f"its {job.limit} attempts"
        message = f"job {job.id} has used {used}; to grant one more, add --force (in Python force=True)"
        raise MaxRetriesExceeded(message)
    granted = 0 if job.limit is None else max(0, job.charged + 1 - job.limit)
    due_at = now + milliseconds(request.delay)
    move = ManualRetry(by=request.by, reason=request.reason, due_at=due_at, granted=granted)
    return make(job, move, now, request)


def cancel(job: Job, request: Request, now: int) -> Change:
    """Return the change that cancels a waiting job. A running job gets a cancel request instead (see `give_up`)."""
    if job.state == "running":
        message = f"job {job.id} is running (leased to {job.session}); send a cancel request, which ends the attempt"
        raise ConcurrentModification(message)
    return make(job, Cancel(by=request.by, reason=request.reason), now, request)


def give_up(made: Change, request: CancelRequest) -> Change | None:
    """Return the cancellation that follows an attempt in the same write when the job had a cancel request.

    Return None where there is nothing to cancel: the job succeeded or died, or a person asked for a retry after the
    cancel request.
    """
    if made.job.state != "waiting" or isinstance(made.event.move, ManualRetry):
        return None
    cancel = make(made.job, Cancel(by=request.by, reason=request.reason), made.event.at)
    return replace(cancel, audit=None)  # the request has the entry


def revive(job: Job, now: int) -> Change:
    """Return the change that revives a dead job: it is granted as many attempts as its limit again."""
    granted = 0 if job.max_attempts is None else job.charged - job.granted
    return make(job, Revive(due_at=now, granted=max(0, granted)), now)


def expire(job: Job, now: int) -> Change:
    """Return the change that ends a waiting job past its `expires_at`; the cause of its last failure stays."""
    cause = job.cause or Cause(reason="its deadline passed before it could run", code="expired", rule="deadline")
    return make(job, Dead(death="expired", cause=cause), now)


def end_unknown(job: Job, unknown_after: float, now: int) -> Change | None:
    """Return the change that ends a ready job whose task no live worker has known for `unknown_after` seconds.

    Return None for a job that has not been ready for that long: every job waits so long for a worker.
    """
    if now < job.due_at + milliseconds(unknown_after):
        return None
    reason = (
        f"no live worker has known a task named {job.task!r} for {spell(unknown_after)}; "
        "deploy the code that has it, then retry"
    )
    return make(job, Dead(death="unknown_task", cause=Cause(reason=reason, code="unknown_task")), now)
