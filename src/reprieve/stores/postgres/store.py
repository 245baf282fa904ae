"""The PostgreSQL store: the protocol, each operation a transaction on a connection of the pool."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from reprieve.clock import ServerClock
from reprieve.core.change import Change
from reprieve.core.events import Event
from reprieve.core.ids import parse_id
from reprieve.core.job import Job
from reprieve.errors import StoreClosed
from reprieve.stores.check import check_jobs, check_limit_update, check_size
from reprieve.stores.coalesce import Coalescer
from reprieve.stores.postgres import (
    annotations,
    callers,
    enqueue,
    entries,
    find,
    prune,
    sessions,
    settle,
    update_limits,
)
from reprieve.stores.postgres.address import READ, Durability, address_of
from reprieve.stores.postgres.callers import Statement, Style
from reprieve.stores.postgres.claim import claim
from reprieve.stores.postgres.claim_lock import ClaimLock
from reprieve.stores.postgres.lane_cache import LaneCache
from reprieve.stores.postgres.notifier import ALL_QUEUES, ENQUEUE_INTERVAL_SECONDS, Notifier
from reprieve.stores.postgres.pool import SINGLE_STATEMENT, ConnectionPool, Point, Tx
from reprieve.stores.postgres.rows import Ids
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

T = TypeVar("T")


class PostgresStore:
    """Jobs in a schema of a PostgreSQL database, for any number of processes and machines."""

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        durability: Durability = "full",
        largest_payload: int = MAX_PAYLOAD_BYTES,
    ) -> None:
        """Take the database; it is connected to when it is first needed, and the schema made if it is missing."""
        self.clock = ServerClock(self._time)
        """The clock of the server, which all machines share."""
        self._address = address_of(url, schema, durability)
        self._largest_payload = largest_payload
        self._lock = ClaimLock()
        self._lanes = LaneCache()
        self._pool = ConnectionPool(self._address)
        self._notifier = Notifier(self._address)
        self._ids = Ids()
        self._coalescer = Coalescer(self._enqueue, at_once=2, keys_wait=True)
        self._is_closed = False

    # what follows is the protocol, in its order

    def new_id(self, now: int, queue: str) -> str:  # noqa: ARG002 - one database is one partition
        """Make the id of a new job."""
        return self._ids.make(now)

    async def enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs; answer for each the id under which it is known."""
        self._require_open()
        check_jobs(jobs, self._largest_payload)
        return await self._coalescer.enqueue(jobs, now)

    def enqueue_here(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs, and keep the calling thread waiting."""
        self._require_open()
        check_jobs(jobs, self._largest_payload)
        known = self._pool.run_here(lambda tx: enqueue.enqueue(tx, self._address.schema, jobs, now), SINGLE_STATEMENT)
        self._notifier.notify({job.queue for job in jobs}, every=ENQUEUE_INTERVAL_SECONDS)
        return known

    def enqueue_in(self, connection: Any, jobs: Sequence[Job], now: int) -> list[str]:  # noqa: ANN401 - anybody's
        """Store new jobs in the caller's own transaction: both are there after its commit, or neither."""
        self._require_ready()
        return callers.run(connection, self._statement(jobs, now))

    def is_asynchronous(self, connection: object) -> bool:
        """Whether a connection has to be awaited."""
        return callers.is_asynchronous(connection)

    async def aenqueue_in(self, connection: Any, jobs: Sequence[Job], now: int) -> list[str]:  # noqa: ANN401 - as above
        """Store new jobs in the caller's own transaction, on an asynchronous connection."""
        await asyncio.to_thread(self._require_ready)
        return await callers.arun(connection, self._statement(jobs, now))

    async def claim(self, request: Claim) -> Claimed:
        """Apply changes, then choose and lease jobs."""
        self._require_open()
        for change in request.changes:
            check_size(change.result or b"", "result", self._largest_payload)
        await self._listen()
        self._notifier.mark_seen(request.session)
        claimed = await self._write(lambda tx: claim(tx, self._lock, self._lanes, request))
        self._notify_of(request.changes, claimed.results, request.session)
        return claimed

    async def apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        """Carry out changes that no session makes."""

        def work(tx: Tx) -> list[ChangeResult] | None:
            if not self._lock.acquire(tx).is_all_counted:
                # Lanes must have counted a job before it is changed.
                return None
            return settle.settle(tx, self._lanes, changes, now)

        answers = None
        while answers is None:
            answers = await self._write(work)
        self._notify_of(changes, answers)
        return answers

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Keep a session alive, or open it; answer whether it lives."""
        is_alive = await self._write(lambda tx: sessions.heartbeat(tx, heartbeat))
        if not is_alive:
            self._notifier.forget(heartbeat.session)
        if heartbeat.lease <= 0:
            self._notifier.notify((ALL_QUEUES,))
        return is_alive

    async def recover(self, now: int, limit: int = 100) -> list[Job]:
        """Expire sessions past their lease; return the jobs they hold."""
        return await self._write(lambda tx: sessions.recover(tx, self._lock, self._lanes, now, limit))

    async def annotate(self, requests: Sequence[Annotation]) -> list[bool]:
        """Request a cancel or note progress."""
        for annotation in requests:
            parse_id(annotation.job_id)
            check_size(annotation.progress or b"", "progress", self._largest_payload)
        heard = await self._write(lambda tx: annotations.annotate(tx, self._lock, requests))
        if any(
            is_heard and annotation.cancel is not None for annotation, is_heard in zip(requests, heard, strict=True)
        ):
            self._notifier.notify((ALL_QUEUES,))
        return heard

    async def progress(self, job_id: str) -> bytes | None:
        """Return the progress of a running job."""
        known = parse_id(job_id)
        return await self._read(lambda tx: find.progress(tx, known))

    async def update_limits(self, updates: Sequence[LimitUpdate], now: int) -> None:
        """Change limiters, limits, weights and pauses."""
        for update in updates:
            check_limit_update(update)

        def work(tx: Tx) -> None:
            self._lock.acquire(tx)
            for update in updates:
                update_limits.update_limits(tx, update, now)

        await self._write(work)
        self._notifier.notify((ALL_QUEUES,))

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

        def work(tx: Tx) -> Entry | None:
            self._lock.acquire(tx)
            entry = entries.compare_and_set(tx, key, version, value)
            for update in updates if entry is not None else ():
                update_limits.update_limits(tx, update, now)
            return entry

        entry = await self._write(work)
        if entry is not None:
            self._notifier.notify((ALL_QUEUES,))
        return entry

    async def prune(self, retention: Retention) -> Pruned:
        """Forget what has ended long enough ago."""
        jobs = await self._write(lambda tx: prune.prune_jobs(tx, self._lock, retention))
        return replace(
            jobs,
            events=await self._write(lambda tx: prune.prune_events(tx, retention)),
            keys=await self._write(lambda tx: prune.prune_keys(tx, retention)),
            results=await self._write(lambda tx: prune.prune_results(tx, retention)),
        )

    async def find(self, wanted: Filter, now: int, cursor: str = "", limit: int = 100) -> Page:
        """Return jobs as they are."""
        if wanted.ids is not None:
            wanted = replace(wanted, ids=tuple(map(parse_id, wanted.ids)))
        return await self._read(lambda tx: find.find(tx, self._lanes, wanted, now, cursor, limit))

    async def tally(self, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
        """Count jobs by something."""
        return await self._read(lambda tx: find.tally(tx, self._lanes, by, wanted, now))

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

    async def wait(self, queues: Sequence[str], at_most: float, session: str = "") -> bool:
        """Wait until notified."""
        self._require_open()
        await self._listen()
        return await self._notifier.wait(queues, session, at_most)

    async def close(self) -> None:
        """Close the connections."""
        if not self._is_closed:
            self._is_closed = True
            await self.clock.close()
            await asyncio.to_thread(self._pool.close)
            await asyncio.to_thread(self._notifier.close)

    def inject(self, point: Point) -> None:
        """Make the next transaction fail before or after its commit, for tests of callers."""
        self._pool.inject(point)

    def statement(
        self, jobs: Sequence[Job], now: int, style: Style = "pyformat"
    ) -> tuple[str, dict[str, Any] | list[Any]]:
        """Return the one statement that enqueues these jobs, and its parameters, for any driver and any transaction.

        It answers one text: the ids under which the jobs are known, as JSON.
        """
        return self._statement(jobs, now).written(style)

    def _statement(self, jobs: Sequence[Job], now: int) -> Statement:
        check_jobs(jobs, self._largest_payload)
        parameters = enqueue.parameters(jobs, now) | {"channel": self._notifier.channel}
        return Statement(enqueue.statement(self._address.schema, is_own=False), parameters)

    async def _write(self, work: Callable[[Tx], T]) -> T:
        return await asyncio.wrap_future(self._pool.submit(work))

    async def _read(self, work: Callable[[Tx], T]) -> T:
        return await asyncio.wrap_future(self._pool.submit(work, READ))

    async def _enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
        work = self._pool.submit(lambda tx: enqueue.enqueue(tx, self._address.schema, jobs, now), SINGLE_STATEMENT)
        known = await asyncio.wrap_future(work)
        self._notifier.notify({job.queue for job in jobs}, every=ENQUEUE_INTERVAL_SECONDS)
        return known

    async def _time(self) -> int:
        return await asyncio.wrap_future(self._pool.submit(sessions.time, READ))

    async def _listen(self) -> None:
        """Listen to other processes from before the first claim on."""
        if not self._notifier.is_started:
            await asyncio.to_thread(self._notifier.start)

    def _notify_of(self, changes: Sequence[Change], answers: Sequence[ChangeResult], session: str = "") -> None:
        """Notify workers of queues in which a slot is free or a job waits."""
        queues = {change.job.queue for change, answer in zip(changes, answers, strict=True) if answer == "applied"}
        if queues:
            self._notifier.notify(queues, session)

    def _require_open(self) -> None:
        if self._is_closed:
            message = "the store was closed; open it again"
            raise StoreClosed(message)

    def _require_ready(self) -> None:
        self._require_open()
        self._pool.prepare()
