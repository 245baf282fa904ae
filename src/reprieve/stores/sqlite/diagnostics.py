"""Diagnostics of a SQLite file: its folder and disk, its pages and log, its schema version, and its sessions."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import msgspec

from reprieve.errors import ForeignStore, ReprieveError
from reprieve.stores import outbox
from reprieve.stores.compatibility import require_usable
from reprieve.stores.diagnostics import (
    Finding,
    Level,
    Migration,
    SchemaVersion,
    error_finding,
    events_finding,
    records_finding,
    schema_finding,
    sessions_finding,
)
from reprieve.stores.sqlite.error_mapping import translate
from reprieve.stores.sqlite.file import (
    LOCK_TIMEOUT_MS,
    MAX_WAL_BYTES,
    MIN_SQLITE_VERSION,
    NETWORK_FILE_SYSTEMS,
    closed_on_error,
    compatibility_of,
    file_system_of,
    migrations,
    prepare,
    record_compatibility,
    require_ours,
    schema_version_of,
)
from reprieve.stores.sqlite.leases import lease_ids, unpack_lease
from reprieve.stores.sqlite.outbox import contents_of
from reprieve.stores.sqlite.rows import packed_of
from reprieve.stores.sqlite.statements import statements

LOW_DISK_BYTES, FULL_DISK_BYTES = 1 << 30, 100 << 20
"""Free disk below which there is something to do soon, and at once."""

LARGE_WAL_BYTES = 4 * MAX_WAL_BYTES
"""Size of a write-ahead log that a long read transaction keeps from starting over."""

_MOUNTS = Path("/proc/self/mountinfo")


class SqliteDiagnostics:
    """Checks one file; there is nothing to check in memory."""

    def __init__(self, path: Path | None, *, shared: bool = False) -> None:
        """Take the file; `shared` allows one that has tables of an application."""
        self._path = path
        self._shared = shared

    def examine(self, now: int) -> Iterator[Finding]:
        """Check the library, the folder, the file, its pages and the sessions."""
        yield _library()
        if self._path is None:
            yield Finding(name="file", level="ok", seen="in memory, lost when the process ends")
            return
        is_usable = True
        for finding in _location(self._path):
            is_usable = is_usable and finding.level != "bad"
            yield finding
        if not is_usable or not self._path.exists():
            return
        try:
            with closing(_open_to_read(self._path)) as connection:
                yield from self._contents(connection, self._path, now)
        except (sqlite3.Error, OSError, msgspec.MsgspecError, ReprieveError) as error:
            yield error_finding("store", translate(error))

    def schema_version(self) -> SchemaVersion:
        """Return the schema version of the file; a missing or empty file has none."""
        known = len(migrations())
        if self._path is None or not self._path.exists():
            # A store in memory has the schema of the process that opens it.
            return SchemaVersion(stored=known if self._path is None else 0, known=known)
        if not self._path.is_file():
            message = f"{self._path} is not a file; name one"
            raise ForeignStore(message)
        try:
            with closing(_open_to_read(self._path)) as connection:
                require_ours(connection, self._path, shared=self._shared)
                return _version(connection)
        except (sqlite3.Error, OSError) as error:
            raise translate(error) from error

    def migrate(self) -> SchemaVersion:
        """Migrate the file as opening it does, unless it belongs to another program."""
        self.schema_version()
        prepare(self._path, "full", shared=self._shared)
        return self.schema_version()

    def migrations(self) -> list[Migration]:
        """Return the steps, each with the statement that records it in the file."""
        folder = files(__package__ or "") / "migrations"
        steps = sorted(folder.iterdir(), key=lambda step: step.name)
        return [
            Migration(name=step.name, sql=f"{step.read_text('utf-8').rstrip()}\n{_record_step(number)}")
            for number, step in enumerate(steps, start=1)
        ]

    def _contents(self, connection: sqlite3.Connection, path: Path, now: int) -> Iterator[Finding]:
        require_ours(connection, path, shared=self._shared)
        yield _journal(connection)
        version = _version(connection)
        yield schema_finding(version)
        yield _pages(connection)
        yield _log(path)
        if version.is_current:
            yield events_finding(connection.execute(statements("diagnostics")["newest"]).fetchone()[0], now)
            yield _sessions(connection, now)
            records = connection.execute(statements("diagnostics")["records"])
            yield records_finding(packed_of(record) for (record,) in records)
            yield outbox.find(contents_of(connection), now)


def _version(connection: sqlite3.Connection) -> SchemaVersion:
    """Return the schema version of a file; raise `NewerSchema` if this release cannot use it."""
    stored, known = schema_version_of(connection), len(migrations())
    compatibility = compatibility_of(connection) if stored else None
    if compatibility is not None:
        require_usable(compatibility, known)
    return SchemaVersion(stored=stored, known=known, compatibility=compatibility)


def _record_step(number: int) -> str:
    version = f"update reprieve_counter set value = {number} where name = 'schema';\n"  # noqa: S608 - a number of ours
    return version + record_compatibility()


def _open_to_read(path: Path) -> sqlite3.Connection:
    """Open a file that exists, to read. A connection with mode=ro could not remove the log that it leaves behind."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)
    with closed_on_error(connection):
        connection.execute(f"pragma busy_timeout = {LOCK_TIMEOUT_MS}")
        connection.execute("pragma query_only = on")
    return connection


