"""SQLite files in every state: sound, of another program, of a newer release, damaged."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from reprieve.stores.sqlite import SqliteStore


def sound(path: Path) -> Path:
    """Make a store."""
    asyncio.run(SqliteStore(path).close())
    return path


def foreign(path: Path) -> Path:
    """Make a database of an application."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table orders (id integer primary key)")
        connection.commit()
    return path


def no_database(path: Path) -> Path:
    """Make a file that is no database."""
    path.write_bytes(b"hello, world\n" * 1_000)
    return path


def newer(path: Path) -> Path:
    """Make a store of a release to come."""
    sound(path)
    change(path, "update reprieve_counter set value = 99 where name = 'schema'")
    change(path, "update reprieve_compatibility set oldest_schema = 99, oldest_release = '9.8', migrated_by = '9.9'")
    return path


def speechless(path: Path) -> Path:
    """Make a store that has no schema version."""
    sound(path)
    change(path, "delete from reprieve_counter")
    return path


def damaged(path: Path) -> Path:
    """Make a store and overwrite the middle of it."""
    sound(path)
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 9] = b"\xa5" * 4096 * 6
    path.write_bytes(bytes(content))
    return path


def change(path: Path, statement: str) -> None:
    """Change a file behind the store's back."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()
