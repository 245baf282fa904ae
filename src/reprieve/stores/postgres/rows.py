"""Jobs as rows, and arrays as the database reads them."""

import threading
from collections.abc import Iterable
from typing import Final

import msgspec

from reprieve.core.ids import created_at, make_id
from reprieve.core.job import Job
from reprieve.rng import bits
from reprieve.stores import record
from reprieve.stores.postgres.lane_ref import LaneRef
from reprieve.stores.record import Lease

MAX_INT8: Final = (1 << 63) - 1


class Ids:
    """Makes ids that grow, also within a millisecond, so that jobs stay in the order of their enqueues."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._last = 0
        self._chance = 0

    def make(self, now: int) -> str:
        """Return an id for a time; when the clock goes back, ids go on growing from the latest time."""
        with self._lock:
            if now > self._last:
                self._last, self._chance = now, bits(60)
            else:
                self._chance += 1 + bits(30)
            return make_id(self._last, self._chance)


def array_of(values: Iterable[object]) -> str:
    """Return numbers or ids as the text of an array: much faster than psycopg adapts a list."""
    return f"{{{','.join(['null' if value is None else str(value) for value in values])}}}"


def bytes_of(values: Iterable[bytes]) -> str:
    """Return bytes as the text of an array."""
    return "{" + ",".join([f'"\\\\x{value.hex()}"' for value in values]) + "}"


def pack(job: Job) -> bytes:
    """Pack what a row does not keep in columns of its own."""
    return record.pack(job, created_at(job.id))


class StoredJob(msgspec.Struct, frozen=True):
    """A row of `job`; the fields are its columns."""

    id: str
    state: int
    version: int
    waiting_for: int
    due_at: int | None
    lane: int
    record: bytes


def copy(model: Job, row: StoredJob) -> Job:
    """Return the job of a row, as a copy of the model of its lane and state."""
    id_at = created_at(row.id)
    return record.unpack(row.record, model, row.id, row.version, id_at, id_at if row.due_at is None else row.due_at)


def unpack(row: StoredJob, lane: LaneRef, lease: Lease | None = None) -> Job:
    """Return the job of a row in any state."""
    return copy(record.state_model(lane.model, row.state, row.waiting_for, lease), row)


def ready_at(due_at: int | None, job_id: str) -> int:
    """Return when a job became ready, which orders the jobs of a lane: when it was due, but not before its enqueue."""
    id_at = created_at(job_id)
    return id_at if due_at is None else max(due_at, id_at)


def order_at(job: Job) -> int:
    """Return what orders a job in its lane: its SLA, or when it became ready."""
    return ready_at(job.due_at, job.id) if job.sla_at is None else job.sla_at


def due_of(job: Job) -> int | None:
    """Return `due_at` of a job's row: None where the id says it."""
    return None if job.due_at == created_at(job.id) else job.due_at
