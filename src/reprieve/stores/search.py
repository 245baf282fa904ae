"""Searches: which of the jobs that a store scans match a filter, and how a page of them goes on."""

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from reprieve.core.job import Job
from reprieve.core.status import STUCK_AFTER_SECONDS, Status
from reprieve.errors import InvalidCursor
from reprieve.stores.protocol import Filter, Page, Tally

EXAMINED = 5_000
"""Most jobs that one page examines: a page may be short, but never slow."""

Source: TypeAlias = Literal["living", "running", "ended", "succeeded"]
"""Where to look for jobs: all that have not succeeded, those that run, the dead and cancelled, or the succeeded."""

Key: TypeAlias = int | str
"""A part of the key of a job in its source."""

Step: TypeAlias = tuple[list[Key], Job | None, int]
"""A key in a source, the job with that key, and its lane. No job: the page may end here."""

Shapes: TypeAlias = Mapping[Source, Sequence[Callable[[Key], bool]]]
"""The form of the keys of each source: a function for each part, which returns whether a value fits."""


class LaneNames(Protocol):
    """A job, or a lane: what belongs to a queue, a tenant, a task and a dependency."""

    @property
    def queue(self) -> str: ...  # noqa: D102 - as the name says
    @property
    def tenant(self) -> str: ...  # noqa: D102 - as the name says
    @property
    def task(self) -> str: ...  # noqa: D102 - as the name says
    @property
    def dependency(self) -> str: ...  # noqa: D102 - as the name says


class Search(Protocol):
    """What a store does for one search."""

    def status(self, job: Job, lane: int, stuck_after: float) -> Status:
        """Return the status of a job; one that runs for `stuck_after` seconds is stuck."""
        ...

    def by_ids(self, ids: Sequence[str]) -> Iterable[tuple[Job, int]]:
        """Return jobs by their ids, succeeded ones too, each with its lane."""
        ...

    def scan(self, source: Source, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        """Return the jobs of one source after a key; jobs that do not match the filter may be left out."""
        ...

    def counts(self, stuck_after: float) -> Iterator[tuple[Status, LaneNames, int]]:
        """Return how many jobs of each lane have which status, succeeded ones left out, by the counters of lanes."""
        ...

    def succeeded(self, by: Tally, wanted: Filter) -> Counter[str]:
        """Count the succeeded jobs that match a filter by one of their fields."""
        ...


def find(search: Search, wanted: Filter, cursor: str, limit: int, shapes: Shapes) -> Page:
    """Return a page of jobs."""
    if wanted.ids is not None:
        by_ids = [found for found in search.by_ids(wanted.ids) if _matches(search, *found, wanted)]
        return _page(search, by_ids, wanted)
    sources = _sources_of(wanted)
    source, after = _read_cursor(cursor, sources, shapes) if cursor else (sources[0], [])
    found: list[tuple[Job, int]] = []
    examined = 0
    for current in sources[sources.index(source) :]:
        for key, job, lane in search.scan(current, after if current == source else [], wanted):
            examined += 1
            if job is not None and _matches(search, job, lane, wanted):
                found.append((job, lane))
            if job is None or len(found) == limit or examined == EXAMINED:
                return _page(search, found, wanted, _write_cursor(current, key))
    return _page(search, found, wanted)


def _page(search: Search, found: Sequence[tuple[Job, int]], wanted: Filter, cursor: str = "") -> Page:
    return Page(
        jobs=tuple(job for job, _ in found),
        statuses=tuple(search.status(job, lane, stuck_after(wanted)) for job, lane in found),
        cursor=cursor,
    )


def tally(search: Search, by: Tally, wanted: Filter) -> dict[str, int]:
    """Count jobs by one of their fields."""
    counts: Counter[str] = Counter()
    if by in ("death", "code", "fingerprint") or wanted.ids is not None or _is_narrow(wanted):
        for job, lane in _all(search, wanted):
            name = name_of(by, search.status(job, lane, stuck_after(wanted)), job)
            if name or by not in ("death", "code", "fingerprint"):
                counts[name] += 1
        return dict(counts)
    for status, lane_names, number in search.counts(stuck_after(wanted)):
        if number and is_in(lane_names, wanted) and (not wanted.statuses or status in wanted.statuses):
            counts[name_of(by, status, lane_names)] += number
    if not wanted.statuses or "succeeded" in wanted.statuses:
        counts.update(search.succeeded(by, wanted))
    return dict(counts)


def stuck_after(wanted: Filter) -> float:
    """Return the seconds after which a search takes a running job for stuck."""
    return STUCK_AFTER_SECONDS if wanted.stuck_after is None else wanted.stuck_after


def is_in(names: LaneNames, wanted: Filter) -> bool:
    """Return whether a job or lane has the queue, tenant, task and dependency of a filter."""
    return (
        (not wanted.queue or names.queue == wanted.queue)
        and (wanted.tenant is None or names.tenant == wanted.tenant)
        and (not wanted.task or names.task == wanted.task)
        and (wanted.dependency is None or names.dependency == wanted.dependency)
    )


def name_of(by: Tally, status: Status, job: LaneNames) -> str:
    """Return the name under which a job is counted."""
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
    """Return whether a part of a key is a number that a column can hold."""
    return isinstance(part, int) and abs(part) < 1 << 63


def _all(search: Search, wanted: Filter) -> Iterator[tuple[Job, int]]:
    if wanted.ids is not None:
        found: Iterable[tuple[Job | None, int]] = search.by_ids(wanted.ids)
    else:
        scans = (search.scan(source, [], wanted) for source in _sources_of(wanted))
        found = ((job, lane) for scan in scans for _, job, lane in scan)
    for job, lane in found:
        if job is not None and _matches(search, job, lane, wanted):
            yield job, lane


def _sources_of(wanted: Filter) -> list[Source]:
    """Return the sources of the jobs that can match a filter."""
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
        and (not wanted.statuses or search.status(job, lane, stuck_after(wanted)) in wanted.statuses)
    )


def has_part(digits: str, parts: Sequence[str]) -> bool:
    """Return whether the hex digits of an id begin or end with any of these parts; True if there are none."""
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
