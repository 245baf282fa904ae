"""Entries: small named values with versions, which change only by compare-and-set, and what changed since when."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from reprieve.rng import bits
from reprieve.stores.entry_cursor import (
    BEGINNING,
    LAST_CHARACTER,
    MAX_CHANGES_KEPT,
    EntryCursor,
    has_expired,
    parse_cursor,
)
from reprieve.stores.protocol import Entry, EntryChanges, EntryDeletion, EntryPage, EntryWrite
from reprieve.stores.sql.tx import SqlTx, Statements

MAX_ENTRIES_READ: Final = 1_000
"""Entries that one statement reads when all are wanted."""


class EntryRange(NamedTuple):
    """Which page of entries is wanted."""

    prefix: str
    cursor: str
    limit: int


class ChangedRow(NamedTuple):
    """A key that was changed, and its entry as it is now."""

    key: str
    number: int
    """Of the last change."""
    version: int | None
    """None if the entry was deleted."""
    value: bytes | None
    expires_at: int | None


class EntrySet(NamedTuple):
    """An entry that was set or deleted, and whether an earlier call had done it."""

    entry: Entry
    is_repeated: bool = False


def compare_and_set(tx: SqlTx, sql: Statements, write: EntryWrite, now: int) -> EntrySet | None:
    """Set or delete an entry if it has this version, 0 if it does not exist; return None if it has another."""
    key = write.key
    repeated = tx.one(sql["by_stamp"], {"stamp": write.write_id, "key": key})
    if repeated is not None:
        return EntrySet(_written(write, repeated[0]), is_repeated=True)
    found = tx.one(sql["version"], {"key": key, "now": now})
    if (found[0] if found else 0) != write.version:
        return None
    return EntrySet(_written(write, _change(tx, sql, key, write)))


def _change(tx: SqlTx, sql: Statements, key: str, write: EntryWrite | None) -> int:
    """Set or delete an entry; return the number of the change."""
    # Versions come from one counter, so that an entry that was deleted and created again never has an old version.
    (number,) = tx.one(sql["number"], {}) or (0,)
    change = {"key": key, "number": number, "stamp": bits(63) if write is None else write.write_id}
    if write is None or write.value is None:
        tx.execute(sql["delete"], {"key": key})
    else:
        row = {"key": key, "version": number, "value": write.value, "expires_at": write.expires_at}
        tx.execute(sql["set"], row)
    tx.execute(sql["note_change"], change)
    tx.execute(sql["forget_changes"], {"number": number - MAX_CHANGES_KEPT})
    return int(number)


def _written(write: EntryWrite, number: int) -> Entry:
    if write.value is None:
        return Entry(key=write.key, version=0, value=b"")
    return Entry(key=write.key, version=number, value=write.value, expires_at=write.expires_at)


def delete_expired(tx: SqlTx, sql: Statements, now: int, max_rows: int) -> int:
    """Delete entries that have expired; return how many."""
    expired = tx.all(sql["expired"], {"now": now, "max_rows": max_rows})
    for (key,) in expired:
        _change(tx, sql, key, None)
    return len(expired)


def entry(tx: SqlTx, sql: Statements, key: str, now: int) -> Entry | None:
    """Return the entry of a key."""
    row = tx.one(sql["one"], {"key": key, "now": now})
    return None if row is None else _entry(row)


def entries(tx: SqlTx, sql: Statements, wanted: EntryRange, now: int) -> EntryPage:
    """Return a page of the entries whose key begins with a prefix, in the order of their keys."""
    row = {
        "first": wanted.prefix,
        "cursor": wanted.cursor,
        "last": wanted.prefix + LAST_CHARACTER,
        "count": wanted.limit,
    }
    found = [_entry(columns) for columns in tx.all(sql["page"], row)]
    return EntryPage(
        entries=tuple(one for one in found if one.key.startswith(wanted.prefix) and not has_expired(one, now)),
        cursor=found[-1].key if len(found) == wanted.limit else "",
    )


def _all_entries(tx: SqlTx, sql: Statements, prefix: str, now: int) -> Iterator[Entry]:
    cursor, is_first = "", True
    while cursor or is_first:
        page = entries(tx, sql, EntryRange(prefix, cursor, MAX_ENTRIES_READ), now)
        yield from page.entries
        cursor, is_first = page.cursor, False


def entries_since(tx: SqlTx, sql: Statements, cursor: str, prefix: str, now: int) -> EntryChanges:
    """Return what changed since a cursor, or all entries where that is not known."""
    row = tx.one(sql["newest_change"], {})
    newest, last = EntryCursor(*row) if row else BEGINNING, parse_cursor(cursor)
    stamp = tx.one(sql["stamp"], {"number": last.number})
    if stamp is None or stamp[0] != last.stamp:
        whole = tuple(_all_entries(tx, sql, prefix, now))
        return EntryChanges(entries=whole, version=newest.number, cursor=str(newest), is_whole=True)
    changed = [ChangedRow._make(row) for row in tx.all(sql["changed"], {"number": last.number, "prefix": prefix})]
    now_set = [
        Entry(key=row.key, version=row.version, value=row.value, expires_at=row.expires_at)
        for row in changed
        if row.version is not None and row.value is not None
    ]
    kept = {one.key: one for one in now_set if not has_expired(one, now)}
    return EntryChanges(
        entries=tuple(kept.values()),
        deleted=tuple(EntryDeletion(key=row.key, version=row.number) for row in changed if row.key not in kept),
        version=newest.number,
        cursor=str(newest),
    )


def _entry(row: tuple[Any, ...]) -> Entry:
    key, version, value, expires_at = row
    return Entry(key=key, version=version, value=value, expires_at=expires_at)
