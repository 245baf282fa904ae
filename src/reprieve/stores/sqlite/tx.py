"""A transaction as the code for all SQL databases sees it."""

import sqlite3
from typing import Any

from reprieve.stores.sqlite.statements import Tx


class SqliteTx:
    """Runs statements with named parameters."""

    def __init__(self, tx: Tx) -> None:
        """Take a connection or cursor with an open transaction."""
        self._tx = tx

    def execute(self, statement: str, parameters: dict[str, Any] | None = None) -> sqlite3.Cursor:
        """Run a statement."""
        return self._tx.execute(statement, parameters or {})

    def one(self, statement: str, parameters: dict[str, Any] | None = None) -> tuple[Any, ...] | None:
        """Return the first row of a statement."""
        row: tuple[Any, ...] | None = self.execute(statement, parameters).fetchone()
        return row

    def all(self, statement: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Return all rows of a statement."""
        return self.execute(statement, parameters).fetchall()
