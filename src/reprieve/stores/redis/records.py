"""Jobs as Redis keeps them: 16 bytes of id, and a packed record whose head the scripts can read."""

from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - an error class by a lower-case name
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.change import Change
from reprieve.core.events import Event
from reprieve.core.ids import id_from_bytes
from reprieve.core.job import NORMAL, CancelRequest, Job, State
from reprieve.core.move import Cancel
from reprieve.core.notice import Notice
from reprieve.errors import IllegalMove
from reprieve.stores import record
from reprieve.stores.event_record import read_told
from reprieve.stores.failure_names import code_of, fingerprint_of
from reprieve.stores.record import CANCELLED, DEAD, WAIT_NUMBERS, WAITING, Lease
from reprieve.stores.session_notices import session_died

EXPIRED, GIVEN_UP = 3, 4
"""States that only scripts write: a waiting job that is dead by now, and one that is cancelled."""

_NUMBERS: Final[dict[State, int]] = {"waiting": WAITING, "dead": DEAD, "cancelled": CANCELLED}
LANE_PRIORITIES: Final = "0a1b2c3d4e5f6g7h8i9"
"""The last letter of a lane's name, by the priority of the lane: that of its jobs, or a letter if they have an SLA."""

_HEAD: Final = Struct(">IBBd")
_ENDED_AT: Final = Struct(">d")
_LENGTH: Final = Struct(">H")
_SLA: Final = Struct(">d")
_HAS_CAUSE: Final = 0x8000
"""Added to the length of a lane's name where a cause follows: see record.lua."""
_LOST_LANE: Final = record.model_of("", "", "unreadable", "", "", 2 * NORMAL)
"""The model of a job whose lane cannot be read."""

How = Literal["w", "r", "s"]
"""How a job stands beside its record: as that says, running, or succeeded."""


_ENDING: Final = Struct(">dH")
"""When a script ended a job, and the length of the cancel request."""


def lane_of(job: Job) -> str:
    """Return the name of the lane that a job stands on."""
    # A property takes longer than all fields together.
    priority = 2 * job.priority if job.headers is None else job.lane_priority
    return _lane_of(job.queue, job.tenant, job.task, job.dependency, job.group, priority)


@lru_cache(maxsize=8_192)
def _lane_of(queue: str, tenant: str, task: str, dependency: str, group: str, lane_priority: int) -> str:
    # Names are printable, so nothing that separates them can be part of one.
    return f"{queue}\0{tenant}\0{task}\0{dependency}\0{group}\0{LANE_PRIORITIES[lane_priority]}"


@lru_cache(maxsize=8_192)
def _lane_bytes(lane: str) -> bytes:
    data = lane.encode()
    return _LENGTH.pack(len(data)) + data


def _lane_and_cause(job: Job, sla: bytes) -> bytes:
    """Return the lane of a job that has failed, its SLA, and what scripts read of the cause."""
    lane = lane_of(job).encode()
    death, code, fingerprint = (text.encode() for text in (job.death or "", code_of(job), fingerprint_of(job)))
    return b"".join(
        (
            _LENGTH.pack(len(lane) | _HAS_CAUSE),
            lane,
            sla,
            bytes((len(death),)),
            death,
            _LENGTH.pack(len(code)),
            code,
            _LENGTH.pack(len(fingerprint)),
            fingerprint,
        )
    )


def pack(job: Job, raw: bytes) -> bytes:
    """Pack a job that does not run and has not succeeded; `raw` is its id."""
    head = _HEAD.pack(job.version, _NUMBERS[job.state], WAIT_NUMBERS[job.waiting_for], float(job.deadline_at or 0))
    due_at = None if job.due_at == job.created_at else job.due_at
    if job.deadline_at is not None:
        # The head has it.
        job = replace(job, deadline_at=None)
    sla = b"" if job.headers is None or job.headers.sla_at is None else _SLA.pack(job.headers.sla_at)
    middle = _lane_bytes(lane_of(job)) + sla if job.cause is None else _lane_and_cause(job, sla)
    return head + middle + record.pack(job, _id_at(raw), due_at)


@lru_cache(maxsize=8_192)
def lane_model(lane: bytes) -> Job:
    """Return the model of a lane's jobs."""
    queue, tenant, task, dependency, group, priority = lane.decode().split("\0")
    return record.model_of(queue, tenant, task, dependency, group, LANE_PRIORITIES.index(priority))


