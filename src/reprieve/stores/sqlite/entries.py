"""Entries: small named values with versions, which change only by compare-and-set."""

import sqlite3

from reprieve.stores.protocol import Entry
from reprieve.stores.sqlite.statements import statements


def compare_and_set(tx: sqlite3.Connection, key: str, version: int, value: bytes | None) -> Entry | None:
    """Set or delete an entry if it has this version, 0 if it does not exist; return None if it has another."""
    sql = statements("entries")
    found = tx.execute(sql["version"], (key,)).fetchone()
    if (found[0] if found else 0) != version:
        return None
    if value is None:
        tx.execute(sql["delete"], (key,))
        return Entry(key=key, version=0, value=b"")
    # Versions come from one counter, so that an entry that was deleted and created again never has an old version.
    newest = tx.execute(sql["number"]).fetchone()[0]
    tx.execute(sql["set"], (key, newest, value))
    return Entry(key=key, version=newest, value=value)


def entries(tx: sqlite3.Connection, prefix: str) -> list[Entry]:
    """Return the entries whose key begins with a prefix, in the order of their keys."""
    rows = tx.execute(statements("entries")["all"], (len(prefix), prefix)).fetchall()
    return [Entry(key=key, version=version, value=value) for key, version, value in rows]
