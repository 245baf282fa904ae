"""Tallies: how many jobs there are, by one of their fields; from kept counters where these suffice, else bounded.

Counters say where jobs are stored. What the clock and the gates decide is added: delayed jobs that are due count as
ready, ready jobs whose gate is held as parked, and jobs that run for too long as stuck.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from msgspec.structs import replace

from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.stores.places import Position, Wanted, possible_statuses
from reprieve.stores.protocol import Filter, Tallied, Tally
from reprieve.stores.search import LaneNames, Search, is_in, look, stuck_after

CountedSubject: TypeAlias = Literal["queue", "task", "dependency"]
"""What counters are kept of."""

COUNTERS: Final[tuple[Status, ...]] = ("ready", "scheduled", "retrying", "parked", "dead", "cancelled")
"""The counters of lanes and names, in the order of their columns."""

MAX_DUE: Final = 1_000
"""Due jobs that are not promoted yet which a tally reads; if there are more, it is not exact."""

_SUBJECTS: Final[dict[CountedSubject, str]] = {"queue": "queues", "task": "tasks", "dependency": "dependencies"}
_CAUSES: Final = ("death", "code", "fingerprint")


class LaneCount(NamedTuple):
    """Jobs of a lane."""

    names: LaneNames
    is_held: bool
    numbers: Mapping[Status, int]
    """By the counters of the lane."""


class Part(NamedTuple):
    """Some counts, and whether these are all there are."""

    lanes: Sequence[LaneCount]
    is_whole: bool = True


class Counted(Search, Protocol):
    """What a store does for a tally. Each part reads a bounded number of rows."""

    def kept_counts(self, subject: CountedSubject, names: Sequence[str]) -> Mapping[str, Mapping[Status, int]]:
        """Return the kept counters of some names, or of all."""
        ...

    def uncounted(self) -> Part:
        """Return what was enqueued and is in no counter yet."""
        ...

    def lane_counts(self, wanted: Filter, at_most: int) -> Part:
        """Return the counters of the lanes that a filter may match."""
        ...

    def due(self) -> Part:
        """Return delayed jobs that are due, by the counters in which they are."""
        ...

    def held(self, at_most: int) -> Part:
        """Return the ready jobs of lanes that a gate holds."""
        ...

    def running(self, stuck_after: float) -> Part:
        """Return the jobs that run, as running or stuck."""
        ...

    def succeeded_counts(self) -> Mapping[str, int]:
        """Return how many succeeded jobs each queue keeps."""
        ...


def tally(search: Counted, by: Tally, wanted: Filter, now: int, at_most: int) -> Tallied:
    """Count jobs by one of their fields."""
    if by in _CAUSES or is_narrow(wanted):
        return _looked(search, by, wanted, now, at_most)
    counts: Counter[str] = Counter()
    statuses = possible_statuses(wanted)
    is_exact = True
    for (status, name), number in _unended(search, by, wanted, at_most).items():
        if status is None:
            is_exact = False
        elif status in statuses:
            counts[status if by == "status" else name] += number
    if "succeeded" in statuses:
        succeeded = _succeeded(search, by, wanted, now, at_most)
        counts.update(succeeded.counts)
        is_exact &= succeeded.is_exact
    return Tallied(counts={name: number for name, number in counts.items() if number > 0}, is_exact=is_exact)


def merge_tallies(parts: Iterable[Tallied], top: int | None) -> Tallied:
    """Return the sum of tallies, of the names with the most jobs."""
    counts: Counter[str] = Counter()
    is_exact = True
    for part in parts:
        counts.update(part.counts)
        is_exact &= part.is_exact
    first = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[: len(counts) if top is None else top]
    return Tallied(counts=dict(first), is_exact=is_exact, left_out=len(counts) - len(first))


_Table: TypeAlias = Counter[tuple[Status | None, str]]
"""Numbers by status and name. The status None says that something was left out."""


def _unended(search: Counted, by: Tally, wanted: Filter, at_most: int) -> _Table:
    """Count all jobs but the succeeded."""
    table: _Table = Counter()
    subject = _kept_subject(by, wanted)
    parts = [search.uncounted(), search.running(stuck_after(wanted))]
    if subject is None:
        parts.append(search.lane_counts(wanted, at_most))
    else:
        names: Sequence[str] = getattr(wanted, _SUBJECTS[subject])
        for name, numbers in search.kept_counts(subject, names).items():
            for status, number in numbers.items():
                table[status, name if by == subject else ""] += number
        held = search.held(at_most)
        parts += [held, Part([_negative(one)._replace(is_held=False) for one in held.lanes])]
    due = search.due()
    parts += [Part([_as_ready(one) for one in due.lanes], due.is_whole), Part([_negative(one) for one in due.lanes])]
    for part in parts:
        _add(table, by, wanted, part.lanes)
        if not part.is_whole:
            table[None, ""] += 1
    return table


def _as_ready(one: LaneCount) -> LaneCount:
    return one._replace(numbers={"ready": sum(one.numbers.values())})


def _negative(one: LaneCount) -> LaneCount:
    return one._replace(numbers={status: -number for status, number in one.numbers.items()})


def _add(table: _Table, by: Tally, wanted: Filter, lanes: Iterable[LaneCount]) -> None:
    for one in lanes:
        if is_in(one.names, wanted):
            for status, number in one.numbers.items():
                shown: Status = "parked" if status == "ready" and one.is_held else status
                table[shown, "" if by == "status" else name_of(by, shown, one.names)] += number


def _kept_subject(by: Tally, wanted: Filter) -> CountedSubject | None:
    """Return of which subject the kept counters answer a tally; None: the counters of lanes have to."""
    if wanted.tenants or wanted.group is not None or by == "tenant":
        return None
    named = [subject for subject, field in _SUBJECTS.items() if getattr(wanted, field)]
    if not named:
        return "queue" if by == "status" else next(subject for subject in _SUBJECTS if subject == by)
    return named[0] if len(named) == 1 and by in ("status", named[0]) else None


def _succeeded(search: Counted, by: Tally, wanted: Filter, now: int, at_most: int) -> Tallied:
    is_of_queues = not wanted.tenants and not wanted.tasks and not wanted.dependencies and wanted.group is None
    if by in ("status", "queue") and is_of_queues:
        counts: Counter[str] = Counter()
        for queue, number in search.succeeded_counts().items():
            if not wanted.queues or queue in wanted.queues:
                counts["succeeded" if by == "status" else queue] += number
        return Tallied(counts=dict(counts))
    return _looked(search, by, replace(wanted, statuses=frozenset({"succeeded"})), now, at_most)


def _looked(search: Counted, by: Tally, wanted: Filter, now: int, at_most: int) -> Tallied:
    """Count the jobs that a bounded look finds."""
    counts: Counter[str] = Counter()
    asked = Wanted(filter=wanted, order="newest", now=now)
    start: Position | None = None
    examined = 0
    while examined < at_most:
        looked = look(search, asked, start, at_most - examined)
        examined += max(1, looked.examined)
        for found in looked.found:
            name = name_of(by, found.status, found.job)
            if name or by not in _CAUSES:
                counts[name] += 1
        if looked.resume is None:
            return Tallied(counts=dict(counts))
        start = looked.resume
    return Tallied(counts=dict(counts), is_exact=False)


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


def counts_by_name(
    lanes: Iterable[tuple[LaneNames, Mapping[Status, int]]],
) -> dict[tuple[CountedSubject, str], Counter[Status]]:
    """Return what changes of lanes' counters add to the kept counters."""
    sums: dict[tuple[CountedSubject, str], Counter[Status]] = defaultdict(Counter)
    for names, numbers in lanes:
        for subject in _SUBJECTS:
            sums[subject, getattr(names, subject)].update(numbers)
    return sums
