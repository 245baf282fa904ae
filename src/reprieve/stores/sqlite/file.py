"""The file: how it is opened, what it must be, and how its layout grows."""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal, TypeAlias

from reprieve.errors import ForeignStore, NewerSchema, StoreCorrupt, StoreError, StoreNotFound, StoreReadOnly
from reprieve.stores.sqlite.faults import is_busy, translate
from reprieve.stores.sqlite.statements import Tx

Durability: TypeAlias = Literal["full", "fast"]
"""Full survives the loss of power; fast survives every crash of ours, but may lose the last moments with the power."""

OLDEST = (3, 37, 0)
PATIENCE = 10_000
"""Milliseconds for which a foreign transaction may hold the file before a call fails."""

NETWORKS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "fuse.glusterfs"}


_OCTAL = re.compile(r"\\([0-7]{3})")

WAL_LIMIT = 16 * 1024 * 1024
"""Bytes of the write-ahead log from which on readers are waited for, so that it can begin anew."""


def connect(path: Path | None, durability: Durability) -> sqlite3.Connection:
    """Open a connection for the writer's thread."""
    if path is None:
        connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512, check_same_thread=False)
        with closed_on_error(connection):
            _migrate(connection)
        return connection
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=512, check_same_thread=False)
    with closed_on_error(connection):
        connection.execute(f"pragma busy_timeout = {PATIENCE}")
        connection.execute(f"pragma synchronous = {'full' if durability == 'full' else 'normal'}")
        connection.execute("pragma temp_store = memory")
        connection.execute("pragma cache_size = -65536")
        connection.execute("pragma wal_autocheckpoint = 3000")
        connection.execute("pragma journal_size_limit = 67108864")
    return connection


