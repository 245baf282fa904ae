"""Jobs as rows, and arrays as the database reads them."""

import threading
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from reprieve.core.ids import created_at, make_id
from reprieve.core.job import Job
from reprieve.core.policy import Override
from reprieve.rng import bits
from reprieve.stores.postgres.lane_ref import LaneRef
from reprieve.stores.record import STATES, WAITS, History, Lease, history_of, lease_model, remember

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


class Rec(msgspec.Struct, array_like=True, frozen=True):
    """The record of a job's row."""

    payload: bytes
    max_attempts: int | None
    deadline_at: int | None
    timeout: float | None
    created_at: int | None = None
    """None is the moment of its id."""
    key: str = ""
    key_ttl: float | None = None
    override: Override | None = None
    history: History | None = None


class Brief(msgspec.Struct, array_like=True, frozen=True):
    """The same record where the rest of it says nothing: that of most jobs, made and read by the million."""

    payload: bytes
    max_attempts: int | None
    deadline_at: int | None
    timeout: float | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Rec).decode


def pack(job: Job) -> bytes:
    """Pack what a row does not keep in columns of its own."""
    born_at = None if job.created_at == created_at(job.id) else job.created_at
    history = history_of(job)
    if born_at is None and history is None and not job.key and job.key_ttl is None and job.override is None:
        return _encode(Brief(job.payload, job.max_attempts, job.deadline_at, job.timeout))
    record = Rec(
        job.payload,
        job.max_attempts,
        job.deadline_at,
        job.timeout,
        born_at,
        job.key,
        job.key_ttl,
        job.override,
        history,
    )
    return _encode(record)


class JobRow(msgspec.Struct, frozen=True):
    """A row of `job`; the fields are its columns."""

    id: str
    state: int
    version: int
    waiting_for: int
    due_at: int | None
    lane: int
    record: bytes


def copy(model: Job, row: JobRow) -> Job:
    """Return the job of a row, as a copy of the model of its lane."""
    record = _decode(row.record)
    born_at = created_at(row.id)
    job = replace(
        model,
        id=row.id,
        key=record.key,
        key_ttl=record.key_ttl,
        payload=record.payload,
        override=record.override,
        timeout=record.timeout,
        version=row.version + model.version,
        created_at=born_at if record.created_at is None else record.created_at,
        due_at=born_at if row.due_at is None else row.due_at,
        deadline_at=record.deadline_at,
        max_attempts=record.max_attempts,
    )
    return job if record.history is None else remember(job, record.history)


def unpack(row: JobRow, lane: LaneRef, lease: Lease | None = None) -> Job:
    """Return the job of a row, in whatever state it is."""
    if lease is not None:
        return copy(lease_model(lane.model, lease), row)
    job = copy(lane.model, row)
    return replace(job, state=STATES.get(row.state, "waiting"), waiting_for=WAITS[row.waiting_for])


def due_of(job: Job) -> int | None:
    """Return `due_at` of a job's row: None where the id says it."""
    return None if job.due_at == created_at(job.id) else job.due_at
