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
from reprieve.core.policy import Override
from reprieve.stores.record import NUMBERS, WAITS, History, history_of, remember

WAITING, DEAD, CANCELLED, EXPIRED, GIVEN_UP = 0, 1, 2, 3, 4
"""States as records know them. That a job runs or has succeeded is known elsewhere; the last two, dead and cancelled,
are written by scripts."""

_NUMBERS: Final[dict[State, int]] = {"waiting": WAITING, "dead": DEAD, "cancelled": CANCELLED}
_STATES: Final[dict[int, State]] = {WAITING: "waiting", DEAD: "dead", CANCELLED: "cancelled"}
_HEAD: Final = Struct(">IBBd")
_ENDED_AT: Final = Struct(">d")
_LENGTH: Final = Struct(">H")

How = Literal["w", "r", "s"]
"""How a job stands beside its record: as that says, running, or succeeded."""


class Rest(msgspec.Struct, array_like=True, frozen=True):
    """What only clients read of a record."""

    since: int
    """How long after the moment in its id the job was created; nearly always 0."""
    payload: bytes
    due_in: int
    """How long after its creation it is due."""
    max_attempts: int | None
    key: str
    key_ttl: float | None
    override: Override | None
    timeout: float | None
    history: History | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Rest).decode
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
    made_at = int.from_bytes(raw[:6], "big")
    rest = Rest(
        job.created_at - made_at,
        job.payload,
        job.due_at - job.created_at,
        job.max_attempts,
        job.key,
        job.key_ttl,
        job.override,
        job.timeout,
        history_of(job),
    )
    head = _HEAD.pack(job.version, _NUMBERS[job.state], NUMBERS[job.waiting_for], float(job.deadline_at or 0))
    return head + _lane_bytes(lane_of(job)) + _encode(rest)


@lru_cache(maxsize=8_192)
def lane_model(lane: bytes) -> Job:
    """Return the model of a lane's jobs, which they are copied from: so they are made six times as fast."""
    queue, tenant, task, dependency, group, priority = lane.decode().split("\0")
    return Job(
        id="",
        task=task,
        queue=queue,
        tenant=tenant,
        dependency=dependency,
        group=group,
        priority=int(priority),
        created_at=0,
        due_at=0,
    )


def unpack(raw: bytes, record: bytes) -> Job:
    """Rebuild a job as its record says."""
    version, state, wait, deadline = _HEAD.unpack_from(record)
    start = _HEAD.size
    if state in (EXPIRED, GIVEN_UP):
        (at,) = _ENDED_AT.unpack_from(record, start)
        before = _HEAD.pack(version - 1, WAITING, wait, deadline) + record[start + _ENDED_AT.size :]
        return _ended(unpack(raw, before), int(at), CancelRequest(by="", reason="") if state == GIVEN_UP else None).job
    model, rest = _split(record, start)
    return _copy(model, raw, rest, version, deadline, state=_STATES[state], waiting_for=WAITS[wait])


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


def unpack_running(raw: bytes, record: bytes, session: str, at: int, cancel_request: bytes = b"") -> Job:
    """Rebuild a job that runs: the lease counts as an attempt and a version, as `change.lease` has it."""
    version, _, _, deadline = _HEAD.unpack_from(record)
    model, rest = _split(record, _HEAD.size)
    return _copy(
        model,
        raw,
        rest,
        version + 1,
        deadline,
        state="running",
        attempt=1,
        session=session,
        leased_at=at,
        cancel_request=unpack_cancel_request(cancel_request),
    )


def unpack_succeeded(raw: bytes, record: bytes, at: int) -> Job:
    """Rebuild a job that succeeded: a lease and a success later than its record."""
    version, _, _, deadline = _HEAD.unpack_from(record)
    model, rest = _split(record, _HEAD.size)
    job = _copy(model, raw, rest, version + 2, deadline, state="succeeded", attempt=1)
    return replace(job, finished_at=at)


def _split(record: bytes, start: int) -> tuple[Job, Rest]:
    (length,) = _LENGTH.unpack_from(record, start)
    start += _LENGTH.size
    return lane_model(record[start : start + length]), _decode(record[start + length :])


def _copy(model: Job, raw: bytes, rest: Rest, version: int, deadline: float, **facts: object) -> Job:
    created_at = int.from_bytes(raw[:6], "big") + rest.since
    job = replace(
        model,
        id=id_from_bytes(raw),
        key=rest.key,
        key_ttl=rest.key_ttl,
        payload=rest.payload,
        override=rest.override,
        timeout=rest.timeout,
        version=version,
        created_at=created_at,
        due_at=created_at + rest.due_in,
        deadline_at=int(deadline) or None,
        max_attempts=rest.max_attempts,
        **facts,
    )
    return job if rest.history is None else remember(job, rest.history)
