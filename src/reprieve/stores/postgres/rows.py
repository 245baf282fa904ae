"""Jobs as rows: the record that a row carries, and the numbers of lanes, made from their names."""

import hashlib
import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from reprieve.core.ids import created_at, make_id
from reprieve.core.job import Job
from reprieve.core.policy import Override
from reprieve.rng import bits
from reprieve.stores.record import STATES, WAITS, History, Lease, history_of, lease_model, remember

LARGEST: Final = (1 << 63) - 1


class Ids:
    """Makes ids that grow, also within a millisecond, so that jobs stay in the order in which they came."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._last = 0
        self._chance = 0

    def make(self, now: int) -> str:
        """Make an id for a moment; a clock that went back is not followed."""
        with self._lock:
            if now > self._last:
                self._last, self._chance = now, bits(60)
            else:
                self._chance += 1 + bits(30)
            return make_id(self._last, self._chance)


class Place(msgspec.Struct, frozen=True):
    """What the jobs of a lane have in common, with the numbers of their rows."""

    lane: int
    queue: str
    tenant: str
    task: str
    dependency: str
    group: str
    priority: int
    queue_id: int
    tenant_id: int
    limiters: tuple[int, ...]
    """Of its task, its dependency and its group."""
    queue_limiter: int
    model: Job
    """A job of this lane, of which the others are copies: so they are made six times as fast."""


def number_of(*names: str) -> int:
    """Make the number of something from its names, as the function of that name in the database does."""
    return int.from_bytes(hashlib.sha256("\x01".join(names).encode()).digest()[:8], "big", signed=True)


@lru_cache(maxsize=65_536)
def place_of(queue: str, tenant: str, task: str, dependency: str, group: str, priority: int) -> Place:
    """Return the lane of these names."""
    limiters = (("task", task), ("dependency", dependency), ("group", group))
    return Place(
        number_of("lane", queue, tenant, task, dependency, group, str(priority)),
        queue,
        tenant,
        task,
        dependency,
        group,
        priority,
        number_of("queue", queue),
        number_of("tenant", queue, tenant),
        tuple(number_of("limiter", subject, name) for subject, name in limiters if name),
        number_of("limiter", "queue", queue),
        Job(
            id="",
            task=task,
            queue=queue,
            tenant=tenant,
            dependency=dependency,
            group=group,
            priority=priority,
            created_at=0,
            due_at=0,
        ),
    )


def names_of(place: Place) -> dict[str, object]:
    """Return what a lane is called, for the database to read as JSON."""
    names = ("lane", "queue_id", "queue", "tenant", "task", "dependency", "group", "priority")
    return {name: getattr(place, name) for name in names}


def array_of(values: Iterable[object]) -> str:
    """Write numbers or ids as an array for the database to read: many times as fast as the driver does."""
    return f"{{{','.join(['null' if value is None else str(value) for value in values])}}}"


def bytes_of(values: Iterable[bytes]) -> str:
    """Write bytes as an array for the database to read."""
    return "{" + ",".join([f'"\\\\x{value.hex()}"' for value in values]) + "}"


def place_of_job(job: Job) -> Place:
    """Return the lane that a job belongs on."""
    return place_of(job.queue, job.tenant, job.task, job.dependency, job.group, job.priority)


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


class Row(msgspec.Struct, frozen=True):
    """A job's row."""

    id: str
    state: int
    version: int
    wait: int
    due: int | None
    lane: int
    rec: bytes


def copy(model: Job, row: Row) -> Job:
    """Rebuild a job from the model of its lane."""
    record = _decode(row.rec)
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
        due_at=born_at if row.due is None else row.due,
        deadline_at=record.deadline_at,
        max_attempts=record.max_attempts,
    )
    return job if record.history is None else remember(job, record.history)


def unpack(row: Row, place: Place, lease: Lease | None = None) -> Job:
    """Rebuild a job, whatever has become of it."""
    if lease is not None:
        return copy(lease_model(place.model, lease), row)
    job = copy(place.model, row)
    return replace(job, state=STATES.get(row.state, "waiting"), waiting_for=WAITS[row.wait])


def due_of(job: Job) -> int | None:
    """Return what a row says of when its job is due."""
    return None if job.due_at == created_at(job.id) else job.due_at
