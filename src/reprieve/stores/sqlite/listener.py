"""The listener: notices commits of other processes, without polling the file where the system allows it.

A process that commits writes to the write-ahead log beside the file, and inotify reports that write on Linux. The write
comes shortly before the commit becomes visible, so the listener then reads SQLite's count of foreign commits several
times, at growing intervals. On other systems it reads the count every two milliseconds. It does either only while a
session waits.
"""

import contextlib
import ctypes
import os
import select
import sqlite3
import sys
import threading
from collections.abc import Callable

from reprieve.stores.sqlite.open_file import OpenFile

POLL_SECONDS = 0.002
"""Between two reads of the count where writes are not reported."""

MIN_RECHECK_SECONDS, MAX_RECHECK_SECONDS = 0.0001, 2.0
"""From a write to the log until the count is read first, and the longest interval after which it is read again."""

_RECHECK_FACTOR = 1.3
_MIN_POLL_SECONDS = 0.01
"""Shorter waits are not left to `poll`, which counts whole milliseconds."""

_IN_MODIFY = 0x2
_MAX_EVENT_BYTES = 65_536


class Listener:
    """Watches a file in a thread of its own, while it is enabled."""

    def __init__(self, database: OpenFile, on_commit: Callable[[], None]) -> None:
        """Take the file; `on_commit` is called in the listener's thread after every foreign commit."""
        self._database = database
        self._connection = database.connect()
        self._on_commit = on_commit
        self._enabled = threading.Event()
        self._closing = threading.Event()
        self._wake = os.pipe()
        self._watch = _watch(database.log)
        self._thread = threading.Thread(target=self._listen, name="reprieve-listener", daemon=True)
        self._thread.start()

    def enable(self, *, is_enabled: bool) -> None:
        """Listen from now on, or no longer."""
        if is_enabled:
            self._enabled.set()
        else:
            self._enabled.clear()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._enabled.set()
        os.write(self._wake[1], b".")
        self._thread.join()
        self._database.close(self._connection)
        for file in (*self._wake, *([] if self._watch is None else [self._watch])):
            os.close(file)

    def _listen(self) -> None:
        seen = foreign_commits(self._connection)
        recheck: float | None = None
        while not self._closing.is_set():
            self._enabled.wait()
            is_written = self._wait_for_write(recheck)
            commits = foreign_commits(self._connection)
            if commits != seen:
                seen, recheck = commits, None
                self._on_commit()
            if is_written:
                # A write starts the rechecks over, also when a commit was seen: that may have been an earlier one.
                recheck = MIN_RECHECK_SECONDS
            elif recheck is not None:
                recheck = recheck * _RECHECK_FACTOR if recheck < MAX_RECHECK_SECONDS else None

    def _wait_for_write(self, at_most: float | None) -> bool:
        """Wait for a write to the log; return False if there is none in `at_most` seconds."""
        if self._watch is None:
            self._closing.wait(POLL_SECONDS)
            return False
        if at_most is not None and at_most < _MIN_POLL_SECONDS:
            self._closing.wait(at_most)
            at_most = 0.0
        # Not `select`, which takes no descriptor above 1023.
        poll = select.poll()
        for file in (self._watch, self._wake[0]):
            poll.register(file, select.POLLIN)
        ready = dict(poll.poll(None if at_most is None else at_most * 1_000))
        if self._watch in ready:
            os.read(self._watch, _MAX_EVENT_BYTES)
        return self._watch in ready


def foreign_commits(connection: sqlite3.Connection) -> int:
    """Return a number that changes with every commit of another connection."""
    return int(connection.execute("pragma data_version").fetchone()[0])


def _watch(log: str) -> int | None:
    """Open an inotify descriptor that reports writes to a file; None where that is not supported."""
    if sys.platform != "linux":
        return None
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        file = int(libc.inotify_init1(os.O_CLOEXEC))
        if file >= 0 and libc.inotify_add_watch(file, os.fsencode(log), _IN_MODIFY) >= 0:
            return file
        if file >= 0:
            os.close(file)
    return None