def unpack(raw: bytes, data: bytes) -> Job:
    """Rebuild a job as its record says. Scripts return only records with a head that can be read: `sound` in Lua."""
    version, state, wait, deadline = _HEAD.unpack_from(data)
    start = _HEAD.size
    if state in (EXPIRED, GIVEN_UP):
        (at,) = _ENDED_AT.unpack_from(data, start)
        before = _HEAD.pack(version - 1, WAITING, wait, deadline) + data[start + _ENDED_AT.size :]
        return _ended(unpack(raw, before), int(at), CancelRequest(by="", reason="") if state == GIVEN_UP else None).job
    head = _read_head(data)
    return _copy(record.state_model(head.model, state, wait), raw, head)


def unpack_event(raw: bytes, data: bytes) -> Event | Notice | None:
    """Rebuild an event or a notice: one that a client wrote, or that a script made itself. None: it cannot be read."""
    if data[:1] not in (b"X", b"C", b"D"):
        return read_told(data)
    try:
        if data[:1] == b"D":
            (at,) = _ENDED_AT.unpack_from(data, 1)
            return session_died(data[1 + _ENDED_AT.size :].decode(), int(at))
        at, length = _ENDING.unpack_from(data, 1)
        start = 1 + _ENDING.size
        cancel_request = unpack_cancel_request(data[start : start + length])
        return _ended(unpack(raw, data[start + length :]), int(at), cancel_request).event
    except (StructError, ValueError, IllegalMove):
        return None


def _ended(job: Job, at: int, cancel_request: CancelRequest | None) -> Change:
    if cancel_request is None:
        return change.expire(job, at)
    return change.make(job, Cancel(by=cancel_request.by, reason=cancel_request.reason), at)


def unpack_cancel_request(data: bytes) -> CancelRequest | None:
    """Rebuild who asked a job to stop, and why; empty: there is no request."""
    return record.unpack_cancel_request(data) if data else None


def unpack_running(raw: bytes, data: bytes, session: str, at: int, cancel_request: bytes = b"") -> Job:
    """Rebuild a job that runs."""
    head = _read_head(data)
    lease = Lease(session, at, unpack_cancel_request(cancel_request))
    return _copy(record.lease_model(head.model, lease), raw, head)


def unpack_succeeded(raw: bytes, data: bytes, at: int) -> Job:
    """Rebuild a job that succeeded: a lease and a success later than its record."""
    head = _read_head(data)
    return replace(_copy(replace(head.model, state="succeeded", version=2, attempt=1), raw, head), finished_at=at)


def entry_of(raw: bytes, version: int) -> bytes:
    """Return the entry of a job in its lane, as scripts write it."""
    return raw + (version % 65_536).to_bytes(2, "big")


def packed_of(data: bytes) -> bytes:
    """Return the packed record behind the head."""
    return _read_head(data).packed


def with_packed(data: bytes, packed: bytes) -> bytes:
    """Return a record with other bytes behind its head."""
    return data.removesuffix(packed_of(data)) + packed


def _is_by_sla(letter: bytes) -> bool:
    """Whether the last letter of a lane's name says that its jobs have an SLA, which then follows the name."""
    return letter.isalpha()


class _Head(NamedTuple):
    """What the head of a record says, and the packed record behind it."""

    model: Job
    """Of the jobs of its lane."""
    version: int
    deadline_at: int
    """0: none."""
    packed: bytes


def _read_head(data: bytes) -> _Head:
    """Return the head of a record; one whose bytes make no sense leaves all of them to the job, and no lane."""
    try:
        version, _, _, deadline = _HEAD.unpack_from(data)
        (length,) = _LENGTH.unpack_from(data, _HEAD.size)
        start = _HEAD.size + _LENGTH.size
        end = start + length % _HAS_CAUSE
        packed_from = end + _SLA.size if _is_by_sla(data[end - 1 : end]) else end
        if length >= _HAS_CAUSE:
            packed_from = _end_of_cause(data, packed_from)
        return _Head(lane_model(data[start:end]), version, int(deadline), data[packed_from:])
    except (IndexError, StructError, ValueError, OverflowError):
        return _Head(_LOST_LANE, 0, 0, data)


def _end_of_cause(data: bytes, start: int) -> int:
    start += 1 + data[start]
    for _ in range(2):
        (length,) = _LENGTH.unpack_from(data, start)
        start += _LENGTH.size + length
    return start


def _copy(model: Job, raw: bytes, head: _Head) -> Job:
    job = record.unpack(head.packed, model, id_from_bytes(raw), head.version, _id_at(raw))
    return replace(job, deadline_at=head.deadline_at) if head.deadline_at else job


def _id_at(raw: bytes) -> int:
    return int.from_bytes(raw[:6], "big")
