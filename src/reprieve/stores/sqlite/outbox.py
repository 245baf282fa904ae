"""An outbox in a SQLite file of an application: its transactions add jobs, and a relay moves them to the store.

A process that only enqueues does not open the file: the caller's connection writes.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from msgspec.json import encode

from reprieve.core.job import Job
from reprieve.errors import InvalidUrl, StoreClosed
from reprieve.stores.check import check_jobs
from reprieve.stores.outbox import Contents, OutboxRow, made_at, pack, unpack
from reprieve.stores.protocol import MAX_PAYLOAD_BYTES
from reprieve.stores.sqlite.callers import joined
from reprieve.stores.sqlite.connections import Connections
from reprieve.stores.sqlite.error_mapping import translate
from reprieve.stores.sqlite.file import migrate_in, prepare, schema_version_of
from reprieve.stores.sqlite.statements import run, statements
from reprieve.stores.sqlite.writer import Writer

T = TypeVar("T")

_SESSION = "relay"
"""The name under which the relay waits for commits."""


class SqliteOutbox:
    """Jobs in a file, beside the tables of its application, until a relay moves them."""

    def __init__(self, path: Path | None, *, largest_payload: int = MAX_PAYLOAD_BYTES) -> None:
        """Take the file; it is opened when a relay needs it."""
        if path is None:
            message = "no relay can read an outbox in memory; name a file: sqlite:///app.db"
            raise InvalidUrl(message)
        self._path = path
        self._largest_payload = largest_payload
        self._opening = threading.Lock()
        self._connections: Connections | None = None
        self._is_closed = False

    def enqueue_in(self, connection: object, jobs: Sequence[Job], now: int) -> list[str]:  # noqa: ARG002 - the jobs themselves say when they are due
        """Add jobs in the caller's open transaction; they exist once it commits."""
        self._require_open()
        jobs = check_jobs(jobs, self._largest_payload)
        with joined(connection, self._path) as cursor:
            # Create the tables if they are missing; another connection would wait for the end of this transaction.
            migrate_in(cursor)
            run(cursor, statements("outbox")["send"], [(job.id, pack(job)) for job in jobs])
        return [job.id for job in jobs]

    async def open(self) -> None:
        """Open the file, and create the tables if they are missing."""
        await self._open()

    async def holds(self, job_id: str) -> bool:
        """Return whether a job is in the outbox. The file is only read."""
        self._require_open()
        return await asyncio.to_thread(self._holds, job_id)

    def _holds(self, job_id: str) -> bool:
        if not self._path.exists():
            return False
        try:
            with closing(sqlite3.connect(self._path)) as connection:
                if not schema_version_of(connection):
                    return False
                return connection.execute(statements("outbox")["holds"], (job_id,)).fetchone() is not None
        except sqlite3.Error as error:
            raise translate(error) from error

    async def take(self, limit: int) -> list[OutboxRow]:
        """Read the oldest jobs. Other relays may read the same ones; the store takes each job once."""
        file = await self._open()
        file.notifier.snapshot(_SESSION)
        rows = await _result(file.reader, lambda tx: tx.execute(statements("outbox")["take"], (limit,)).fetchall())
        return [OutboxRow(place=str(seq), job=unpack(record)) for seq, record in rows]

    async def settle(self, gone: Sequence[OutboxRow], refused: Mapping[str, str]) -> None:
        """Remove jobs that have arrived, and mark those that the store refuses."""
        sql = statements("outbox")
        places = encode([int(entry.place) for entry in gone]).decode()

        def work(tx: sqlite3.Connection) -> None:
            tx.execute(sql["remove"], (places,))
            for place, reason in refused.items():
                tx.execute(sql["refuse"], {"seq": int(place), "reason": reason})

        await _result((await self._open()).writer, work)

    async def give_back(self) -> None:
        """Do nothing: reading jobs does not lock them."""

    async def readmit(self) -> int:
        """Let refused jobs wait again; return how many."""
        file = await self._open()
        return await _result(file.writer, lambda tx: tx.execute(statements("outbox")["readmit"]).rowcount)

    async def look(self) -> Contents:
        """Return how many jobs wait and how many are refused."""
        return await _result((await self._open()).reader, contents_of)

    async def wait(self, at_most: float) -> bool:
        """Wait for a commit to the file; return False if there is none in `at_most` seconds."""
        return await (await self._open()).notifier.wait(_SESSION, at_most)

    async def close(self) -> None:
        """Close the file."""
        self._is_closed = True
        file, self._connections = self._connections, None
        if file is not None:
            await asyncio.to_thread(file.close)

    async def _open(self) -> Connections:
        self._require_open()
        file = self._connections
        return await asyncio.to_thread(self._connect) if file is None else file

    def _connect(self) -> Connections:
        with self._opening:
            if self._connections is None:
                prepare(self._path, "full", shared=True)
                # Durable, so that a removed job stays removed: the store that has it does not recognise it for ever.
                self._connections = Connections(self._path, "full", shared=True)
            return self._connections

    def _require_open(self) -> None:
        if self._is_closed:
            message = "the outbox was closed; open it again"
            raise StoreClosed(message)


def contents_of(connection: sqlite3.Connection) -> Contents:
    """Return the contents of the outbox in a file."""
    waiting, oldest, refused, reason = connection.execute(statements("outbox")["contents"]).fetchone()
    return Contents(
        waiting=waiting,
        oldest_at=None if oldest is None else made_at(oldest),
        refused=refused,
        reason=reason or "",
    )


async def _result(writer: Writer, work: Callable[[sqlite3.Connection], T]) -> T:
    return await asyncio.wrap_future(writer.submit(work))
