"""The file of a store while it is open: its connections, and whether the file is still the one that they have open.

A file can be deleted or replaced while processes use it. SQLite does not notice: it writes to the file that it has
open, which has no name any more, or to the removed write-ahead log of a file that was copied over. So every connection
of a process is opened and closed here, and the file and its log are compared with those that were opened: before a
transaction, unless that was done a moment ago, and after every commit, before it is acknowledged.

When the file is not in place, calls raise `StoreReplaced`, and all connections of the process are closed. Only then is
the file of that name opened, once no program still copies it.
"""

import contextlib
import fcntl
import os
import sqlite3
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from reprieve.clock import now, ticks
from reprieve.errors import StoreReplaced
from reprieve.stores.sqlite.error_mapping import translate
from reprieve.stores.sqlite.file import Durability, connect, keep_wal_small, prepare

RECHECK_SECONDS = 0.05
"""Seconds for which a check before a transaction counts; a commit is always checked."""

SETTLED_SECONDS = 1.0
"""Seconds for which a new file must not have changed before it is opened."""

_SHARED_LOCK_START, _SHARED_LOCK_BYTES = 0x40000002, 510
"""Where SQLite locks a file against the checkpoint of its last connection."""

FileId: TypeAlias = tuple[int, int]
"""Device and inode."""


class Names(NamedTuple):
    """The names of a file, its write-ahead log and the shared memory of the log; SQLite follows links first."""

    file: str
    log: str
    memory: str


class Found(NamedTuple):
    """What is there under the names."""

    file: FileId | None
    log: FileId | None
    memory: FileId | None


