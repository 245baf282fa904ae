"""The story of a job: everything that happened to it, in order, each step as a sentence and as fields."""

from collections.abc import Sequence
from typing import Literal, TypeAlias, assert_never

from msgspec.structs import replace

from reprieve.core.attempt import Cost, cost_of
from reprieve.core.duration import spell
from reprieve.core.events import Event
from reprieve.core.job import Cause, Job
from reprieve.core.move import Cancel, Dead, Enqueue, ManualRetry, Park, Retry, Return, Revive, Snooze, Start, Succeed
from reprieve.core.record import Record

What: TypeAlias = Literal[
    "enqueued",
    "forgotten",
    "started",
    "succeeded",
    "failed",
    "snoozed",
    "returned",
    "lost",
    "died",
    "cancelled",
    "retried",
    "revived",
    "stop_requested",
]

_VERSIONS_WITHOUT_EVENT = {"running": 1, "succeeded": 2}
"""Versions that a job in this state gained since its last event: starts and successes may have no event."""

GIVEN_BACK = "ready again, uncharged: the worker was stopping, or had not begun it"
"""What followed an attempt that was neither finished nor failed."""


class Step(Record):
    """One thing that happened, and what followed from it."""

    what: What
    text: str
    then: str = ""
    at: int | None = None
    """None where the moment is not known."""
    attempt: int = 0
    session: str = ""
    """The worker that made the attempt."""
    seconds: float | None = None
    """How long the attempt took."""
    cost: Cost = ""
    code: str = ""
    reason: str = ""
    by: str = ""
    """The person who acted."""


def story(job: Job, events: Sequence[Event]) -> list[Step]:
    """Return the steps of a job's life, from the job itself and the events that the store has kept."""
    is_told = bool(events) and isinstance(events[0].move, Enqueue)
    steps = [] if is_told else [_enqueued(job.created_at)]
    unknown = events[0].version - 2 if events else job.version - _VERSIONS_WITHOUT_EVENT.get(job.state, 0)
    if unknown > 0:
        steps.append(Step(what="forgotten", text="what happened first is no longer kept"))
    steps += map(_step, events)
    return steps + _now(job, steps[-1])


def _now(job: Job, last: Step) -> list[Step]:
    """Return the steps without an event: the attempt that is under way, and an end whose event was not kept."""
    match job.state:
        case "running":
            steps = [] if last.what == "started" else [_started(job.attempt, job.session, job.leased_at)]
            if (request := job.cancel_request) is not None:
                text = f"asked to stop by {request.by}: {request.reason}"
                steps.append(Step(what="stop_requested", text=text, reason=request.reason, by=request.by))
            return steps
        case "succeeded" if last.what != "succeeded":
            text = f"attempt {job.attempt} succeeded"
            return [Step(what="succeeded", text=text, at=job.finished_at, attempt=job.attempt)]
        case "dead" if last.what not in ("failed", "died", "lost"):
            return [_died(job.finished_at, job.death or "", job.cause or Cause(reason=""))]
        case "cancelled" if last.what != "cancelled":
            return [Step(what="cancelled", text="cancelled", at=job.finished_at)]
        case _:
            return []


def _enqueued(at: int) -> Step:
    return Step(what="enqueued", text="enqueued", at=at)


def _step(event: Event) -> Step:
    match event.move:
        case Enqueue():
            return _enqueued(event.at)
        case Start(session=session):
            return _started(event.attempt, session, event.at)
        case Succeed():
            return _attempt(event, "succeeded", "succeeded")
        case Snooze(due_at=due_at):
            return _attempt(event, "snoozed", f"asked to be called again in {_length(event.at, due_at)}")
        case Return(crashed=True):
            return _attempt(event, "lost", "was lost: its worker died", "ready again")
        case Return():
            return _attempt(event, "returned", "was given back by its worker", GIVEN_BACK)
        case Retry() | Park() | Dead() as move:
            return _failed(event, move)
        case Cancel() | ManualRetry() | Revive():
            return _acted(event)
        case _:
            assert_never(event.move)


def _failed(event: Event, move: Retry | Park | Dead) -> Step:
    """Return the step of a failed attempt and what was decided, or of the death of a waiting job."""
    match move:
        case Retry(due_at=due_at):
            then = f"next attempt after {_length(event.at, due_at)}"
        case Park(waiting_for="budget"):
            then = "parked until its budget allows a retry"
        case Park(gate=gate):
            then = f"parked until {gate} answers again"
        case Dead(crashed=True, death=death, cause=cause):
            return _attempt(event, "lost", "was lost: its worker died", f"died: {death}{_colon(cause.reason)}", cause)
        case Dead(death=death) if event.started_at is None:
            return _died(event.at, death, move.cause)
        case Dead(death=death):
            then = f"died: {death}"
        case _:
            assert_never(move)
    return _attempt(event, "failed", "failed", then, move.cause)


def _started(attempt: int, session: str, at: int | None) -> Step:
    text = f"attempt {attempt} started{_on(session)}"
    return Step(what="started", text=text, at=at, attempt=attempt, session=session)


def _died(at: int | None, death: str, cause: Cause) -> Step:
    text = f"died: {death}{_colon(cause.reason)}"
    return Step(what="died", text=text, at=at, code=cause.code, reason=cause.reason)


def _acted(event: Event) -> Step:
    """Return the step of what a person did, or of an automatic revival."""
    match event.move:
        case Cancel(by=by, reason=reason) if event.started_at is not None:
            # It was running: the attempt was stopped, or ended itself.
            ended = _attempt(event, "cancelled", "was stopped" if by else "gave up")
            step = replace(ended, then=f"cancelled by {by or 'its own task'}{_colon(reason)}", reason=reason, by=by)
        case Cancel(by=by, reason=reason):
            text = f"cancelled by {by or 'its own task'}{_colon(reason)}"
            step = Step(what="cancelled", text=text, at=event.at, reason=reason, by=by)
        case ManualRetry(by=by, reason=reason, due_at=due_at, granted=granted):
            text = f"retried by {by}{_colon(reason)}"
            then = [f"{granted} more granted"] if granted else []
            then += [f"next attempt after {_length(event.at, due_at)}"] if due_at > event.at else []
            step = Step(what="retried", text=text, then=", ".join(then), at=event.at, reason=reason, by=by)
        case _:
            step = Step(what="revived", text="revived: given all its attempts again", at=event.at)
    return step


def _attempt(event: Event, what: What, words: str, then: str = "", cause: Cause | None = None) -> Step:
    cost = cost_of(event.move)
    why = ""
    if what == "failed" and cause is not None:
        code = f" [{cause.code}]" if cause.code and cause.code not in cause.reason else ""
        why = f"{f', {cost}' if cost else ''}{_colon(cause.reason)}{code}"
    return Step(
        what=what,
        text=f"attempt {event.attempt} {words}{_after(event)}{_on(event.session)}{why}",
        then=then,
        at=event.at,
        attempt=event.attempt,
        session=event.session,
        seconds=None if event.started_at is None else (event.at - event.started_at) / 1_000,
        cost=cost,
        code="" if cause is None else cause.code,
        reason="" if cause is None else cause.reason,
    )


def _after(event: Event) -> str:
    return "" if event.started_at is None else f" after {_length(event.started_at, event.at)}"


def _length(start: int, end: int) -> str:
    return spell(max(0, end - start) / 1_000)


def _on(session: str) -> str:
    return f" on {session}" if session else ""


def _colon(reason: str) -> str:
    return f": {reason}" if reason else ""
