"""Searches: a store walks through its places in order, and here is decided which jobs match and where a page ends."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from reprieve.core.job import Job
from reprieve.core.status import STUCK_AFTER_SECONDS, Status
from reprieve.stores.places import PLACES, STATES, Place, PlaceKey, Position, Wanted, places_of
from reprieve.stores.protocol import Filter, Page
from reprieve.stores.search_cursor import write_cursor

MAX_EXAMINED: Final = 250
"""Jobs that one page looks at, if it may not hold more: a page may be short, but never slow. Each takes some 50 µs."""

MAX_STEPS: Final = 12
"""Steps that one page takes, with or without jobs."""

MIN_STEP_JOBS: Final = 10
MAX_STEP_JOBS: Final = 500


class LaneNames(Protocol):
    """A job, or a lane: what belongs to a queue, a tenant, a task, a dependency and a group."""

    @property
    def queue(self) -> str: ...  # noqa: D102 - as the name says
    @property
    def tenant(self) -> str: ...  # noqa: D102 - as the name says
    @property
    def task(self) -> str: ...  # noqa: D102 - as the name says
    @property
    def dependency(self) -> str: ...  # noqa: D102 - as the name says
    @property
    def group(self) -> str: ...  # noqa: D102 - as the name says


class Candidate(NamedTuple):
    """A job of a place, with its lane; no job: it is gone, or its lane or id says that it does not match."""

    key: PlaceKey
    job: Job | None
    lane: int = 0


class Step(NamedTuple):
    """The next jobs of a place in their order."""

    candidates: Sequence[Candidate]
    resume: PlaceKey | None
    """After which key the place goes on; None: nothing is left."""


class Search(Protocol):
    """What a store, or a partition of it, does for one search."""

    def status(self, job: Job, lane: int, stuck_after: float) -> Status:
        """Return the status of a job; one that runs for `stuck_after` seconds is stuck."""
        ...

    def by_ids(self, ids: Sequence[str]) -> Iterable[tuple[Job, int]]:
        """Return jobs by their ids, succeeded ones too, each with its lane."""
        ...

    def step(self, place: Place, wanted: Wanted, after: PlaceKey | None, most: int) -> Step:
        """Return the next jobs of a place after a key, at most so many; jobs that cannot match may be left out."""
        ...


class Found(NamedTuple):
    """A job that matches, and where it stands."""

    position: Position
    job: Job
    status: Status


class Look(NamedTuple):
    """What a bounded look at one partition has found."""

    found: Sequence[Found]
    resume: Position | None
    """Where to go on; None: nothing is left."""
    examined: int = 0
    reached_at: int | None = None


def look(search: Search, wanted: Wanted, start: Position | None, limit: int) -> Look:
    """Return the next jobs that match, from a position on, until there are enough or enough was looked at."""
    if wanted.filter.ids is not None:
        return _by_ids(search, wanted.filter)
    found: dict[str, Found] = {}
    examined, steps, reached_at = 0, 0, None
    most_examined = max(limit, MAX_EXAMINED)
    for number in places_of(wanted.filter):
        if start is not None and number < start.place:
            continue
        after = start.key if start is not None and number == start.place else None
        while True:
            if examined >= most_examined or steps >= MAX_STEPS:
                return Look(list(found.values()), Position(number, after), examined, reached_at)
            most = min(max(limit - len(found), MIN_STEP_JOBS * 2**steps), MAX_STEP_JOBS, most_examined - examined)
            step, steps = search.step(PLACES[number], wanted, after, most), steps + 1
            for candidate in step.candidates:
                examined += 1
                reached_at = _time_of(candidate)
                hit = _match(search, wanted.filter, number, candidate)
                if hit is not None:
                    found[hit.job.id] = hit
                if len(found) >= limit:
                    return Look(list(found.values()), Position(number, candidate.key), examined, reached_at)
            if step.resume is None:
                break
            after = step.resume
    return Look(list(found.values()), None, examined)


def page_of(looked: Look, wanted: Filter, cursor: str) -> Page:
    """Return what was found as a page."""
    return Page(
        jobs=tuple(found.job for found in looked.found),
        statuses=tuple(found.status for found in looked.found),
        cursor=cursor if wanted.ids is None else "",
        examined=looked.examined,
        reached_at=looked.reached_at if cursor else None,
    )


def find(search: Search, wanted: Wanted, start: Position | None, limit: int) -> Page:
    """Return a page of a store that is not partitioned."""
    looked = look(search, wanted, start, limit)
    cursor = "" if looked.resume is None else write_cursor(wanted.filter, wanted.order, [looked.resume])
    return page_of(looked, wanted.filter, cursor)


def every_match(search: Search, wanted: Wanted) -> Iterator[Found]:
    """Return all jobs that match, however many are looked at."""
    start: Position | None = None
    while True:
        looked = look(search, wanted, start, MAX_STEP_JOBS)
        yield from looked.found
        if looked.resume is None:
            return
        start = looked.resume


def stuck_after(wanted: Filter) -> float:
    """Return the seconds after which a search takes a running job for stuck."""
    return STUCK_AFTER_SECONDS if wanted.stuck_after is None else wanted.stuck_after


def is_in(names: LaneNames, wanted: Filter) -> bool:
    """Return whether a job or lane has a queue, tenant, task, dependency and group of a filter."""
    return (
        (not wanted.queues or names.queue in wanted.queues)
        and (not wanted.tenants or names.tenant in wanted.tenants)
        and (not wanted.tasks or names.task in wanted.tasks)
        and (not wanted.dependencies or names.dependency in wanted.dependencies)
        and (wanted.group is None or names.group == wanted.group)
    )


def has_part(digits: str, parts: Sequence[str]) -> bool:
    """Return whether the hex digits of an id begin or end with any of these parts; True if there are none."""
    return not parts or any(digits.endswith(part) or digits.startswith(part) for part in parts)


def is_number(part: int | str) -> bool:
    """Return whether a part of a key is a number that a column can hold."""
    return isinstance(part, int) and abs(part) < 1 << 63


def has_numbers(key: PlaceKey, place: Place) -> bool:
    """Return whether the time of a key, and the lanes of one of ready jobs, are numbers that a column can hold."""
    lanes = key.group is not None and all(map(is_number, key.group))
    return is_number(key.at) and (lanes if place == "ready" else key.group is None)


def _by_ids(search: Search, wanted: Filter) -> Look:
    hits = (_hit(search, wanted, Position(0, None), job, lane) for job, lane in search.by_ids(wanted.ids or ()))
    found = [hit for hit in hits if hit is not None]
    return Look(found, None, len(wanted.ids or ()))


def _time_of(candidate: Candidate) -> int:
    """Return the time by which a job is sorted; succeeded jobs may be sorted by the number of their settlement."""
    job = candidate.job
    return job.finished_at if job is not None and job.finished_at is not None else candidate.key.at


def _match(search: Search, wanted: Filter, place: int, candidate: Candidate) -> Found | None:
    job = candidate.job
    if job is None or job.state not in STATES[PLACES[place]]:
        return None
    return _hit(search, wanted, Position(place, candidate.key), job, candidate.lane)


def _hit(search: Search, wanted: Filter, position: Position, job: Job, lane: int) -> Found | None:
    if not is_in(job, wanted) or not _has_facts(job, wanted) or not _has_cause(job, wanted):
        return None
    status = search.status(job, lane, stuck_after(wanted))
    return Found(position, job, status) if not wanted.statuses or status in wanted.statuses else None


def _has_facts(job: Job, wanted: Filter) -> bool:
    return (
        (not wanted.id_parts or has_part(job.id.replace("-", ""), wanted.id_parts))
        and (not wanted.key or job.key == wanted.key)
        and (not wanted.session or job.session == wanted.session)
        and (wanted.priority is None or job.priority == wanted.priority)
        and (wanted.attempts is None or wanted.attempts.has(job.attempt))
        and (wanted.created is None or wanted.created.has(job.created_at))
        and (wanted.due is None or wanted.due.has(job.due_at))
        and (wanted.ended is None or wanted.ended.has(job.finished_at))
    )


def _has_cause(job: Job, wanted: Filter) -> bool:
    if wanted.death is not None and job.death != wanted.death:
        return False
    if not wanted.codes and not wanted.fingerprints and not wanted.text:
        return True
    cause = job.cause
    return (
        cause is not None
        and (not wanted.codes or cause.code in wanted.codes)
        and (not wanted.fingerprints or cause.fingerprint in wanted.fingerprints)
        and (not wanted.text or wanted.text.casefold() in cause.reason.casefold())
    )
