"""The database file: connections to it, the checks before it is used, and the migrations of its schema."""

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal, TypeAlias

from reprieve.errors import (
    ForeignStore,
    StoreCorrupt,
    StoreError,
    StoreNotFound,
    StoreReadOnly,
    StoreRefused,
)
from reprieve.stores.compatibility import Compatibility, require_usable
from reprieve.stores.sqlite.error_mapping import is_busy, translate
from reprieve.stores.sqlite.statements import Tx

Durability: TypeAlias = Literal["full", "fast"]
"""With "full", a commit survives a loss of power; with "fast" it survives a crash of the process, and may be lost with
the power."""

COMPATIBILITY = Compatibility(oldest_schema=1, oldest_release="0.1.0")
"""Which releases can use a file that this release has migrated. A migration that older releases cannot work with
raises it."""

MIN_SQLITE_VERSION = (3, 37, 0)

LOCK_TIMEOUT_MS = 10_000
"""How long a call waits while another transaction holds the write lock of the file."""

MAX_WAL_BYTES = 16 * 1024 * 1024
"""Size of the write-ahead log from which the writer waits for readers, so that the log can start over."""

WAL_TIMEOUT_MS = 100
"""How long it waits for them."""

NETWORK_FILE_SYSTEMS = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "fuse.glusterfs")
}

_OCTAL = re.compile(r"\\([0-7]{3})")


def connect(path: Path | None, durability: Durability) -> sqlite3.Connection:
    """Open a connection to a file that exists; None: a database in memory, with its schema."""
    if path is None:
        connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512, check_same_thread=False)
        with closed_on_error(connection):
            _migrate(connection)
        return connection
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        isolation_level=None,
        cached_statements=512,
        check_same_thread=False,
    )
    with closed_on_error(connection):
        connection.execute(f"pragma busy_timeout = {LOCK_TIMEOUT_MS}")
        connection.execute(f"pragma synchronous = {'full' if durability == 'full' else 'normal'}")
        connection.execute("pragma temp_store = memory")
        connection.execute("pragma cache_size = -65536")
        connection.execute("pragma wal_autocheckpoint = 3000")
        connection.execute("pragma journal_size_limit = 67108864")
    return connection


@contextmanager
def closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    """Close a connection if its first statements fail: SQLite opens the file at the first statement, not before."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


def prepare(
    path: Path | None, durability: Durability, *, shared: bool, may_wait: bool = True, to_read: bool = False
) -> int | None:
    """Check the machine and the file, migrate the file, and return the node number of this process.

    To read a file that is up to date, nothing is written, and no number is taken (None): it needs no write lock.

    A file that has tables of an application must be declared as `shared`. A caller that has a transaction open on the
    file passes `may_wait=False`, since waiting for the end of that transaction would be a deadlock: then nothing is
    written, a file that is up to date gives no node number (None), and any other raises `StoreNotFound`. Besides, a
    write here would make a later write of the caller's transaction fail, if that has read before.
    """
    if path is None:
        return 0
    try:
        _require_usable(path)
        if may_wait:
            _create(path)
        with closing(connect(path, durability)) as connection:
            if not may_wait:
                connection.execute("pragma busy_timeout = 0")
            require_ours(connection, path, shared=shared)
            is_wal = connection.execute("pragma journal_mode").fetchone()[0] == "wal"
            require_usable(compatibility_of(connection), len(migrations()))
            is_current = schema_version_of(connection) >= len(migrations())
            if is_wal and is_current and (to_read or not may_wait):
                return None
            if not may_wait:
                raise _unready(path)
            if not is_wal:
                connection.execute("pragma journal_mode = wal")
            if not is_current:
                _migrate(connection)
            connection.execute("begin immediate")
            _delete_statistics(connection)
            number = take_node_number(connection)
            connection.execute("commit")
            return number
    except (sqlite3.Error, OSError) as error:
        if not may_wait and (is_busy(error) or not path.exists()):
            raise _unready(path) from error
        raise translate(error) from error


def _create(path: Path) -> None:
    """Create the file if it is missing: only its owner may read jobs, until the owner allows others to."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _unready(path: Path) -> StoreNotFound:
    message = (
        f"{path} holds no store that is ready, and none is created while you have a transaction open; "
        "open the store before you begin the transaction, with app.open() or await app.aopen() when the program "
        "starts, or run reprieve migrate up once"
    )
    return StoreNotFound(message)


def take_node_number(tx: Tx) -> int:
    """Return a number that no other process has, for the ids of its jobs; it grows with every process."""
    (number,) = tx.execute(
        "update reprieve_counter as counter set value = value + 1 where name = 'node' returning value"
    ).fetchone()
    return int(number)


def keep_wal_small(connection: sqlite3.Connection, wal: Path) -> None:
    """Start the write-ahead log over when it is large: with readers that take turns, it would grow without limit."""
    if wal.exists() and wal.stat().st_size > MAX_WAL_BYTES:
        connection.execute(f"pragma busy_timeout = {WAL_TIMEOUT_MS}")
        connection.execute("pragma wal_checkpoint(restart)").fetchall()
        connection.execute(f"pragma busy_timeout = {LOCK_TIMEOUT_MS}")


