"""Care for a SQLite file: the place it lies in, its state, its layout, and who works on it."""

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
from reprieve.stores.care import Finding, Layout, Level, Migration
from reprieve.stores.sqlite.faults import translate
from reprieve.stores.sqlite.file import (
    NETWORKS,
    OLDEST,
    PATIENCE,
    WAL_LIMIT,
    closed_on_error,
    file_system_of,
    layout_of,
    migrations,
    prepare,
    require_known,
    require_ours,
)
from reprieve.stores.sqlite.outbox import contents_of
from reprieve.stores.sqlite.statements import statements

SPARE, SCANT = 1 << 30, 100 << 20
"""Bytes of free disk below which there is something to do soon, and at once."""

SWOLLEN = 4 * WAL_LIMIT
"""Bytes of a write-ahead log that somebody keeps from beginning anew."""

AHEAD = 60_000
"""Milliseconds that the newest event may be ahead of the clock: machines are never quite of one mind."""

_MOUNTS = Path("/proc/self/mountinfo")
_decode_lease = msgspec.msgpack.Decoder(dict[int, tuple[int, int]]).decode


class SqliteCare:
    """Looks after one file, or after memory, where there is nothing to look after."""

    def __init__(self, path: Path | None, *, shared: bool = False) -> None:
        """Take the file; `shared` says that it is an application's, whose tables stay beside ours."""
        self._path = path
        self._shared = shared

    def examine(self, now: int) -> Iterator[Finding]:
        """Look at the library, the place, the file, its pages and the sessions."""
        yield _library()
        if self._path is None:
            yield Finding(name="file", level="ok", seen="in memory, gone with its process")
            return
        is_place_good = True
        for finding in _place(self._path):
            is_place_good = is_place_good and finding.level != "bad"
            yield finding
        if not is_place_good or not self._path.exists():
            return
        try:
            with closing(_look(self._path)) as connection:
                yield from self._state(connection, self._path, now)
        except (sqlite3.Error, OSError, msgspec.MsgspecError, ReprieveError) as error:
            yield Finding(name="store", level="bad", **_in_two(translate(error)))

    def layout(self) -> Layout:
        """Return the layout of the file; a missing or empty one has none."""
        known = len(migrations())
        if self._path is None or not self._path.exists():
            # Memory has whatever layout the process knows that uses it.
            return Layout(stored=known if self._path is None else 0, known=known)
        if not self._path.is_file():
            message = f"{self._path} is no file; name one"
            raise ForeignStore(message)
        try:
            with closing(_look(self._path)) as connection:
                require_ours(connection, self._path, shared=self._shared)
                stored = layout_of(connection)
        except (sqlite3.Error, OSError) as error:
            raise translate(error) from error
        require_known(stored, known)
        return Layout(stored=stored, known=known)

    def migrate(self) -> Layout:
        """Do what opening the file does, once it is known to be ours."""
        self.layout()
        prepare(self._path, "full", shared=self._shared)
        return self.layout()

    def migrations(self) -> list[Migration]:
        """Return the steps, each with the line that notes it in the file."""
        folder = files(__package__ or "") / "migrations"
        steps = sorted(folder.iterdir(), key=lambda step: step.name)
        return [
            Migration(name=step.name, sql=f"{step.read_text('utf-8').rstrip()}\n{_noted(number)}")
            for number, step in enumerate(steps, start=1)
        ]

    def _state(self, connection: sqlite3.Connection, path: Path, now: int) -> Iterator[Finding]:
        require_ours(connection, path, shared=self._shared)
        yield _journal(connection)
        stored, known = layout_of(connection), len(migrations())
        require_known(stored, known)
        yield _layout(stored, known)
        yield _pages(connection)
        yield _log(path)
        if stored == known:
            yield _events(connection, now)
            yield _sessions(connection, now)
            yield outbox.find(contents_of(connection), now)


def _noted(layout: int) -> str:
    return f"update reprieve_counter set value = {layout} where name = 'layout';\n"  # noqa: S608 - a number of ours


