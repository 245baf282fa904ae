"""Cells: small named values with versions, changed only by whoever saw the newest."""

import sqlite3

from reprieve.stores.protocol import Cell
from reprieve.stores.sqlite.statements import statements


def swap(tx: sqlite3.Connection, key: str, version: int, value: bytes | None) -> Cell | None:
    """Set or delete a cell if it still has this version; None when it has another."""
    sql = statements("cells")
    found = tx.execute(sql["version"], (key,)).fetchone()
    if (found[0] if found else 0) != version:
        return None
    if value is None:
        tx.execute(sql["delete"], (key,))
        return Cell(key=key, version=0, value=b"")
    # Versions come from one counter, so that a cell which was deleted and made again never looks like the old one.
    newest = tx.execute(sql["number"]).fetchone()[0]
    tx.execute(sql["set"], (key, newest, value))
    return Cell(key=key, version=newest, value=value)


def cells(tx: sqlite3.Connection, prefix: str) -> list[Cell]:
    """Answer the cells whose key begins so, in order."""
    rows = tx.execute(statements("cells")["all"], (len(prefix), prefix)).fetchall()
    return [Cell(key=key, version=version, value=value) for key, version, value in rows]
