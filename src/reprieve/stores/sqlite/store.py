"""The SQLite store: the protocol, each operation a transaction in the writer's thread."""

import asyncio
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from reprieve.clock import SystemClock
from reprieve.core.change import Change
from reprieve.core.events import Event
from reprieve.core.ids import parse_id
from reprieve.core.job import Job
from reprieve.errors import StoreClosed
from reprieve.rng import bits
from reprieve.stores.check import check_jobs, check_limit_update, check_size
from reprieve.stores.coalesce import Coalescer
from reprieve.stores.protocol import (
    MAX_PAYLOAD_BYTES,
    Annotation,
    ChangeResult,
    Claim,
    Claimed,
    Entry,
    Filter,
    Heartbeat,
    LimitState,
    LimitUpdate,
    Page,
    Pruned,
    Retention,
    Subject,
    Tally,
)
from reprieve.stores.sqlite import annotations, enqueue, entries, find, prune, sessions, settle, update_limits
from reprieve.stores.sqlite.callers import joined
from reprieve.stores.sqlite.claim import claim
from reprieve.stores.sqlite.file import Durability, connect, keep_wal_small, prepare, take_node_number
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.notifier import Notifier
from reprieve.stores.sqlite.rows import Ids, is_row_id
from reprieve.stores.sqlite.writer import Point, Writer

T = TypeVar("T")


