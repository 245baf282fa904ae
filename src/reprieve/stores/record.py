"""The packed record of a job, the same in every store, and the numbers by which rows know states and waits.

A store keeps some fields of a job outside of the record (`COLUMNS`), where its statements or scripts read them; `pack`
writes all others. A new field of a job is declared in `core/job.py`, and here appended to `RareFields` and named in
`pack` and in `unpack`; no other file changes. A new header is declared in `core/headers.py` only.
"""

import hashlib
from typing import Final

import msgspec
from msgspec.structs import astuple, replace

from reprieve.core.headers import Headers
from reprieve.core.job import CancelRequest, Cause, Death, Job, State, Suspicion, Wait
from reprieve.core.policy import Override
from reprieve.core.status import Status
from reprieve.core.unreadable import is_unreadable, unreadable

WAITS: tuple[Wait, ...] = ("turn", "schedule", "retry", "gate", "budget")
"""What a job waits for, by the number that rows know it by."""

LANE_COUNTERS: Final[tuple[Status, ...]] = ("ready", "scheduled", "retrying", "parked", "parked")
"""The counter of a lane for each of them."""

WAIT_NUMBERS: dict[Wait, int] = {wait: number for number, wait in enumerate(WAITS)}

WAITING, DEAD, CANCELLED = 0, 1, 2
STATES: Final[dict[int, State]] = {WAITING: "waiting", DEAD: "dead", CANCELLED: "cancelled"}
"""The states that are stored as numbers. A lease says that a job runs; a succeeded job has no record."""

COLUMNS: Final = {
    *("id", "queue", "tenant", "task", "dependency", "group", "priority"),
    *("state", "version", "waiting_for", "session", "leased_at", "cancel_request"),
}
"""The fields of a job that no record holds: its id, its lane, where it stands, and its lease."""