def _library() -> Finding:
    if sqlite3.sqlite_version_info < MIN_SQLITE_VERSION:
        oldest = ".".join(map(str, MIN_SQLITE_VERSION[:2]))
        return Finding(
            name="sqlite", level="bad", seen=sqlite3.sqlite_version, fix=f"update it: Reprieve needs {oldest} or newer"
        )
    return Finding(name="sqlite", level="ok", seen=sqlite3.sqlite_version)


def _location(path: Path) -> Iterator[Finding]:
    folder = path.absolute().parent
    if not folder.is_dir():
        yield Finding(name="folder", level="bad", seen=f"{folder} does not exist", fix=f"mkdir -p {folder}")
        return
    yield _access("folder", folder)
    kind = file_system_of(folder.resolve(), _MOUNTS.read_text()) if _MOUNTS.exists() else ""
    if kind in NETWORK_FILE_SYSTEMS:
        fix = "move the file to a local disk, or use PostgreSQL: locks of a network file system lose jobs"
        yield Finding(name="file system", level="bad", seen=kind, fix=fix)
    else:
        yield Finding(name="file system", level="ok", seen=kind or "unknown, taken for local")
    yield _free_space(folder)
    if not path.exists():
        fix = "reprieve migrate up creates it, and so does the first worker"
        yield Finding(name="file", level="warn", seen=f"{path.absolute()} does not exist yet", fix=fix)
    elif not path.is_file():
        yield Finding(name="file", level="bad", seen=f"{path} is not a file", fix="name a file")
    else:
        yield _access("file", path)


def _access(name: str, path: Path) -> Finding:
    if os.access(path, os.R_OK | os.W_OK):
        return Finding(name=name, level="ok", seen=f"{path} can be read and written")
    lacks = "read" if not os.access(path, os.R_OK) else "written"
    fix = f"give this user the rights to it: chmod u+rw {path}, or chown"
    return Finding(name=name, level="bad", seen=f"{path} cannot be {lacks}", fix=fix)


def _free_space(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    level: Level = "bad" if free < FULL_DISK_BYTES else "warn" if free < LOW_DISK_BYTES else "ok"
    return Finding(name="disk", level=level, seen=f"{_bytes(free)} free", fix="" if level == "ok" else "make room")


def _journal(connection: sqlite3.Connection) -> Finding:
    mode = connection.execute("pragma journal_mode").fetchone()[0]
    if mode == "wal":
        return Finding(name="journal", level="ok", seen="wal")
    return Finding(name="journal", level="warn", seen=f"{mode}, not wal", fix="reprieve migrate up sets it")


def _pages(connection: sqlite3.Connection) -> Finding:
    """Check every page: on a large file this takes a while."""
    problems = [row[0] for row in connection.execute("pragma quick_check(3)")]
    if problems == ["ok"]:
        return Finding(name="pages", level="ok", seen="sound")
    fix = 'stop the workers and restore a backup, or sqlite3 FILE ".recover"'
    return Finding(name="pages", level="bad", seen="; ".join(map(str, problems)), fix=fix)


def _log(path: Path) -> Finding:
    wal = path.with_name(path.name + "-wal")
    size = wal.stat().st_size if wal.exists() else 0
    if size <= LARGE_WAL_BYTES:
        return Finding(name="log", level="ok", seen=_bytes(size))
    return Finding(
        name="log", level="warn", seen=_bytes(size), fix="end the process that has a long read transaction open"
    )


def _sessions(connection: sqlite3.Connection, now: int) -> Finding:
    sql = statements("diagnostics")
    sessions = connection.execute(sql["sessions"], (now,)).fetchall()
    dead = [session for session, is_dead in sessions if is_dead]
    orphans = 0
    for session in dead:
        leases = connection.execute(sql["leases"], lease_ids(session))
        orphans += sum(len(unpack_lease(jobs)) for (jobs,) in leases)
    return sessions_finding(len(sessions) - len(dead), len(dead), orphans)


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:  # noqa: PLR2004 - the next unit
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"
