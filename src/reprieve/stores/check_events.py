"""Checks of queries for events, and of how long events are kept."""

from typing import Final

from msgspec.structs import replace

from reprieve.core import values
from reprieve.core.duration import MAX_DURATION_SECONDS
from reprieve.core.events import EVENT_NAMES
from reprieve.core.ids import parse_id
from reprieve.errors import ValidationError
from reprieve.stores.protocol import EventQuery, Retention

MAX_POSITION: Final = (1 << 62) - 1
"""The largest position that any store could give an event."""


def check_event_query(query: EventQuery) -> EventQuery:
    """Return a query with plain values; raise a `ValidationError` for one that no event can match."""
    values.whole(query.limit, "limit", ValidationError, 1)
    for name in ("after", "before"):
        if (position := getattr(query, name)) is not None:
            values.whole(position, name, ValidationError, 0, MAX_POSITION)
    if query.before is not None and query.before <= query.after:
        message = f"before must be a position after {query.after}, got {query.before}"
        raise ValidationError(message)
    unknown = sorted(map(str, set(query.names) - EVENT_NAMES))
    if unknown:
        message = f"there is no event named {unknown[0]!r}; the names are {', '.join(sorted(EVENT_NAMES))}"
        raise ValidationError(message)
    facts = {name: getattr(query, name) for name in ("queue", "tenant", "task")}
    plain = {
        name: values.name(value, f"{name} of a query", may_be_empty=True)
        for name, value in facts.items()
        if value is not None
    }
    return replace(query, job_id=parse_id(query.job_id) if query.job_id else "", **plain)


def check_event_retention(retention: Retention) -> Retention:
    """Return a retention with plain values; raise a `ValidationError` if it keeps no events at all."""
    events_for = values.number(retention.events_for, "events_for", ValidationError, 0.0, MAX_DURATION_SECONDS)
    if not events_for:
        message = "events_for must be more than 0 s, got 0 s: without events no repeated change is recognised"
        raise ValidationError(message)
    events = values.whole(retention.events, "events", ValidationError, 1)
    return replace(retention, events_for=events_for, events=events)
