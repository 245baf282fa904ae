"""Connections of callers: jobs written through one are part of its transaction, inside a savepoint.

A connection of SQLAlchemy or Django is recognised by its module and attributes, so that neither must be installed.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reprieve.errors import StoreError, ValidationError
from reprieve.stores.sqlite.error_mapping import translate

_ASYNCHRONOUS = (
    "{kind} uses its connection in another thread, where no job can be written; use a connection of sqlite3 or a "
    "Session of SQLAlchemy, or enqueue after the commit, without connection="
)


@contextmanager
def joined(connection: object, path: Path | None) -> Iterator[sqlite3.Cursor]:
    """Open a savepoint in the caller's transaction, which must be on the file of the jobs; a failure rolls it back."""
    own = _unwrapped(connection)
    if not own.in_transaction:
        message = "the connection has no open transaction; begin one, best with BEGIN IMMEDIATE"
        raise StoreError(message)
    cursor = own.cursor()
    cursor.row_factory = None
    _require_file(cursor, path)
    try:
        cursor.execute("savepoint reprieve")
        yield cursor
    except Exception as error:
        if own.in_transaction:
            cursor.execute("rollback to reprieve")
            cursor.execute("release reprieve")
        raise translate(error) from error
    cursor.execute("release reprieve")


def _unwrapped(connection: Any) -> sqlite3.Connection:  # noqa: ANN401 - any library's
    """Return the connection of sqlite3 inside a connection or session of SQLAlchemy or Django."""
    library = type(connection).__module__
    if library.startswith(("sqlalchemy.ext.asyncio", "aiosqlite")):
        raise ValidationError(_ASYNCHRONOUS.format(kind=f"{type(connection).__name__} of {library.partition('.')[0]}"))
    if library.startswith("sqlalchemy"):
        return _begun(_of_sqlalchemy(connection))
    if hasattr(connection, "in_atomic_block"):
        if not connection.in_atomic_block:
            message = "Django has no open transaction; enqueue inside `with transaction.atomic()`"
            raise StoreError(message)
        return _required(connection.connection)
    return _required(connection)


def _of_sqlalchemy(connection: Any) -> Any:  # noqa: ANN401 - SQLAlchemy's own
    """Return the driver's connection below a Session, a scoped session or a Connection of SQLAlchemy."""
    # A session has a method of this name, a connection an attribute: its pooled connection.
    found = connection.connection() if callable(getattr(type(connection), "connection", None)) else connection
    pooled = getattr(found, "connection", None)
    return getattr(pooled, "driver_connection", connection)


def _begun(connection: Any) -> sqlite3.Connection:  # noqa: ANN401 - the driver's own
    """Begin the transaction that SQLAlchemy takes for open: the sqlite3 module delays it until the first write."""
    own = _required(connection)
    if not own.in_transaction and own.isolation_level is not None:
        try:
            own.execute("begin immediate")
        except sqlite3.Error as error:
            raise translate(error) from error
    return own


def _required(connection: Any) -> sqlite3.Connection:  # noqa: ANN401 - any object
    if hasattr(connection, "in_transaction") and hasattr(connection, "cursor"):
        return connection  # type: ignore[no-any-return]  # any driver with the interface of sqlite3
    message = (
        f"connection= must be a connection with an open transaction to the file of the jobs, of sqlite3, SQLAlchemy "
        f"(Session or Connection) or Django, got {connection!r:.100}"
    )
    raise ValidationError(message)


def _require_file(cursor: sqlite3.Cursor, path: Path | None) -> None:
    """Raise an error for a connection to another file, whose transaction cannot hold jobs of this store."""
    if path is None:
        message = (
            "the jobs are in memory, where no other connection reaches them; "
            "keep both in one file, or leave connection out"
        )
        raise ValidationError(message)
    rows = cursor.execute("pragma database_list").fetchall()
    # The connection may have a text_factory that returns bytes.
    file = next((os.fsdecode(row[2] or "") for row in rows if os.fsdecode(row[1]) == "main"), "")
    if not _is_same(file, path):
        message = (
            f"this connection is to {file or 'a database in memory'}, the jobs are in {path.absolute()}; "
            "give a connection to that file, or leave connection out"
        )
        raise ValidationError(message)


def _is_same(file: str, path: Path) -> bool:
    try:
        return bool(file) and path.samefile(file)
    except OSError:
        return False
