"""Attempts: a job's history as a list of attempts, computed from its events."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec.structs import replace

from reprieve.core.events import Event
from reprieve.core.job import Cause
from reprieve.core.move import Dead, Enqueue, Move, Park, Retry, Return, Start
from reprieve.core.record import Record

Cost: TypeAlias = Literal["charged", "spared", "crashed", ""]
"""How an attempt counts: charged to the limit; spared, because the failure was not the job's own; crashed with its
worker; or empty, because it did not fail."""


class Attempt(Record):
    """One lease of a job to a worker. An attempt without an end is running."""

    number: int
    session: str = ""
    started_at: int | None = None
    ended_at: int | None = None
    ended_with: str = ""
    """The name of the event that ended it."""
    cost: Cost = ""
    cause: Cause | None = None


def timeline(events: Iterable[Event]) -> list[Attempt]:
    """Return the attempts of one job in order, a running one last.

    If the store did not keep the start of an attempt, the event that ended it supplies the start.
    """
    attempts: list[Attempt] = []
    for event in events:
        if isinstance(event.move, Start):
            attempts.append(Attempt(number=event.attempt, session=event.move.session, started_at=event.at))
            continue
        if event.attempt > (attempts[-1].number if attempts else 0):
            attempts.append(Attempt(number=event.attempt, session=event.session, started_at=event.started_at))
        if attempts and attempts[-1].ended_at is None:
            cause = event.move.cause if isinstance(event.move, Retry | Park | Dead) else None
            attempts[-1] = replace(
                attempts[-1], ended_at=event.at, ended_with=event.name, cost=cost_of(event.move), cause=cause
            )
    return attempts


def cost_of(move: Move | Enqueue) -> Cost:
    """Return how an attempt counts that ended with this move."""
    match move:
        case Return(crashed=True) | Dead(crashed=True):
            return "crashed"
        case Retry() | Park():
            return "charged" if move.charged else "spared"
        case Dead():
            return "charged" if move.charged else "spared" if move.spared else ""
        case _:
            return ""
