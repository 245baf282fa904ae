"""Entries: small named values with versions, changed only by whoever saw the newest."""

from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Entry


def compare_and_set(tx: Tx, key: str, version: int, value: bytes | None) -> Entry | None:
    """Set or delete an entry if it still has this version; None when it has another. In a turn of ours."""
    sql = statements("entries")
    found = tx.one(sql["version"], {"key": key})
    if (found[0] if found else 0) != version:
        return None
    if value is None:
        tx.execute(sql["delete"], {"key": key})
        return Entry(key=key, version=0, value=b"")
    # Versions come from one counter, so that an entry which was deleted and made again never looks like the old one.
    row = tx.one(sql["set"], {"key": key, "value": value})
    return Entry(key=key, version=row[0] if row else 0, value=value)


def entries(tx: Tx, prefix: str) -> list[Entry]:
    """Return the entries whose key begins so, in order."""
    rows = tx.all(statements("entries")["all"], {"prefix": prefix})
    return [Entry(key=key, version=version, value=value) for key, version, value in rows]
