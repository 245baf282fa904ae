"""The outbox: jobs in an application's database, stored by its own transactions, that a relay takes to the store."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from reprieve.core.ids import created_at, is_id
from reprieve.core.job import Job
from reprieve.core.record import Record
from reprieve.stores.capabilities import Transactional
from reprieve.stores.diagnostics import Finding

LATE_MS = 60_000
"""After this time a relay should have taken a job from its outbox."""


class OutboxRow(Record):
    """A row of an outbox."""

    place: str
    """The key of the row, in the form of its outbox."""
    job: Job | None
    """None if the record cannot be read: a newer release, or another program, wrote it."""


class Contents(Record):
    """How many jobs an outbox holds."""

    waiting: int
    oldest_at: int | None = None
    """When the first waiting job was enqueued."""
    refused: int = 0
    reason: str = ""
    """Why the first refused job was refused."""


class Outbox(Transactional, Protocol):
    """Jobs of committed transactions, until a relay has taken them. An enqueue only inserts rows."""

    async def open(self) -> None:
        """Connect to the database now, and create the tables that are missing."""
        ...

    async def holds(self, job_id: str) -> bool:
        """Return whether this job is in the outbox, waiting or refused."""
        ...

    async def take(self, limit: int) -> list[OutboxRow]:
        """Take the first jobs, and lock them for other relays, where the database can, until `settle` or `give_back`.

        Jobs of a transaction that commits later than others are not skipped.
        """
        ...

    async def settle(self, gone: Sequence[OutboxRow], refused: Mapping[str, str]) -> None:
        """Delete entries that were taken and delivered, and mark others as refused, each by its place with a reason.

        The write is durable when this returns.
        """
        ...

    async def give_back(self) -> None:
        """Unlock what was taken, so that it can be taken again."""
        ...

    async def readmit(self) -> int:
        """Let refused jobs wait again; return how many there were."""
        ...

    async def look(self) -> Contents:
        """Return how many jobs the outbox holds. It counts rows, so it is slow on a large outbox."""
        ...

    async def wait(self, at_most: float) -> bool:
        """Wait at most so many seconds for a job that came after the last `take`; return whether one may have come."""
        ...

    async def close(self) -> None:
        """Release files, threads and connections."""
        ...


pack = msgspec.msgpack.Encoder().encode
"""Pack a job as an outbox keeps it: by the names of its fields, so that older and newer releases can read it."""

_decode = msgspec.msgpack.Decoder(Job).decode


def unpack(record: bytes) -> Job | None:
    """Unpack a job; None if it cannot be read."""
    try:
        return _decode(record)
    except msgspec.MsgspecError:
        return None


def find(contents: Contents, now: int) -> Finding:
    """Return the finding of `reprieve doctor` on an outbox."""
    late = 0 if contents.oldest_at is None else max(0, now - contents.oldest_at)
    seen = f"{contents.waiting:,} waiting"
    if contents.waiting:
        seen += f", the first for {late // 1_000:,} s"
    if contents.refused:
        seen += f"; {contents.refused:,} refused: {contents.reason}"
        fix = "fix what the reason says, then reprieve relay --refused takes them again"
        return Finding(name="outbox", level="warn", seen=seen, fix=fix)
    if late > LATE_MS:
        return Finding(name="outbox", level="warn", seen=seen, fix="start reprieve relay, or read what it logs")
    return Finding(name="outbox", level="ok", seen=seen)


def made_at(job_id: str) -> int | None:
    """Return when a job was enqueued, by its id; None if this is no id."""
    return created_at(job_id) if is_id(job_id) else None
