"""The thread that owns a connection: whatever waits for it is done in one transaction (group commit).

Processes take turns by a lock on a file beside the database: SQLite's own lock is no queue, and whoever waits for it
sleeps for up to a tenth of a second between tries.
"""

import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal, TypeVar

from reprieve.errors import ReprieveError, StoreClosed, StoreError
from reprieve.stores.sqlite.faults import translate

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
"""Something to do in a transaction. It may raise a ReprieveError only before it has written anything."""

Point = Literal["before", "after"]


class Writer:
    """Runs work on one connection, in one thread, all that waits at a time in one transaction."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        lock: Path | None,
        on_commit: Callable[[], None],
        on_rollback: Callable[[], None],
        begin: Literal["immediate", "deferred"] = "immediate",
    ) -> None:
        """Start the thread; `lock` is the file that processes take turns by, None where nobody has to.

        A deferred transaction only reads, and disturbs no writer.
        """
        self._begin = f"begin {begin}"
        self._process = os.getpid()
        self._connect = connect
        self._lock = lock
        self._on_commit = on_commit
        self._on_rollback = on_rollback
        self._waiting: queue.SimpleQueue[tuple[Work[Any], Future[Any]] | None] = queue.SimpleQueue()
        self._is_closed = False
        self._fault: Point | None = None
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="reprieve-sqlite", daemon=True)
        self._thread.start()
        self._ready.result()

    def submit(self, work: Work[T]) -> Future[T]:
        """Have something done; the answer comes when it is durable."""
        future: Future[T] = Future()
        if os.getpid() != self._process:
            future.set_exception(StoreError("the store was opened before this process was forked; open it here again"))
        elif self._is_closed:
            future.set_exception(StoreClosed("the store was closed; open it again"))
        else:
            self._waiting.put((work, future))
        return future

    def inject(self, point: Point) -> None:
        """Make the next transaction fail before or after its commit, as a crash or a lost reply would."""
        self._fault = point

    def close(self) -> None:
        """Finish what waits, and end the thread."""
        if not self._is_closed:
            self._is_closed = True
            self._waiting.put(None)
            self._thread.join()

    def _run(self) -> None:
        try:
            connection = self._connect()
        except BaseException as error:  # noqa: BLE001 - whoever opens the store gets it, whatever it is
            self._ready.set_exception(error)
            return
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) if self._lock else None
        self._ready.set_result(None)
        while (batch := self._next_batch()) is not None:
            # Who has given up before the work began gets none; who gives up later gets it done all the same.
            batch = [(work, future) for work, future in batch if future.set_running_or_notify_cancel()]
            if batch and not self._attempt(connection, descriptor, batch):
                # Something spoiled the transaction for all: each stands alone now, and only the guilty fails.
                for entry in batch:
                    self._attempt(connection, descriptor, [entry])
        if descriptor is not None:
            os.close(descriptor)
        connection.close()

    def _next_batch(self) -> list[tuple[Work[Any], Future[Any]]] | None:
        first = self._waiting.get()
        batch = [] if first is None else [first]
        while not self._waiting.empty() and first is not None:
            entry = self._waiting.get()
            if entry is None:
                self._waiting.put(None)
                break
            batch.append(entry)
        return batch or None

    def _attempt(
        self, connection: sqlite3.Connection, descriptor: int | None, batch: list[tuple[Work[Any], Future[Any]]]
    ) -> bool:
        """Do a batch in one transaction. Answer False when it has to be done again, one by one."""
        try:
            answers = self._transact(connection, descriptor, [work for work, _ in batch])
        except Exception as error:  # noqa: BLE001 - a thread that dies would hang every caller
            if len(batch) > 1:
                return False
            batch[0][1].set_exception(translate(error))
            return True
        for (_, future), answer in zip(batch, answers, strict=True):
            if isinstance(answer, ReprieveError):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        return True

    def _transact(self, connection: sqlite3.Connection, descriptor: int | None, works: list[Work[Any]]) -> list[object]:
        before = connection.total_changes
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
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
        # Whoever looked and found nothing has changed nothing, and must not wake those who look as well.
        if connection.total_changes != before:
            self._on_commit()
        return answers


def _fail(here: Point, wanted: Point | None) -> None:
    if here == wanted:
        message = f"the transaction failed {here} its commit, as it was told to"
        raise StoreError(message)
