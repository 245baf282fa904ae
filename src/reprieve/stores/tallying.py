"""Tallies: how many jobs there are, by one of their fields."""

from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.stores.places import Wanted
from reprieve.stores.protocol import Filter, Tally
from reprieve.stores.search import LaneNames, Search, every_match, is_in, stuck_after


class Counted(Search, Protocol):
    """What a store does for a tally."""

    def counts(self, stuck_after: float) -> Iterator[tuple[Status, LaneNames, int]]:
        """Return how many jobs of each lane have which status, succeeded ones left out, by the counters of lanes."""
        ...

    def succeeded(self, by: Tally, wanted: Filter) -> Counter[str]:
        """Count the succeeded jobs that match a filter by one of their fields."""
        ...


def tally(search: Counted, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
    """Count jobs by one of their fields."""
    counts: Counter[str] = Counter()
    if by in ("death", "code", "fingerprint") or is_narrow(wanted):
        for found in every_match(search, Wanted(filter=wanted, order="oldest", now=now)):
            name = name_of(by, found.status, found.job)
            if name or by not in ("death", "code", "fingerprint"):
                counts[name] += 1
        return dict(counts)
    for status, lane_names, number in search.counts(stuck_after(wanted)):
        if number and is_in(lane_names, wanted) and (not wanted.statuses or status in wanted.statuses):
            counts[name_of(by, status, lane_names)] += number
    if not wanted.statuses or "succeeded" in wanted.statuses:
        counts.update(search.succeeded(by, wanted))
    return dict(counts)


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


def is_narrow(wanted: Filter) -> bool:
    """Return whether a filter asks for more than lanes and statuses can tell."""
    narrow = wanted.id_parts or wanted.key or wanted.session or wanted.death or wanted.codes or wanted.fingerprints
    ranges = (wanted.ids, wanted.priority, wanted.attempts, wanted.created, wanted.due, wanted.ended)
    return bool(narrow or wanted.text) or any(one is not None for one in ranges)
