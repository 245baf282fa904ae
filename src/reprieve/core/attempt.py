"""Attempts: a job's history as a list of tries, read from its events."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec.structs import replace

from reprieve.core.events import Event
from reprieve.core.job import Cause
from reprieve.core.move import Dead, Move, Park, Retry, Return, Start
from reprieve.core.record import Record

Cost: TypeAlias = Literal["charged", "spared", "crashed", ""]
"""What an attempt cost: one of the limit; nothing, since the failure was not the job's own; its worker; or nothing,
since it did not fail."""


class Attempt(Record):
    """One lease of a job to a worker. An attempt without an end is under way."""

    number: int
    session: str = ""
    started_at: int | None = None
    ended_at: int | None = None
    ended_with: str = ""
    """The name of the event that ended it."""
    cost: Cost = ""
    cause: Cause | None = None


def timeline(events: Iterable[Event]) -> list[Attempt]:
    """Return the attempts of one job, in order: those that have ended, and one that is under way.

    A start that the store did not keep is known from the event that ended the attempt.
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


def cost_of(move: Move) -> Cost:
    """Return what an attempt cost that ended with this move."""
    match move:
        case Return(crashed=True) | Dead(crashed=True):
            return "crashed"
        case Retry() | Park():
            return "charged" if move.charged else "spared"
        case Dead():
            return "charged" if move.charged else "spared" if move.spared else ""
        case _:
            return ""
