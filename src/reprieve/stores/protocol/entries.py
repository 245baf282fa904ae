"""Entries: small named values with versions, for what all processes must agree on."""

from functools import partial
from typing import Protocol

from msgspec import field

from reprieve.core.audit import Action, AuditEntry, Author, Automatic, Facts
from reprieve.core.change import Change
from reprieve.core.job import Job
from reprieve.core.notice import Notice
from reprieve.core.record import Record
from reprieve.rng import bits
from reprieve.stores.protocol.jobs import ChangeResult
from reprieve.stores.protocol.limits import LimitUpdate


class Entry(Record):
    """A small named value with a version, for what all processes must agree on.

    Version 0 means that there is no entry. The versions of a key only grow, also after its entry was deleted, so a
    version never names two values.
    """

    key: str
    version: int
    value: bytes
    expires_at: int | None = None
    """From when on there is no such entry; None: never. A prune deletes it then."""


class EntryPage(Record):
    """Some entries, by key; an empty cursor means that there are no more."""

    entries: tuple[Entry, ...]
    cursor: str = ""


class EntryFacts(Record):
    """What the audit entry of a change by a person tells of an entry, whose value it does not know."""

    action: Action = "configuration"
    tenant: str = ""
    """The tenant that the entry is about; empty if it is about none."""
    before: Facts = field(default_factory=dict)
    after: Facts = field(default_factory=dict)


class EntryWrite(Record):
    """What one compare-and-set writes. All of it is stored, or nothing.

    After a lost reply the caller repeats the call with the same record: the store recognises it by `write_id`, as long
    as it knows the change (see `entries_since`), and returns what the first call would have returned.
    """

    key: str
    version: int
    """The version that the entry must have; 0 if there must be none."""
    value: bytes | None
    """The new value; None deletes the entry."""
    expires_at: int | None = None
    """From when on the entry counts as gone; None: never."""
    updates: tuple[LimitUpdate, ...] = ()
    """Limits that change with it."""
    notices: tuple[Notice, ...] = ()
    """What the stream of events is told with it; its limits are not told besides."""
    jobs: tuple[Job, ...] = ()
    """Jobs that are enqueued with it, in the partition of the entry: their ids are of `new_id(…, beside=key)`."""
    changes: tuple[Change, ...] = ()
    """Changes of jobs in the partition of the entry. If one of them does not apply, nothing is written."""
    told: EntryFacts = EntryFacts()
    write_id: int = field(default_factory=partial(bits, 63))
    """63 random bits that tell this write from any other."""


class EntryWritten(Record):
    """The result of a compare-and-set."""

    entry: Entry | None
    """The entry as it is now, with version 0 if it was deleted. None: it has another version, or a change does not
    apply, and nothing was done."""
    ids: tuple[str, ...] = ()
    """Of each job that was to be enqueued the id under which it is known; after a repeat its own."""
    results: tuple[ChangeResult, ...] = ()
    """Of each change; "already" for all after a repeat. If the write was refused, one of them is not "applied", and the
    others say what would have become of them."""


def repeated(write: EntryWrite, entry: Entry) -> EntryWritten:
    """Return the result of a write that an earlier call has made."""
    results: tuple[ChangeResult, ...] = tuple("already" for _ in write.changes)
    return EntryWritten(entry=entry, ids=tuple(job.id for job in write.jobs), results=results)


def entry_audit(write: EntryWrite, now: int, author: Author) -> AuditEntry | None:
    """Return the audit entry of a change of an entry; None if no person makes it."""
    if isinstance(author, Automatic):
        return None
    told = write.told
    return AuditEntry(
        at=now,
        actor=author.by,
        action=told.action,
        kind="entry",
        name=write.key,
        tenant=told.tenant,
        reason=author.reason,
        before={"version": write.version} | told.before,
        after=({"is_deleted": True} if write.value is None else {}) | told.after,
        request_id=author.request_id,
        operation=author.operation,
    )


class EntryDeletion(Record):
    """An entry that was deleted, and the number of that change: later versions of its key are larger."""

    key: str
    version: int


class EntryChanges(Record):
    """What has happened to entries since a cursor. A key that changed several times is there once, as it is now."""

    entries: tuple[Entry, ...]
    deleted: tuple[EntryDeletion, ...] = ()
    version: int
    """The number of the newest change: no entry had a larger version when the read began."""
    cursor: str
    """Where to go on. An entry that changed while it was read may be there again next time."""
    is_whole: bool = False
    """Whether these are all entries, because the store does not know what changed: the cursor is empty or old, or the
    store was restored from a backup. Then other entries are gone, and versions may be smaller than before."""


class EntryStore(Protocol):
    """Changes and reads entries."""

    async def compare_and_set(self, write: EntryWrite, now: int, author: Author) -> EntryWritten:
        """Set an entry, or delete it, if it has this version, together with limit updates, new jobs and changes.

        All of it is one write, or nothing is done: a schedule moves on and its job is enqueued, once.

        If a person makes it, the same write has an audit entry of the entry, and one of each limit that it changes.
        A change notifies every process that waits, for any queue.
        """
        ...

    async def entries(self, prefix: str = "", now: int = 0, cursor: str = "", limit: int = 100) -> EntryPage:
        """Return a page of the entries whose key begins with the prefix, by key, but those that have expired.

        A page may be short or empty and still have a cursor. Without a time no entry counts as expired.
        """
        ...

    async def entry(self, key: str, now: int = 0) -> Entry | None:
        """Return the entry of a key; None if there is none, or it has expired."""
        ...

    async def entries_since(self, cursor: str = "", prefix: str = "", now: int = 0) -> EntryChanges:
        """Return the entries under a prefix that were set or deleted since a cursor; an empty cursor reads all.

        Its cost depends on how many changed, not on how many there are. An entry that expires counts as deleted when
        a prune deletes it; one that was set since the cursor and has expired is deleted already.
        """
        ...
