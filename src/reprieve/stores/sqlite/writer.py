"""The thread that owns a connection: whatever waits for it is done in one transaction (group commit).

Processes take turns by a lock on a file beside the database: SQLite's own lock is no queue, and whoever waits for it
sleeps for up to a tenth of a second between tries.
"""

import fcntl
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from reprieve.errors import ReprieveError, StoreClosed, StoreError, StoreLocked
from reprieve.stores.sqlite import file
from reprieve.stores.sqlite.faults import is_busy, translate

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
"""Something to do in a transaction. It may raise a ReprieveError only before it has written anything."""

UPKEEP_EVERY = 16
"""Transactions between two looks at the file itself."""

Point = Literal["before", "after"]

_FULL = 2


class Errand(NamedTuple, Generic[T]):
    """What somebody wants done, and waits for."""

    work: Work[T]
    future: Future[T]
    is_lasting: bool
    """Whether it must outlive a loss of power before it is answered."""


class Writer:
    """Runs work on one connection, in one thread, all that waits at a time in one transaction."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        lock: Path | None,
        on_commit: Callable[[], None],
        on_rollback: Callable[[], None],
        begin: Literal["immediate", "deferred"] = "immediate",
        upkeep: Callable[[sqlite3.Connection], None] = lambda _: None,
    ) -> None:
        """Start the thread; `lock` is the file that processes take turns by, None where nobody has to.

        A deferred transaction only reads, and disturbs no writer.
        """
        self._begin = f"begin {begin}"
        self._process = os.getpid()
        self._upkeep = upkeep
        self._since_upkeep = 0
        self._connect = connect
        self._lock = lock
        self._on_commit = on_commit
        self._on_rollback = on_rollback
        self._waiting: queue.SimpleQueue[Errand[Any] | None] = queue.SimpleQueue()
        self._is_closed = False
        self._door = threading.Lock()
        """Nobody comes in while the last one closes it: whatever was let in is answered."""
        self._at_work = threading.Lock()
        """Held for every batch, and while this process forks."""
        self._connection: sqlite3.Connection | None = None
        self._may_flush = self._is_flushed = False
        """Whether commits may wait for the disk, as the connection was opened, and whether they now do."""
        self._fault: Point | None = None
        self._is_changed = False
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="reprieve-sqlite", daemon=True)
        self._thread.start()
        self._ready.result()

    def submit(self, work: Work[T], *, is_lasting: bool = True) -> Future[T]:
        """Have something done; the answer comes when it is durable.

        What is not lasting is written at once, where it outlives this process, and reaches the disk with whatever
        comes next.
        """
        future: Future[T] = Future()
        if os.getpid() != self._process:
            future.set_exception(StoreError("the store was opened before this process was forked; open it here again"))
            return future
        with self._door:
            if self._is_closed:
                future.set_exception(StoreClosed("the store was closed; open it again"))
            else:
                self._waiting.put(Errand(work, future, is_lasting))
        return future

    def inject(self, point: Point) -> None:
        """Make the next transaction fail before or after its commit, as a crash or a lost reply would."""
        self._fault = point

    def close(self) -> None:
        """Finish what waits, and end the thread."""
        with self._door:
            if not self._is_closed:
                self._is_closed = True
                self._waiting.put(None)
        self._thread.join()

    def pause(self) -> None:
        """Close the connection, and open none before `resume`.

        SQLite keeps its locks by process. A fork has a copy of what an open connection knows but none of its locks: the
        next process to close the file would take it for unused, and throw away what the fork has yet to write.
        """
        self._at_work.acquire()
        self._disconnect()

    def resume(self) -> None:
        """Go on; the connection is opened again when it is needed."""
        self._at_work.release()

    def _run(self) -> None:
        try:
            self._connected()
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666) if self._lock else None
        except Exception as error:  # noqa: BLE001 - the caller that opens the store gets it, whatever it is
            self._disconnect()
            self._ready.set_exception(translate(error))
            return
        self._ready.set_result(None)
        while (batch := self._next_batch()) is not None:
            # Who has given up before the work began gets none; who gives up later gets it done all the same.
            batch = [errand for errand in batch if errand.future.set_running_or_notify_cancel()]
            with self._at_work:
                self._serve(descriptor, batch)
        if descriptor is not None:
            os.close(descriptor)
        with self._at_work:
            self._disconnect()

    def _serve(self, descriptor: int | None, batch: list[Errand[Any]]) -> None:
        try:
            connection = self._connected()
        except Exception as error:  # noqa: BLE001 - a thread that dies would hang every caller
            for errand in batch:
                errand.future.set_exception(translate(error))
            return
        self._since_upkeep += 1
        if self._since_upkeep == UPKEEP_EVERY:
            self._since_upkeep = 0
            self._upkeep(connection)
        if batch and not self._attempt(connection, descriptor, batch):
            # Something spoiled the transaction for all: each stands alone now, and only the guilty fails.
            for errand in batch:
                self._attempt(connection, descriptor, [errand])

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
            self._may_flush = self._is_flushed = self._connection.execute("pragma synchronous").fetchone()[0] == _FULL
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _next_batch(self) -> list[Errand[Any]] | None:
        first = self._waiting.get()
        batch = [] if first is None else [first]
        while not self._waiting.empty() and first is not None:
            errand = self._waiting.get()
            if errand is None:
                self._waiting.put(None)
                break
            batch.append(errand)
        return batch or None

    def _attempt(self, connection: sqlite3.Connection, descriptor: int | None, batch: list[Errand[Any]]) -> bool:
        """Do a batch in one transaction. Return False when it has to be done again, one by one."""
        try:
            self._flush(connection, is_wanted=any(errand.is_lasting for errand in batch))
            answers = self._transact(connection, descriptor, [errand.work for errand in batch])
        except Exception as error:  # noqa: BLE001 - a thread that dies would hang every caller
            # Who was locked out once would only be locked out again, one after the other.
            if len(batch) > 1 and not is_busy(error):
                return False
            for errand in batch:
                errand.future.set_exception(translate(error))
            return True
        # Whoever looked and found nothing has changed nothing, and must not wake those who look as well.
        if self._is_changed:
            self._on_commit()
        for errand, answer in zip(batch, answers, strict=True):
            if isinstance(answer, ReprieveError):
                errand.future.set_exception(answer)
            else:
                errand.future.set_result(answer)
        return True

    def _flush(self, connection: sqlite3.Connection, *, is_wanted: bool) -> None:
        """Wait for the disk at the next commit, or not. A commit that waits takes what was written before along."""
        if self._may_flush and is_wanted != self._is_flushed:
            connection.execute(f"pragma synchronous = {'full' if is_wanted else 'normal'}")
            self._is_flushed = is_wanted

    def _transact(self, connection: sqlite3.Connection, descriptor: int | None, works: list[Work[Any]]) -> list[object]:
        before = connection.total_changes
        if descriptor is not None:
            _take_turn(descriptor)
        try:
            connection.execute(self._begin)
            answers: list[object] = []
            for work in works:
                try:
                    answers.append(work(connection))
                except ReprieveError as refusal:
                    answers.append(refusal)
            fault, self._fault = self._fault, None
            _fail("before", fault)
            connection.execute("commit")
            _fail("after", fault)
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            self._on_rollback()
            raise
        finally:
            if descriptor is not None:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        self._is_changed = connection.total_changes != before
        return answers


def _take_turn(descriptor: int) -> None:
    """Wait for the other processes, as long as for a foreign transaction."""
    deadline = time.monotonic() + file.LOCK_TIMEOUT_MS / 1_000
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                message = "another process has held the store's turn for too long; end it if it is stopped"
                raise StoreLocked(message) from None
            _PAUSE.wait(0.0005)
        else:
            return


_PAUSE = threading.Event()


def _fail(here: Point, wanted: Point | None) -> None:
    if here == wanted:
        message = f"the transaction failed {here} its commit, as it was told to"
        raise StoreError(message)
