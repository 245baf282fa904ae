"""Jobs as rows: the integer id inside a public id, and the job that a row and its record hold."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from reprieve.core.ids import id_from_bytes, is_id, make_id
from reprieve.core.job import Job
from reprieve.core.unreadable import unreadable, unreadable_record
from reprieve.stores import record
from reprieve.stores.record import Lease
from reprieve.stores.sql.lanes import LaneRef
from reprieve.stores.sqlite.statements import Tx, statements

EPOCH: Final = 1_577_836_800_000
"""The start of 2020 in milliseconds: counted from here, 41 bits of milliseconds last until 2089."""

NO_ROW: Final = -1
"""The id of no row."""

_MAX_ROW: Final = (1 << 63) - 1
_LOW_BITS: Final = 22
_LOW: Final = (1 << _LOW_BITS) - 1
_NODES: Final = 1 << 10
_COUNT: Final = 1 << 12
_MIDDLE_BYTES: Final = 8
_MIDDLE: Final = (1 << 8 * _MIDDLE_BYTES) - 1
"""A row's id holds the first 6 of the 16 bytes of a public id and the last 2; the others stand before the record."""
_ANY_MIDDLE: Final = bytes.fromhex("7000800000000000")
"""The middle of a public id whose own is lost."""


class Ids:
    """Makes public ids whose low 22 bits no other process with this file makes in the same millisecond."""

    def __init__(self, node: int) -> None:
        """Take the node number of this process."""
        self._node = (node % _NODES) << 12
        self._last = 0
        self._count = 0
        self._head = ""
        """The first 19 characters of the ids of the current millisecond."""

    def renumber(self, node: int) -> None:
        """Take another node number, and continue to count."""
        self._node = (node % _NODES) << 12

    def make(self, now: int, chance: int) -> str:
        """Make an id for a moment; `chance` is 62 random bits, of which the low 22 are replaced."""
        if now > self._last:
            self._begin(now, chance)
        elif self._count == _COUNT - 1:
            # No larger id is left in this millisecond: use the next one.
            self._begin(self._last + 1, chance)
        else:
            self._count += 1
        tail = f"{2 << 62 | chance & ~_LOW | self._node | self._count:x}"
        return f"{self._head}{tail[:4]}-{tail[4:]}"

    def _begin(self, moment: int, chance: int) -> None:
        self._last = moment
        # Each millisecond starts at a random count, in case another process has the same node number.
        self._count = (chance >> 40) % _COUNT
        self._head = make_id(moment, 0)[:19]


_EARLIEST: Final = make_id(EPOCH, 0)[:13]
_LATEST: Final = make_id(EPOCH + (1 << 41) - 1, 0)[:13]


def is_row_id(job_id: str) -> bool:
    """Whether a text is a job id in its canonical form, with a time that fits into a row's id."""
    return is_id(job_id) and _EARLIEST <= job_id[:13] <= _LATEST


def row_id(job_id: str) -> int:
    """Return the id of a job's row."""
    return split_id(job_id)[0]


def may_have_part(row: int, parts: Sequence[str]) -> bool:
    """Whether a job's public id may begin or end with any of these hex digits, judged by its row's id alone.

    A row's id holds the first 12 digits, which are the moment, and the last 5, so most rows need not be unpacked.
    """
    if not parts:
        return True
    first, last = f"{moment_of(row):012x}", f"{row & 0xF_FFFF:05x}"
    return any(last.endswith(part[-5:]) or first.startswith(part[:12]) for part in parts)


def split_id(job_id: str) -> tuple[int, bytes]:
    """Return the id of a job's row, and the middle of its public id, which stands before its record.

    A public id whose moment does not fit into a row's id has `NO_ROW`.
    """
    # One number of 128 bits is read faster than its parts.
    number = int(job_id.replace("-", ""), 16)
    row = (number >> 80) - EPOCH << _LOW_BITS | number & _LOW
    return row if 0 <= row <= _MAX_ROW else NO_ROW, (number >> 16 & _MIDDLE).to_bytes(_MIDDLE_BYTES, "big")


def moment_of(row: int) -> int:
    """Return the moment in the public id of a row."""
    return (row >> _LOW_BITS) + EPOCH


def ready_at(row: int, due: int) -> int:
    """Return when a job became ready, which orders the jobs of a lane: when it was due, but not before its enqueue."""
    return max(due, moment_of(row))


def pack(job: Job, row: int, middle: bytes) -> bytes:
    """Pack what a row does not keep in columns of its own: the middle of its public id, and the job's record."""
    return middle + record.pack(job, moment_of(row))


class Row(msgspec.Struct, array_like=True, frozen=True):
    """A job's row without its record."""

    id: int
    state: int
    version: int
    wait: int
    due: int


class StoredJob(Row, array_like=True, frozen=True):
    """A job's row with its lane and its record."""

    lane: int
    record: bytes


def read_job(tx: Tx, row: int) -> StoredJob | None:
    """Return the row of a job that has not succeeded."""
    found = tx.execute(statements("jobs")["job"], (row,)).fetchone()
    return None if found is None else StoredJob(*found)


def copy(model: Job, row: Row, data: bytes) -> Job:
    """Rebuild a job from the model of its lane and state."""
    job_id = id_of(row.id, data)
    job = record.unpack(packed_of(data), model, job_id, row.version, moment_of(row.id), row.due)
    if job.cause is not None and (found := unreadable_record(job)) is not None and not is_id(job_id):
        # The middle of the public id is lost with the record.
        return unreadable(replace(job, id=id_of(row.id, _ANY_MIDDLE)), data, found.why)
    return job


def unpack(row: Row, data: bytes, lane: LaneRef, lease: Lease | None = None) -> Job:
    """Rebuild a job in any state."""
    return copy(record.state_model(lane.model, row.state, row.wait, lease), row, data)


def packed_of(data: bytes) -> bytes:
    """Return the packed record behind the middle of a public id."""
    return data[_MIDDLE_BYTES:]


def id_of(row: int, data: bytes) -> str:
    """Return the public id of a row, whose middle stands before its record."""
    return id_from_bytes(moment_of(row).to_bytes(6, "big") + data[:_MIDDLE_BYTES] + (row & 0xFFFF).to_bytes(2, "big"))
