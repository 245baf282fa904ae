"""Jobs as Redis keeps them: 16 bytes of id, and a packed record whose head the scripts can read."""

from functools import lru_cache
from struct import Struct
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.change import Change
from reprieve.core.events import Event
from reprieve.core.ids import id_from_bytes
from reprieve.core.job import CancelRequest, Job, State
from reprieve.core.move import Cancel
from reprieve.stores import record
from reprieve.stores.record import CANCELLED, DEAD, WAIT_NUMBERS, WAITING, Lease

EXPIRED, GIVEN_UP = 3, 4
"""States that only scripts write: a waiting job that is dead by now, and one that is cancelled."""

_NUMBERS: Final[dict[State, int]] = {"waiting": WAITING, "dead": DEAD, "cancelled": CANCELLED}
_HEAD: Final = Struct(">IBBd")
_ENDED_AT: Final = Struct(">d")
_LENGTH: Final = Struct(">H")

How = Literal["w", "r", "s"]
"""How a job stands beside its record: as that says, running, or succeeded."""


_encode = msgspec.msgpack.Encoder().encode
_decode_event = msgspec.msgpack.Decoder(Event).decode
_decode_cancel_request = msgspec.msgpack.Decoder(CancelRequest).decode
_ENDING: Final = Struct(">dH")
"""When a script ended a job, and the length of the cancel request."""


def lane_of(job: Job) -> str:
    """Return the name of the lane that a job stands on."""
    return _lane_of(job.queue, job.tenant, job.task, job.dependency, job.group, job.priority)


@lru_cache(maxsize=8_192)
def _lane_of(queue: str, tenant: str, task: str, dependency: str, group: str, priority: int) -> str:
    # Names are printable, so nothing that separates them can be part of one.
    return f"{queue}\0{tenant}\0{task}\0{dependency}\0{group}\0{priority}"


@lru_cache(maxsize=8_192)
def _lane_bytes(lane: str) -> bytes:
    data = lane.encode()
    return _LENGTH.pack(len(data)) + data


def pack(job: Job, raw: bytes) -> bytes:
    """Pack a job that does not run and has not succeeded; `raw` is its id."""
    head = _HEAD.pack(job.version, _NUMBERS[job.state], WAIT_NUMBERS[job.waiting_for], float(job.deadline_at or 0))
    due_at = None if job.due_at == job.created_at else job.due_at
    if job.deadline_at is not None:
        # The head has it.
        job = replace(job, deadline_at=None)
    return head + _lane_bytes(lane_of(job)) + record.pack(job, _id_at(raw), due_at)


@lru_cache(maxsize=8_192)
def lane_model(lane: bytes) -> Job:
    """Return the model of a lane's jobs."""
    queue, tenant, task, dependency, group, priority = lane.decode().split("\0")
    return record.model_of(queue, tenant, task, dependency, group, int(priority))


def unpack(raw: bytes, data: bytes) -> Job:
    """Rebuild a job as its record says."""
    version, state, wait, deadline = _HEAD.unpack_from(data)
    start = _HEAD.size
    if state in (EXPIRED, GIVEN_UP):
        (at,) = _ENDED_AT.unpack_from(data, start)
        before = _HEAD.pack(version - 1, WAITING, wait, deadline) + data[start + _ENDED_AT.size :]
        return _ended(unpack(raw, before), int(at), CancelRequest(by="", reason="") if state == GIVEN_UP else None).job
    model, rest = _split(data)
    return _copy(record.state_model(model, state, wait), raw, data, rest)


def unpack_event(raw: bytes, data: bytes) -> Event:
    """Rebuild an event: one that a client wrote, or that of a job which a script ended."""
    if data[:1] not in (b"X", b"C"):
        return _decode_event(data)
    at, length = _ENDING.unpack_from(data, 1)
    start = 1 + _ENDING.size
    cancel_request = unpack_cancel_request(data[start : start + length])
    return _ended(unpack(raw, data[start + length :]), int(at), cancel_request).event


def _ended(job: Job, at: int, cancel_request: CancelRequest | None) -> Change:
    if cancel_request is None:
        return change.expire(job, at)
    return change.make(job, Cancel(by=cancel_request.by, reason=cancel_request.reason), at)


def pack_cancel_request(cancel_request: CancelRequest | None) -> bytes:
    """Pack who asks a job to stop, and why."""
    return b"" if cancel_request is None else _encode(cancel_request)


def unpack_cancel_request(data: bytes) -> CancelRequest | None:
    """Rebuild who asked a job to stop, and why."""
    return _decode_cancel_request(data) if data else None


def unpack_running(raw: bytes, data: bytes, session: str, at: int, cancel_request: bytes = b"") -> Job:
    """Rebuild a job that runs."""
    model, rest = _split(data)
    return _copy(record.lease_model(model, Lease(session, at, unpack_cancel_request(cancel_request))), raw, data, rest)


def unpack_succeeded(raw: bytes, data: bytes, at: int) -> Job:
    """Rebuild a job that succeeded: a lease and a success later than its record."""
    model, rest = _split(data)
    return replace(_copy(replace(model, state="succeeded", version=2, attempt=1), raw, data, rest), finished_at=at)


def _split(data: bytes) -> tuple[Job, bytes]:
    """Return the model of the lane, and the record behind its name."""
    (length,) = _LENGTH.unpack_from(data, _HEAD.size)
    start = _HEAD.size + _LENGTH.size
    return lane_model(data[start : start + length]), data[start + length :]


def _copy(model: Job, raw: bytes, data: bytes, packed: bytes) -> Job:
    version, _, _, deadline = _HEAD.unpack_from(data)
    job = record.unpack(packed, model, id_from_bytes(raw), version, _id_at(raw))
    return replace(job, deadline_at=int(deadline)) if deadline else job


def _id_at(raw: bytes) -> int:
    return int.from_bytes(raw[:6], "big")
