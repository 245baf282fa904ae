"""Entries: small named values with versions, for what all processes must agree on."""

from collections.abc import Sequence
from typing import Protocol

from reprieve.core.record import Record
from reprieve.stores.protocol.limits import LimitUpdate


class Entry(Record):
    """A small named value with a version, for what all processes must agree on.

    Version 0 means that there is no entry. The versions of a key only grow, also after its entry was deleted, so a
    version never names two values.
    """

    key: str
    version: int
    value: bytes


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

    async def compare_and_set(
        self, key: str, version: int, value: bytes | None, updates: Sequence[LimitUpdate] = (), now: int = 0
    ) -> Entry | None:
        """Set an entry, or delete it with None, if it has this version, together with limit updates.

        Returns the entry as it is now, or None if it has another version and nothing was changed. A change notifies
        every process that waits, for any queue.
        """
        ...

    async def entries(self, prefix: str = "") -> list[Entry]:
        """Return the entries whose key begins with the prefix, by key."""
        ...

    async def entry(self, key: str) -> Entry | None:
        """Return the entry of a key; None if there is none."""
        ...

    async def entries_since(self, cursor: str = "", prefix: str = "") -> EntryChanges:
        """Return the entries under a prefix that were set or deleted since a cursor; an empty cursor reads all.

        Its cost depends on how many changed, not on how many there are.
        """
        ...
