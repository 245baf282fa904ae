"""Causes, as all stores keep them: the groups that a job belongs to, and pages of groups."""

import base64
import hashlib
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from reprieve.core.job import Job
from reprieve.errors import InvalidCursor
from reprieve.stores.failure_names import code_of, fingerprint_of
from reprieve.stores.protocol import DEAD_HOURS, HOUR_MS, LIVING_HOURS, CauseGrouping, CauseRequest

Kind: TypeAlias = Literal["f", "c", "t", "k", "x", "p", "h"]
"""Fingerprints, codes, tenants, tasks, kinds of death, fingerprints of one tenant, tenants hit by one fingerprint."""

KINDS: Final[dict[CauseGrouping, Kind]] = {"fingerprint": "f", "code": "c", "tenant": "t", "task": "k", "death": "x"}

_encode = msgspec.json.Encoder().encode


class GroupKey(NamedTuple):
    """A group: its name, in a list of groups."""

    kind: Kind
    scope: str
    """The tenant of a list of fingerprints, or the fingerprint of a list of tenants; empty for other kinds."""
    name: str


class FailureNames(NamedTuple):
    """What a dead job, or a failure that a job survived, is counted by."""

    tenant: str
    task: str
    death: str
    """Empty for a failure that a job survived."""
    code: str
    fingerprint: str

    def groups(self) -> Iterator[GroupKey]:
        """Return the groups that it belongs to."""
        yield GroupKey("t", "", self.tenant)
        yield GroupKey("k", "", self.task)
        if self.death:
            yield GroupKey("x", "", self.death)
        if self.code:
            yield GroupKey("c", "", self.code)
        if self.fingerprint:
            yield GroupKey("f", "", self.fingerprint)
            yield GroupKey("p", self.tenant, self.fingerprint)
            yield GroupKey("h", self.fingerprint, self.tenant)


def names_of(job: Job) -> FailureNames:
    """Return what a job that has just failed is counted by."""
    return FailureNames(job.tenant, job.task, job.death or "", code_of(job), fingerprint_of(job))


class Listing(NamedTuple):
    """A list of groups, as a request means it."""

    is_living: bool
    kind: Kind
    scope: str


def listing_of(request: CauseRequest) -> Listing:
    """Return the list of groups that a request is about."""
    is_living = request.of == "living"
    if request.tenant is not None:
        return Listing(is_living, "p", request.tenant)
    if request.fingerprint:
        return Listing(is_living, "h", request.fingerprint)
    return Listing(is_living, KINDS[request.by], "")


def hour_of(at: int) -> int:
    """Return the hour of an instant."""
    return at // HOUR_MS


def oldest_hour(now: int, *, is_living: bool) -> int:
    """Return the first hour whose counts are kept."""
    return hour_of(now) - (LIVING_HOURS if is_living else DEAD_HOURS) + 1


def first_hour(request: CauseRequest, now: int) -> int:
    """Return the first hour whose counts a request asks for."""
    return max(hour_of(now) - request.hours + 1, oldest_hour(now, is_living=request.of == "living"))


def hours_from(counts: Iterable[tuple[int, int]], first: int) -> tuple[tuple[int, int], ...]:
    """Return the counts of hours from `first` on, in order, by the instant at which each hour begins."""
    return tuple((hour * HOUR_MS, count) for hour, count in sorted(counts) if hour >= first)


class Place(NamedTuple):
    """A place in the order of a list: that of a group with this count or time, and this name."""

    value: int
    name: str


def write_cursor(request: CauseRequest, place: Place) -> str:
    """Return the cursor of what follows a place."""
    return base64.urlsafe_b64encode(_encode((_digest(request), *place))).decode()


def read_cursor(request: CauseRequest) -> Place | None:
    """Return the place after which a page begins, None for the first; raise `InvalidCursor` for any other text."""
    if not request.cursor:
        return None
    try:
        found = base64.urlsafe_b64decode(request.cursor.encode())
        digest, value, name = msgspec.json.decode(found, type=tuple[str, int, str])
    except (ValueError, msgspec.MsgspecError):
        digest, value, name = "", 0, ""
    if digest != _digest(request) or not 0 <= value < 1 << 53 or not name.isprintable():
        message = f"cursor {request.cursor[:80]!r} does not belong to this request; begin again without one"
        raise InvalidCursor(message)
    return Place(value, name)


def _digest(request: CauseRequest) -> str:
    """Return what tells requests apart whose cursors must not be mixed up."""
    facts = _encode((*listing_of(request), request.order))
    return hashlib.blake2b(facts, digest_size=6).hexdigest()
