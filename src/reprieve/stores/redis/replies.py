"""Replies of scripts, which are flat lists, as records with named fields."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from reprieve.core.ids import id_from_bytes
from reprieve.core.job import Job
from reprieve.stores.event_page import StoredEvent, StreamEnds
from reprieve.stores.protocol import ChangeResult, Claim, Session
from reprieve.stores.redis import settle
from reprieve.stores.redis.listener import StreamId, parse_stream_id
from reprieve.stores.redis.records import unpack, unpack_running, unpack_succeeded
from reprieve.stores.session_record import session_of, unpack_heartbeat

Reply: TypeAlias = Sequence[Any]
ID_BYTES = 16
R = TypeVar("R", bound=NamedTuple)


def rows(kind: type[R], reply: Reply) -> Iterator[R]:
    """Yield a record for every so many values as it has fields."""
    width = len(kind._fields)
    for start in range(0, len(reply), width):
        yield kind(*reply[start : start + width])


def pairs(reply: Reply) -> Iterator[tuple[Any, Any]]:
    """Yield two values at a time."""
    return zip(reply[::2], reply[1::2], strict=True)


class StoredJob(NamedTuple):
    """A job as it is: see `add_stored` in stored_jobs.lua."""

    id: bytes
    record: bytes
    state: bytes
    session: bytes
    at: bytes
    cancel_request: bytes

    @property
    def is_running(self) -> bool:
        """Whether a session holds the job."""
        return self.state == b"running"

    def job(self) -> Job:
        """Return the job."""
        if self.is_running:
            return unpack_running(self.id, self.record, self.session.decode(), int(self.at), self.cancel_request)
        if self.state == b"succeeded":
            return unpack_succeeded(self.id, self.record, int(self.at))
        return unpack(self.id, self.record)


class LeasedKey(NamedTuple):
    """A job that runs: see running_keys.lua."""

    at: bytes
    id: bytes
    lane: bytes


class HeldJob(NamedTuple):
    """A job that a dead session holds: see recover.lua."""

    session: bytes
    id: bytes
    leased_at: bytes
    cancel_request: bytes
    record: bytes

    def job(self) -> Job:
        """Return the job."""
        return unpack_running(self.id, self.record, self.session.decode(), int(self.leased_at), self.cancel_request)


class LeasedJob(NamedTuple):
    """A job that a repeated claim had leased: see settle_and_claim.lua."""

    id: bytes
    leased_at: bytes
    record: bytes


class StoredSession(NamedTuple):
    """A session: see read_sessions.lua."""

    name: bytes
    last_heartbeat: bytes
    origin: bytes

    def session(self) -> Session:
        """Return the session."""
        return session_of(self.name.decode(), unpack_heartbeat(self.last_heartbeat), self.origin)


def read_events(reply: Reply) -> tuple[int, StreamEnds, list[StoredEvent]]:
    """Return the server's time, the ends of the stream, and events: see read_events.lua."""
    time, newest, pruned_to, *found = reply
    triples = (found[start : start + 3] for start in range(0, len(found), 3))
    stored = [StoredEvent(int(position), data, job_id) for position, job_id, data in triples]
    return time, StreamEnds(int(newest), int(pruned_to)), stored


class KeyHolder(NamedTuple):
    """The job that has a unique key: see unique_keys.lua."""

    id: bytes
    kept_until: bytes
    is_confirmed: int
    reserved_at: bytes

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return id_from_bytes(self.id)


class DoubtfulKey(NamedTuple):
    """A unique key that may have to go: see unique_keys.lua."""

    key: bytes
    holder: bytes
    why: bytes

    @property
    def is_reserved(self) -> bool:
        """Whether it was reserved and never confirmed."""
        return self.why == b"reserved"


class ClaimReply(NamedTuple):
    """What a session's call did: see settle_and_claim.lua."""

    results: list[ChangeResult]
    next_at: int | None
    last_notification: StreamId
    previous: int
    """The number of the session's call before this one, as the server knows it."""
    ids: list[bytes]
    """The jobs that the session holds of this call."""
    jobs: list[Job]


def read_claim(reply: Reply, request: Claim) -> ClaimReply:
    """Return what a call of a session did, the first time or when it is repeated."""
    word, results, next_at, last_notification, previous, joined, *rest = reply
    session = request.session
    if word == b"again":
        leased = list(rows(LeasedJob, rest))
        ids = [job.id for job in leased]
        jobs = [unpack_running(job.id, job.record, session, int(job.leased_at)) for job in leased]
    else:
        ids = [joined[start : start + ID_BYTES] for start in range(0, len(joined), ID_BYTES)]
        jobs = [unpack_running(raw, record, session, request.now) for raw, record in zip(ids, rest, strict=True)]
    return ClaimReply(
        results=settle.decode(results, len(request.changes)),
        next_at=int(next_at) if next_at else None,
        last_notification=parse_stream_id(last_notification),
        previous=int(previous),
        ids=ids,
        jobs=jobs,
    )
