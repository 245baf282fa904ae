"""Moves: what may happen to a job, from which states, and what the job is afterwards.

A decision is a move, an event is a move that happened, and `evolve` is the only place that changes a job.
"""

from typing import TypeAlias, assert_never

from msgspec.structs import replace

from reprieve.core.job import Cause, Death, Job, Signed, State, Suspicion, Wait
from reprieve.core.record import Record
from reprieve.errors import IllegalMove


class Enqueue(Record, tag=True):
    """The job was stored. It is no move, since there is no job before: the events of a job may begin with it."""


class Start(Record, tag=True):
    """A worker's session leases the job."""

    session: str


class Succeed(Record, tag=True):
    """The attempt succeeded."""


class Retry(Record, tag=True):
    """Wait until `due_at`, then try again. `delay` is the backoff in seconds; a push-back may make the wait longer."""

    due_at: int
    cause: Cause
    delay: float
    charged: bool = True
    max_attempts: int | None = None
    parked_until_at: int | None = None
    """Of a spared failure: when the job has waited long enough for its dependency."""


class Park(Record, tag=True):
    """Wait for a gate or a budget to open, without using up an attempt."""

    gate: str
    due_at: int
    cause: Cause
    waiting_for: Wait = "gate"
    charged: bool = False
    """A failure of the job's own is charged even if its retry has to wait for a budget."""
    max_attempts: int | None = None
    parked_until_at: int | None = None
    """When the job has waited long enough for its dependency; None when it does not wait for one."""


class Dead(Record, tag=True):
    """End the job; only a person or a revival runs it again."""

    death: Death
    cause: Cause
    charged: bool = False
    spared: bool = False
    crashed: bool = False
    alone: bool = False
    """Of a crash: whether the process ran no other job, and its worker outlived it."""
    max_attempts: int | None = None


class Snooze(Record, tag=True):
    """The task asked to run again later."""

    due_at: int


class Return(Record, tag=True):
    """The lease ends without a result because the worker stopped or died. The job is ready again at once."""

    crashed: bool = False
    started: bool = True
    """Whether the attempt had begun. If not, the job keeps its place in its lane. Otherwise it goes behind the ready
    jobs: else the same jobs would take the slots after every restart."""
    alone: bool = False
    """Of a crash: whether the process ran no other job, and its worker outlived it."""


class Cancel(Signed, tag=True):
    """A person, or the task itself, cancelled the job."""

    by: str = ""
    reason: str = ""


class ManualRetry(Signed, tag=True):
    """A person runs the job again, with a reason."""

    due_at: int
    granted: int = 0


class Revive(Record, tag=True):
    """A dead job is made waiting again automatically."""

    due_at: int
    granted: int = 0


Move: TypeAlias = Start | Succeed | Retry | Park | Dead | Snooze | Return | Cancel | ManualRetry | Revive

LEGAL: dict[type[Move], tuple[frozenset[State], State]] = {
    Start: (frozenset({"waiting"}), "running"),
    Succeed: (frozenset({"running"}), "succeeded"),
    Retry: (frozenset({"running"}), "waiting"),
    Park: (frozenset({"running"}), "waiting"),
    Snooze: (frozenset({"running"}), "waiting"),
    Return: (frozenset({"running"}), "waiting"),
    Dead: (frozenset({"running", "waiting"}), "dead"),
    Cancel: (frozenset({"running", "waiting"}), "cancelled"),
    ManualRetry: (frozenset({"running", "waiting", "dead", "cancelled"}), "waiting"),
    Revive: (frozenset({"dead"}), "waiting"),
}
"""The states that each move may start from, and the state it leads to. Success is final."""


def evolve(job: Job, move: Move, at: int) -> Job:
    """Return the job after the move; its version grows, so that writers with the old version are fenced off."""
    origins, state = LEGAL[type(move)]
    if job.state not in origins:
        message = f"job {job.id} is {job.state}; {type(move).__name__} needs it to be {' or '.join(sorted(origins))}"
        raise IllegalMove(message)
    return replace(job, state=state, version=job.version + 1, **_changes(job, move, at))


