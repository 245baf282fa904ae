"""What the claims on SQL databases do alike: check the session, and repeat a claim whose reply was lost."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

from reprieve.core.job import Job
from reprieve.errors import SessionDead, StaleCall
from reprieve.stores.protocol import ChangeResult, Claim, Claimed


class ClaimingSession(Protocol):
    """The session that claims, as a store has read it."""

    @property
    def last_claim(self) -> int: ...  # noqa: D102 - the number of its last claim
    @property
    def is_alive(self) -> bool: ...  # noqa: D102 - as the name says


Session = TypeVar("Session", bound=ClaimingSession)


class LastClaim(msgspec.Struct, array_like=True):
    """What the last claim of a session returned besides its jobs."""

    results: Sequence[ChangeResult]
    next_at: int | None


pack_last_claim = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LastClaim).decode


def require_session(session: Session | None, request: Claim) -> Session:
    """Return the session that claims; raise SessionDead or StaleCall if it may not."""
    if session is None:
        message = f"session {request.session!r} is not open; open it with a heartbeat"
        raise SessionDead(message)
    if request.number < session.last_claim:
        message = f"call {request.number} of session {request.session!r} comes after call {session.last_claim}"
        raise StaleCall(message)
    if not session.is_alive and not request.changes and request.number > session.last_claim:
        message = f"session {request.session!r} is dead: its lease expired, and its jobs belong to other sessions"
        raise SessionDead(message)
    return session


def repeated(last_claim: bytes | None, jobs: Sequence[Job]) -> Claimed:
    """Return what the last claim of a session returned; `jobs` are those of its lease."""
    last = _decode(last_claim or b"")
    return Claimed(results=tuple(last.results), jobs=tuple(jobs), next_at=last.next_at)
