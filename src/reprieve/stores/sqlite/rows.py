"""Jobs as rows: the short integer id inside a public id, and the record that a row carries."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from reprieve.core.ids import is_id, make_id, spell_id
from reprieve.core.job import Job
from reprieve.core.policy import Override
from reprieve.stores.record import STATES, WAITS, History, Lease, history_of, lease_model, remember

EPOCH: Final = 1_577_836_800_000
"""2020 began: counted from here, 41 bits of milliseconds last until 2089."""

_LOW_BITS: Final = 22
_LOW: Final = (1 << _LOW_BITS) - 1
_NODES: Final = 1 << 10
_COUNT: Final = 1 << 12
_CHANCE_BITS: Final = 40
_CHANCE: Final = (1 << _CHANCE_BITS) - 1


class Ids:
    """Makes ids whose low bits no other process on this file makes in the same millisecond."""

    def __init__(self, node: int) -> None:
        """Take a number that no other open process has."""
        self._node = (node % _NODES) << 12
        self._last = 0
        self._made = 0
        self._count = 0
        self._head = ""
        """What the ids of the same millisecond begin with."""

    def renumber(self, node: int) -> None:
        """Take another number, and go on counting."""
        self._node = (node % _NODES) << 12

    def make(self, now: int, chance: int) -> str:
        """Make an id for a moment; `chance` fills the bits that nobody counts."""
        if now > self._last:
            self._begin(now, chance)
        elif self._made == _COUNT - 1:
            # More than 4,096 in a millisecond: borrow from the next.
            self._begin(self._last + 1, chance)
        else:
            self._made += 1
            self._count = (self._count + 1) % _COUNT
        tail = f"{2 << 62 | chance & ~_LOW | self._node | self._count:x}"
        return f"{self._head}{tail[:4]}-{tail[4:]}"

    def _begin(self, moment: int, chance: int) -> None:
        self._last, self._made = moment, 0
        # Each millisecond begins somewhere else, should another process have drawn the same number after all.
        self._count = (chance >> 40) % _COUNT
        self._head = make_id(moment, 0)[:19]


_EARLIEST: Final = make_id(EPOCH, 0)[:13]
_LATEST: Final = make_id(EPOCH + (1 << 41) - 1, 0)[:13]


def is_row_id(job_id: str) -> bool:
    """Whether a text is a job id in its one form, and of a time that a row can tell."""
    return is_id(job_id) and _EARLIEST <= job_id[:13] <= _LATEST


def row_id(job_id: str) -> int:
    """Return the integer by which a file knows a job."""
    return split_id(job_id)[0]


def may_have_part(row: int, parts: Sequence[str]) -> bool:
    """Whether a job's id may begin or end with any of these hex digits, as far as its row's id tells.

    That holds the moment, the first 12 digits of the id, and its last 5, so most rows need not be unpacked.
    """
    if not parts:
        return True
    first, last = f"{(row >> _LOW_BITS) + EPOCH:012x}", f"{row & 0xF_FFFF:05x}"
    return any(last.endswith(part[-5:]) or first.startswith(part[:12]) for part in parts)


def split_id(job_id: str) -> tuple[int, int]:
    """Return the integer by which a file knows a job, and the rest of its public id, which its record keeps."""
    # One number of 128 bits is read faster than its parts.
    number = int(job_id.replace("-", ""), 16)
    row = (number >> 80) - EPOCH << _LOW_BITS | number & _LOW
    return row, (number >> 64 & 0xFFF) << _CHANCE_BITS | number >> _LOW_BITS & _CHANCE


def public_id(row: int, tail: int) -> str:
    """Put a public id together again from a row's id and the rest that its record keeps."""
    return spell_id(
        (row >> _LOW_BITS) + EPOCH << 16 | 7 << 12 | tail >> _CHANCE_BITS,
        2 << 62 | (tail & _CHANCE) << _LOW_BITS | row & _LOW,
    )


class Rec(msgspec.Struct, array_like=True, frozen=True):
    """The record of a job's row."""

    tail: int
    created_at: int
    payload: bytes
    max_attempts: int | None
    deadline_at: int | None
    key: str
    key_ttl: float | None
    override: Override | None
    timeout: float | None
    history: History | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Rec).decode


def pack(job: Job, tail: int) -> bytes:
    """Pack what a row does not keep in columns of its own; `tail` is the rest of its public id."""
    return _encode(
        Rec(
            tail,
            job.created_at,
            job.payload,
            job.max_attempts,
            job.deadline_at,
            job.key,
            job.key_ttl,
            job.override,
            job.timeout,
            history_of(job),
        )
    )


class Place(msgspec.Struct, frozen=True):
    """What the jobs of a lane have in common, with the ids of their rows."""

    queue: str
    tenant: str
    task: str
    dependency: str
    group: str
    priority: int
    queue_id: int
    tenant_id: int
    limiters: tuple[int, ...]


class Row(msgspec.Struct, array_like=True, frozen=True):
    """A job's row without its record."""

    id: int
    state: int
    version: int
    wait: int
    due: int


def model_of(place: Place) -> Job:
    """Make what the jobs of a lane have in common, which they are copied from: so they are made six times as fast."""
    return Job(
        id="",
        task=place.task,
        queue=place.queue,
        tenant=place.tenant,
        dependency=place.dependency,
        group=place.group,
        priority=place.priority,
        created_at=0,
        due_at=0,
    )


def copy(model: Job, row: Row, data: bytes) -> Job:
    """Rebuild a job from the model of its lane."""
    rec = _decode(data)
    job = replace(
        model,
        id=public_id(row.id, rec.tail),
        key=rec.key,
        key_ttl=rec.key_ttl,
        payload=rec.payload,
        override=rec.override,
        timeout=rec.timeout,
        version=row.version + model.version,
        created_at=rec.created_at,
        due_at=row.due,
        deadline_at=rec.deadline_at,
        max_attempts=rec.max_attempts,
    )
    return job if rec.history is None else remember(job, rec.history)


def unpack(row: Row, data: bytes, place: Place, lease: Lease | None = None) -> Job:
    """Rebuild a job, whatever has become of it."""
    if lease is not None:
        return copy(lease_model(model_of(place), lease), row, data)
    job = copy(model_of(place), row, data)
    return replace(job, state=STATES.get(row.state, "waiting"), waiting_for=WAITS[row.wait])


def id_of(row: int, data: bytes) -> str:
    """Return the public id of a row."""
    return public_id(row, _decode(data).tail)
