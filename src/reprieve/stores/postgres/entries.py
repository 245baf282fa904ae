"""Entries: small named values with versions, set only by a caller that has seen the newest version."""

from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Entry


def compare_and_set(tx: Tx, key: str, version: int, value: bytes | None) -> Entry | None:
    """Set or delete an entry if it still has this version, under the claim lock; return None when it has another."""
    sql = statements("entries")
    found = tx.one(sql["version"], {"key": key})
    if (found[0] if found else 0) != version:
        return None
    if value is None:
        tx.execute(sql["delete"], {"key": key})
        return Entry(key=key, version=0, value=b"")
    # Versions come from one sequence, so that an entry that was deleted and set again has a version that is new.
    row = tx.one(sql["set"], {"key": key, "value": value})
    return Entry(key=key, version=row[0] if row else 0, value=value)


def entries(tx: Tx, prefix: str) -> list[Entry]:
    """Return the entries whose key begins with a prefix, in order."""
    rows = tx.all(statements("entries")["all"], {"prefix": prefix})
    return [Entry(key=key, version=version, value=value) for key, version, value in rows]
