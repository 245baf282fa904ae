"""What the stores do alike to read series: which buckets and names, and how lines become series."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from reprieve.core.series import MEASURES, STEP_MS, STEPS, Line, Measure, Step, add, bucket_at, events_in, point
from reprieve.stores.protocol import MAX_NAME_BUCKETS, Series, SeriesName, SeriesRequest


class StoredLine(NamedTuple):
    """A line that was read."""

    name: str
    at: int
    """When its bucket begins."""
    line: Line


def buckets(since_at: int, until_at: int, step: Step) -> range:
    """Return when the buckets of a time begin."""
    return range(bucket_at(since_at, step), until_at, STEP_MS[step])


def ranking_buckets(since_at: int, until_at: int) -> tuple[Step, range]:
    """Return the buckets by which names are ranked: short ones of a short time, the last hours of a long one."""
    for step in STEPS:
        found = buckets(since_at, until_at, step)
        if len(found) <= MAX_NAME_BUCKETS:
            return step, found
    return "hour", found[-MAX_NAME_BUCKETS:]


def rank(lines: Iterable[StoredLine], limit: int) -> list[SeriesName]:
    """Return the names of lines, those with the most jobs first."""
    events: dict[str, int] = {}
    for stored in lines:
        events[stored.name] = events.get(stored.name, 0) + events_in(stored.line)
    ranked = sorted(events.items(), key=lambda item: (-item[1], item[0]))
    return [SeriesName(name=name, events=count) for name, count in ranked[:limit]]


def assemble(request: SeriesRequest, names: Sequence[str], lines: Iterable[StoredLine]) -> list[Series]:
    """Return the series of names; lines of the same bucket, of several partitions, are summed."""
    found: dict[str, dict[int, Line]] = {name: {} for name in names}
    for name, at, line in lines:
        points = found[name]
        if at in points:
            add(points[at], line)
        else:
            points[at] = line
    wanted: frozenset[Measure] = frozenset(request.measures) or MEASURES
    return [
        Series(name=name, points=tuple(point(at, line, wanted) for at, line in sorted(points.items())))
        for name, points in found.items()
    ]
