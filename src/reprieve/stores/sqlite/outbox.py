"""An outbox in a SQLite file of an application: its own transactions send, and a relay takes what was committed.

Whoever only sends does not open the file: it is the caller's connection that writes.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeVar

from msgspec.json import encode

from reprieve.core.job import Job
from reprieve.errors import InvalidUrl, StoreClosed
from reprieve.stores.check import check_jobs
from reprieve.stores.outbox import Contents, Entry, made_at, pack, unpack
from reprieve.stores.protocol import MAX_PAYLOAD_BYTES
from reprieve.stores.sqlite.bell import Bell
from reprieve.stores.sqlite.callers import joined
from reprieve.stores.sqlite.faults import translate
from reprieve.stores.sqlite.file import connect, keep_wal_small, migrate_in, prepare, schema_version_of
from reprieve.stores.sqlite.statements import run, statements
from reprieve.stores.sqlite.writer import Writer

T = TypeVar("T")

_ME = "relay"


class SqliteOutbox:
    """Jobs that wait in a file, beside the tables of its application."""

    def __init__(self, path: Path | None, *, largest_payload: int = MAX_PAYLOAD_BYTES) -> None:
        """Take the file; it is opened when a relay needs it."""
        if path is None:
            message = "an outbox in memory is one that no relay can see; name a file: sqlite:///app.db"
            raise InvalidUrl(message)
        self._path = path
        self._largest_payload = largest_payload
        self._opening = threading.Lock()
        self._desk: _Desk | None = None
        self._is_closed = False

    def enqueue_in(self, connection: object, jobs: Sequence[Job], now: int) -> list[str]:  # noqa: ARG002 - the jobs themselves say when they are due
        """Send jobs in the caller's own transaction: they wait here after its commit, or never."""
        self._require_open()
        check_jobs(jobs, self._largest_payload)
        with joined(connection, self._path) as cursor:
            # The first of all makes our tables here: opened beside this transaction, the file would wait for its end.
            migrate_in(cursor)
            run(cursor, statements("outbox")["send"], [(job.id, pack(job)) for job in jobs])
        return [job.id for job in jobs]

    async def open(self) -> None:
        """Open the file, and make our tables if they are missing."""
        await self._open()

    async def holds(self, job_id: str) -> bool:
        """Return whether a job lies here. The file is only read, and stays as it is."""
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

    async def take(self, limit: int) -> list[Entry]:
        """Read the first jobs. Other relays may read them as well: nobody but they themselves keeps them apart."""
        desk = await self._open()
        desk.bell.look(_ME)
        rows = await desk.read(lambda tx: tx.execute(statements("outbox")["take"], (limit,)).fetchall())
        return [Entry(place=str(seq), job=unpack(rec)) for seq, rec in rows]

    async def settle(self, gone: Sequence[Entry], refused: Mapping[str, str]) -> None:
        """Remove and refuse what was taken."""
        sql = statements("outbox")
        places = encode([int(entry.place) for entry in gone]).decode()

        def work(tx: sqlite3.Connection) -> None:
            tx.execute(sql["remove"], (places,))
            for place, reason in refused.items():
                tx.execute(sql["refuse"], {"seq": int(place), "reason": reason})

        await (await self._open()).write(work)

    async def give_back(self) -> None:
        """Change nothing: nobody was kept from anything."""

    async def readmit(self) -> int:
        """Let those wait again that were refused."""
        desk = await self._open()
        return await desk.write(lambda tx: tx.execute(statements("outbox")["readmit"]).rowcount)

    async def look(self) -> Contents:
        """Return what lies there."""
        return await (await self._open()).read(contents_of)

    async def wait(self, at_most: float) -> bool:
        """Wait for somebody to write to the file."""
        return await (await self._open()).bell.wait(_ME, at_most)

    async def close(self) -> None:
        """Let go of the file."""
        self._is_closed = True
        desk, self._desk = self._desk, None
        if desk is not None:
            await asyncio.to_thread(desk.close)

    async def _open(self) -> "_Desk":
        self._require_open()
        desk = self._desk
        return await asyncio.to_thread(self._make_desk) if desk is None else desk

    def _make_desk(self) -> "_Desk":
        with self._opening:
            desk = self._desk = self._desk or _Desk(self._path)
        return desk

    def _require_open(self) -> None:
        if self._is_closed:
            message = "the outbox was closed; open it again"
            raise StoreClosed(message)


class _Desk:
    """The file, opened for a relay."""

    def __init__(self, path: Path) -> None:
        # What was removed must stay so: the store where it has arrived does not remember it for ever.
        prepare(path, "full", shared=True)
        with ExitStack() as opened:
            self.bell = Bell(path)
            opened.callback(self.bell.close)
            self._writer = Writer(
                lambda: connect(path, "full"),
                path.with_name(path.name + "-lock"),
                self.bell.ring,
                _nothing,
                upkeep=lambda connection: keep_wal_small(connection, path),
            )
            opened.callback(self._writer.close)
            self._reader = Writer(lambda: connect(path, "full"), None, _nothing, _nothing, "deferred")
            opened.pop_all()

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.wrap_future(self._reader.submit(work))

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.wrap_future(self._writer.submit(work))

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
        self.bell.close()


def contents_of(connection: sqlite3.Connection) -> Contents:
    """Return what lies in the outbox of a file."""
    waiting, oldest, refused, reason = connection.execute(statements("outbox")["contents"]).fetchone()
    return Contents(
        waiting=waiting,
        oldest_at=None if oldest is None else made_at(oldest),
        refused=refused,
        reason=reason or "",
    )


def _nothing() -> None:
    """Nobody has to hear of a look."""