@contextmanager
def closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    """Close a connection if preparing it fails: SQLite opens the file at the first statement, not before."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


def prepare(path: Path | None, durability: Durability, *, shared: bool, may_wait: bool = True) -> int | None:
    """Check the machine and the file, bring its layout up to date, and return a number for this process.

    In a file that an application has tables in, ours are made only if it is said to be `shared`. A caller that has a
    transaction open on the file must not wait for its end, and says `may_wait=False`: then nothing is written, a file
    that is up to date is opened without a number (None), and any other raises `StoreNotFound`. A write of ours would
    also refuse the caller's own, if its transaction has read before.
    """
    if sqlite3.sqlite_version_info < OLDEST:
        message = f"SQLite {sqlite3.sqlite_version} is too old; Reprieve needs 3.37 or newer"
        raise StoreError(message)
    if path is None:
        return 0
    try:
        _require_place(path)
        with closing(connect(path, durability)) as connection:
            if not may_wait:
                connection.execute("pragma busy_timeout = 0")
            require_ours(connection, path, shared=shared)
            is_wal = connection.execute("pragma journal_mode").fetchone()[0] == "wal"
            is_current = layout_of(connection) == len(migrations())
            if not may_wait:
                if not (is_wal and is_current):
                    raise _unready(path)
                return None
            if not is_wal:
                connection.execute("pragma journal_mode = wal")
            if not is_current:
                _migrate(connection)
            connection.execute("begin immediate")
            _forget_statistics(connection)
            number = take_number(connection)
            connection.execute("commit")
            return number
    except (sqlite3.Error, OSError) as error:
        if not may_wait and is_busy(error):
            raise _unready(path) from error
        raise translate(error) from error


def _unready(path: Path) -> StoreNotFound:
    message = (
        f"{path} holds no store that is ready, and none is made there while a transaction of yours is open; "
        "open the store before you begin the transaction, with app.open() or await app.aopen() when the program "
        "starts, or run reprieve migrate up once"
    )
    return StoreNotFound(message)


def take_number(tx: Tx) -> int:
    """Return a number that no other open process has, for the ids of its jobs."""
    (number,) = tx.execute(
        "update reprieve_counter as counter set value = value + 1 where name = 'node' returning value"
    ).fetchone()
    return int(number)


def keep_wal_small(connection: sqlite3.Connection, path: Path) -> None:
    """Begin the write-ahead log anew when it has grown: readers that come and go would let it grow for ever."""
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size > WAL_LIMIT:
        connection.execute("pragma busy_timeout = 100")
        connection.execute("pragma wal_checkpoint(restart)").fetchall()
        connection.execute(f"pragma busy_timeout = {PATIENCE}")


def file_system_of(path: Path, mounts: str) -> str:
    """Return the kind of file system that holds a path, by the lines of /proc/self/mountinfo."""
    kinds = {}
    for line in mounts.splitlines():
        place, _, kind = line.partition(" - ")
        if kind:
            kinds[_OCTAL.sub(lambda found: chr(int(found[1], 8)), place.split()[4])] = kind.split()[0]
    here = [point for point in kinds if path == Path(point) or Path(point) in path.parents]
    return kinds[max(here, key=len)] if here else ""


def _require_place(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> None:
    folder = path.parent
    if not folder.is_dir():
        message = f"folder {folder} does not exist; make it, or name another file"
        raise StoreReadOnly(message)
    if path.is_dir():
        message = f"{path} is a folder; name a file"
        raise ForeignStore(message)
    if mounts.exists() and (kind := file_system_of(folder.resolve(), mounts.read_text())) in NETWORKS:
        message = (
            f"{path} lies on a network file system ({kind}), whose locks lose jobs; use a local disk or PostgreSQL"
        )
        raise StoreError(message)
    if (path.exists() and not os.access(path, os.W_OK)) or not os.access(folder, os.W_OK):
        message = f"{path} cannot be written; check the permissions of the file and of its folder"
        raise StoreReadOnly(message)


def require_ours(connection: sqlite3.Connection, path: Path, *, shared: bool) -> None:
    """Refuse a database of something else, unless it is said to be shared."""
    is_used = connection.execute("select count(*) from sqlite_master").fetchone()[0] > 0
    if is_used and not shared and not layout_of(connection):
        message = (
            f"{path} is a database of something else; name another file, or keep the jobs beside its tables: "
            "Reprieve(…, shared=True), REPRIEVE_SHARED=true, or --shared for doctor and migrate"
        )
        raise ForeignStore(message)


def _forget_statistics(connection: sqlite3.Connection) -> None:
    """Forget what an ANALYZE once said of our tables: they are empty one hour and full the next."""
    if connection.execute("select 1 from sqlite_master where name = 'sqlite_stat1'").fetchone():
        connection.execute("delete from sqlite_stat1 where tbl like 'reprieve%'")


def layout_of(connection: Tx) -> int:
    """Return which layout our tables have; 0 is none."""
    if not connection.execute("select 1 from sqlite_master where name = 'reprieve_counter'").fetchone():
        return 0
    layout = connection.execute("select value from reprieve_counter where name = 'layout'").fetchone()
    if layout is None or not isinstance(layout[0], int):
        message = "the table reprieve_counter does not say which layout the store has; restore the file from a backup"
        raise StoreCorrupt(message)
    return layout[0]


@cache
def migrations() -> list[str]:
    """Return the steps of the layout, in order."""
    folder = files(__package__ or "") / "migrations"
    return [step.read_text("utf-8") for step in sorted(folder.iterdir(), key=lambda step: step.name)]


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring the layout up to date; whoever comes second finds it done."""
    connection.execute("begin immediate")
    try:
        lay(connection)
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def lay(tx: Tx) -> None:
    """Bring the layout up to date in a transaction that is open."""
    steps = migrations()
    version = layout_of(tx)
    require_known(version, len(steps))
    for step in steps[version:]:
        for statement in _split(step):
            tx.execute(statement)
    if version < len(steps):
        tx.execute("update reprieve_counter set value = ? where name = 'layout'", (len(steps),))


def require_known(version: int, newest: int) -> None:
    """Refuse a layout that only a newer release can read."""
    if version > newest:
        message = f"the store has layout {version}, and this release knows {newest}; update Reprieve"
        raise NewerSchema(message)


def _split(script: str) -> list[str]:
    lines = [line.partition("--")[0] for line in script.splitlines()]
    return [statement for statement in "\n".join(lines).split(";") if statement.strip()]