_UNLEASED: dict[str, object] = {"session": "", "leased_at": None, "cancel_request": None}
_UNPARKED: dict[str, object] = {"parked_since_at": None, "parked_on": "", "parked_until_at": None}
# The worker reported how the attempt ended, so the job did not kill it and is not a suspect any more.
_CLEARED: dict[str, object] = {"suspicion": None}
_ALIVE: dict[str, object] = {"death": None, "finished_at": None}


def _changes(job: Job, move: Move, at: int) -> dict[str, object]:
    match move:
        case Start():
            return {
                "session": move.session,
                "leased_at": at,
                "attempt": job.attempt + 1,
                "waiting_for": "turn",
            }
        case Succeed():
            # Its record need not be written again: it never runs again, so a suspicion means nothing any more.
            return _UNLEASED | {"finished_at": at}
        case Retry():
            waiting = {"due_at": move.due_at, "waiting_for": "retry", "delay": move.delay, "is_manual": False}
            return _UNLEASED | _CLEARED | _after_failure(job, move, at) | waiting
        case Park():
            waiting = {"due_at": move.due_at, "waiting_for": move.waiting_for, "parked_on": move.gate}
            return _UNLEASED | _CLEARED | _after_failure(job, move, at) | waiting
        case Snooze():
            # A snooze is not a failure: the limit does not move.
            waiting = {"due_at": move.due_at, "waiting_for": "schedule", "snoozes": job.snoozes + 1}
            return _UNLEASED | _CLEARED | _UNPARKED | waiting
        case Return():
            due_at = at if move.started else job.due_at
            return _UNLEASED | _after_crash(job, move) | {"due_at": due_at}
        case Dead():
            failure = _after_last_attempt(job, move, at) if job.state == "running" else {"cause": move.cause}
            return _UNLEASED | failure | _UNPARKED | {"death": move.death, "finished_at": at}
        case Cancel():
            return _UNLEASED | _UNPARKED | {"finished_at": at}
        case ManualRetry() | Revive():
            manual = isinstance(move, ManualRetry)
            again = {"due_at": move.due_at, "waiting_for": "retry" if move.due_at > at else "turn"}
            grant = {"granted": job.granted + move.granted, "is_manual": manual}
            return _UNLEASED | _UNPARKED | _ALIVE | again | grant | _new_deadline(job, move.due_at)
        case _:
            assert_never(move)


def _after_failure(job: Job, move: Retry | Park | Dead, at: int) -> dict[str, object]:
    spared = not move.charged if isinstance(move, Retry | Park) else move.spared
    changes: dict[str, object] = {
        "charged": job.charged + move.charged,
        "spared": job.spared + spared,
        "cause": move.cause,
        "failed_at": at,
        "max_attempts": job.max_attempts if move.max_attempts is None else move.max_attempts,
    }
    if move.charged and not isinstance(move, Park):
        # A charged failure means that the dependency is healthy: the wait for it is over.
        return changes | _UNPARKED
    # A job that is released, tried and spared again has been parked since the first time.
    since = at if job.parked_since_at is None else job.parked_since_at
    until = None if isinstance(move, Dead) else move.parked_until_at
    return changes | {"parked_since_at": since, "parked_until_at": until}


def _after_last_attempt(job: Job, move: Dead, at: int) -> dict[str, object]:
    return _after_failure(job, move, at) | (_after_crash(job, move) if move.crashed else _CLEARED)


def _after_crash(job: Job, move: Return | Dead) -> dict[str, object]:
    if not move.crashed:
        return {}
    before = job.suspicion or Suspicion()
    after = Suspicion(sessions=before.sessions + (not move.alone), processes=before.processes + move.alone)
    return {"crashes": job.crashes + 1, "suspicion": after}


def _new_deadline(job: Job, due_at: int) -> dict[str, object]:
    """Return the deadline counted from the retry: with the old one the job might expire at once."""
    if job.deadline_at is None:
        return {}
    from_at = job.created_at if job.deadline_from_at is None else job.deadline_from_at
    return {"deadline_at": due_at + job.deadline_at - from_at, "deadline_from_at": due_at}
