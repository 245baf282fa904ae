"""Cells: small named values with versions, changed only by whoever saw the newest."""

import sqlite3

from reprieve.stores.protocol import Cell


def swap(tx: sqlite3.Connection, key: str, version: int, value: bytes | None) -> Cell | None:
    """Set or delete a cell if it still has this version; None when it has another."""
    found = tx.execute("select version from cell where key = ?", (key,)).fetchone()
    if (found[0] if found else 0) != version:
        return None
    if value is None:
        tx.execute("delete from cell where key = ?", (key,))
        return Cell(key=key, version=0, value=b"")
    # Versions come from one counter, so that a cell which was deleted and made again never looks like the old one.
    newest = tx.execute("update counter set value = value + 1 where name = 'cell' returning value").fetchone()[0]
    tx.execute(
        "insert into cell (key, version, value) values (?, ?, ?) "
        "on conflict (key) do update set version = excluded.version, value = excluded.value",
        (key, newest, value),
    )
    return Cell(key=key, version=newest, value=value)


def cells(tx: sqlite3.Connection, prefix: str) -> list[Cell]:
    """Answer the cells whose key begins so, in order."""
    rows = tx.execute(
        "select key, version, value from cell where substr(key, 1, ?) = ? order by key", (len(prefix), prefix)
    )
    return [Cell(key=key, version=version, value=value) for key, version, value in rows]
