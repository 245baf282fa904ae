"""A page of events, made of the rows that a store has read: the same in every store."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from reprieve.core.events import Event
from reprieve.errors import InvalidCursor
from reprieve.stores.event_record import EventHead, head_of, readable_events
from reprieve.stores.protocol import MAX_EXAMINED_EVENTS, EventPage, EventQuery, Told


class StoredEvent(NamedTuple):
    """An event as a store keeps it."""

    position: int
    data: bytes
    job_id: bytes = b""
    """Where the store knows it besides."""


class StreamEnds(NamedTuple):
    """What a store knows of its stream besides the events in it."""

    newest: int
    pruned_to: int


def rows_to_read(query: EventQuery) -> int:
    """Return how many rows a store reads for a page."""
    return max(MAX_EXAMINED_EVENTS, query.limit) if query.is_selective else query.limit


def page_of(
    query: EventQuery, rows: Sequence[StoredEvent], ends: StreamEnds, read: Callable[[StoredEvent], Told | None]
) -> EventPage:
    """Return the page of these rows, which are in the order of the query and as many as `rows_to_read` at most.

    The ends are read after the rows: what was deleted in between counts as missed, and nothing goes unnoticed.
    """
    found: list[tuple[int, Told | None]] = []
    examined = 0
    for row in rows:
        if len(found) == query.limit:
            break
        examined += 1
        if (query.only == "all" and not query.is_selective) or _may_match(query, row, read):
            found.append((row.position, read(row)))
    position = rows[examined - 1].position if examined else _unread(query, ends)
    return EventPage(
        events=tuple(readable_events(found)),
        position=position,
        has_more=examined < len(rows) or len(rows) >= rows_to_read(query),
        newest=ends.newest,
        pruned_to=ends.pruned_to,
        missed=query.after < ends.pruned_to and _goes_on(query),
    )


def _goes_on(query: EventQuery) -> bool:
    """Return whether a query reads on from where a reader was: only that one can have missed events."""
    return not query.job_id and (query.after > 0 or not query.newest_first)


def _unread(query: EventQuery, ends: StreamEnds) -> int:
    """Return how far an empty page goes."""
    if query.newest_first:
        return query.before if query.before is not None else ends.newest + 1
    return max(query.after, ends.pruned_to)


def _may_match(query: EventQuery, row: StoredEvent, read: Callable[[StoredEvent], Told | None]) -> bool:
    """Return whether a row matches; one that cannot be read does, and is counted and left out."""
    head = head_of(row.data) or read(row)
    if head is None:
        return True
    task = head.task if isinstance(head, EventHead | Event) else None
    return (
        query.only in ("all", "notices" if task is None else "jobs")
        and query.queue in ("", head.queue)
        and query.tenant in (None, head.tenant)
        and query.task in ("", task)
        and (not query.names or head.name in query.names)
    )


def require_past(query: EventQuery, newest: int) -> None:
    """Raise `InvalidCursor` for a position that no event has had so far: a reader would wait there in vain."""
    if query.job_id:
        return
    is_wrong_end = query.before is not None and query.before > newest + 1
    if query.after > newest or is_wrong_end:
        wrong = query.before if is_wrong_end else query.after
        message = (
            f"position {wrong} is after the newest event, which is at {newest}: it is of another store, or this one "
            "was restored from a backup; go on after the newest, or begin at 0"
        )
        raise InvalidCursor(message)


async def events_of_jobs(
    read_events: Callable[[EventQuery], Awaitable[EventPage]], after: int, limit: int, job_id: str
) -> list[tuple[int, Event]]:
    """Return the next events of jobs; an empty list means that there are no more."""
    while True:
        page = await read_events(EventQuery(after=after, limit=limit, job_id=job_id, only="jobs"))
        if page.events or not page.has_more:
            return [(position, told) for position, told in page.events if isinstance(told, Event)]
        after = page.position
