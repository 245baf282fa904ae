"""The thread that owns a connection and runs all pending requests in one transaction (group commit).

Processes that write exclude each other by a lock on a file beside the database. They could wait for SQLite's own lock,
but SQLite sleeps up to a tenth of a second between two tries.
"""

import contextlib
import fcntl
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from reprieve.errors import ReprieveError, StoreClosed, StoreError, StoreLocked, StoreReplaced
from reprieve.stores.compatibility import require_usable
from reprieve.stores.sqlite import file
from reprieve.stores.sqlite.error_mapping import is_busy, translate
from reprieve.stores.sqlite.open_file import OpenFile

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
"""A function that runs in a transaction. It may raise a ReprieveError only before it has written anything."""

UPKEEP_EVERY = 16
"""Transactions from one call of `upkeep` to the next."""

Point = Literal["before", "after"]

_FULL = 2
"""What SQLite calls `synchronous = full`."""

_LOCK_RETRY_SECONDS = 0.0005


class Request(NamedTuple, Generic[T]):
    """Work that a caller has submitted, and the future of its result."""

    work: Work[T]
    future: Future[T]
    is_lasting: bool
    """Whether it must survive a loss of power once the future has its result."""


class Writer:
    """Runs work on one connection, in one thread, everything that is pending in one transaction."""

    def __init__(
        self,
        database: OpenFile,
        on_commit: Callable[[], None],
        on_rollback: Callable[[], None],
        begin: Literal["immediate", "deferred"] = "immediate",
    ) -> None:
        """Start the thread.

        A deferred transaction takes no write lock, so it only reads and blocks no writer. `on_rollback` is also called
        when the file was replaced: what was read from it does not hold any more.
        """
        self._begin = f"begin {begin}"
        self._is_writing = begin == "immediate"
        self._process = os.getpid()
        self._since_upkeep = 0
        self._database = database
        self._on_commit = on_commit
        self._on_rollback = on_rollback
        self._pending: queue.SimpleQueue[Request[Any] | None] = queue.SimpleQueue()
        self._is_closed = False
        self._submitting = threading.Lock()
        """Held to submit and to close: nothing is submitted after the end mark, so every request gets a result."""
        self._working = threading.Lock()
        """Held for every batch, and while this process forks."""
        self._connection: sqlite3.Connection | None = None
        self._lock: int | None = None
        """The descriptor of the file by which processes exclude each other; None for reads."""
        self._may_flush = self._is_flushed = False
        """Whether the connection was opened to flush its commits to the disk, and whether it does so now."""
        self._cookie: int | None = None
        """The number of the last change to the file's tables after which the file was found usable."""
        self._fault: Point | None = None
        self._is_changed = False
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="reprieve-sqlite", daemon=True)
        self._thread.start()
        self._ready.result()

    def submit(self, work: Work[T], *, is_lasting: bool = True) -> Future[T]:
        """Run work in a transaction; the future has its result when it is durable.

        Work that is not lasting is written at once, so that it survives the end of this process, but is flushed to the
        disk only with the next commit that is.
        """
        future: Future[T] = Future()
        if os.getpid() != self._process:
            future.set_exception(StoreError("the store was opened before this process was forked; open it here again"))
            return future
        with self._submitting:
            if self._is_closed:
                future.set_exception(StoreClosed())
            else:
                self._pending.put(Request(work, future, is_lasting))
        return future

    def inject(self, point: Point) -> None:
        """Make the next transaction fail before or after its commit, as a crash or a lost response would."""
        self._fault = point

    def close(self) -> None:
        """Finish the pending requests, then end the thread."""
        with self._submitting:
            if not self._is_closed:
                self._is_closed = True
                self._pending.put(None)
        self._thread.join()

    def pause(self) -> None:
        """Close the connection, and open none before `resume`.

        SQLite's locks belong to the process. A forked child would have a copy of the open connection without its locks:
        the next process to close the file would take the file for unused, and delete the log with the child's writes.
        """
        self._working.acquire()
        self._disconnect()

    def resume(self) -> None:
        """Continue; the next batch opens the connection again."""
        self._working.release()

    def _run(self) -> None:
        try:
            self._connected()
        except Exception as error:  # noqa: BLE001 - the caller that opens the store gets it, whatever it is
            self._disconnect()
            self._ready.set_exception(translate(error))
            return
        self._ready.set_result(None)
        while (batch := self._next_batch()) is not None:
            # A request that was cancelled by now is dropped; from here on it can no longer be cancelled.
            batch = [request for request in batch if request.future.set_running_or_notify_cancel()]
            with self._working:
                self._run_batch(batch)
        with self._working:
            self._disconnect()

    def _run_batch(self, batch: list[Request[Any]]) -> None:
        try:
            if not self._database.is_in_place():
                self._disconnect()
                self._on_rollback()
            connection = self._connected()
        except Exception as error:  # noqa: BLE001 - a thread that dies would hang every caller
            for request in batch:
                request.future.set_exception(translate(error))
            return
        self._since_upkeep += 1
        if self._since_upkeep == UPKEEP_EVERY:
            self._since_upkeep = 0
            # The requests show what is wrong with the file, if anything; a thread that dies would hang every caller.
            with contextlib.suppress(OSError, sqlite3.Error):
                self._database.keep_small(connection)
        if batch and not self._attempt(connection, batch):
            # One request made the transaction fail: run each in a transaction of its own, so that only that one fails.
            for request in batch:
                self._attempt(connection, [request])

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._database.connect()
            self._cookie = None
            self._lock = self._database.open_lock() if self._is_writing else None
            self._may_flush = self._is_flushed = self._connection.execute("pragma synchronous").fetchone()[0] == _FULL
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._database.close(self._connection)
            self._connection = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _next_batch(self) -> list[Request[Any]] | None:
        first = self._pending.get()
        batch = [] if first is None else [first]
        while not self._pending.empty() and first is not None:
            request = self._pending.get()
            if request is None:
                self._pending.put(None)
                break
            batch.append(request)
        return batch or None

    def _attempt(self, connection: sqlite3.Connection, batch: list[Request[Any]]) -> bool:
        """Run a batch in one transaction. Return False if its requests must be run again, one by one."""
        try:
            self._flush(connection, is_wanted=any(request.is_lasting for request in batch))
            results = self._transact(connection, [request.work for request in batch])
        except Exception as error:  # noqa: BLE001 - a thread that dies would hang every caller
            # While another process holds the lock, or the file is gone, each of them would fail again.
            if len(batch) > 1 and not (is_busy(error) or isinstance(error, StoreReplaced)):
                return False
            for request in batch:
                request.future.set_exception(translate(error))
            return True
        # A claim that found no job has changed nothing, and must not wake the sessions that wait for one.
        if self._is_changed:
            self._on_commit()
        for request, result in zip(batch, results, strict=True):
            if isinstance(result, ReprieveError):
                request.future.set_exception(result)
            else:
                request.future.set_result(result)
        return True

    def _flush(self, connection: sqlite3.Connection, *, is_wanted: bool) -> None:
        """Flush the next commit to the disk, or not. A flushed commit takes along what was written before it."""
        if self._may_flush and is_wanted != self._is_flushed:
            connection.execute(f"pragma synchronous = {'full' if is_wanted else 'normal'}")
            self._is_flushed = is_wanted

    def _transact(self, connection: sqlite3.Connection, works: list[Work[Any]]) -> list[object]:
        before = connection.total_changes
        if self._lock is not None:
            _acquire_lock(self._lock)
        try:
            connection.execute(self._begin)
            self._require_usable(connection)
            results: list[object] = []
            for work in works:
                try:
                    results.append(work(connection))
                except ReprieveError as error:
                    results.append(error)
            fault, self._fault = self._fault, None
            _fail("before", fault)
            connection.execute("commit")
            self._is_changed = connection.total_changes != before
            if self._is_changed:
                self._database.require_in_place()
            _fail("after", fault)
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            self._on_rollback()
            raise
        finally:
            if self._lock is not None:
                fcntl.flock(self._lock, fcntl.LOCK_UN)
        return results

    def _require_usable(self, connection: sqlite3.Connection) -> None:
        """Raise `NewerSchema` if a newer release has migrated the file to what this one cannot use.

        SQLite counts every change of tables, those of an application too; its number is read in two microseconds.
        """
        (cookie,) = connection.execute("pragma schema_version").fetchone()
        if cookie != self._cookie:
            require_usable(file.compatibility_of(connection), len(file.migrations()))
            self._cookie = cookie


def _acquire_lock(descriptor: int) -> None:
    """Wait until no other process holds the lock; raise `StoreLocked` after the time that SQLite would wait."""
    deadline = time.monotonic() + file.LOCK_TIMEOUT_MS / 1_000
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                message = "another process has held the store's lock for too long; end it if it is stopped"
                raise StoreLocked(message) from None
            _NEVER_SET.wait(_LOCK_RETRY_SECONDS)
        else:
            return


_NEVER_SET = threading.Event()


def _fail(here: Point, wanted: Point | None) -> None:
    if here == wanted:
        message = f"the transaction failed {here} its commit, as injected"
        raise StoreError(message)
