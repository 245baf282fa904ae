"""Attempts: a job's history as a list of tries, read from its events."""

from collections.abc import Iterable

from msgspec.structs import replace

from reprieve.core.events import Event
from reprieve.core.job import Cause
from reprieve.core.move import Dead, Park, Retry, Start
from reprieve.core.record import Record


class Attempt(Record):
    """One lease of a job to a worker. An attempt without an end is under way."""

    number: int
    session: str = ""
    started_at: int | None = None
    """None when nobody noted the start: events of the happy path need not be kept."""
    ended_at: int | None = None
    ended_with: str = ""
    """The name of the event that ended it."""
    cause: Cause | None = None


def timeline(events: Iterable[Event]) -> list[Attempt]:
    """Answer the attempts of one job, in order: those that have ended, and one that is under way."""
    attempts: list[Attempt] = []
    for event in events:
        if isinstance(event.move, Start):
            attempts.append(Attempt(number=event.attempt, session=event.move.session, started_at=event.at))
            continue
        if event.attempt > (attempts[-1].number if attempts else 0):
            attempts.append(Attempt(number=event.attempt))
        if attempts and attempts[-1].ended_at is None:
            cause = event.move.cause if isinstance(event.move, Retry | Park | Dead) else None
            attempts[-1] = replace(attempts[-1], ended_at=event.at, ended_with=event.name, cause=cause)
    return attempts
