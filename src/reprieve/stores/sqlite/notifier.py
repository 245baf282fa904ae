"""The notifier: wakes waiting sessions after a commit of this process or of another one.

Every transaction of this process that changed something notifies; a listener watches for commits of other processes. A
session waits for commits after the snapshot that it took before its last claim, so that it misses nothing that was
committed between that claim and the wait; every session has a snapshot of its own.
"""

import asyncio
import contextlib
import sqlite3
import threading
from typing import NamedTuple

from reprieve.errors import StoreClosed, StoreError
from reprieve.stores.sqlite.listener import Listener, foreign_commits
from reprieve.stores.sqlite.open_file import OpenFile


class Commits(NamedTuple):
    """How many commits there were: changes when anything is written to the file."""

    own: int
    foreign: int


class Notifier:
    """Counts commits, and wakes the sessions that wait for one."""

    def __init__(self, database: OpenFile) -> None:
        """Listen to the processes that use a file; in memory, only to this process."""
        self._lock = threading.Lock()
        self._own_commits = 0
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._database = database
        self._counting = threading.Lock()
        """Held while commits are counted, and while this process forks."""
        self._connection: sqlite3.Connection | None = None
        self._listener: Listener | None = None
        self._open()
        self._snapshots: dict[str, Commits] = {}
        self._is_closed = False

    def notify(self) -> None:
        """Count a commit of this process and wake every waiter; called in the writer's thread."""
        with self._lock:
            self._own_commits += 1
        self._wake()

    def _wake(self) -> None:
        """Wake every waiter; each compares the commits with its snapshot."""
        with self._lock:
            for loop, event in self._waiting:
                with contextlib.suppress(RuntimeError):  # a loop that was closed while it waited
                    loop.call_soon_threadsafe(event.set)

    def snapshot(self, session: str) -> None:
        """Remember the commits so far: this session is about to claim, and sees what they wrote."""
        self._snapshots[session] = self._commits()

    def forget(self, session: str) -> None:
        """Drop the snapshot of a session that has ended."""
        self._snapshots.pop(session, None)

    async def wait(self, session: str, at_most: float) -> bool:
        """Wait for a commit after the session's snapshot; return False if there is none in `at_most` seconds."""
        seen = self._snapshots.get(session) or self._commits()
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        self._register(waiter)
        try:
            async with asyncio.timeout(at_most):
                while self._commits() == seen:
                    await waiter[1].wait()
                    waiter[1].clear()
        except TimeoutError:
            return False
        finally:
            self._register(waiter, is_leaving=True)
        return True

    def close(self) -> None:
        """Stop listening; a session that still waits gets `StoreClosed`."""
        with self._counting:
            self._is_closed = True
            self._close()
        self.notify()

    def pause(self) -> None:
        """Close the file until `resume`, so that a fork inherits no open connection."""
        self._counting.acquire()
        self._close()

    def resume(self) -> None:
        """Listen again. SQLite counts foreign commits anew, which wakes every waiter once more than needed."""
        if not self._is_closed:
            # While the file is away there is nothing to listen to; `reopen` comes when it is back.
            with contextlib.suppress(StoreError):
                self._open()
        self._counting.release()
        self._wake()

    def reopen(self) -> None:
        """Listen to the file that has taken the place of the one before."""
        self.pause()
        self.resume()

    def leave(self) -> None:
        """Leave the file closed, in a forked child: the notifier belongs to the process that made it."""
        self._counting.release()

    def _open(self) -> None:
        if self._database.path is None:
            return
        connection = self._database.connect()
        try:
            listener = Listener(self._database, self._wake)
        except BaseException:
            self._database.close(connection)
            raise
        with self._lock:
            self._connection, self._listener = connection, listener
            listener.enable(is_enabled=bool(self._waiting))

    def _close(self) -> None:
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        if self._connection is not None:
            self._database.close(self._connection)
            self._connection = None

    def _register(self, waiter: tuple[asyncio.AbstractEventLoop, asyncio.Event], *, is_leaving: bool = False) -> None:
        with self._lock:
            if is_leaving:
                self._waiting.discard(waiter)
            else:
                self._waiting.add(waiter)
            if self._listener is not None:
                self._listener.enable(is_enabled=bool(self._waiting))

    def _commits(self) -> Commits:
        with self._counting:
            if self._is_closed:
                raise StoreClosed
            return Commits(self._own_commits, 0 if self._connection is None else foreign_commits(self._connection))
