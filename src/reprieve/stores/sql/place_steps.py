"""How a search goes through the places of a SQL database: keys by an index, merged in order, then their jobs."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.stores.ended_lists import ended_lists, tried_list
from reprieve.stores.places import LaneGroup, Place, PlaceKey, Wanted, delayed_range, possible_statuses
from reprieve.stores.protocol import Filter, Range
from reprieve.stores.record import CANCELLED, DEAD, LANE_COUNTERS, Lease
from reprieve.stores.search import Candidate, Step, is_in
from reprieve.stores.sql.finished import unpack_jobs
from reprieve.stores.sql.lanes import LaneRef
from reprieve.stores.sql.tx import SqlTx, Statements

Id = TypeVar("Id", bound=int | str)
"""How a table names a job: by a number, or by the id of the job."""

MAX_INT: Final = (1 << 63) - 1
"""The largest number of a column."""

MAX_MERGED_LANES: Final = 200
"""Lanes whose ready jobs are merged in order; more lanes come one group after the other."""

MAX_GROWN_LANES: Final = 4 * MAX_MERGED_LANES
"""Lanes of a group that is gone on with: lanes that have got jobs since are merged too."""

MAX_LANES_READ: Final = 1_000
"""Lanes that one step reads, with or without jobs."""

MAX_HELD_LIMITERS: Final = 50
"""Held limiters whose lanes are looked for; if there are more, all lanes are read, some at a time."""

SETTLED_LATE_MS: Final = 600_000
"""How long after its end a job is settled at most, as far as a search by the time of the end goes."""

Stream: TypeAlias = Mapping[str, int | str]
"""A range of an index: the statement that reads it (`from`), and its parameters."""


class KeyRow(NamedTuple, Generic[Id]):
    """A key of an index, with the lane of its job."""

    at: int
    id: Id
    lane: int


class LaneRow(NamedTuple):
    """A lane, and whether it may have ready jobs."""

    id: int
    has_ready: bool


class Settlement(NamedTuple):
    """A row of succeeded jobs."""

    seq: int
    at: int
    """When it was written."""
    jobs: bytes


class After(NamedTuple, Generic[Id]):
    """Where ranges of an index go on."""

    at: int
    id: Id


class PlaceSteps(ABC, Generic[Id]):
    """Steps through the places; what differs between stores is abstract."""

    ids: tuple[Id, Id]
    """An id before, and one after that of every job."""
    first_lane: int
    """The lowest number that a lane can have."""
    _tx: SqlTx
    _sql: Statements

    @abstractmethod
    def _keys(self, streams: Sequence[Stream], after: After[Id], most: int, *, newest: bool) -> list[KeyRow[Id]]:
        """Return the next keys of some ranges of an index, merged in order."""

    @abstractmethod
    def _lanes_by(self, field: str, name: str | int, group: LaneGroup, most: int) -> Iterable[Sequence[Any]]:
        """Return lanes by the name of a queue, tenant, task or dependency, or all (no `field`), in order of ids."""

    def _uncounted_lanes(self, group: LaneGroup, most: int) -> Iterable[int]:  # noqa: ARG002 - not every store has such
        """Return lanes of a group whose last enqueues are not counted yet; if there are more, the first of them."""
        return ()

    @abstractmethod
    def _queue_ids(self, names: Sequence[str]) -> list[int]:
        """Return the ids of queues; of all queues if there are no names."""

    @abstractmethod
    def _lane(self, lane: int) -> LaneRef:
        """Return a lane that was loaded."""

    @abstractmethod
    def _load_lanes(self, lanes: Iterator[int]) -> None:
        """Read lanes that are not known yet."""

    @abstractmethod
    def _is_held(self, lane: int) -> bool:
        """Return whether a gate holds the jobs of a lane."""

    @abstractmethod
    def _held_limiters(self) -> Sequence[int]:
        """Return the limiters that are held."""

    @abstractmethod
    def _may_have_part(self, job: Id, parts: Sequence[str]) -> bool:
        """Return whether the id of a job may have any of these parts; False spares reading the job."""

    @abstractmethod
    def _jobs(self, ids: Sequence[Id], leases: Mapping[Id, Lease]) -> list[tuple[Id, Job, int]]:
        """Return the jobs that have these ids and have not succeeded, each with its lane."""

    @abstractmethod
    def _leases_of(self, session: str) -> Mapping[Id, Lease]:
        """Return the leases of a session, or all, by job."""

    def step(self, place: Place, wanted: Wanted, after: PlaceKey | None, most: int) -> Step:
        """Return the next jobs of a place after a key."""
        match place:
            case "running":
                return self._running(wanted, after, most)
            case "ready":
                return self._ready(wanted, after, most)
            case "delayed":
                return self._in_index(self._delayed_streams(wanted), wanted, after, most)
            case "ended":
                return self._in_index(self._ended_streams(wanted.filter), wanted, after, most)
            case "succeeded":
                return self._succeeded(wanted, after, most)

    def _after(self, key: PlaceKey | None, *, newest: bool) -> After[Id]:
        if key is None:
            return After(MAX_INT if newest else -1, self.ids[newest])
        return After(key.at, key.id)  # type: ignore[arg-type]  # the cursor's shape was checked

    def _running(self, wanted: Wanted, after: PlaceKey | None, most: int) -> Step:
        leases = self._leases_of(wanted.filter.session)
        start = self._after(after, newest=wanted.is_newest)
        keys = ((lease.at, job) for job, lease in leases.items())
        beyond = (key for key in keys if (key < start if wanted.is_newest else key > start))
        left = (nlargest if wanted.is_newest else nsmallest)(most + 1, beyond)
        rows = [KeyRow(at, job, 0) for at, job in left[:most]]
        return self._candidates(rows, wanted.filter, None, len(left) > most, leases)

    def _in_index(self, streams: Sequence[Stream], wanted: Wanted, after: PlaceKey | None, most: int) -> Step:
        newest = wanted.is_newest
        rows = self._keys(streams, self._after(after, newest=newest), most, newest=newest) if streams else []
        self._load_lanes(row.lane for row in rows)
        return self._candidates(rows, wanted.filter, None, len(rows) >= most)

    def _candidates(
        self,
        rows: Sequence[KeyRow[Id]],
        wanted: Filter,
        group: LaneGroup | None,
        has_more: bool,  # noqa: FBT001 - private
        leases: Mapping[Id, Lease] | None = None,
    ) -> Step:
        """Read the jobs of keys, but for those whose lane or id says that they do not match."""
        likely = [row.id for row in rows if self._may_match(row, wanted)]
        found = {job_id: (job, lane) for job_id, job, lane in self._jobs(likely, leases or {})}
        candidates = [Candidate(PlaceKey(group, row.at, row.id), *found.get(row.id, (None, 0))) for row in rows]
        return Step(candidates, candidates[-1].key if candidates and has_more else None)

    def _may_match(self, row: KeyRow[Id], wanted: Filter) -> bool:
        if wanted.id_parts and not self._may_have_part(row.id, wanted.id_parts):
            return False
        return row.lane == 0 or is_in(self._lane(row.lane), wanted)

    def _delayed_streams(self, wanted: Wanted) -> list[Stream]:
        streams: list[Stream] = []
        queues = self._queue_ids(wanted.filter.queues)
        tried = tried_list(wanted.filter)
        for wait, counter in list(enumerate(LANE_COUNTERS))[1:]:
            due = delayed_range(wanted.filter, counter, wanted.now)
            if due is not None and tried is not None and counter != "scheduled":
                field, names = tried
                streams += [{"from": f"delayed_{field}", field: name, "wait": wait, **_bounds(due)} for name in names]
            elif due is not None:
                streams += [{"from": "delayed", "queue": queue, "wait": wait, **_bounds(due)} for queue in queues]
        return streams

    def _ended_streams(self, wanted: Filter) -> list[Stream]:
        bounds = _bounds(wanted.ended or Range())
        streams: list[Stream] = []
        for one in ended_lists(wanted):
            facts: dict[str, int | str] = {"state": DEAD if one.status == "dead" else CANCELLED, **bounds}
            if one.field == "queue":
                streams += [{"from": "ended_queue", "queue": queue, **facts} for queue in self._queue_ids(one.names)]
            else:
                fields = one.field.split("_") if one.names else []
                streams.append({"from": f"ended_{one.field}", **dict(zip(fields, one.names, strict=True)), **facts})
        return streams

    def _ready(self, wanted: Wanted, after: PlaceKey | None, most: int) -> Step:
        """Merge the ready jobs of the lanes that match; beyond so many lanes, group by group."""
        start = None if after is None or after.at < 0 else after
        first = self.first_lane if after is None or after.group is None else int(after.group.first)
        asked = LaneGroup(first, MAX_INT) if start is None or start.group is None else start.group
        lanes, group = self._group(wanted.filter, asked, MAX_MERGED_LANES if start is None else MAX_GROWN_LANES)
        newest = wanted.is_newest
        streams: list[Stream] = [{"from": "ready", "lane": lane} for lane in lanes]
        rows = self._keys(streams, self._after(start, newest=newest), most, newest=newest) if lanes else []
        step = self._candidates(rows, wanted.filter, group, len(rows) >= most)
        if step.resume is None and group.end != MAX_INT:
            return Step(step.candidates, PlaceKey(LaneGroup(group.end, MAX_INT), -1, self.ids[0]))
        return step

    def _group(self, wanted: Filter, asked: LaneGroup, most: int) -> tuple[list[int], LaneGroup]:
        """Return lanes of a group that may have ready jobs which match, and the group, cut where these are too many."""
        statuses = possible_statuses(wanted)
        chosen: list[int] = []
        first, read = asked.first, 0
        while read < MAX_LANES_READ and len(chosen) < most:
            rows = self._matching_lanes(wanted, LaneGroup(first, asked.end), MAX_MERGED_LANES + 1)
            self._load_lanes(row.id for row in rows)
            for row in rows[:MAX_MERGED_LANES]:
                if len(chosen) == most:
                    return chosen, LaneGroup(asked.first, row.id)
                status: Status = "parked" if self._is_held(row.id) else "ready"
                if row.has_ready and status in statuses and is_in(self._lane(row.id), wanted):
                    chosen.append(row.id)
            if len(rows) <= MAX_MERGED_LANES:
                return chosen, asked
            first, read = rows[-1].id, read + MAX_MERGED_LANES
        return chosen, LaneGroup(asked.first, first)

    def _matching_lanes(self, wanted: Filter, group: LaneGroup, most: int) -> list[LaneRow]:
        """Return the first lanes of a group in the order of their ids, by the narrowest field that has an index."""
        held: Sequence[int] = ()
        if "ready" not in possible_statuses(wanted):
            held = self._held_limiters()
            if not held:
                return []
        for field, names in (
            ("tenant", wanted.tenants),
            ("limiter", held if len(held) <= MAX_HELD_LIMITERS else ()),
            ("dependency", () if "" in wanted.dependencies else wanted.dependencies),
            ("task", wanted.tasks),
            ("queue", wanted.queues),
        ):
            if names:
                found: list[Sequence[Any]] = [row for name in names for row in self._lanes_by(field, name, group, most)]
                break
        else:
            found = list(self._lanes_by("", "", group, most))
        has_ready = {lane: bool(is_ready) for lane, is_ready in found}
        has_ready |= dict.fromkeys(self._uncounted_lanes(group, most), True)
        return [LaneRow(lane, has_ready[lane]) for lane in sorted(has_ready)[:most]]

    def _succeeded(self, wanted: Wanted, after: PlaceKey | None, most: int) -> Step:
        """Go through settlements; the key of a job is the number of its settlement, and its place in it."""
        newest = wanted.is_newest
        seq, place = (after.at, int(after.id)) if after is not None else self._first_settlement(wanted)
        queues = self._queue_ids(wanted.filter.queues) if wanted.filter.queues else [None]
        candidates: list[Candidate] = []
        while (row := self._settlement(queues, seq, newest=newest)) is not None:
            if self._is_beyond(row, wanted):
                return Step(candidates, None)
            jobs = list(enumerate(unpack_jobs(row.jobs)))
            for number, job in reversed(jobs) if newest else jobs:
                if row.seq != seq or (number < place if newest else number > place):
                    candidates.append(Candidate(PlaceKey(None, row.seq, number), job))
                    if len(candidates) >= most:
                        return Step(candidates, candidates[-1].key)
            seq, place = (row.seq - 1, MAX_INT) if newest else (row.seq + 1, -1)
        return Step(candidates, None)

    def _settlement(self, queues: Sequence[int | None], seq: int, *, newest: bool) -> Settlement | None:
        """Return the next settlement of any of these queues, at a number or beyond it."""
        found = []
        for queue in queues:
            name = "finished" if queue is None else "finished_of_queue"
            row = self._tx.one(self._directed(name, newest=newest), {"seq": seq, "queue": queue})
            if row is not None:
                found.append(Settlement._make(row))
        if not found:
            return None
        return max(found, key=lambda row: row.seq) if newest else min(found, key=lambda row: row.seq)

    def _directed(self, name: str, *, newest: bool) -> str:
        """Return a statement that reads an index forwards or backwards."""
        statement = self._sql[name].replace("{direction}", "desc" if newest else "asc")
        return statement.replace("{beyond}", "<" if newest else ">")

    def _first_settlement(self, wanted: Wanted) -> tuple[int, int]:
        """Return where to begin; numbers of settlements grow with their times, so halving finds that of a time."""
        ended = wanted.filter.ended or Range()
        if wanted.is_newest:
            if ended.until is None:
                return MAX_INT, MAX_INT
            return self._settlement_at(ended.until + SETTLED_LATE_MS), MAX_INT
        return (0, -1) if ended.since is None else (self._settlement_at(ended.since), -1)

    def _settlement_at(self, at: int) -> int:
        """Return the number of the first settlement at a time or later; one after all if there is none."""
        low, high = 0, MAX_INT
        newest = self._tx.one(self._directed("finished_at", newest=True), {"seq": MAX_INT})
        if newest is None:
            return 0
        high = newest[0] + 1
        while low < high:
            middle = (low + high) // 2
            row = self._tx.one(self._directed("finished_at", newest=False), {"seq": middle})
            if row is None or row[1] >= at:
                high = middle
            else:
                low = row[0] + 1
        return low

    @staticmethod
    def _is_beyond(row: Settlement, wanted: Wanted) -> bool:
        """Return whether this settlement, and all that follow, are outside of the time that is asked for."""
        ended = wanted.filter.ended
        if ended is None:
            return False
        if wanted.is_newest:
            return ended.since is not None and row.at < ended.since
        return ended.until is not None and row.at >= ended.until + SETTLED_LATE_MS


def _bounds(times: Range) -> dict[str, int]:
    return {"since": times.since or 0, "until": MAX_INT if times.until is None else times.until}