def file_system_of(path: Path, mounts: str) -> str:
    """Return the type of the file system that holds a path, from the lines of /proc/self/mountinfo."""
    kinds = {}
    for line in mounts.splitlines():
        mount, _, kind = line.partition(" - ")
        if kind:
            mount_point = _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), mount.split()[4])
            kinds[mount_point] = kind.split()[0]
    above = [point for point in kinds if path == Path(point) or Path(point) in path.parents]
    return kinds[max(above, key=len)] if above else ""


def _require_usable(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> None:
    if sqlite3.sqlite_version_info < MIN_SQLITE_VERSION:
        message = f"SQLite {sqlite3.sqlite_version} is too old; Reprieve needs 3.37 or newer"
        raise StoreError(message)
    folder = path.parent
    if not folder.is_dir():
        message = f"folder {folder} does not exist; create it, or name another file"
        raise StoreRefused(message)
    if path.is_dir():
        message = f"{path} is a folder; name a file"
        raise ForeignStore(message)
    if mounts.exists() and (kind := file_system_of(folder.resolve(), mounts.read_text())) in NETWORK_FILE_SYSTEMS:
        message = f"{path} is on a network file system ({kind}), whose locks lose jobs; use a local disk or PostgreSQL"
        raise StoreError(message)
    if (path.exists() and not os.access(path, os.W_OK)) or not os.access(folder, os.W_OK):
        message = f"{path} cannot be written; check the permissions of the file and of its folder"
        raise StoreReadOnly(message)


def require_ours(connection: sqlite3.Connection, path: Path, *, shared: bool) -> None:
    """Raise `ForeignStore` for a database of another program, unless it is declared as shared."""
    is_used = connection.execute("select count(*) from sqlite_master").fetchone()[0] > 0
    if is_used and not shared and not schema_version_of(connection):
        message = (
            f"{path} is a database of another program; name another file, or keep the jobs beside its tables: "
            "Reprieve(…, shared=True), REPRIEVE_SHARED=true, or --shared for doctor and migrate"
        )
        raise ForeignStore(message)


def _delete_statistics(connection: sqlite3.Connection) -> None:
    """Delete the statistics of an ANALYZE, which mislead the planner: a queue is empty one hour and full the next."""
    if connection.execute("select 1 from sqlite_master where name = 'sqlite_stat1'").fetchone():
        connection.execute("delete from sqlite_stat1 where tbl like 'reprieve%'")


def schema_version_of(connection: Tx) -> int:
    """Return the schema version of the store in a file; 0: there is none."""
    if not connection.execute("select 1 from sqlite_master where name = 'reprieve_counter'").fetchone():
        return 0
    version = connection.execute("select value from reprieve_counter where name = 'schema'").fetchone()
    if version is None or not isinstance(version[0], int):
        message = "the table reprieve_counter has no schema version of the store; restore the file from a backup"
        raise StoreCorrupt(message)
    return version[0]


def compatibility_of(connection: Tx) -> Compatibility:
    """Return which releases can use the store in a file; any can, if there is none yet."""
    if not schema_version_of(connection):
        return COMPATIBILITY
    rows = "select oldest_schema, oldest_release, migrated_by from reprieve_compatibility"
    row = connection.execute(rows).fetchone()
    if row is None:
        message = "the file does not say which releases can use its store; restore the file from a backup"
        raise StoreCorrupt(message)
    oldest_schema, oldest_release, migrated_by = row
    # The connection may be a caller's, with a text_factory that returns bytes.
    return Compatibility(
        oldest_schema=oldest_schema,
        oldest_release=os.fsdecode(oldest_release),
        migrated_by=os.fsdecode(migrated_by),
    )


@cache
def migrations() -> list[str]:
    """Return the scripts that make the schema, in order."""
    folder = files(__package__ or "") / "migrations"
    return [step.read_text("utf-8") for step in sorted(folder.iterdir(), key=lambda step: step.name)]


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema up to date in a transaction of its own; of two processes, the second finds it done."""
    connection.execute("begin immediate")
    try:
        migrate_in(connection)
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def migrate_in(tx: Tx) -> None:
    """Bring the schema up to date in an open transaction."""
    steps = migrations()
    version = schema_version_of(tx)
    require_usable(compatibility_of(tx), len(steps))
    for step in steps[version:]:
        for statement in _split(step):
            tx.execute(statement)
    if version < len(steps):
        tx.execute("update reprieve_counter set value = ? where name = 'schema'", (len(steps),))
        for statement in _split(record_compatibility()):
            tx.execute(statement)


def record_compatibility() -> str:
    """Return the statements that record which releases can use the file from now on."""
    row = (COMPATIBILITY.oldest_schema, COMPATIBILITY.oldest_release, COMPATIBILITY.migrated_by)
    columns = "oldest_schema, oldest_release, migrated_by"
    insert = f"insert into reprieve_compatibility ({columns}) values {row};\n"  # noqa: S608 - constants of ours
    return "delete from reprieve_compatibility;\n" + insert  # noqa: S608 - as above


def _split(script: str) -> list[str]:
    lines = [line.partition("--")[0] for line in script.splitlines()]
    return [statement for statement in "\n".join(lines).split(";") if statement.strip()]
