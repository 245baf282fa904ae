"""Jobs as rows: the record that a row carries, and the numbers of lanes, made from their names."""

import hashlib
import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from reprieve.core.ids import created_at, make_id
from reprieve.core.job import Job
from reprieve.rng import bits
from reprieve.stores import record
from reprieve.stores.record import Lease

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
        record.model_of(queue, tenant, task, dependency, group, priority),
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


def pack(job: Job) -> bytes:
    """Pack what a row does not keep in columns of its own."""
    return record.pack(job, created_at(job.id))


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
    """Rebuild a job from the model of its lane and state."""
    id_at = created_at(row.id)
    return record.unpack(row.rec, model, row.id, row.version, id_at, id_at if row.due is None else row.due)


def unpack(row: Row, place: Place, lease: Lease | None = None) -> Job:
    """Rebuild a job in any state."""
    return copy(record.state_model(place.model, row.state, row.wait, lease), row)


def due_of(job: Job) -> int | None:
    """Return what a row says of when its job is due."""
    return None if job.due_at == created_at(job.id) else job.due_at
