"""The outbox: jobs that wait in an application's database, as part of its transactions, for a relay to fetch them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from reprieve.core.ids import created_at, is_id
from reprieve.core.job import Job
from reprieve.core.record import Record
from reprieve.stores.capabilities import Transactional
from reprieve.stores.diagnostics import Finding

LATE = 60_000
"""Milliseconds after which a job that waits in an outbox should have been fetched."""


class Entry(Record):
    """A row of an outbox."""

    place: str
    """What the outbox knows it by."""
    job: Job | None
    """None if its record cannot be read: somebody else wrote it, or a newer release."""


class Contents(Record):
    """What lies in an outbox."""

    waiting: int
    oldest_at: int | None = None
    """When the first of those was enqueued."""
    refused: int = 0
    reason: str = ""
    """Why the first of those was refused."""


class Outbox(Transactional, Protocol):
    """Jobs of committed transactions, until a relay has fetched them. Enqueueing only inserts."""

    async def open(self) -> None:
        """Open the database now, and make what is missing there."""
        ...

    async def holds(self, job_id: str) -> bool:
        """Return whether this job lies in the outbox, waiting or refused."""
        ...

    async def take(self, limit: int) -> list[Entry]:
        """Take the first jobs, and keep them from other relays, if that can be done, until `settle` or `give_back`.

        A transaction that commits late is not passed over.
        """
        ...

    async def settle(self, gone: Sequence[Entry], refused: Mapping[str, str]) -> None:
        """Forget entries that were taken and have arrived; keep others aside, each with the reason, by their places.

        It is done when this returns, and survives every crash.
        """
        ...

    async def give_back(self) -> None:
        """Leave what was taken to whoever takes it next."""
        ...

    async def readmit(self) -> int:
        """Let those wait again that were refused; answer how many."""
        ...

    async def look(self) -> Contents:
        """Return what lies there; it counts, which takes a while when there is much."""
        ...

    async def wait(self, at_most: float) -> bool:
        """Wait for something to come since the last `take`, at most so many seconds: a hint, never a guarantee."""
        ...

    async def close(self) -> None:
        """Let go of files, threads and connections."""
        ...


pack = msgspec.msgpack.Encoder().encode
"""Writes a job as an outbox keeps it, by the names of its fields: releases of different age read it alike."""

_decode = msgspec.msgpack.Decoder(Job).decode


def unpack(record: bytes) -> Job | None:
    """Read a job; None if it cannot be read."""
    try:
        return _decode(record)
    except msgspec.MsgspecError:
        return None


def find(contents: Contents, now: int) -> Finding:
    """Return what the doctor says of an outbox."""
    late = 0 if contents.oldest_at is None else max(0, now - contents.oldest_at)
    seen = f"{contents.waiting:,} waiting"
    if contents.waiting:
        seen += f", the first for {late // 1_000:,} s"
    if contents.refused:
        seen += f"; {contents.refused:,} refused: {contents.reason}"
        fix = "mend what the reason says, then reprieve relay --refused takes them up again"
        return Finding(name="outbox", level="warn", seen=seen, fix=fix)
    if late > LATE:
        return Finding(name="outbox", level="warn", seen=seen, fix="start reprieve relay, or look at what it logs")
    return Finding(name="outbox", level="ok", seen=seen)


def made_at(job_id: str) -> int | None:
    """Read when a job was enqueued out of what should be its id."""
    return created_at(job_id) if is_id(job_id) else None
