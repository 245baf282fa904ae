"""An outbox in a schema of a PostgreSQL database: one statement sends, and a relay takes what was committed."""

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
from reprieve.stores.outbox import Contents, Entry, made_at, pack, unpack
from reprieve.stores.postgres import callers
from reprieve.stores.postgres.address import READ, WRITE, address_of
from reprieve.stores.postgres.bell import Bell
from reprieve.stores.postgres.callers import Statement
from reprieve.stores.postgres.crew import Crew, Tx
from reprieve.stores.postgres.faults import translate
from reprieve.stores.postgres.line import Line
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import MAX_PAYLOAD_BYTES

NEWS: Final = "\x01outbox"
"""What the bell rings for. No queue has such a name."""

LOOK_EVERY: Final = 16
"""Batches after one of which it is looked from where on there may be more, if none was short before."""

_ME: Final = "relay"
_FIRST: Final = "0"


class PostgresOutbox:
    """Jobs that wait in a schema, for relays of any number of processes and machines."""

    def __init__(self, url: str, *, schema: str | None = None, largest_payload: int = MAX_PAYLOAD_BYTES) -> None:
        """Take the database; it is connected to when it is first needed, and the schema made if it is missing."""
        self._address = address_of(url, schema)
        self._largest_payload = largest_payload
        self._crew = Crew(self._address)
        self._bell = Bell(self._address)
        self._line: Line | None = None
        """The connection that holds what was taken."""
        self._since = _FIRST
        """The transaction before which there is nothing left."""
        self._batches = 0
        self._is_closed = False

    def enqueue_in(self, connection: Any, jobs: Sequence[Job], now: int) -> list[str]:  # noqa: ANN401, ARG002 - anybody's connection; the jobs themselves say when they are due
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

        It answers one text: the ids of the jobs, as JSON.
        """
        return self._statement(jobs).written(style)

    async def open(self) -> None:
        """Connect, and make the schema if it is missing."""
        await asyncio.to_thread(self._require_ready)

    async def holds(self, job_id: str) -> bool:
        """Return whether a job lies here."""

        def work(tx: Tx) -> bool:
            return tx.one(statements("outbox")["holds"], {"id": job_id}) is not None

        return await asyncio.wrap_future(self._crew.submit(work, READ))

    async def take(self, limit: int) -> list[Entry]:
        """Take the first jobs that nobody else has taken, in a transaction that stays open."""
        self._require_open()
        if not self._bell.is_started:
            await asyncio.to_thread(self._bell.start)
        self._bell.look(_ME)
        rows = await asyncio.to_thread(self._take, limit)
        return [Entry(place=f"{xid} {job_id}", job=unpack(rec)) for xid, job_id, rec in rows]

    async def settle(self, gone: Sequence[Entry], refused: Mapping[str, str]) -> None:
        """Remove and refuse what was taken, and end its transaction."""
        await asyncio.to_thread(self._settle, gone, refused)

    async def give_back(self) -> None:
        """End the transaction of what was taken, with nothing changed."""
        await asyncio.to_thread(self._give_back)

    async def readmit(self) -> int:
        """Let those wait again that were refused."""

        def work(tx: Tx) -> int:
            (count,) = tx.one(statements("outbox")["readmit"]) or (0,)
            return int(count)

        count = await asyncio.wrap_future(self._crew.submit(work))
        self._since = _FIRST
        return count

    async def look(self) -> Contents:
        """Return what lies there."""

        def work(tx: Tx) -> Contents:
            return contents_of(tx.one(statements("outbox")["contents"]))

        return await asyncio.wrap_future(self._crew.submit(work, READ))

    async def wait(self, at_most: float) -> bool:
        """Wait for a transaction that has sent something to commit."""
        return await self._bell.wait((NEWS,), _ME, at_most)

    async def close(self) -> None:
        """Give back what was taken, and hang up."""
        if not self._is_closed:
            self._is_closed = True
            await asyncio.to_thread(self._hang_up)
            await asyncio.to_thread(self._crew.close)
            await asyncio.to_thread(self._bell.close)

    def _statement(self, jobs: Sequence[Job]) -> Statement:
        check_jobs(jobs, self._largest_payload)
        recs = [pack(job) for job in jobs]
        ends = list(accumulate(map(len, recs), initial=1))
        parameters = {
            "ids": array_of(job.id for job in jobs),
            "starts": array_of(ends[:-1]),
            "nexts": array_of(ends[1:]),
            "recs": b"".join(recs),
            "channel": self._bell.channel,
            "news": f" {NEWS}",
        }
        return Statement(statements("outbox")["enqueue_in"].replace("{schema}", self._address.schema), parameters)

    def _take(self, limit: int) -> list[tuple[Any, ...]]:
        sql = statements("outbox")
        try:
            line = self._connected()
            self._address.begin(line, WRITE)
            line.execute(sql["settings"])
            rows = line.execute(sql["take"], {"since": self._since, "most": limit}, binary=True).fetchall()
            self._batches += 1
            if len(rows) < limit or self._batches % LOOK_EVERY == 0:
                (self._since,) = line.execute(sql["since"], {"since": self._since}).fetchone() or (self._since,)
            if not rows:
                line.execute("commit")
        except psycopg.Error as error:
            self._hang_up()
            raise translate(error, self._address.shown) from error
        return rows

    def _settle(self, gone: Sequence[Entry], refused: Mapping[str, str]) -> None:
        sql = statements("outbox")
        line = self._line
        if line is None:
            message = "the outbox was given back meanwhile; take the jobs again"
            raise StoreError(message)
        try:
            if gone:
                xids, ids = zip(*(entry.place.split(" ") for entry in gone), strict=True)
                line.execute(sql["remove"], {"xids": array_of(xids), "ids": array_of(ids)})
            if refused:
                places = (place.split(" ") for place in refused)
                rows = [
                    {"xid": xid, "id": job_id, "reason": reason}
                    for (xid, job_id), reason in zip(places, refused.values(), strict=True)
                ]
                line.execute(sql["refuse"], {"refused": encode(rows).decode()})
            line.execute("commit")
        except psycopg.Error as error:
            self._hang_up()
            raise translate(error, self._address.shown) from error

    def _give_back(self) -> None:
        try:
            if self._line is not None:
                self._line.rollback()
        except psycopg.Error:
            # Whatever is wrong with it, the server gives back what a connection held that is gone.
            self._hang_up()

    def _connected(self) -> Line:
        if self._line is None or self._line.closed:
            self._require_ready()
            self._line = self._address.connect()
            if not self._line.is_pooled:
                self._line.prepare_threshold = 0
        return self._line

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _require_open(self) -> None:
        if self._is_closed:
            message = "the outbox was closed; open it again"
            raise StoreClosed(message)

    def _require_ready(self) -> None:
        self._require_open()
        self._crew.prepare()


def contents_of(row: tuple[Any, ...] | None) -> Contents:
    """Return what lies in the outbox of a schema, of what the server says of it."""
    waiting, oldest, refused, reason = row or (0, None, 0, None)
    return Contents(
        waiting=waiting,
        oldest_at=None if oldest is None else made_at(oldest),
        refused=refused,
        reason=reason or "",
    )
