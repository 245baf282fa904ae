"""Connections of callers: what is stored through one is part of its transaction, whose rest a failure leaves alone."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from reprieve.errors import StoreError
from reprieve.stores.sqlite.faults import translate


@contextmanager
def joined(connection: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    """Join the caller's open transaction, inside a savepoint."""
    if not connection.in_transaction:
        message = "the connection has no open transaction; begin one, best with BEGIN IMMEDIATE"
        raise StoreError(message)
    cursor = connection.cursor()
    cursor.row_factory = None
    try:
        cursor.execute("savepoint reprieve")
        yield cursor
    except Exception as error:
        if connection.in_transaction:
            cursor.execute("rollback to reprieve")
            cursor.execute("release reprieve")
        raise translate(error) from error
    cursor.execute("release reprieve")