def _look(path: Path) -> sqlite3.Connection:
    """Open a file that exists, to read. Whoever may only read leaves a log behind that the next writer must own."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)
    with closed_on_error(connection):
        connection.execute(f"pragma busy_timeout = {PATIENCE}")
        connection.execute("pragma query_only = on")
    return connection


def _library() -> Finding:
    if sqlite3.sqlite_version_info < OLDEST:
        oldest = ".".join(map(str, OLDEST[:2]))
        return Finding(
            name="sqlite", level="bad", seen=sqlite3.sqlite_version, fix=f"update it: Reprieve needs {oldest} or newer"
        )
    return Finding(name="sqlite", level="ok", seen=sqlite3.sqlite_version)


def _place(path: Path) -> Iterator[Finding]:
    folder = path.absolute().parent
    if not folder.is_dir():
        yield Finding(name="folder", level="bad", seen=f"{folder} does not exist", fix=f"mkdir -p {folder}")
        return
    yield _access("folder", folder)
    kind = file_system_of(folder.resolve(), _MOUNTS.read_text()) if _MOUNTS.exists() else ""
    if kind in NETWORKS:
        fix = "move the file to a local disk, or use PostgreSQL: the locks of a network lose jobs"
        yield Finding(name="file system", level="bad", seen=kind, fix=fix)
    else:
        yield Finding(name="file system", level="ok", seen=kind or "local, as far as can be told")
    yield _room(folder)
    if not path.exists():
        fix = "reprieve migrate up makes it, and so does the first worker"
        yield Finding(name="file", level="warn", seen=f"{path.absolute()} does not exist yet", fix=fix)
    elif not path.is_file():
        yield Finding(name="file", level="bad", seen=f"{path} is no file", fix="name a file")
    else:
        yield _access("file", path)


def _access(name: str, path: Path) -> Finding:
    if os.access(path, os.R_OK | os.W_OK):
        return Finding(name=name, level="ok", seen=f"{path} can be read and written")
    lacks = "read" if not os.access(path, os.R_OK) else "written"
    fix = f"give this user the rights to it: chmod u+rw {path}, or chown"
    return Finding(name=name, level="bad", seen=f"{path} cannot be {lacks}", fix=fix)


def _room(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    level: Level = "bad" if free < SCANT else "warn" if free < SPARE else "ok"
    return Finding(name="disk", level=level, seen=f"{_bytes(free)} free", fix="" if level == "ok" else "make room")


def _journal(connection: sqlite3.Connection) -> Finding:
    mode = connection.execute("pragma journal_mode").fetchone()[0]
    if mode == "wal":
        return Finding(name="journal", level="ok", seen="wal")
    return Finding(name="journal", level="warn", seen=f"{mode}, not wal", fix="reprieve migrate up sets it")


def _layout(stored: int, known: int) -> Finding:
    if stored == known:
        return Finding(name="layout", level="ok", seen=f"{stored}, the newest")
    seen = f"{stored}, and this release knows {known}" if stored else "none yet"
    return Finding(name="layout", level="warn", seen=seen, fix="reprieve migrate up brings it up to date")


def _pages(connection: sqlite3.Connection) -> Finding:
    """Look at every page: on a large file this takes a while."""
    complaints = [row[0] for row in connection.execute("pragma quick_check(3)")]
    if complaints == ["ok"]:
        return Finding(name="pages", level="ok", seen="sound")
    fix = 'stop the workers and restore a backup, or sqlite3 FILE ".recover"'
    return Finding(name="pages", level="bad", seen="; ".join(map(str, complaints)), fix=fix)


def _log(path: Path) -> Finding:
    wal = path.with_name(path.name + "-wal")
    size = wal.stat().st_size if wal.exists() else 0
    if size <= SWOLLEN:
        return Finding(name="log", level="ok", seen=_bytes(size))
    return Finding(name="log", level="warn", seen=_bytes(size), fix="end whoever reads in one long transaction")


def _events(connection: sqlite3.Connection, now: int) -> Finding:
    newest = connection.execute(statements("care")["newest"]).fetchone()[0]
    if newest is None or newest <= now + AHEAD:
        return Finding(name="events", level="ok", seen="none" if newest is None else "none from the future")
    seen = f"the newest is {(newest - now) // 1_000:,} s ahead of this clock"
    return Finding(name="events", level="warn", seen=seen, fix="set the clocks of all machines by NTP")


def _sessions(connection: sqlite3.Connection, now: int) -> Finding:
    sql = statements("care")
    sessions = connection.execute(sql["sessions"], (now,)).fetchall()
    dead = [session for session, is_dead in sessions if is_dead]
    orphans = 0
    for session in dead:
        leases = connection.execute(sql["leases"], (session << 32, session << 32 | 0xFFFF_FFFF))
        orphans += sum(len(_decode_lease(jobs)) for (jobs,) in leases)
    seen = f"{len(sessions) - len(dead)} alive, {len(dead)} dead with {orphans} jobs"
    if not orphans:
        return Finding(name="sessions", level="ok", seen=seen)
    return Finding(name="sessions", level="warn", seen=seen, fix="start a worker: it takes back the jobs of the dead")


def _in_two(error: ReprieveError) -> dict[str, str]:
    """Part a message into what was seen and what to do, as all of ours are written."""
    seen, _, fix = str(error).partition("; ")
    return {"seen": seen, "fix": fix}


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:  # noqa: PLR2004 - the next unit
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"