class RareFields(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The fields that few jobs set. A record holds them up to the last one that differs from its default.

    Their order never changes, and a new field comes last: so the records of every release can be read.
    """

    created_at: int | None = None
    """None: the moment in the job's id."""
    due_at: int | None = None
    """None: `created_at`."""
    key: str = ""
    key_ttl: float | None = None
    override: Override | None = None
    attempt: int = 0
    charged: int = 0
    delay: float = 0.0
    cause: Cause | None = None
    failed_at: int | None = None
    spared: int = 0
    parked_since_at: int | None = None
    parked_on: str = ""
    crashes: int = 0
    death: Death | None = None
    finished_at: int | None = None
    granted: int = 0
    snoozes: int = 0
    is_manual: bool = False
    suspicion: Suspicion | None = None
    deadline_from_at: int | None = None
    parked_until_at: int | None = None


class PackedJob(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A record: the fields that most jobs set, and the others unless they all have their defaults."""

    payload: bytes
    max_attempts: int | None
    deadline_at: int | None
    timeout: float | None
    rare: RareFields | None = None
    headers: Headers | None = None
    """Beside the rare fields and not the last of them: a job that was never tried has headers more often than those."""


_FRESH: Final = RareFields()
_DEFAULTS: Final = astuple(_FRESH)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PackedJob).decode


def pack(job: Job, id_at: int, due_at: int | None = None) -> bytes:
    """Return the record of a job; `id_at` is the moment in its id.

    `due_at` is what the record says of when the job is due: None if that is `created_at`, or if a column says it.
    """
    rare = (  # in the order of `RareFields`
        None if job.created_at == id_at else job.created_at,
        due_at,
        job.key,
        job.key_ttl,
        job.override,
        job.attempt,
        job.charged,
        job.delay,
        job.cause,
        job.failed_at,
        job.spared,
        job.parked_since_at,
        job.parked_on,
        job.crashes,
        job.death,
        job.finished_at,
        job.granted,
        job.snoozes,
        job.is_manual,
        job.suspicion,
        job.deadline_from_at,
        job.parked_until_at,
    )
    if rare == _DEFAULTS and job.headers is None:
        return _encode((job.payload, job.max_attempts, job.deadline_at, job.timeout))
    size = len(rare)
    while size and rare[size - 1] == _DEFAULTS[size - 1]:
        size -= 1
    if job.headers is None:
        return _encode((job.payload, job.max_attempts, job.deadline_at, job.timeout, rare[:size]))
    return _encode((job.payload, job.max_attempts, job.deadline_at, job.timeout, rare[:size] or None, job.headers))


def unpack(data: bytes, model: Job, job_id: str, version: int, id_at: int, due_at: int | None = None) -> Job:
    """Return the job of a record, as a copy of `model`, a job of its lane and state: six times as fast as a new one.

    Versions and attempts that the model counts are added to those stored, as those of a lease are. `due_at` is that of
    the store's column, None where the record has it. A record that cannot be read is a job: `core/unreadable.py`.
    """
    try:
        packed = _decode(data)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one record, it must not stop other jobs
        due_at = id_at if due_at is None else due_at
        known = replace(model, id=job_id, version=version + model.version, created_at=id_at, due_at=due_at)
        return unreadable(known, data, str(error))
    rare = packed.rare or _FRESH
    created_at = id_at if rare.created_at is None else rare.created_at
    if due_at is None:
        due_at = created_at if rare.due_at is None else rare.due_at
    job = replace(
        model,
        id=job_id,
        key=rare.key,
        key_ttl=rare.key_ttl,
        payload=packed.payload,
        override=rare.override,
        timeout=packed.timeout,
        version=version + model.version,
        created_at=created_at,
        due_at=due_at,
        deadline_at=packed.deadline_at,
        max_attempts=packed.max_attempts,
    )
    if packed.headers is not None:
        job = replace(job, headers=packed.headers)
    if rare is _FRESH:
        return job
    # Apart, because Python passes more than 14 names in a dictionary, which takes twice the time.
    job = replace(
        job,
        parked_since_at=rare.parked_since_at,
        parked_on=rare.parked_on,
        granted=rare.granted,
        attempt=rare.attempt + model.attempt,
        charged=rare.charged,
        spared=rare.spared,
        crashes=rare.crashes,
        snoozes=rare.snoozes,
        delay=rare.delay,
        is_manual=rare.is_manual,
        cause=rare.cause,
        failed_at=rare.failed_at,
        death=rare.death,
        finished_at=rare.finished_at,
    )
    if rare.suspicion is None and rare.deadline_from_at is None and rare.parked_until_at is None:
        return job
    return replace(
        job,
        suspicion=rare.suspicion,
        deadline_from_at=rare.deadline_from_at,
        parked_until_at=rare.parked_until_at,
    )


def is_sound(data: bytes) -> bool:
    """Whether a record can be read, and is not that of a job whose earlier record could not."""
    try:
        return not is_unreadable(_decode(data).payload)
    except Exception:  # noqa: BLE001 - as in `unpack`
        return False


def model_of(queue: str, tenant: str, task: str, dependency: str, group: str, lane_priority: int) -> Job:
    """Return the model of a lane's jobs: what they have in common."""
    return Job(
        id="",
        task=task,
        queue=queue,
        tenant=tenant,
        dependency=dependency,
        group=group,
        priority=(lane_priority + 1) // 2,
        created_at=0,
        due_at=0,
    )


pack_cancel_request = msgspec.msgpack.Encoder().encode
"""Pack who asks a running job to stop, and why."""

_decode_cancel_request = msgspec.msgpack.Decoder(CancelRequest).decode


def unpack_cancel_request(data: bytes) -> CancelRequest:
    """Return who asked a running job to stop, and why; a request that cannot be read is one all the same."""
    try:
        return _decode_cancel_request(data)
    except msgspec.MsgspecError as error:
        return CancelRequest(by="unknown", reason=f"the cancel request cannot be read: {error}")


class Lease(msgspec.Struct, frozen=True):
    """Who holds a job, and since when."""

    session: str
    at: int
    cancel: CancelRequest | None = None


def lease_model(model: Job, lease: Lease) -> Job:
    """Return the model of leased jobs, which counts the lease as attempt and version, as `change.lease` does."""
    return replace(
        model,
        state="running",
        version=1,
        attempt=1,
        session=lease.session,
        leased_at=lease.at,
        cancel_request=lease.cancel,
    )


def state_model(model: Job, state: int, wait: int, lease: Lease | None = None) -> Job:
    """Return the model of a lane's jobs in the state that a row says, or leased.

    A number that is not in `STATES` is a waiting job in a state that only its store tells apart. A wait that this
    release does not know counts as the first one.
    """
    if lease is not None:
        return lease_model(model, lease)
    waiting_for = WAITS[wait] if 0 <= wait < len(WAITS) else WAITS[0]
    return replace(model, state=STATES.get(state, "waiting"), waiting_for=waiting_for)


def key_of(job: Job) -> bytes:
    """Return the hash of a job's unique key, which holds within its task and tenant."""
    return hashlib.blake2b(f"{job.task}\0{job.tenant}\0{job.key}".encode(), digest_size=16).digest()
