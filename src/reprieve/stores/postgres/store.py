"""The PostgreSQL store: each operation of the protocol is a transaction on a pooled connection."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from reprieve.clock import ServerClock
from reprieve.core.audit import Author
from reprieve.core.change import Change
from reprieve.core.job import Job
from reprieve.core.notice import Notice
from reprieve.stores.capabilities import EnqueueRules, FaultPoint, ParameterStyle
from reprieve.stores.limit_notices import limit_notices
from reprieve.stores.postgres import (
    annotations,
    callers,
    enqueue,
    expire,
    prune,
    series,
    sessions,
    settle,
    update_limits,
)
from reprieve.stores.postgres.address import READ, Durability, address_of
from reprieve.stores.postgres.callers import Statement
from reprieve.stores.postgres.claim import claim
from reprieve.stores.postgres.claim_lock import ClaimLock
from reprieve.stores.postgres.find import Search, is_key
from reprieve.stores.postgres.lane_cache import KnownLanes, LaneCache
from reprieve.stores.postgres.notices import tell
from reprieve.stores.postgres.notifier import ALL_QUEUES, ENQUEUE_INTERVAL_SECONDS, Notifier
from reprieve.stores.postgres.pool import SINGLE_STATEMENT, ConnectionPool, Tx, Work
from reprieve.stores.postgres.rows import Ids
from reprieve.stores.postgres.statements import statements
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
from reprieve.stores.sql.entry_write import Carried, NothingWritten, write_entry
from reprieve.stores.sql.expired_keys import KeySweep
from reprieve.stores.sql.store import MAX_CHANGES_PER_WRITE, SqlStore
from reprieve.stores.sql.tx import Statements

T = TypeVar("T")

MAX_JOBS_ON_LOOP = 50
"""Jobs that are enqueued on the event loop: what it takes to pack more would be felt by other coroutines."""


class PostgresStore(SqlStore[Tx]):
    """Jobs in a schema of a PostgreSQL database, for any number of processes and machines.

    `open_store` puts it behind `checked`, which validates arguments, refuses calls after `close` and combines enqueues.
    """

    enqueue_rules = EnqueueRules(max_concurrent_calls=2, keys_may_block=True)
    _is_key = staticmethod(is_key)

    def __init__(self, url: str, *, schema: str | None = None, durability: Durability = "full") -> None:
        """Take the URL of the database. The first call connects to it and creates the schema if it is missing."""
        self.clock = ServerClock(self._time)
        """The clock of the server, which all machines share."""
        self._address = address_of(url, schema, durability)
        self._enqueue_statement = enqueue.statement(self._address.schema, is_own=True)
        self._lock = ClaimLock()
        self._known_lanes = KnownLanes()
        self._key_sweep = KeySweep()
        self._pool = ConnectionPool(self._address)
        self._notifier = Notifier(self._address)
        self._ids = Ids()

    def new_id(self, now: int, queue: str, beside: str | None = None) -> str:  # noqa: ARG002 - one database is one partition
        """Make the id of a new job."""
        return self._ids.make(now)

    async def enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs; return the id of each."""
        if len(jobs) <= MAX_JOBS_ON_LOOP:
            row = await self._pool.run_statement(self._enqueue_statement, self._parameters(jobs, now))
        else:
            row = await asyncio.wrap_future(self._pool.submit(self._enqueue_work(jobs, now), SINGLE_STATEMENT))
        return self._enqueued(jobs, row)

    def enqueue_sync(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs, blocking the calling thread."""
        return self._enqueued(jobs, self._pool.run_here(self._enqueue_work(jobs, now), SINGLE_STATEMENT))

    def _parameters(self, jobs: Sequence[Job], now: int) -> dict[str, Any]:
        """Return the parameters of the statement that enqueues."""
        self._known_lanes.trim()
        return enqueue.parameters(jobs, now)

    def _enqueue_work(self, jobs: Sequence[Job], now: int) -> Work[tuple[Any, ...] | None]:
        return lambda tx: tx.one(self._enqueue_statement, self._parameters(jobs, now))

    def _enqueued(self, jobs: Sequence[Job], row: tuple[Any, ...] | None) -> list[str]:
        """Notify the workers of new jobs; return the ids out of the row that the statement returned."""
        self._notifier.notify({job.queue for job in jobs}, every=ENQUEUE_INTERVAL_SECONDS)
        return list(row[0]) if row else []

    def enqueue_in(self, connection: Any, jobs: Sequence[Job], now: int) -> list[str]:  # noqa: ANN401 - the driver's own
        """Store new jobs in the caller's open transaction; they exist once it commits."""
        self._pool.prepare()
        return callers.run(connection, self._statement(jobs, now))

    def is_asynchronous(self, connection: object) -> bool:
        """Return whether the calls of this connection must be awaited."""
        return callers.is_asynchronous(connection)

    async def aenqueue_in(self, connection: Any, jobs: Sequence[Job], now: int) -> list[str]:  # noqa: ANN401 - as above
        """Store new jobs in the caller's open transaction, on an asynchronous connection."""
        await asyncio.to_thread(self._pool.prepare)
        return await callers.arun(connection, self._statement(jobs, now))

    async def claim(self, request: Claim) -> Claimed:
        """Apply changes, then choose and lease jobs."""
        await self._listen()
        self._notifier.mark_seen(request.session)
        claimed = await self._write(lambda tx: claim(tx, self._lock, LaneCache(self._known_lanes), request))
        self._notify_of(request.changes, claimed.results, request.session)
        return claimed

    async def _apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        def work(tx: Tx) -> list[ChangeResult] | None:
            if not self._lock.acquire(tx).is_all_counted:
                # Lanes must have counted a job before it is changed.
                return None
            return settle.settle(tx, LaneCache(self._known_lanes), changes, now)

        results = None
        while results is None:
            results = await self._write(work)
        self._notify_of(changes, results)
        return results

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Open a session or extend its lease; return whether it is alive."""
        is_alive = await self._write(lambda tx: sessions.heartbeat(tx, self._lock, heartbeat))
        if not is_alive:
            self._notifier.forget(heartbeat.session)
        if heartbeat.lease <= 0:
            self._notifier.notify((ALL_QUEUES,))
        return is_alive

    async def recover(self, now: int, limit: int = 100) -> list[Job]:
        """Expire sessions past their lease; return the jobs they hold."""
        return await self._write(lambda tx: sessions.recover(tx, self._lock, LaneCache(self._known_lanes), now, limit))

    async def expire(self, now: int, limit: int = 100) -> Expired:
        """End waiting jobs that are past their deadline or were parked for too long; return them."""

        def work(tx: Tx) -> Expired | None:
            if not expire.may_be_due(tx, self._lock.certainly_counted(tx), now):
                return Expired()
            if not self._lock.acquire(tx).is_all_counted:
                # Lanes must have counted a job before it is changed.
                return None
            return expire.expire(tx, LaneCache(self._known_lanes), now, min(limit, MAX_CHANGES_PER_WRITE))

        expired = None
        while expired is None:
            expired = await self._write(work)
        return expired

    async def annotate(self, requests: Sequence[Annotation]) -> list[bool]:
        """Request cancels and note progress."""
        heard = await self._write(lambda tx: annotations.annotate(tx, self._lock, requests))
        if any(
            is_heard and annotation.cancel is not None for annotation, is_heard in zip(requests, heard, strict=True)
        ):
            self._notifier.notify((ALL_QUEUES,))
        return heard

    async def update_limits(self, updates: Sequence[LimitUpdate], now: int, author: Author) -> None:
        """Change limits, rates, weights and pauses."""

        def work(tx: Tx) -> None:
            self._lock.acquire(tx)
            update_limits.update_limits(tx, updates, now, author)
            tell(tx, limit_notices(updates, now, author))

        await self._write(work)
        self._notifier.notify((ALL_QUEUES,))

    async def compare_and_set(self, write: EntryWrite, now: int, author: Author) -> EntryWritten:
        """Set or delete an entry if it has this version, together with what the write carries."""

        def work(tx: Tx) -> EntryWritten | None:
            # Before the claim lock: a unique key may have to wait for the transaction of another producer.
            row = tx.one(self._enqueue_statement, self._parameters(write.jobs, now)) if write.jobs else None
            is_all_counted = self._lock.acquire(tx).is_all_counted
            if write.changes and not is_all_counted:
                raise NothingWritten(None)

            def carried() -> Carried:
                update_limits.update_limits(tx, write.updates, now, author)
                tell(tx, write.notices)
                results = settle.settle(tx, LaneCache(self._known_lanes), write.changes, now)
                return (row[0] if row else ()), results

            return write_entry(tx, statements, write, now, author, carried)

        written = None
        while written is None:
            try:
                written = await self._write(work)
            except NothingWritten as nothing:
                written = nothing.written
        if written.entry is not None:
            self._notifier.notify((ALL_QUEUES,))
        return written

    async def tell(self, notices: Sequence[Notice]) -> None:
        """Add notices to the stream."""

        def work(tx: Tx) -> None:
            self._lock.acquire(tx)
            tell(tx, notices)

        await self._write(work)

    async def prune(self, retention: Retention) -> Pruned:
        """Delete what ended long enough ago."""
        jobs = await self._write(lambda tx: prune.prune_jobs(tx, self._lock, retention))
        keys = await self._write(lambda tx: prune.prune_keys(tx, self._key_sweep, retention))
        self._key_sweep.confirm()
        has_more_series = await self._write(lambda tx: series.roll_up(tx, retention))
        return replace(
            jobs,
            has_more=jobs.has_more or has_more_series,
            series=await self._write(lambda tx: series.prune(tx, retention)),
            keys=keys,
            events=await self._write(lambda tx: prune.prune_events(tx, retention)),
            results=await self._write(lambda tx: prune.prune_results(tx, retention)),
            failures=await self._write(lambda tx: prune.prune_failures(tx, retention)),
            audit=await self._write(lambda tx: prune.prune_audit(tx, retention)),
            entries=await self._write(lambda tx: prune.prune_entries(tx, self._lock, retention)),
        )

    async def wait(self, queues: Sequence[str], at_most: float, session: str = "") -> bool:
        """Wait until notified."""
        await self._listen()
        return await self._notifier.wait(queues, session, at_most)

    async def close(self) -> None:
        """Finish the calls under way, then close the connections."""
        await self.clock.close()
        await asyncio.to_thread(self._pool.close)
        await asyncio.to_thread(self._notifier.close)

    def inject(self, point: FaultPoint) -> None:
        """Make the next transaction fail before or after its commit."""
        self._pool.inject(point)

    async def damage(self, job_id: str, packed: bytes) -> None:
        """Replace what is packed of a job."""
        await self._write(lambda tx: tx.execute(statements("settle")["damage"], {"id": job_id, "record": packed}))

    def statement(
        self, jobs: Sequence[Job], now: int, style: ParameterStyle = "pyformat"
    ) -> tuple[str, dict[str, Any] | list[Any]]:
        """Return the one statement that enqueues these jobs, and its parameters, for any driver and any transaction.

        It returns one text: the ids of the jobs, as JSON.
        """
        return self._statement(jobs, now).written(style)

    def _statement(self, jobs: Sequence[Job], now: int) -> Statement:
        parameters = self._parameters(jobs, now) | {"channel": self._notifier.channel}
        return Statement(enqueue.statement(self._address.schema, is_own=False), parameters)

    async def _write(self, work: Callable[[Tx], T]) -> T:
        return await asyncio.wrap_future(self._pool.submit(work))

    async def _read(self, work: Callable[[Tx], T]) -> T:
        return await asyncio.wrap_future(self._pool.submit(work, READ))

    def _search(self, tx: Tx, now: int) -> Search:
        return Search(tx, LaneCache(self._known_lanes), now)

    def _sql_tx(self, tx: Tx) -> Tx:
        return tx

    def _statements(self, name: str) -> Statements:
        return statements(name)

    def _stored_id(self, job_id: str) -> str:
        return job_id

    def _public_id(self, job_id: str) -> str:
        return job_id

    async def _time(self) -> int:
        """Return the time by which sessions expire: the server's, in microseconds since 1970."""
        (now,) = await self._pool.run_statement(statements("sessions")["time"], {}) or (0,)
        return int(now)

    async def _listen(self) -> None:
        """Start the listener before the first claim, so that no notification is missed."""
        if not self._notifier.is_started:
            await asyncio.to_thread(self._notifier.start)

    def _notify_of(self, changes: Sequence[Change], results: Sequence[ChangeResult], session: str = "") -> None:
        """Notify the waiting processes of each queue where a slot became free or a job waits."""
        queues = {change.job.queue for change, result in zip(changes, results, strict=True) if result == "applied"}
        if queues:
            self._notifier.notify(queues, session)
