"""The SQLite store: each operation of the protocol is a transaction in the writer's thread."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from reprieve.clock import SystemClock
from reprieve.core.audit import Author
from reprieve.core.change import Change
from reprieve.core.job import Job
from reprieve.core.notice import Notice
from reprieve.rng import bits
from reprieve.stores.capabilities import EnqueueRules, FaultPoint
from reprieve.stores.compatibility import require_usable
from reprieve.stores.limit_notices import limit_notices
from reprieve.stores.protocol import (
    Annotation,
    ChangeResult,
    Claim,
    Claimed,
    EntryWrite,
    EntryWritten,
    Expired,
    Heartbeat,
    LimitUpdate,
    Pruned,
    Retention,
)
from reprieve.stores.sql.expired_keys import KeySweep
from reprieve.stores.sql.store import SqlStore
from reprieve.stores.sql.tx import Statements
from reprieve.stores.sqlite import annotations, enqueue, entry_write, expire, prune, sessions, settle, update_limits
from reprieve.stores.sqlite.callers import joined
from reprieve.stores.sqlite.claim import claim
from reprieve.stores.sqlite.connections import Connections
from reprieve.stores.sqlite.file import Durability, compatibility_of, migrations, prepare, take_node_number
from reprieve.stores.sqlite.find import Search, is_key
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.notices import tell
from reprieve.stores.sqlite.rows import Ids, id_of, is_row_id, row_id
from reprieve.stores.sqlite.statements import statements
from reprieve.stores.sqlite.tx import SqliteTx

T = TypeVar("T")


class SqliteStore(SqlStore[sqlite3.Connection]):
    """Jobs in one SQLite file, for any number of processes of one machine; or in memory, for one.

    `open_store` puts it behind `checked`, which validates arguments, refuses calls after `close` and combines enqueues.
    """

    enqueue_rules = EnqueueRules(is_id=is_row_id)
    """Row ids count the time from 2020 on, in 41 bits."""
    _is_key = staticmethod(is_key)

    def __init__(
        self,
        path: Path | None,
        *,
        durability: Durability = "full",
        shared: bool = False,
        may_wait: bool = True,
        to_read: bool = False,
    ) -> None:
        """Open the file, or create it; None keeps everything in memory.

        `shared` allows a file that has tables of an application. `may_wait=False` is for a caller that has a
        transaction open on the file: opening raises `StoreNotFound` where it would wait for the end of that
        transaction. `to_read` opens a file that is up to date without waiting for its write lock.
        """
        self.clock = SystemClock()
        """The clock of the machine, which all processes of the file share."""
        self._lanes = LaneCache()
        self._key_sweep = KeySweep()
        self._ids_lock = threading.Lock()
        self._shown = self._lanes if path is None else LaneCache()
        node = prepare(path, durability, shared=shared, may_wait=may_wait, to_read=to_read)
        self._connections = Connections(
            path, durability, shared=shared, forget_written=self._lanes.clear, forget_read=self._shown.clear
        )
        self._path = self._connections.path
        self._writer, self._reader = self._connections.writer, self._connections.reader
        self._notifier = self._connections.notifier
        # A random number keeps the ids of processes apart until this one has a number from the file.
        self._ids = Ids(bits(10) if node is None else node)
        self._is_numbered = node is not None
        self._connections.on_node = self._renumber

    def _take_number(self) -> None:
        """Take a number for the ids of this process once the file can be written, without waiting for it."""

        def taken(number: Future[int]) -> None:
            if number.exception() is not None:
                self._is_numbered = False
                return
            self._renumber(number.result())

        self._is_numbered = True
        self._writer.submit(take_node_number, is_lasting=False).add_done_callback(taken)

    def _renumber(self, number: int) -> None:
        """Make ids with another number of this process."""
        with self._ids_lock:
            self._ids.renumber(number)

    @property
    def is_in_memory(self) -> bool:
        """Whether only this process sees the jobs, so that no connection of a caller reaches them."""
        return self._path is None

    def new_id(self, now: int, queue: str, beside: str | None = None) -> str:  # noqa: ARG002 - one file is one partition
        """Make the id of a new job."""
        with self._ids_lock:
            return self._ids.make(now, bits(62))

    async def enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs; return the id of each."""
        return await self._write(lambda tx: enqueue.enqueue(tx, self._lanes, jobs, now))

    def enqueue_sync(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs, blocking the calling thread; concurrent calls of other threads share the flush."""
        return self.submit(lambda tx: enqueue.enqueue(tx, self._lanes, jobs, now)).result()

    def enqueue_in(self, connection: object, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs in the caller's open transaction; they exist once it commits.

        The connection is one of `sqlite3`, SQLAlchemy or Django, to the file of this store.
        """
        with joined(connection, self._path) as cursor:
            require_usable(compatibility_of(cursor), len(migrations()))
            # The caller may roll back what this transaction creates, so none of it is cached.
            known = enqueue.enqueue(cursor, LaneCache(), jobs, now)
        if not self._is_numbered:
            # Not before: a commit here would make the write of the caller's transaction fail if it has read.
            self._take_number()
        return known

    async def claim(self, request: Claim) -> Claimed:
        """Apply changes, then choose and lease jobs."""
        self._notifier.snapshot(request.session)
        # A lease alone need not survive a loss of power, which also ends the session that holds it.
        return await self._write(lambda tx: claim(tx, self._lanes, request), is_lasting=bool(request.changes))

    async def _apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        return await self._write(lambda tx: settle.apply(tx, self._lanes, changes, now))

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Open a session or extend its lease; return whether it is alive."""
        is_alive = await self._write(lambda tx: sessions.heartbeat(tx, heartbeat), is_lasting=False)
        if not is_alive:
            self._notifier.forget(heartbeat.session)
        return is_alive

    async def recover(self, now: int, limit: int = 100) -> list[Job]:
        """Expire sessions past their lease; return the jobs they hold."""
        return await self._write(lambda tx: sessions.recover(tx, self._lanes, now, limit))

    async def expire(self, now: int, limit: int = 100) -> Expired:
        """End waiting jobs that are past their deadline or were parked for too long; return them."""
        if not await self._read(lambda tx: expire.is_due(tx, now)):
            return Expired()
        return await self._write(lambda tx: expire.expire(tx, self._lanes, now, limit))

    async def annotate(self, requests: Sequence[Annotation]) -> list[bool]:
        """Request cancels and note progress."""
        return await self._write(lambda tx: annotations.annotate(tx, self._lanes, requests))

    async def update_limits(self, updates: Sequence[LimitUpdate], now: int, author: Author) -> None:
        """Change limits, rates, weights and pauses."""

        def work(tx: sqlite3.Connection) -> None:
            update_limits.update_limits(tx, updates, now, author)
            tell(tx, limit_notices(updates, now, author))

        await self._write(work)

    async def compare_and_set(self, write: EntryWrite, now: int, author: Author) -> EntryWritten:
        """Set or delete an entry if it has this version, together with what the write carries."""
        return await self._write(lambda tx: entry_write.write(tx, self._lanes, write, now, author))

    async def tell(self, notices: Sequence[Notice]) -> None:
        """Add notices to the stream."""
        await self._write(lambda tx: tell(tx, notices))

    async def prune(self, retention: Retention) -> Pruned:
        """Delete what ended long enough ago."""
        pruned = await self._write(lambda tx: prune.prune(tx, self._lanes, self._key_sweep, retention))
        self._key_sweep.confirm()
        return pruned

    async def wait(self, queues: Sequence[str], at_most: float, session: str = "") -> bool:  # noqa: ARG002 - every commit notifies all
        """Wait until notified."""
        return await self._notifier.wait(session, at_most)

    async def close(self) -> None:
        """Finish the calls under way, then close the file."""
        await asyncio.to_thread(self._connections.close)

    def inject(self, point: FaultPoint) -> None:
        """Make the next transaction fail before or after its commit."""
        self._writer.inject(point)

    async def damage(self, job_id: str, packed: bytes) -> None:
        """Replace what is packed of a job."""
        await self._write(lambda tx: tx.execute(statements("jobs")["damage"], (packed, row_id(job_id))))

    def submit(self, work: Callable[[sqlite3.Connection], T], *, is_lasting: bool = True) -> Future[T]:
        """Run work in a transaction; return the future of its result."""
        if not self._is_numbered:
            self._take_number()
        return self._writer.submit(work, is_lasting=is_lasting)

    async def _write(self, work: Callable[[sqlite3.Connection], T], *, is_lasting: bool = True) -> T:
        return await asyncio.wrap_future(self.submit(work, is_lasting=is_lasting))

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.wrap_future(self._reader.submit(work))

    def _search(self, tx: sqlite3.Connection, now: int) -> Search:
        self._shown.trim()
        return Search(tx, self._shown, now)

    def _sql_tx(self, tx: sqlite3.Connection) -> SqliteTx:
        return SqliteTx(tx)

    def _statements(self, name: str) -> Statements:
        return statements(name)

    def _stored_id(self, job_id: str) -> int:
        return row_id(job_id)

    def _public_id(self, row: int, middle: bytes) -> str:
        return id_of(row, middle)