class SqliteStore:
    """Jobs in one SQLite file, for any number of processes of one machine; or in memory, for one."""

    def __init__(
        self,
        path: Path | None,
        *,
        durability: Durability = "full",
        largest_payload: int = MAX_PAYLOAD_BYTES,
        shared: bool = False,
        may_wait: bool = True,
    ) -> None:
        """Open the file, and make it if it is missing; None keeps everything in memory.

        `shared` says that the file is an application's, whose tables stay beside ours. `may_wait=False` is for a caller
        that has a transaction open on the file: it raises `StoreNotFound` where opening would wait for its end.
        """
        self.clock = SystemClock()
        """The clock of the machine, which all processes share."""
        self._largest_payload = largest_payload
        self._places = LaneCache()
        self._is_closed = False
        self._ids_lock = threading.Lock()
        self._path = path
        node = prepare(path, durability, shared=shared, may_wait=may_wait)
        lock = None if path is None else path.with_name(path.name + "-lock")
        with ExitStack() as opened:
            self._bell = Notifier(path)
            opened.callback(self._bell.close)
            self._writer = Writer(
                lambda: connect(path, durability),
                lock,
                self._bell.notify,
                self._places.clear,
                upkeep=_nothing if path is None else lambda connection: keep_wal_small(connection, path),
            )
            opened.callback(self._writer.close)
            self._reader, self._shown = self._writer, self._places
            if path is not None:
                # Looking at many jobs must not keep anybody from working on them.
                self._shown = LaneCache()
                self._reader = Writer(lambda: connect(path, durability), None, _nothing, _nothing, "deferred")
            opened.pop_all()
        # Chance keeps processes apart until this one has a number of its own.
        self._ids = Ids(bits(10) if node is None else node)
        self._coalescer = Coalescer(self._enqueue)
        self._is_numbered = node is not None
        if path is not None:
            _stores.add(self)

    def _take_number(self) -> None:
        """Take a number for the ids of this process as soon as the file can be written; the caller need not wait."""

        def taken(number: Future[int]) -> None:
            if number.exception() is not None:
                self._is_numbered = False
                return
            with self._ids_lock:
                self._ids.renumber(number.result())

        self._is_numbered = True
        self._writer.submit(take_node_number, is_lasting=False).add_done_callback(taken)

    @property
    def is_in_memory(self) -> bool:
        """Whether nothing outside of this process sees the jobs, no connection of the caller's either."""
        return self._path is None

    # what follows is the protocol, in its order

    def new_id(self, now: int, queue: str) -> str:  # noqa: ARG002 - one file is one partition
        """Make the id of a new job."""
        with self._ids_lock:
            return self._ids.make(now, bits(62))

    async def enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs; answer for each the id under which it is known."""
        self._require_open()
        check_jobs(jobs, self._largest_payload, is_row_id)
        return await self._coalescer.enqueue(jobs, now)

    def enqueue_here(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs, and keep the calling thread waiting; what other threads store meanwhile shares the flush."""
        check_jobs(jobs, self._largest_payload, is_row_id)
        return self.submit(lambda tx: enqueue.enqueue(tx, self._places, jobs, now)).result()

    def enqueue_in(self, connection: object, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs in the caller's own transaction: both are there after its commit, or neither.

        The connection is one of `sqlite3`, SQLAlchemy or Django, to the file of this store.
        """
        check_jobs(jobs, self._largest_payload, is_row_id)
        with joined(connection, self._path) as cursor:
            # What this transaction makes may be rolled back without our knowing, so nothing of it is remembered.
            known = enqueue.enqueue(cursor, LaneCache(), jobs, now)
        if not self._is_numbered:
            # Not before: a commit of ours would refuse the write of a transaction that has read.
            self._take_number()
        return known

    async def claim(self, request: Claim) -> Claimed:
        """Apply changes, then choose and lease jobs."""
        self._require_open()
        for change in request.changes:
            check_size(change.result or b"", "result", self._largest_payload)
        self._bell.snapshot(request.session)
        # A lease alone need not outlive a loss of power, which ends whoever holds it as well.
        return await self._write(lambda tx: claim(tx, self._places, request), is_lasting=bool(request.changes))

    async def apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        """Carry out changes that no session makes."""
        return await self._write(lambda tx: settle.apply(tx, self._places, changes, now))

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Keep a session alive, or open it; answer whether it lives."""
        is_alive = await self._write(lambda tx: sessions.heartbeat(tx, heartbeat), is_lasting=False)
        if not is_alive:
            self._bell.forget(heartbeat.session)
        return is_alive

    async def recover(self, now: int, limit: int = 100) -> list[Job]:
        """Declare the dead, and answer what they hold."""
        return await self._write(lambda tx: sessions.recover(tx, self._places, now, limit))

    async def annotate(self, requests: Sequence[Annotation]) -> list[bool]:
        """Request a cancel or note progress."""
        for annotation in requests:
            parse_id(annotation.job_id)
            check_size(annotation.progress or b"", "progress", self._largest_payload)
        return await self._write(lambda tx: annotations.annotate(tx, requests))

    async def progress(self, job_id: str) -> bytes | None:
        """Return the progress of a running job."""
        return await self._read(lambda tx: find.progress(tx, parse_id(job_id)))

    async def update_limits(self, updates: Sequence[LimitUpdate], now: int) -> None:
        """Change limiters, limits, weights and pauses."""
        for update in updates:
            check_limit_update(update)

        def work(tx: sqlite3.Connection) -> None:
            for update in updates:
                update_limits.update_limits(tx, update, now)

        await self._write(work)

    async def compare_and_set(
        self,
        key: str,
        version: int,
        value: bytes | None,
        updates: Sequence[LimitUpdate] = (),
        now: int = 0,
    ) -> Entry | None:
        """Set or delete an entry if nobody was first, together with updates."""
        for update in updates:
            check_limit_update(update)

        def work(tx: sqlite3.Connection) -> Entry | None:
            entry = entries.compare_and_set(tx, key, version, value)
            for update in updates if entry is not None else ():
                update_limits.update_limits(tx, update, now)
            return entry

        return await self._write(work)

    async def prune(self, retention: Retention) -> Pruned:
        """Forget what has ended long enough ago."""
        return await self._write(lambda tx: prune.prune(tx, retention))

    async def find(self, wanted: Filter, now: int, cursor: str = "", limit: int = 100) -> Page:
        """Return jobs as they are."""
        if wanted.ids is not None:
            wanted = replace(wanted, ids=tuple(map(parse_id, wanted.ids)))
        return await self._read(lambda tx: find.find(tx, self._shown, wanted, now, cursor, limit))

    async def tally(self, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
        """Count jobs by something."""
        return await self._read(lambda tx: find.tally(tx, self._shown, by, wanted, now))

    async def events(self, after: int = 0, limit: int = 1_000, job_id: str = "") -> list[tuple[int, Event]]:
        """Return events in the order in which they happened."""
        return await self._read(lambda tx: find.events(tx, after, limit, job_id))

    async def result(self, job_id: str) -> bytes | None:
        """Return what a succeeded job returned."""
        known = parse_id(job_id)
        return await self._read(lambda tx: find.result(tx, known))

    async def entries(self, prefix: str = "") -> list[Entry]:
        """Return the entries whose key begins so."""
        return await self._read(lambda tx: entries.entries(tx, prefix))

    async def limit_states(self, subject: Subject, queue: str = "") -> list[LimitState]:
        """Return what is known of every queue, tenant, task, dependency or group."""
        return await self._read(lambda tx: update_limits.limit_states(tx, subject, queue))

    async def wait(self, queues: Sequence[str], at_most: float, session: str = "") -> bool:  # noqa: ARG002 - one bell for all
        """Wait for the bell."""
        self._require_open()
        return await self._bell.wait(session, at_most)

    async def close(self) -> None:
        """Let go of the file."""
        if not self._is_closed:
            self._is_closed = True
            await asyncio.to_thread(self._reader.close)
            await asyncio.to_thread(self._writer.close)
            self._bell.close()

    def inject(self, point: Point) -> None:
        """Make the next transaction fail before or after its commit: for tests of whoever uses the store."""
        self._writer.inject(point)

    def submit(self, work: Callable[[sqlite3.Connection], T], *, is_lasting: bool = True) -> Future[T]:
        """Have something done in a transaction, from code without a loop."""
        self._require_open()
        if not self._is_numbered:
            self._take_number()
        return self._writer.submit(work, is_lasting=is_lasting)

    def pause(self) -> None:
        """Let go of the file while this process forks: SQLite does not survive it. See `Writer.pause`."""
        self._writer.pause()
        self._reader.pause()
        self._bell.pause()

    def resume(self) -> None:
        """Take the file up again."""
        self._bell.resume()
        self._reader.resume()
        self._writer.resume()

    def leave(self) -> None:
        """Leave the file to the process that opened this store, in a fork of it."""
        self._bell.leave()
        self._reader.resume()
        self._writer.resume()

    async def _write(self, work: Callable[[sqlite3.Connection], T], *, is_lasting: bool = True) -> T:
        return await asyncio.wrap_future(self.submit(work, is_lasting=is_lasting))

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._require_open()
        return await asyncio.wrap_future(self._reader.submit(work))

    async def _enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
        return await self._write(lambda tx: enqueue.enqueue(tx, self._places, jobs, now))

    def _require_open(self) -> None:
        if self._is_closed:
            message = "the store was closed; open it again"
            raise StoreClosed(message)


_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_paused: list[SqliteStore] = []


def _pause_all() -> None:
    stores = list(_stores)
    for store in stores:
        store.pause()
    _paused.extend(stores)


def _resume_all() -> None:
    while _paused:
        _paused.pop().resume()


def _leave_all() -> None:
    while _paused:
        _paused.pop().leave()


os.register_at_fork(before=_pause_all, after_in_parent=_resume_all, after_in_child=_leave_all)


def _nothing(*_: object) -> None:
    """Nobody has to hear of a look."""
