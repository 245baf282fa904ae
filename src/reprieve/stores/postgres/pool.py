"""The connection pool: threads that run transactions, for any event loop and any thread of the process.

The statements of a transaction are pipelined: it waits for the server only where it needs a row.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import psycopg

from reprieve.clock import ticks
from reprieve.errors import ForeignStore, NewerSchema, ReprieveError, StoreClosed, StoreError
from reprieve.stores.capabilities import FaultPoint
from reprieve.stores.postgres.address import READ, WRITE, Address
from reprieve.stores.postgres.connection import CONNECT_SECONDS, READ_SECONDS, WRITE_SECONDS
from reprieve.stores.postgres.error_mapping import is_final, translate
from reprieve.stores.postgres.pipeline import Pipeline, Result
from reprieve.stores.postgres.schema import prepare, require_usable_still
from reprieve.stores.postgres.statements import statements

T = TypeVar("T")
RecordT = TypeVar("RecordT", bound=msgspec.Struct)

SINGLE_STATEMENT: Final = ""
"""The mode of work that is one statement, which is a transaction by itself."""

MAX_CONNECTIONS = 8
"""Connections of one process, besides the one that listens. They are opened when they are needed."""

MAX_IDLE_SECONDS = 60.0
"""Seconds after which a connection that was not needed is closed."""

PREPARE_AGAIN_SECONDS = 3_600.0
"""Seconds after which a process checks again that the schema has its functions, and notes that it uses them."""

log = logging.getLogger("reprieve")


class Tx:
    """A transaction: statements are sent at once, and their results are read when they are needed."""

    def __init__(self, pipeline: Pipeline, *, is_single: bool = False) -> None:
        """Take the pipeline; `is_single` for a statement that is a transaction by itself."""
        self.connection = pipeline.connection
        self._pipeline = pipeline
        self.is_single = is_single
        self.flushes_after_commit = False
        """Whether the commit does not wait for the disk, and a statement after it does."""
        self.on_commit: list[Callable[[], None]] = []
        """Functions to call after the commit."""

    def execute(self, statement: str, parameters: dict[str, Any] | None = None) -> Result:
        """Send a statement."""
        result = self._pipeline.send(statement, parameters)
        if self.is_single:
            self._pipeline.sync()
        return result

    def one(self, statement: str, parameters: dict[str, Any] | None = None) -> tuple[Any, ...] | None:
        """Return the first row of a statement."""
        return self.execute(statement, parameters).one()

    def all(self, statement: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Return all rows of a statement."""
        return self.execute(statement, parameters).all()

    def records(self, kind: type[RecordT], statement: str, parameters: dict[str, Any] | None = None) -> list[RecordT]:
        """Return all rows of a statement as records, whose fields have the names of its columns."""
        return self.execute(statement, parameters).records(kind)


Work: TypeAlias = Callable[[Tx], T]


