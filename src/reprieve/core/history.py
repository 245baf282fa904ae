"""The history of a job: the events that are kept of it, and the job that they rebuild."""

from collections.abc import Sequence

from msgspec.structs import replace

from reprieve.core.attempt import Attempt, timeline
from reprieve.core.events import Event, replay
from reprieve.core.job import Job
from reprieve.core.move import Enqueue, Move, Return, Start, Succeed
from reprieve.core.record import Record


class History(Record):
    """A job as it is stored, and the events that are kept of it, the oldest first."""

    job: Job
    events: tuple[Event, ...]

    @property
    def attempts(self) -> list[Attempt]:
        """The attempts that events are kept of; one under way is the last."""
        return timeline([*self.events, *untold(self.job, self.events)])

    def replay(self) -> Job:
        """Return the job as its events rebuild it: equal to `job`, except that its cause has no traceback.

        Raises `MissingEvents` when events of it are not kept any more.
        """
        return rebuild(self.job, self.events)


def rebuild(job: Job, events: Sequence[Event]) -> Job:
    """Return a stored job as its events rebuild it from the job as it was enqueued.

    Raises `MissingEvents` when a move is missing that is neither among the events nor known from the job.
    """
    rebuilt = replay(as_enqueued(job, events), [*events, *untold(job, events)])
    # A cancel request is no move: it waits beside the job until the attempt ends.
    return replace(rebuilt, cancel_request=job.cancel_request)


def as_enqueued(job: Job, events: Sequence[Event]) -> Job:
    """Return a job as it was enqueued, as far as it is known: what its moves replaced is not.

    That is when it was first due, and its limit of attempts, where events have changed them.
    """
    is_moved = any(_sets_due_at(event.move) for event in events)
    deadline_at = job.deadline_at
    if deadline_at is not None and job.deadline_from_at is not None:
        deadline_at += job.created_at - job.deadline_from_at
    return Job(
        id=job.id,
        task=job.task,
        queue=job.queue,
        tenant=job.tenant,
        dependency=job.dependency,
        group=job.group,
        key=job.key,
        key_ttl=job.key_ttl,
        priority=job.priority,
        payload=job.payload,
        override=job.override,
        timeout=job.timeout,
        created_at=job.created_at,
        due_at=job.created_at if is_moved else job.due_at,
        waiting_for="turn" if is_moved or job.attempt else job.waiting_for,
        deadline_at=deadline_at,
        max_attempts=job.max_attempts,
        headers=job.headers,
    )


def _sets_due_at(move: Move | Enqueue) -> bool:
    return move.started if isinstance(move, Return) else hasattr(move, "due_at")


def untold(job: Job, events: Sequence[Event]) -> list[Event]:
    """Return the last moves of a job as far as no event tells them: the start of its attempt, and its success.

    Of an attempt that succeeded the session is not known any more, nor when it began: its start is at its end.
    """
    version = events[-1].version if events else 0
    started_at = job.leased_at if job.state == "running" else job.finished_at
    moves: list[Move] = [Start(session=job.session)]
    if job.state == "succeeded":
        moves.append(Succeed())
    elif job.state != "running":
        return []
    first = job.version - len(moves) + 1
    told = [
        Event(
            job_id=job.id,
            at=started_at or 0,
            attempt=job.attempt,
            version=first + number,
            move=move,
            queue=job.queue,
            tenant=job.tenant,
            task=job.task,
        )
        for number, move in enumerate(moves)
    ]
    return [event for event in told if event.version > version]
