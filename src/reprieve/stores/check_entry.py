"""Checks of entries that callers write."""

from typing import get_args

from msgspec.structs import replace

from reprieve.core import values
from reprieve.core.audit import Action, checked_facts
from reprieve.core.change import Change
from reprieve.core.job import Job
from reprieve.errors import InvalidCursor, ValidationError
from reprieve.stores.check import MAX_AT, check_limit_update
from reprieve.stores.check_events import check_notice
from reprieve.stores.check_kinds import check_record, records, several
from reprieve.stores.protocol import EntryFacts, EntryWrite, LimitUpdate

MAX_WRITE_ID = (1 << 63) - 1
"""The largest number that a column holds."""


MAX_CARRIED = 25
"""Jobs, and changes, that one write may carry: claims wait for it."""


def check_entry_write(write: EntryWrite) -> EntryWrite:
    """Return a write with plain values; raise a `ValidationError` for one that cannot be stored."""
    check_record(write, EntryWrite)
    told = write.told
    check_record(told, EntryFacts)
    check_record(told.before, dict)
    check_record(told.after, dict)
    if write.value is not None:
        check_record(write.value, bytes)
    jobs, changes = records(write.jobs, Job, "jobs"), records(write.changes, Change, "changes")
    for carried, what in ((jobs, "jobs"), (changes, "changes")):
        if len(carried) > MAX_CARRIED:
            message = f"an entry can be written with at most {MAX_CARRIED} {what}, got {len(carried):,}"
            raise ValidationError(message)
    return replace(
        write,
        key=values.plain(values.text(write.key, "key of an entry", ValidationError)),
        version=values.whole(write.version, "version of an entry", ValidationError, 0, MAX_WRITE_ID),
        expires_at=None
        if write.expires_at is None
        else values.whole(write.expires_at, "expires_at of an entry", ValidationError, 0, MAX_AT),
        jobs=jobs,
        changes=changes,
        updates=tuple(map(check_limit_update, records(write.updates, LimitUpdate, "updates"))),
        notices=tuple(map(check_notice, several(write.notices, "notices"))),
        write_id=values.whole(write.write_id, "write_id", ValidationError, 0, MAX_WRITE_ID),
        told=EntryFacts(
            action=values.one_of(told.action, get_args(Action), "action", ValidationError),  # type: ignore[arg-type]  # it is one of the words
            tenant=values.name(told.tenant, "tenant of an entry", may_be_empty=True),
            before=checked_facts(told.before, "before"),
            after=checked_facts(told.after, "after"),
        ),
    )


def check_entry_cursor(cursor: str, prefix: str) -> None:
    """Raise `InvalidCursor` for what is not the cursor of a page of these entries: the last key of the page before."""
    if cursor and not cursor.startswith(prefix):
        message = f"cursor {values.shown(cursor)} does not belong to entries that begin with {values.shown(prefix)}"
        raise InvalidCursor(message)
