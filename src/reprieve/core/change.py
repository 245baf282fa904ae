"""A change: the one way to write a job. The job as it will be, guarded by the version that was read, with its event.

Whoever wants something of a job, be it a worker, recovery, a person or expiry, makes a change here; the store applies
it whole or refuses it.
"""

from reprieve.core.decide import Decision
from reprieve.core.duration import clamp, milliseconds
from reprieve.core.events import Event
from reprieve.core.job import CancelRequest, Cause, Job
from reprieve.core.move import Cancel, Dead, ManualRetry, Move, Revive, Start, evolve
from reprieve.core.record import Record
from reprieve.core.status import is_stuck
from reprieve.errors import ConcurrentModification, InvalidRetryState, MaxRetriesExceeded, ValidationError


class Change(Record):
    """An atomic write. It is refused when the store no longer holds `version`: somebody else was there first."""

    job: Job
    version: int
    event: Event
    session: str = ""
    """The session whose lease this ends; empty when the job was not running."""
    result: bytes | None = None
    """What a success returned, if it is to be kept."""
    result_ttl: float = 0.0


class Request(Record):
    """What a person asks for: who, why, and how."""

    by: str
    reason: str
    force: bool = False
    delay: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a request without a reason: somebody will want to know."""
        if not self.by.strip() or not self.reason.strip():
            message = "a request needs who makes it (by) and why (reason); both are kept in the audit trail"
            raise ValidationError(message)


def make(job: Job, move: Move, now: int) -> Change:
    """Turn a move into the change that carries it out."""
    after = evolve(job, move, now)
    event = Event(
        job_id=job.id,
        at=now,
        attempt=after.attempt,
        version=after.version,
        move=move,
        session=job.session,
        started_at=job.leased_at,
    )
    return Change(job=after, version=job.version, event=event, session=job.session)


def lease(job: Job, session: str, now: int) -> Change:
    """Give the job to a worker's session."""
    return make(job, Start(session=session), now)


def settle(job: Job, decision: Decision, now: int) -> Change:
    """Carry out what was decided about an attempt."""
    return make(job, decision, now)


def retry(job: Job, request: Request, now: int, stuck_after: float) -> Change:
    """Let a person run a job again; a retry that was scheduled automatically is replaced in the same write."""
    if job.state == "running" and not is_stuck(job, now, stuck_after):
        message = f"job {job.id} is running (leased to {job.session}); retry it when it has ended, or cancel it first"
        raise ConcurrentModification(message)
    if job.state == "succeeded" or (job.state == "waiting" and job.cause is None):
        message = (
            f"job {job.id} is {job.state} and has not failed; "
            "retry it when it is dead, cancelled, retrying, parked or stuck"
        )
        raise InvalidRetryState(message)
    if not job.has_attempts_left and not request.force:
        used = "its only attempt" if job.limit == 1 else f"its {job.limit} attempts"
        message = f"job {job.id} has used {used}; to grant one more, add --force (in Python force=True)"
        raise MaxRetriesExceeded(message)
    granted = 0 if job.limit is None else max(0, job.charged + 1 - job.limit)
    due_at = now + milliseconds(clamp(request.delay))
    return make(job, ManualRetry(by=request.by, reason=request.reason, due_at=due_at, granted=granted), now)


def cancel(job: Job, request: Request, now: int) -> Change:
    """Let a person give up a job that waits. One that runs is asked to stop instead, and settles as cancelled."""
    if job.state == "running":
        message = f"job {job.id} is running (leased to {job.session}); ask it to stop, it ends when it has settled"
        raise ConcurrentModification(message)
    return make(job, Cancel(by=request.by, reason=request.reason), now)


def give_up(made: Change, wish: CancelRequest) -> Change | None:
    """Return the cancel that follows, in the same write, when an attempt ended and somebody had asked its job to stop.

    None where there is nothing left to cancel: a success and a death stand. So does a retry that a person asked for,
    since it was asked for later.
    """
    if made.job.state != "waiting" or isinstance(made.event.move, ManualRetry):
        return None
    return make(made.job, Cancel(by=wish.by, reason=wish.reason), made.event.at)


def revive(job: Job, now: int) -> Change:
    """Give a dead job all its attempts anew, on top of those it has used."""
    granted = 0 if job.max_attempts is None else job.charged - job.granted
    return make(job, Revive(due_at=now, granted=max(0, granted)), now)


def expire(job: Job, now: int) -> Change:
    """End a waiting job whose time is up; why it last failed stays what it was."""
    cause = job.cause or Cause(reason="its time was up before it could run", code="expired")
    return make(job, Dead(death="expired", cause=cause), now)
