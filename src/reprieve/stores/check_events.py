"""Checks of queries for events, and of how long events are kept."""

from typing import Final

import msgspec
from msgspec.structs import replace

from reprieve.core import values
from reprieve.core.duration import MAX_DURATION_SECONDS
from reprieve.core.events import EVENT_NAMES
from reprieve.core.ids import is_id, parse_id
from reprieve.core.notice import NOTICE_NAMES, Notice
from reprieve.errors import ValidationError
from reprieve.stores.check import MAX_AT
from reprieve.stores.check_kinds import check_record, several
from reprieve.stores.event_record import pack_notice, read_told
from reprieve.stores.protocol import MAX_EVENTS_PER_PAGE, Claim, EventQuery, Retention

MAX_NOTICE_BYTES: Final = 16 * 1024
"""Largest record of a notice."""

MAX_POSITION: Final = (1 << 62) - 1
"""The largest position that any store could give an event."""


def check_event_query(query: EventQuery) -> EventQuery:
    """Return a query with plain values; raise a `ValidationError` for one that no event can match."""
    check_record(query, EventQuery)
    values.whole(query.limit, "limit", ValidationError, 1, MAX_EVENTS_PER_PAGE)
    values.flag(query.newest_first, "newest_first", ValidationError)
    for name in ("after", "before"):
        if (position := getattr(query, name)) is not None:
            values.whole(position, name, ValidationError, 0, MAX_POSITION)
    if query.before is not None and query.before <= query.after:
        message = f"before must be a position after {query.after}, got {query.before}"
        raise ValidationError(message)
    values.one_of(query.only, ("all", "jobs", "notices"), "only", ValidationError)
    known = {"all": EVENT_NAMES | NOTICE_NAMES, "jobs": EVENT_NAMES, "notices": NOTICE_NAMES}[query.only]
    names = frozenset(
        values.one_of(name, sorted(known), "names of events", ValidationError) for name in several(query.names, "names")
    )
    if query.only == "notices" and (query.task or query.job_id):
        message = "a notice has neither a task nor a job; leave them out, or read all events"
        raise ValidationError(message)
    plain = {
        name: values.name(value, f"{name} of a query", may_be_empty=True)
        for name in ("queue", "tenant", "task")
        if (value := getattr(query, name)) is not None or name != "tenant"
    }
    job_id = values.text(query.job_id, "job_id", ValidationError)
    return replace(query, job_id=parse_id(job_id) if job_id else "", names=names, **plain)


def check_event_retention(retention: Retention) -> Retention:
    """Return a retention with plain values; raise a `ValidationError` if it keeps no events at all."""
    events_for = values.number(retention.events_for, "events_for", ValidationError, 0.0, MAX_DURATION_SECONDS)
    if not events_for:
        message = "events_for must be more than 0 s, got 0 s: without events no repeated change is recognised"
        raise ValidationError(message)
    events = values.whole(retention.events, "events", ValidationError, 1)
    return replace(retention, events_for=events_for, events=events)


def check_starts(claim: Claim) -> None:
    """Raise a `ValidationError` for a start of a job that is not leased to the session of the claim."""
    for job in claim.starts:
        if job.state != "running" or job.session != claim.session or not is_id(job.id):
            message = f"session {claim.session!r} cannot tell the start of job {job.id}, which is not leased to it"
            raise ValidationError(message)


def check_notice(notice: Notice) -> Notice:
    """Return a notice as it will be read back; raise a `ValidationError` for one that cannot be stored."""
    check_record(notice, Notice)
    for name in ("kind", "subject", "queue", "tenant"):
        values.name(getattr(notice, name), f"{name} of a notice", may_be_empty=True)
    values.whole(notice.at, "at", ValidationError, 0, MAX_AT)
    try:
        packed = pack_notice(notice)
    except (msgspec.MsgspecError, OverflowError, TypeError, ValueError) as error:
        message = f"a notice cannot be stored: {error}"
        raise ValidationError(message) from error
    stored = read_told(packed)
    if not isinstance(stored, Notice):
        message = f"a notice cannot be stored and read back: {values.shown(notice)}"
        raise ValidationError(message)
    if len(packed) > MAX_NOTICE_BYTES:
        message = f"a notice must have at most {MAX_NOTICE_BYTES:,} bytes, got {len(packed):,}"
        raise ValidationError(message)
    return stored
