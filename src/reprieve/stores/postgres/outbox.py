"""An outbox in a schema of a PostgreSQL database: one statement sends jobs, and a relay takes what was committed."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import psycopg
from msgspec.json import encode

from reprieve.core.job import Job
from reprieve.errors import StoreClosed, StoreError
from reprieve.stores.capabilities import ParameterStyle
from reprieve.stores.check import check_jobs
from reprieve.stores.outbox import Contents, OutboxRow, made_at, pack, unpack
from reprieve.stores.postgres import callers
from reprieve.stores.postgres.address import READ, WRITE, address_of
from reprieve.stores.postgres.callers import Statement
from reprieve.stores.postgres.connection import Connection
from reprieve.stores.postgres.error_mapping import translate
from reprieve.stores.postgres.notifier import Notifier
from reprieve.stores.postgres.pool import ConnectionPool, Tx
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import MAX_PAYLOAD_BYTES

OUTBOX_QUEUE: Final = "\x01outbox"
"""The name under which relays are notified. No queue has such a name."""

FIND_START_EVERY_BATCHES: Final = 16
"""Full batches after which the relay finds out again before which transaction nothing is left."""

_SESSION: Final = "relay"
_FIRST_XID: Final = "0"


class PostgresOutbox:
    """Jobs that wait in a schema, for relays of any number of processes and machines."""

    def __init__(self, url: str, *, schema: str | None = None, largest_payload: int = MAX_PAYLOAD_BYTES) -> None:
        """Take the database; it is connected to when it is first needed, and the schema made if it is missing."""
        self._address = address_of(url, schema)
        self._largest_payload = largest_payload
        self._pool = ConnectionPool(self._address)
        self._notifier = Notifier(self._address)
        self._connection: Connection | None = None
        """The connection whose transaction holds what was taken."""
        self._since = _FIRST_XID
        """The transaction id before which nothing is left."""
        self._batches = 0
        self._is_closed = False

    def enqueue_in(self, connection: Any, jobs: Sequence[Job], now: int) -> list[str]:  # noqa: ANN401, ARG002 - of any library; the jobs themselves say when they are due
        """Send jobs in the caller's own transaction: they wait here after its commit, or never."""
        self._require_ready()
        return callers.run(connection, self._statement(jobs))

    def is_asynchronous(self, connection: object) -> bool:
        """Whether a connection has to be awaited."""
        return callers.is_asynchronous(connection)

    async def aenqueue_in(self, connection: Any, jobs: Sequence[Job], now: int) -> list[str]:  # noqa: ANN401, ARG002 - as above
        """Send jobs in the caller's own transaction, on an asynchronous connection."""
        await asyncio.to_thread(self._require_ready)
        return await callers.arun(connection, self._statement(jobs))

    def statement(
        self, jobs: Sequence[Job], style: ParameterStyle = "pyformat"
    ) -> tuple[str, dict[str, Any] | list[Any]]:
        """Return the one statement that sends these jobs, and its parameters, for any driver and any transaction.

        It returns one text: the ids of the jobs, as JSON.
        """
        return self._statement(jobs).written(style)

    async def open(self) -> None:
        """Connect, and make the schema if it is missing."""
        await asyncio.to_thread(self._require_ready)

    async def holds(self, job_id: str) -> bool:
        """Return whether the outbox holds a job."""

        def work(tx: Tx) -> bool:
            return tx.one(statements("outbox")["holds"], {"id": job_id}) is not None

        return await asyncio.wrap_future(self._pool.submit(work, READ))

    async def take(self, limit: int) -> list[OutboxRow]:
        """Take the first jobs that no other relay has taken, in a transaction that stays open."""
        self._require_open()
        if not self._notifier.is_started:
            await asyncio.to_thread(self._notifier.start)
        self._notifier.mark_seen(_SESSION)
        rows = await asyncio.to_thread(self._take, limit)
        return [OutboxRow(place=f"{xid} {job_id}", job=unpack(record)) for xid, job_id, record in rows]

    async def settle(self, gone: Sequence[OutboxRow], refused: Mapping[str, str]) -> None:
        """Remove and refuse what was taken, and end its transaction."""
        await asyncio.to_thread(self._settle, gone, refused)

    async def give_back(self) -> None:
        """End the transaction of what was taken, with nothing changed."""
        await asyncio.to_thread(self._give_back)

    async def readmit(self) -> int:
        """Let refused jobs wait again."""

        def work(tx: Tx) -> int:
            (count,) = tx.one(statements("outbox")["readmit"]) or (0,)
            return int(count)

        count = await asyncio.wrap_future(self._pool.submit(work))
        self._since = _FIRST_XID
        return count

    async def look(self) -> Contents:
        """Return what the outbox holds."""

        def work(tx: Tx) -> Contents:
            return contents_of(tx.one(statements("outbox")["contents"]))

        return await asyncio.wrap_future(self._pool.submit(work, READ))

    async def wait(self, at_most: float) -> bool:
        """Wait for a transaction that has sent something to commit."""
        return await self._notifier.wait((OUTBOX_QUEUE,), _SESSION, at_most)

    async def close(self) -> None:
        """Give back what was taken, and close the connections."""
        if not self._is_closed:
            self._is_closed = True
            await asyncio.to_thread(self._disconnect)
            await asyncio.to_thread(self._pool.close)
            await asyncio.to_thread(self._notifier.close)

    def _statement(self, jobs: Sequence[Job]) -> Statement:
        jobs = check_jobs(jobs, self._largest_payload)
        records = [pack(job) for job in jobs]
        ends = list(accumulate(map(len, records), initial=1))
        parameters = {
            "ids": array_of(job.id for job in jobs),
            "starts": array_of(ends[:-1]),
            "nexts": array_of(ends[1:]),
            "records": b"".join(records),
            "channel": self._notifier.channel,
            "queue": f" {OUTBOX_QUEUE}",
        }
        return Statement(statements("outbox")["enqueue_in"].replace("{schema}", self._address.schema), parameters)

    def _take(self, limit: int) -> list[tuple[Any, ...]]:
        sql = statements("outbox")
        try:
            connection = self._connected()
            self._address.begin(connection, WRITE)
            connection.execute(sql["settings"])
            rows = connection.execute(sql["take"], {"since": self._since, "max_jobs": limit}, binary=True).fetchall()
            self._batches += 1
            if len(rows) < limit or self._batches % FIND_START_EVERY_BATCHES == 0:
                (self._since,) = connection.execute(sql["since"], {"since": self._since}).fetchone() or (self._since,)
            if not rows:
                connection.execute("commit")
        except psycopg.Error as error:
            self._disconnect()
            raise translate(error, self._address.shown) from error
        return rows

    def _settle(self, gone: Sequence[OutboxRow], refused: Mapping[str, str]) -> None:
        sql = statements("outbox")
        connection = self._connection
        if connection is None:
            message = "the outbox was given back meanwhile; take the jobs again"
            raise StoreError(message)
        try:
            if gone:
                xids, ids = zip(*(entry.place.split(" ") for entry in gone), strict=True)
                connection.execute(sql["remove"], {"xids": array_of(xids), "ids": array_of(ids)})
            if refused:
                places = (place.split(" ") for place in refused)
                rows = [
                    {"xid": xid, "id": job_id, "refusal": reason}
                    for (xid, job_id), reason in zip(places, refused.values(), strict=True)
                ]
                connection.execute(sql["refuse"], {"refused": encode(rows).decode()})
            connection.execute("commit")
        except psycopg.Error as error:
            self._disconnect()
            raise translate(error, self._address.shown) from error

    def _give_back(self) -> None:
        try:
            if self._connection is not None:
                self._connection.rollback()
        except psycopg.Error:
            # When a connection is closed, the server rolls back its transaction.
            self._disconnect()

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._require_ready()
            self._connection = self._address.connect()
            if not self._connection.is_pooled:
                self._connection.prepare_threshold = 0
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _require_open(self) -> None:
        if self._is_closed:
            message = "the outbox was closed; open it again"
            raise StoreClosed(message)

    def _require_ready(self) -> None:
        self._require_open()
        self._pool.prepare()


def contents_of(row: tuple[Any, ...] | None) -> Contents:
    """Return what the outbox of a schema holds, from the row of the statement `contents`."""
    waiting, oldest, refused, reason = row or (0, None, 0, None)
    return Contents(
        waiting=waiting,
        oldest_at=None if oldest is None else made_at(oldest),
        refused=refused,
        reason=reason or "",
    )