class OpenFile:
    """Opens and closes the connections of a process to one file; None: a database in memory, never replaced."""

    def __init__(self, path: Path | None, durability: Durability, *, shared: bool = False) -> None:
        """Take a file that `prepare` has checked; `shared` allows one that has tables of an application."""
        # A program may change its folder later.
        self.path = None if path is None else path.absolute()
        self._durability = durability
        self._shared = shared
        self._lock = threading.RLock()
        self._names = Names("", "", "")
        self._opened: Found | None = None
        """What the connections have open."""
        self._connections = 0
        self._is_lost = False
        self._checked_at = 0.0
        self._seen: tuple[FileId, int] | None = None
        """The file that now has the name, and its size."""
        self._seen_at = 0.0
        """Since when, by `ticks`, it is that file and that size."""
        self._guard: int | None = None
        """The descriptor that holds a lock on the file while connections to its removed log are closed."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called once when the file is found deleted or replaced; must not wait for the caller."""
        self.on_reopened: Callable[[int | None], None] = lambda _: None
        """Called with a new node number when another file is opened under the name."""

    def connect(self) -> sqlite3.Connection:
        """Open a connection. Raise `StoreReplaced` while the file is away, or connections to an older one are open."""
        if self.path is None:
            return connect(None, self._durability)
        with self._lock:
            if self._opened is not None and _id_of(self._names.file) != self._opened.file:
                self._lose()
            if self._is_lost:
                self._reopen(self.path)
            connection = connect(self.path, self._durability)
            self._connections += 1
            if self._connections == 1:
                self._names = _names_of(self.path)
                self._opened = _find(self._names)
                self._checked_at = ticks()
            return connection

    def close(self, connection: sqlite3.Connection) -> None:
        """Close a connection. One to a file that is not in place writes nothing to the file of that name."""
        with self._lock:
            if self.path is not None and self._opened is not None:
                found = _find(self._names)
                if (found.file, found.log) != (self._opened.file, self._opened.log):
                    self._abandon(connection, self._opened, found)
            connection.close()
            self._connections -= 1
            if not self._connections:
                self._unguard()

    @property
    def log(self) -> str:
        """The name of the write-ahead log."""
        return self._names.log

    def is_in_place(self, max_age: float = RECHECK_SECONDS) -> bool:
        """Return whether the connections have the file open that its name stands for, as of `max_age` seconds ago."""
        opened = self._opened
        if self.path is None or opened is None:
            return True
        if self._is_lost or ticks() - self._checked_at < max_age:
            return not self._is_lost
        self._checked_at = ticks()
        if _id_of(self._names.file) == opened.file and _id_of(self._names.log) == opened.log:
            return True
        self._lose()
        return False

    def require_in_place(self) -> None:
        """Raise `StoreReplaced` if the file was deleted or replaced."""
        if self.path is not None and not self.is_in_place(max_age=0.0):
            raise _replaced(self.path)

    def keep_small(self, connection: sqlite3.Connection) -> None:
        """Start a large write-ahead log over."""
        if self.path is not None:
            keep_wal_small(connection, Path(self._names.log))

    def open_lock(self) -> int | None:
        """Open the file by whose lock processes exclude each other, with the rights of the database."""
        if self.path is None:
            return None
        lock = f"{os.path.realpath(self.path)}-lock"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            descriptor = os.open(lock, flags | os.O_EXCL, 0o600)
        except FileExistsError:
            return os.open(lock, flags, 0o600)
        database = self.path.stat()
        os.fchmod(descriptor, database.st_mode & 0o666)
        if not os.geteuid():
            os.fchown(descriptor, database.st_uid, database.st_gid)
        return descriptor

    def _lose(self) -> None:
        with self._lock:
            is_first, self._is_lost = not self._is_lost, True
        if is_first:
            self.on_lost()

    def _reopen(self, path: Path) -> None:
        """Prepare the file that now has the name; raise `StoreReplaced` if there is none, or not yet."""
        if self._connections or not self._is_settled(path):
            raise _replaced(path)
        try:
            number = prepare(path, self._durability, shared=self._shared)
        except OSError as error:
            raise translate(error) from error
        self._opened, self._is_lost, self._seen = None, False, None
        self.on_reopened(number)

    def _is_settled(self, path: Path) -> bool:
        """Whether there is a file that no program still writes: a copy is empty first, and then grows."""
        try:
            found = path.stat()
        except FileNotFoundError:
            self._seen = None
            return False
        seen = ((found.st_dev, found.st_ino), found.st_size)
        if seen != self._seen:
            self._seen, self._seen_at = seen, ticks()
        is_old = now() - found.st_ctime_ns // 1_000_000 > SETTLED_SECONDS * 1_000
        return found.st_size > 0 and (is_old or ticks() - self._seen_at > SETTLED_SECONDS)

    def _abandon(self, connection: sqlite3.Connection, opened: Found, found: Found) -> None:
        """Keep what belongs to the lost file away from the file that now has its name."""
        if found.file == opened.file:
            # The log was removed, and the file copied over. The last connection to close would write the old log to it.
            self._guard_file()
        elif found.log == opened.log:
            # The log would be taken for that of the new file. What it holds belongs to the file that is open.
            _remove_log(connection, self._names.log)
        if found.memory == opened.memory:
            with contextlib.suppress(FileNotFoundError):
                Path(self._names.memory).unlink()

    def _guard_file(self) -> None:
        """Hold a lock on the file, against which SQLite's last connection does not write the log to the file."""
        if self._guard is not None or not hasattr(fcntl, "F_OFD_SETLK"):
            return
        with contextlib.suppress(OSError):
            self._guard = os.open(self._names.file, os.O_RDONLY | os.O_CLOEXEC)
            _lock_shared(self._guard, fcntl.F_RDLCK)

    def _unguard(self) -> None:
        """Unlock the file. The descriptor stays open: to close it would end all locks of this process on the file."""
        if self._guard is not None:
            _lock_shared(self._guard, fcntl.F_UNLCK)
            self._guard = None


def _replaced(path: Path) -> StoreReplaced:
    if path.exists():
        message = (
            f"{path} was replaced by another file while it was open; this call may not be stored, so repeat it: "
            "the new file is used once it holds a store and no longer changes"
        )
    else:
        message = (
            f"{path} was deleted while it was open; nothing is stored until it is there again: "
            "restore it, or start with an empty store: reprieve migrate up"
        )
    return StoreReplaced(message)


def _id_of(path: str) -> FileId | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - on the path of every commit
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _names_of(path: Path) -> Names:
    real = os.path.realpath(path)
    return Names(str(path), f"{real}-wal", f"{real}-shm")


def _find(names: Names) -> Found:
    return Found(_id_of(names.file), _id_of(names.log), _id_of(names.memory))


def _remove_log(connection: sqlite3.Connection, log: str) -> None:
    """Write the log to the file that the connection has open, then delete it; set it aside where that fails."""
    is_written = False
    with contextlib.suppress(sqlite3.Error):
        busy, frames, written = connection.execute("pragma wal_checkpoint(passive)").fetchone()
        is_written = not busy and frames == written
    with contextlib.suppress(FileNotFoundError):
        if is_written:
            Path(log).unlink()
        else:
            Path(log).rename(f"{log}-replaced")


def _lock_shared(descriptor: int, kind: int) -> None:
    request = struct.pack("hhqqi4x", kind, os.SEEK_SET, _SHARED_LOCK_START, _SHARED_LOCK_BYTES, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
