"""Entries: small named values with versions, which change only by compare-and-set, and what changed since when."""

from typing import Any, NamedTuple

from reprieve.stores.entry_cursor import BEGINNING, MAX_CHANGES_KEPT, EntryCursor, parse_cursor
from reprieve.stores.protocol import Entry, EntryChanges, EntryDeletion, EntryWrite
from reprieve.stores.sql.tx import SqlTx, Statements


class ChangedRow(NamedTuple):
    """A key that was changed, and its entry as it is now."""

    key: str
    number: int
    """Of the last change."""
    version: int | None
    """None if the entry was deleted."""
    value: bytes | None


class EntrySet(NamedTuple):
    """An entry that was set or deleted, and whether an earlier call had done it."""

    entry: Entry
    is_repeated: bool = False


def compare_and_set(tx: SqlTx, sql: Statements, write: EntryWrite) -> EntrySet | None:
    """Set or delete an entry if it has this version, 0 if it does not exist; return None if it has another."""
    key, value = write.key, write.value
    repeated = tx.one(sql["by_stamp"], {"stamp": write.write_id, "key": key})
    if repeated is not None:
        return EntrySet(_written(key, repeated[0], value), is_repeated=True)
    found = tx.one(sql["version"], {"key": key})
    if (found[0] if found else 0) != write.version:
        return None
    # Versions come from one counter, so that an entry that was deleted and created again never has an old version.
    (number,) = tx.one(sql["number"], {}) or (0,)
    change = {"key": key, "number": number, "stamp": write.write_id}
    if value is None:
        tx.execute(sql["delete"], {"key": key})
    else:
        tx.execute(sql["set"], {"key": key, "version": number, "value": value})
    tx.execute(sql["note_change"], change)
    tx.execute(sql["forget_changes"], {"number": number - MAX_CHANGES_KEPT})
    return EntrySet(_written(key, number, value))


def _written(key: str, number: int, value: bytes | None) -> Entry:
    return Entry(key=key, version=0 if value is None else number, value=value or b"")


def entry(tx: SqlTx, sql: Statements, key: str) -> Entry | None:
    """Return the entry of a key."""
    row = tx.one(sql["one"], {"key": key})
    return None if row is None else _entry(row)


def entries(tx: SqlTx, sql: Statements, prefix: str) -> list[Entry]:
    """Return the entries whose key begins with a prefix, in the order of their keys."""
    return [_entry(row) for row in tx.all(sql["all"], {"prefix": prefix})]


def entries_since(tx: SqlTx, sql: Statements, cursor: str, prefix: str) -> EntryChanges:
    """Return what changed since a cursor, or all entries where that is not known."""
    row = tx.one(sql["newest_change"], {})
    newest, last = EntryCursor(*row) if row else BEGINNING, parse_cursor(cursor)
    stamp = tx.one(sql["stamp"], {"number": last.number})
    if stamp is None or stamp[0] != last.stamp:
        whole = tuple(entries(tx, sql, prefix))
        return EntryChanges(entries=whole, version=newest.number, cursor=str(newest), is_whole=True)
    changed = [ChangedRow._make(row) for row in tx.all(sql["changed"], {"number": last.number, "prefix": prefix})]
    return EntryChanges(
        entries=tuple(
            Entry(key=row.key, version=row.version, value=row.value)
            for row in changed
            if row.version is not None and row.value is not None
        ),
        deleted=tuple(EntryDeletion(key=row.key, version=row.number) for row in changed if row.version is None),
        version=newest.number,
        cursor=str(newest),
    )


def _entry(row: tuple[Any, ...]) -> Entry:
    key, version, value = row
    return Entry(key=key, version=version, value=value)
