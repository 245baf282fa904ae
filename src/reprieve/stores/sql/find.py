"""Finding jobs in the tables of a SQL database, a page at a time, and counting them. It only reads.

The keys of a page are those of its table: the id of a job, the index of ended jobs, or the row of a settlement and the
place of the job in it.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from reprieve.core.events import Event
from reprieve.core.job import Job
from reprieve.core.status import Status, status_of
from reprieve.core.unreadable import unreadable_record
from reprieve.stores.event_record import read_event, readable_events
from reprieve.stores.protocol import Filter, Tally
from reprieve.stores.record import LANE_COUNTERS, Lease
from reprieve.stores.search import EXAMINED, Key, LaneNames, Source, Step, is_in, name_of
from reprieve.stores.sql.finished import FinishedRow, unpack_jobs
from reprieve.stores.sql.lanes import LaneRef
from reprieve.stores.sql.tx import SqlTx, Statements

Id = TypeVar("Id", bound=int | str)
"""How a table names a job: by a number, or by the id of the job."""

MAX_INT = (1 << 63) - 1
"""The largest number of a column."""

MAX_STATE = 9
"""A state after all that ended jobs have."""

MAX_IDS_TO_FIND = 20
"""Jobs whose leases the database looks for; those of more jobs are found faster by reading all leases."""

PAGE = 100
"""Jobs that are read at a time, where their ids are known."""


class JobRow(NamedTuple, Generic[Id]):
    """A job that waits, runs or has ended without success."""

    id: Id
    state: int
    version: int
    wait: int
    due: int
    lane: int
    record: bytes | None
    """None if the job is not of the lanes that were asked for."""


class EndedKey(NamedTuple, Generic[Id]):
    """Where a dead or cancelled job stands in their index."""

    queue: int
    state: int
    at: int
    id: Id


class EndRow(NamedTuple):
    """When a job ended, and why it is dead; a cancelled job is not."""

    at: int = 0
    death: Any = ""


class LaneCounts(NamedTuple):
    """How many jobs of a lane have which status, as far as counters tell."""

    lane: int
    ready: int
    scheduled: int
    retrying: int
    parked: int
    dead: int
    cancelled: int


class SqlSearch(ABC, Generic[Id]):
    """What one search needs to know of the store: the limiters that are held, and the leases that it asks for."""

    ids: tuple[Id, Id]
    """An id before, and one after that of every job."""
    queues: tuple[int, int]
    """The lowest and the highest id of a queue."""

    def __init__(self, tx: SqlTx, sql: Statements, now: int, *, held: frozenset[int]) -> None:
        """Take a transaction, the statements of `find.sql`, and the limiters that are held."""
        self._tx = tx
        self._sql = sql
        self._now = now
        self._held = held

    @cached_property
    def _leases(self) -> Mapping[Id, Lease]:
        """All leases, by job."""
        return self._unpack_leases(self._tx.all(self._sql["leases"]))

    def _leases_of_session(self, session: str) -> Mapping[Id, Lease]:
        """Return the leases of one session, by job."""
        return self._unpack_leases(self._tx.all(self._sql["leases_of_session"], {"session": session}))

    def _leases_of_jobs(self, ids: Sequence[Id]) -> Mapping[Id, Lease]:
        """Return the leases of some jobs, by job, and perhaps of others; the database finds those of a few."""
        return self._unpack_leases(self._find_leases(ids)) if len(ids) <= MAX_IDS_TO_FIND else self._leases

    # what differs between stores

    @abstractmethod
    def _id_of(self, job_id: str) -> Id:
        """Return how the tables name a job."""

    @abstractmethod
    def _rows(self, ids: Sequence[Id]) -> Iterable[Sequence[Any]]:
        """Return the rows of the jobs that have these ids and have not succeeded."""

    @abstractmethod
    def _job(self, row: JobRow[Id], lease: Lease | None) -> Job:
        """Return the job of a row whose lane was loaded."""

    @abstractmethod
    def _find_leases(self, ids: Sequence[Id]) -> Iterable[Sequence[Any]]:
        """Return the rows of the leases that may hold these jobs: session, when it was leased, and packed jobs."""

    @abstractmethod
    def _unpack_leases(self, rows: Iterable[Sequence[Any]]) -> Mapping[Id, Lease]:
        """Return the leases in these rows, by job."""

    @abstractmethod
    def _succeeded_job(self, job_id: str) -> Job | None:
        """Return a succeeded job."""

    @abstractmethod
    def _lane(self, lane: int) -> LaneRef:
        """Return a lane that was loaded."""

    @abstractmethod
    def _load_lanes(self, lanes: Iterator[int]) -> None:
        """Read lanes that are not known yet."""

    @abstractmethod
    def _queue_id(self, queue: str) -> int:
        """Return the id of a queue, or one that no queue has."""

    @abstractmethod
    def _may_match(self, row: JobRow[Id], parts: Sequence[str]) -> bool:
        """Return whether the id of a job may have any of these parts; False spares reading the job."""

    @abstractmethod
    def _list_of(self, lanes: Sequence[int]) -> object:
        """Return numbers as a parameter of a statement."""

    # what `search` asks for

    def status(self, job: Job, lane: int, stuck_after: float) -> Status:
        """Return the status of a job; one that runs for `stuck_after` seconds is stuck."""
        return status_of(job, self._now, held=self._is_held(lane), stuck_after=stuck_after)

    def _is_held(self, lane: int) -> bool:
        return bool(self._held) and lane != 0 and not self._held.isdisjoint(self._lane(lane).limiters)

    def by_ids(self, ids: Sequence[str]) -> Iterator[tuple[Job, int]]:
        """Return jobs by their ids, succeeded ones too, each with its lane."""
        keys = {job_id: self._id_of(job_id) for job_id in ids}
        wanted = list(keys.values())
        found = {key: (job, lane) for key, job, lane in self._jobs(wanted, self._leases_of_jobs(wanted))}
        for job_id in ids:
            job, lane = found.get(keys[job_id], (None, 0))
            if job is not None and (job.id == job_id or unreadable_record(job) is not None):
                # A table may have kept a part of the id in the record.
                yield replace(job, id=job_id), lane
            elif (succeeded := self._succeeded_job(job_id)) is not None:
                yield succeeded, 0

    def scan(self, source: Source, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        """Return the jobs of one source after a key, each with its own key."""
        match source:
            case "living":
                return self._living(after, wanted)
            case "running":
                leases = self._leases_of_session(wanted.session) if wanted.session else self._leases
                return self._running(leases, after, newest_first=wanted.newest_first)
            case "ended":
                return self._ended(after, wanted)
            case "succeeded":
                return self._newest_succeeded(after) if wanted.newest_first else self._succeeded(after, wanted)

    def _living(self, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        sql = self._sql["jobs_newest" if wanted.newest_first else "jobs"]
        last: Any = after[0] if after else self.ids[wanted.newest_first]
        lanes = self._lanes_of(wanted)
        while True:
            found = self._tx.all(sql, {"after": last, "most": EXAMINED, "lanes": lanes})
            rows: list[JobRow[Id]] = [JobRow(*row) for row in found]
            self._load_lanes(row.lane for row in rows)
            for row in rows:
                if row.record is not None and self._may_match(row, wanted.id_parts):
                    yield [row.id], self._read(row, self._leases.get(row.id)), row.lane
            if len(rows) < EXAMINED:
                return
            last = rows[-1].id
            yield [last], None, 0

    def _jobs(self, ids: Sequence[Id], leases: Mapping[Id, Lease]) -> list[tuple[Id, Job, int]]:
        """Return the jobs that have these ids and have not succeeded, each with its lane."""
        rows: list[JobRow[Id]] = [JobRow(*row) for row in self._rows(ids)]
        self._load_lanes(row.lane for row in rows)
        return [(row.id, self._read(row, leases.get(row.id)), row.lane) for row in rows]

    def _read(self, row: JobRow[Id], lease: Lease | None) -> Job:
        """Return the job of a row; when it ended, and why, are also known where its record cannot be read."""
        job = self._job(row, lease)
        if job.finished_at is not None or job.state not in ("dead", "cancelled"):
            return job
        end = end_of(self._tx, self._sql, self._lane(row.lane).queue_id, row.state, row.id)
        return replace(job, finished_at=end.at, death=end.death or None)

    def _lanes_of(self, wanted: Filter) -> object:
        """Return the lanes of the jobs that a filter matches; None: all."""
        if not wanted.queue and wanted.tenant is None and not wanted.task and wanted.dependency is None:
            return None
        names = {
            "queue": wanted.queue,
            "tenant": wanted.tenant,
            "task": wanted.task,
            "dependency": wanted.dependency,
        }
        return self._list_of([lane for (lane,) in self._tx.all(self._sql["lanes"], names)])

    def _running(
        self, leases: Mapping[Id, Lease], after: Sequence[Key] = (), *, newest_first: bool = False
    ) -> Iterator[Step]:
        last: Any = after[0] if after else self.ids[newest_first]
        left = (job for job in leases if (job < last if newest_first else job > last))
        ids = sorted(left, reverse=newest_first)
        for start in range(0, len(ids), PAGE):
            page = self._jobs(ids[start : start + PAGE], leases)
            for key, job, lane in sorted(page, key=lambda found: found[0], reverse=newest_first):
                yield [key], job, lane

    def _ended(self, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        parameters = {
            "wanted": self._queue_id(wanted.queue) if wanted.queue else None,
            "death": wanted.death or "",
            "is_dead": wanted.statuses == {"dead"},
            "is_cancelled": wanted.statuses == {"cancelled"},
            "code": wanted.code,
            "fingerprint": wanted.fingerprint,
        }
        is_last = wanted.newest_first
        edge = EndedKey(self.queues[is_last], MAX_STATE * is_last, MAX_INT * is_last, self.ids[is_last])
        key: EndedKey[Any] = EndedKey._make(after) if after else edge
        statement = self._sql["ended_newest" if wanted.newest_first else "ended"]
        while rows := self._tx.all(statement, parameters | key._asdict()):
            keys: list[EndedKey[Id]] = [EndedKey(*row) for row in rows]
            found = {job_id: (job, lane) for job_id, job, lane in self._jobs([one.id for one in keys], {})}
            for key in keys:
                if key.id in found:
                    yield list(key), *found[key.id]

    def _succeeded(self, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        seq, place = (int(after[0]), int(after[1])) if after else (0, -1)
        if not after and wanted.finished_since is not None:
            older = self._tx.one(self._sql["finished_before"], {"since": wanted.finished_since})
            seq = 0 if older is None else older[0] + 1
        while (row := self._finished(self._sql["finished"], seq)) is not None:
            for number, job in enumerate(unpack_jobs(row.jobs)):
                if row.seq > seq or number > place:
                    yield [row.seq, number], job, 0
            seq, place = row.seq + 1, -1

    def _newest_succeeded(self, after: Sequence[Key]) -> Iterator[Step]:
        seq, place = (int(after[0]), int(after[1])) if after else (MAX_INT, 0)
        while (row := self._finished(self._sql["finished_newest"], seq)) is not None:
            for number, job in reversed(list(enumerate(unpack_jobs(row.jobs)))):
                if row.seq < seq or number < place:
                    yield [row.seq, number], job, 0
            seq, place = row.seq - 1, MAX_INT

    def _finished(self, statement: str, seq: int) -> FinishedRow | None:
        row = self._tx.one(statement, {"seq": seq})
        return None if row is None else FinishedRow._make(row)

    def counts(self, stuck_after: float) -> Iterator[tuple[Status, LaneNames, int]]:
        """Return how many jobs of each lane have which status, succeeded ones left out, by the counters of lanes."""
        due: dict[int, Counter[str]] = {}
        for lane, wait, number in self._tx.all(self._sql["due"], {"now": self._now}):
            due.setdefault(lane, Counter())[LANE_COUNTERS[wait]] += number
        lanes = [LaneCounts(*row) for row in self._tx.all(self._sql["counts"])]
        self._load_lanes(count.lane for count in lanes)
        for count in lanes:
            late = due.get(count.lane, Counter())
            names = self._lane(count.lane)
            yield ("parked" if self._is_held(count.lane) else "ready"), names, count.ready + late.total()
            yield "scheduled", names, count.scheduled - late["scheduled"]
            yield "retrying", names, count.retrying - late["retrying"]
            yield "parked", names, count.parked - late["parked"]
            yield "dead", names, count.dead
            yield "cancelled", names, count.cancelled
        for _, job, lane in self._running(self._leases):
            if job is not None:
                yield self.status(job, lane, stuck_after), self._lane(lane), 1

    def succeeded(self, by: Tally, wanted: Filter) -> Counter[str]:
        """Count succeeded jobs: by the counts of their rows where these suffice, else by reading the jobs."""
        counts: Counter[str] = Counter()
        if by in ("status", "queue") and wanted.tenant is None and not wanted.task and wanted.dependency is None:
            for queue, number in self._tx.all(self._sql["finished_counts"], {"queue": wanted.queue}):
                counts["succeeded" if by == "status" else queue] += number
            return counts
        for (jobs,) in self._tx.all(self._sql["all_finished"]):
            counts.update(name_of(by, "succeeded", job) for job in unpack_jobs(jobs) if is_in(job, wanted))
        return counts


def end_of(tx: SqlTx, sql: Statements, queue: int, state: int, job: int | str) -> EndRow:
    """Return the end of a dead or cancelled job whose record cannot be read, from the index of ended jobs."""
    return EndRow(*(tx.one(sql["end_of"], {"queue": queue, "state": state, "id": job}) or ()))


def events(tx: SqlTx, sql: Statements, after: int, limit: int, job: int | str | None) -> list[tuple[int, Event]]:
    """Return events in their order, of one job or of all; those that cannot be read are left out, and counted."""
    statement = sql["events" if job is None else "events_of"]
    while rows := tx.all(statement, {"job": job, "after": after, "limit": limit}):
        found = readable_events((seq, read_event(data)) for seq, data in rows)
        if found:
            return found
        after = rows[-1][0]
    return []
