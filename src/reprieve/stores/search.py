"""Searches: which of the jobs that a store walks through are meant, a page or a count at a time."""

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.errors import InvalidCursor
from reprieve.stores.protocol import Filter, Page, Tally

EXAMINED = 5_000
"""Rows that one page looks at: a page may come back short, but never late."""

Source: TypeAlias = Literal["living", "running", "ended", "succeeded"]
"""Where jobs are looked for."""

Key: TypeAlias = int | str
"""A part of where a job stands in its source."""

Step: TypeAlias = tuple[list[Key], Job | None, int]
"""A key of its source, the job that stands there, and its lane; no job, to take a breath."""

Shapes: TypeAlias = Mapping[Source, Sequence[Callable[[Key], bool]]]
"""What the keys of each source are made of: a part is one if its function says so."""


class Placed(Protocol):
    """A job, or the place of one."""

    @property
    def queue(self) -> str: ...  # noqa: D102 - as of a job
    @property
    def tenant(self) -> str: ...  # noqa: D102 - as of a job
    @property
    def task(self) -> str: ...  # noqa: D102 - as of a job
    @property
    def dependency(self) -> str: ...  # noqa: D102 - as of a job


class Search(Protocol):
    """One look at a store."""

    def status(self, job: Job, lane: int) -> Status:
        """Return how a job looks to people."""
        ...

    def by_ids(self, ids: Sequence[str]) -> Iterable[tuple[Job, int]]:
        """Return jobs by their ids, those that succeeded as well, each with its lane."""
        ...

    def walk(self, source: Source, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        """Return the jobs of one source after a key; those that are not wanted may be left out."""
        ...

    def counts(self) -> Iterator[tuple[Status, Placed, int]]:
        """Return status, place and number of everything that has not succeeded, from the counters that are kept."""
        ...

    def succeeded(self, by: Tally, wanted: Filter) -> Counter[str]:
        """Count the succeeded jobs in the wanted places by something."""
        ...


def find(search: Search, wanted: Filter, cursor: str, limit: int, shapes: Shapes) -> Page:
    """Return a page of jobs."""
    if wanted.ids is not None:
        return _page(search, [found for found in search.by_ids(wanted.ids) if _matches(search, *found, wanted)])
    sources = _sources_of(wanted)
    source, after = _read_cursor(cursor, sources, shapes) if cursor else (sources[0], [])
    found: list[tuple[Job, int]] = []
    examined = 0
    for current in sources[sources.index(source) :]:
        for key, job, lane in search.walk(current, after if current == source else [], wanted):
            examined += 1
            if job is not None and _matches(search, job, lane, wanted):
                found.append((job, lane))
            if job is None or len(found) == limit or examined == EXAMINED:
                return _page(search, found, _write_cursor(current, key))
    return _page(search, found)


def _page(search: Search, found: Sequence[tuple[Job, int]], cursor: str = "") -> Page:
    return Page(
        jobs=tuple(job for job, _ in found),
        statuses=tuple(search.status(job, lane) for job, lane in found),
        cursor=cursor,
    )


def tally(search: Search, by: Tally, wanted: Filter) -> dict[str, int]:
    """Count jobs by something."""
    counts: Counter[str] = Counter()
    if by in ("death", "code", "fingerprint") or wanted.ids is not None or _is_narrow(wanted):
        for job, lane in _all(search, wanted):
            name = name_of(by, search.status(job, lane), job)
            if name or by not in ("death", "code", "fingerprint"):
                counts[name] += 1
        return dict(counts)
    for status, place, number in search.counts():
        if number and is_in(place, wanted) and (not wanted.statuses or status in wanted.statuses):
            counts[name_of(by, status, place)] += number
    if not wanted.statuses or "succeeded" in wanted.statuses:
        counts.update(search.succeeded(by, wanted))
    return dict(counts)


def is_in(place: Placed, wanted: Filter) -> bool:
    """Whether a job or a place is in the queue, of the tenant, task and dependency that are wanted."""
    return (
        (not wanted.queue or place.queue == wanted.queue)
        and (wanted.tenant is None or place.tenant == wanted.tenant)
        and (not wanted.task or place.task == wanted.task)
        and (wanted.dependency is None or place.dependency == wanted.dependency)
    )


def name_of(by: Tally, status: Status, job: Placed) -> str:
    """Return what a job is counted under."""
    match by:
        case "status":
            return status
        case "queue" | "tenant" | "task" | "dependency":
            return str(getattr(job, by))
        case "death":
            return (isinstance(job, Job) and job.death) or ""
        case "code" | "fingerprint":
            cause = job.cause if isinstance(job, Job) else None
            return "" if cause is None else str(getattr(cause, by))


def is_number(part: Key) -> bool:
    """Whether a part of a key is a number that a row can hold."""
    return isinstance(part, int) and abs(part) < 1 << 63


def _all(search: Search, wanted: Filter) -> Iterator[tuple[Job, int]]:
    if wanted.ids is not None:
        found: Iterable[tuple[Job | None, int]] = search.by_ids(wanted.ids)
    else:
        steps = (search.walk(source, [], wanted) for source in _sources_of(wanted))
        found = ((job, lane) for walk in steps for _, job, lane in walk)
    for job, lane in found:
        if job is not None and _matches(search, job, lane, wanted):
            yield job, lane


def _sources_of(wanted: Filter) -> list[Source]:
    """Return where the wanted jobs can be."""
    statuses = wanted.statuses
    if wanted.death or (statuses and statuses <= {"dead", "cancelled"}):
        return ["ended"]
    if wanted.session or (statuses and statuses <= {"running", "stuck"}):
        return ["running"]
    if statuses == {"succeeded"}:
        return ["succeeded"]
    return ["living", "succeeded"] if not statuses or "succeeded" in statuses else ["living"]


def _matches(search: Search, job: Job, lane: int, wanted: Filter) -> bool:
    cause = job.cause
    return (
        is_in(job, wanted)
        and (not wanted.id_parts or has_part(job.id.replace("-", ""), wanted.id_parts))
        and (not wanted.key or job.key == wanted.key)
        and (not wanted.session or job.session == wanted.session)
        and (wanted.death is None or job.death == wanted.death)
        and (not wanted.code or (cause is not None and cause.code == wanted.code))
        and (not wanted.fingerprint or (cause is not None and cause.fingerprint == wanted.fingerprint))
        and (wanted.finished_since is None or (job.finished_at or 0) >= wanted.finished_since)
        and (not wanted.statuses or search.status(job, lane) in wanted.statuses)
    )


def has_part(digits: str, parts: Sequence[str]) -> bool:
    """Whether the hex digits of an id begin or end with any of these parts; no parts are no condition."""
    return not parts or any(digits.endswith(part) or digits.startswith(part) for part in parts)


def _is_narrow(wanted: Filter) -> bool:
    narrow = wanted.id_parts or wanted.key or wanted.session or wanted.death or wanted.code or wanted.fingerprint
    return bool(narrow) or wanted.finished_since is not None


def _write_cursor(source: Source, key: Sequence[Key]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([source, *key])).decode()


def _read_cursor(cursor: str, sources: Sequence[Source], shapes: Shapes) -> tuple[Source, list[Key]]:
    try:
        name, *key = msgspec.json.decode(base64.urlsafe_b64decode(cursor.encode()), type=list[str | int])
    except (ValueError, msgspec.MsgspecError):
        name, key = "", []
    for source in sources:
        shape = shapes[source]
        if name == source and len(key) == len(shape) and all(fits(part) for fits, part in zip(shape, key, strict=True)):
            return source, key
    message = f"cursor {cursor[:80]!r} does not belong to this search; begin again without one"
    raise InvalidCursor(message)