class ConnectionPool:
    """Runs work in transactions, each on a connection of its own."""

    def __init__(self, address: Address) -> None:
        """Open no connection yet."""
        self._address = address
        self._process = os.getpid()
        self._threads = ThreadPoolExecutor(MAX_CONNECTIONS, "reprieve-postgres")
        self._lock = threading.Lock()
        self._preparing = threading.Lock()
        self._idle: list[tuple[float, Pipeline]] = []
        """Idle connections, and since when: the last is used first, the first is closed first."""
        self._busy: set[Pipeline] = set()
        self._room = threading.Semaphore(MAX_CONNECTIONS)
        # Threads of the caller may wait for each other's keys; heartbeats must find a connection meanwhile.
        self._room_of_callers = threading.Semaphore(MAX_CONNECTIONS // 2)
        self._is_closed = False
        self._has_given_up = False
        self._prepare_at: float | None = None
        """When to check the schema again; None: it was never checked."""
        self._fault: FaultPoint | None = None

    def submit(self, work: Work[T], mode: str = WRITE) -> Future[T]:
        """Run work in a thread of the pool; the future has its result once it is committed."""
        self._require_usable()
        return self._threads.submit(self._run, work, mode)

    def run_here(self, work: Work[T], mode: str = WRITE) -> T:
        """Run work in the calling thread, without a switch to another."""
        self._require_usable()
        with self._room_of_callers:
            return self._run(work, mode)

    async def run_statement(self, statement: str, parameters: dict[str, Any]) -> tuple[Any, ...] | None:
        """Run a statement that is a transaction by itself; return its first row.

        It runs on the event loop of the caller, if a connection is idle: to switch to a thread and back takes about as
        long as the server needs to store a job.
        """
        self._require_usable()
        pipeline = self._borrow_at_once()
        if pipeline is None:
            return await asyncio.wrap_future(self.submit(lambda tx: tx.one(statement, parameters), SINGLE_STATEMENT))
        with self._translated():
            try:
                pipeline.begin()
                result = pipeline.send(statement, parameters)
                pipeline.sync()
                await pipeline.aend()
                return result.one()
            except psycopg.Error as error:
                await pipeline.aabort()
                if is_final(error):
                    pipeline.connection.close()
                raise
            finally:
                # This closes the connection of a call that was cancelled while the server worked on it.
                self._give_back(pipeline)
                self._room.release()

    def _borrow_at_once(self) -> Pipeline | None:
        """Return an idle connection that needs no wait; None if there is none, or a thread has to prepare something."""
        if self._fault is not None or self._prepare_at is None or ticks() >= self._prepare_at:
            return None
        if not self._room.acquire(blocking=False):
            return None
        pipeline = self._take_idle()
        if pipeline is not None and not pipeline.connection.is_pooled:
            with self._lock:
                pipeline.connection.max_silence_seconds = WRITE_SECONDS
                self._busy.add(pipeline)
            return pipeline
        if pipeline is not None:
            self._give_back(pipeline)
        self._room.release()
        return None

    def _require_usable(self) -> None:
        if self._is_closed:
            raise StoreClosed
        if os.getpid() != self._process:
            message = "the store was opened before this process was forked; open it here again"
            raise StoreError(message)

    def inject(self, point: FaultPoint) -> None:
        """Make the next transaction that writes fail before or after its commit, for tests of callers."""
        self._fault = point

    def prepare(self) -> None:
        """Bring the schema up to date before its first use; check it again once an hour."""
        if self._prepare_at is not None and ticks() < self._prepare_at:
            return
        if self._preparing.acquire(blocking=self._prepare_at is None):
            try:
                self._prepare()
            finally:
                self._preparing.release()

    def _prepare(self) -> None:
        is_first = self._prepare_at is None
        if not is_first and ticks() < (self._prepare_at or 0):
            return
        try:
            prepare(self._address)
        except NewerSchema:
            raise
        except ReprieveError as error:
            if is_first:
                raise
            # What this process needs was there an hour ago; if it is gone, the next statement says so.
            log.warning("cannot check the schema again: %s", error)
        self._prepare_at = ticks() + PREPARE_AGAIN_SECONDS

    def close(self) -> None:
        """Finish work that has begun, for some seconds, then close all connections."""
        self._is_closed = True
        timeout = threading.Timer(CONNECT_SECONDS, self._give_up)
        timeout.start()
        self._threads.shutdown()
        timeout.cancel()
        with self._lock:
            idle, self._idle = self._idle, []
        for _, pipeline in idle:
            pipeline.connection.close()

    def _give_up(self) -> None:
        """Wait for no response any more."""
        with self._lock:
            self._has_given_up = True
            for pipeline in self._busy:
                pipeline.connection.max_silence_seconds = 0

    def _run(self, work: Work[T], mode: str) -> T:
        with self._translated(), self._room:
            return self._on_connection(work, mode)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            translated = translate(error, self._address.shown)
            if translated is error:
                raise
            if isinstance(translated, ForeignStore):
                # What is missing was there before: a newer release may have taken it away.
                with suppress(psycopg.Error):
                    require_usable_still(self._address)
            raise translated from error

    def _on_connection(self, work: Work[T], mode: str) -> T:
        pipeline = self._borrow(mode)
        try:
            return self._transact(pipeline, work, mode)
        except psycopg.Error as error:
            if is_final(error):
                pipeline.connection.close()
            raise
        finally:
            self._give_back(pipeline)

    def _borrow(self, mode: str) -> Pipeline:
        self.prepare()
        pipeline = self._take_idle() or Pipeline(self._address.connect())
        connection = pipeline.connection
        with self._lock:
            if not self._has_given_up:
                connection.max_silence_seconds = READ_SECONDS + CONNECT_SECONDS if mode == READ else WRITE_SECONDS
                self._busy.add(pipeline)
                return pipeline
        connection.close()
        message = "the store was closed before this call began; open it again"
        raise StoreClosed(message)

    def _take_idle(self) -> Pipeline | None:
        with self._lock:
            while self._idle:
                _, pipeline = self._idle.pop()
                if not pipeline.connection.closed:
                    return pipeline
        return None

    def _give_back(self, pipeline: Pipeline) -> None:
        now, unneeded = ticks(), []
        with self._lock:
            self._busy.discard(pipeline)
            if self._is_closed or not pipeline.is_idle():
                unneeded.append(pipeline)
            else:
                self._idle.append((now, pipeline))
            while self._idle and self._idle[0][0] + MAX_IDLE_SECONDS < now:
                unneeded.append(self._idle.pop(0)[1])
        for one in unneeded:
            one.connection.close()

    def _transact(self, pipeline: Pipeline, work: Work[T], mode: str) -> T:
        fault = None
        if mode != READ:
            fault, self._fault = self._fault, None
        tx = Tx(pipeline, is_single=mode == SINGLE_STATEMENT and not pipeline.connection.is_pooled)
        try:
            result = self._run_in(tx, pipeline, work, mode, fault)
        except Exception:
            pipeline.abort()
            raise
        except BaseException:
            # An interrupt does not wait for the server.
            pipeline.connection.cancel_and_close()
            raise
        for call in tx.on_commit:
            call()
        _fail("after", fault)
        return result

    def _run_in(self, tx: Tx, pipeline: Pipeline, work: Work[T], mode: str, fault: FaultPoint | None) -> T:
        pipeline.begin()
        if tx.is_single:
            _fail("before", fault)
            result = work(tx)
        else:
            for statement in self._address.opening(pipeline.connection, mode or WRITE):
                pipeline.send(statement)
            result = work(tx)
            _fail("before", fault)
            pipeline.send("commit")
            pipeline.sync()
            if tx.flushes_after_commit and self._address.durability == "full":
                pipeline.send(statements("lanes")["flush"])
                pipeline.sync()
        pipeline.end()
        return result


def _fail(here: FaultPoint, wanted: FaultPoint | None) -> None:
    if here == wanted:
        message = f"the transaction failed {here} its commit, as it was told to"
        raise StoreError(message)
