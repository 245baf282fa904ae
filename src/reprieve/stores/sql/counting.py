"""Counting jobs in a SQL database by the counters of names and lanes; each part reads a bounded number of rows."""

from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple

from reprieve.core.duration import milliseconds
from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.stores.places import LaneGroup
from reprieve.stores.protocol import Filter
from reprieve.stores.record import LANE_COUNTERS
from reprieve.stores.sql.place_steps import MAX_INT, MAX_LANES_READ, Id, PlaceSteps
from reprieve.stores.tallying import COUNTERS, MAX_DUE, CountedSubject, LaneCount, Part

MAX_STUCK: Final = 500
"""Jobs that may be stuck which a tally reads: the time that each may take is in its record."""


class LeasedRow(NamedTuple, Generic[Id]):
    """A job that runs."""

    id: Id
    at: int
    lane: int


class SqlCounting(PlaceSteps[Id], Generic[Id]):
    """The parts of a tally."""

    _now: int

    @abstractmethod
    def status(self, job: Job, lane: int, stuck_after: float) -> Status:
        """Return the status of a job."""

    @abstractmethod
    def _leased(self) -> Sequence[LeasedRow[Id]]:
        """Return all jobs that run."""

    @abstractmethod
    def _numbers(self, lanes: Sequence[int]) -> Iterable[Sequence[Any]]:
        """Return the counters of lanes, each after its id."""

    @abstractmethod
    def _running_jobs(self, ids: Sequence[Id]) -> Iterable[tuple[Id, Job, int]]:
        """Return jobs that run, each with its lane."""

    def kept_counts(self, subject: CountedSubject, names: Sequence[str]) -> Mapping[str, Mapping[Status, int]]:
        """Return the kept counters of some names, or of all."""
        if not names:
            rows = self._tx.all(self._sql["kept_counts"], {"subject": subject})
        else:
            sql = self._sql["kept_counts_of"]
            rows = [row for name in names for row in self._tx.all(sql, {"subject": subject, "name": name})]
        return {name: dict(zip(COUNTERS, numbers, strict=True)) for name, *numbers in rows}

    def uncounted(self) -> Part:
        """Return what was enqueued and is in no counter yet: nothing, where enqueues count."""
        return Part(())

    def lane_counts(self, wanted: Filter, at_most: int) -> Part:
        """Return the counters of the lanes that a filter may match."""
        return self._counted(wanted, frozenset(), at_most)

    def held(self, at_most: int) -> Part:
        """Return the ready jobs of lanes that a gate holds."""
        part = self._counted(Filter(), frozenset({"parked"}), at_most)
        held = [one._replace(numbers={"ready": one.numbers["ready"]}) for one in part.lanes if one.is_held]
        return Part(held, part.is_whole)

    def _counted(self, wanted: Filter, statuses: frozenset[Status], at_most: int) -> Part:
        lanes: list[LaneCount] = []
        first, read = self.first_lane, 0
        asked = Filter(
            queues=wanted.queues,
            tenants=wanted.tenants,
            tasks=wanted.tasks,
            dependencies=wanted.dependencies,
            statuses=statuses,
        )
        while read < at_most:
            most = min(MAX_LANES_READ, at_most - read)
            ids = [row.id for row in self._matching_lanes(asked, LaneGroup(first, MAX_INT), most)]
            self._load_lanes(iter(ids))
            for lane, *numbers in self._numbers(ids) if ids else ():
                counted = dict(zip(COUNTERS, numbers, strict=True))
                lanes.append(LaneCount(self._lane(lane), self._is_held(lane), counted))
            if len(ids) < most:
                return Part(lanes)
            first, read = ids[-1] + 1, read + len(ids)
        return Part(lanes, is_whole=False)

    def due(self) -> Part:
        """Return delayed jobs that are due, by the counters in which they are."""
        rows = self._tx.all(self._sql["due"], {"now": self._now, "most": MAX_DUE})
        due: dict[int, Counter[Status]] = defaultdict(Counter)
        for lane, wait, number in rows:
            due[lane][LANE_COUNTERS[wait]] += number
        self._load_lanes(iter(due))
        lanes = [LaneCount(self._lane(lane), self._is_held(lane), numbers) for lane, numbers in due.items()]
        return Part(lanes, sum(number for _, _, number in rows) < MAX_DUE)

    def running(self, stuck_after: float) -> Part:
        """Return the jobs that run, as running or stuck."""
        leased = self._leased()
        self._load_lanes(row.lane for row in leased)
        doubtful = [row.id for row in leased if self._now - row.at >= milliseconds(stuck_after)]
        stuck = {
            job_id
            for job_id, job, lane in self._running_jobs(doubtful[:MAX_STUCK])
            if self.status(job, lane, stuck_after) == "stuck"
        }
        counts: dict[int, Counter[Status]] = defaultdict(Counter)
        for row in leased:
            counts[row.lane]["stuck" if row.id in stuck else "running"] += 1
        lanes = [LaneCount(self._lane(lane), is_held=False, numbers=numbers) for lane, numbers in counts.items()]
        return Part(lanes, len(doubtful) <= MAX_STUCK)

    def succeeded_counts(self) -> Mapping[str, int]:
        """Return how many succeeded jobs each queue keeps."""
        return dict(self._tx.all(self._sql["finished_counts"]))
