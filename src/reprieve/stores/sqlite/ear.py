"""The ear: hears other processes write to the store, without asking.

Whoever commits writes to the log beside the file, and Linux tells those who watch it. The write comes shortly before
the commit can be seen, so SQLite's counter of foreign commits is looked at for a moment after each. Where nobody can be
told, the counter is read every two milliseconds instead. Either way only while somebody waits.
"""

import contextlib
import ctypes
import os
import select
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path

POLL_EVERY = 0.002
"""Seconds between two looks where nobody tells us."""

FIRST_LOOK, LAST_LOOK = 0.0001, 2.0
"""Seconds from a write to the log until its commit is looked for: at first, and between two looks at last."""

_IN_MODIFY = 0x2
_EVENTS = 65_536


class Ear:
    """Listens in a thread of its own, and only while somebody wants to know."""

    def __init__(self, path: Path, alert: Callable[[], None]) -> None:
        """Listen to the store in this file; `alert` is called in the ear's thread after every foreign commit."""
        self._path = path
        self._alert = alert
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._wake = os.pipe()
        self._watch = _watch(path.with_name(path.name + "-wal"))
        self._thread = threading.Thread(target=self._listen, name="reprieve-ear", daemon=True)
        self._thread.start()

    def want(self, *, is_wanted: bool) -> None:
        """Say whether somebody waits."""
        if is_wanted:
            self._wanted.set()
        else:
            self._wanted.clear()

    def close(self) -> None:
        """Stop listening."""
        self._closing.set()
        self._wanted.set()
        os.write(self._wake[1], b".")
        self._thread.join()
        for file in (*self._wake, *([] if self._watch is None else [self._watch])):
            os.close(file)

    def _listen(self) -> None:
        with contextlib.closing(sqlite3.connect(self._path)) as connection:
            seen = _commits(connection)
            pause: float | None = None
            while not self._closing.is_set():
                self._wanted.wait()
                is_written = self._wait_for_a_write(pause)
                commits = _commits(connection)
                if commits != seen:
                    seen, pause = commits, None
                    self._alert()
                elif is_written:
                    # Each begins the looks anew: the write before may have been the last of a commit that was seen.
                    pause = FIRST_LOOK
                elif pause is not None:
                    pause = pause * 1.3 if pause < LAST_LOOK else None

    def _wait_for_a_write(self, at_most: float | None) -> bool:
        """Wait for somebody to write, or for the next look."""
        if self._watch is None:
            self._closing.wait(POLL_EVERY)
            return False
        ready, _, _ = select.select([self._watch, self._wake[0]], [], [], at_most)
        if self._watch in ready:
            os.read(self._watch, _EVENTS)
        return self._watch in ready


def _commits(connection: sqlite3.Connection) -> int:
    return int(connection.execute("pragma data_version").fetchone()[0])


def _watch(log: Path) -> int | None:
    """Have the kernel tell us of writes to a file; None where it cannot."""
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
