"""Finding jobs in the tables of a SQL database, a page at a time, and counting them. It only reads.

`place_steps.py` has the order in which jobs are found, and the keys of a page.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, NamedTuple

from msgspec.structs import replace

from reprieve.core.job import Job
from reprieve.core.status import Status, status_of
from reprieve.core.unreadable import unreadable_record
from reprieve.stores.record import Lease
from reprieve.stores.sql.counting import SqlCounting
from reprieve.stores.sql.place_steps import Id
from reprieve.stores.sql.tx import SqlTx, Statements

MAX_IDS_TO_FIND = 20
"""Jobs whose leases the database looks for; those of more jobs are found faster by reading all leases."""


class JobRow(NamedTuple, Generic[Id]):
    """A job that waits, runs or has ended without success."""

    id: Id
    state: int
    version: int
    wait: int
    due: int
    lane: int
    record: bytes


class EndRow(NamedTuple):
    """When a job ended, and why it is dead; a cancelled job is not."""

    at: int = 0
    death: Any = ""


class SqlSearch(SqlCounting[Id], Generic[Id]):
    """What one search needs to know of the store: the limiters that are held, and the leases that it asks for."""

    def __init__(self, tx: SqlTx, sql: Statements, now: int, *, held: frozenset[int]) -> None:
        """Take a transaction, the statements of `find.sql`, and the limiters that are held."""
        self._tx = tx
        self._sql = sql
        self._now = now
        self._held = held
        self._leases_by_session: dict[str, Mapping[Id, Lease]] = {}

    @cached_property
    def _leases(self) -> Mapping[Id, Lease]:
        """All leases, by job."""
        return self._unpack_leases(self._tx.all(self._sql["leases"]))

    def _leases_of(self, session: str) -> Mapping[Id, Lease]:
        """Return the leases of one session, or all, by job."""
        if not session:
            return self._leases
        if session not in self._leases_by_session:
            rows = self._tx.all(self._sql["leases_of_session"], {"session": session})
            self._leases_by_session[session] = self._unpack_leases(rows)
        return self._leases_by_session[session]

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

    # what `search` asks for

    def status(self, job: Job, lane: int, stuck_after: float) -> Status:
        """Return the status of a job; one that runs for `stuck_after` seconds is stuck."""
        return status_of(job, self._now, held=self._is_held(lane), stuck_after=stuck_after)

    def _is_held(self, lane: int) -> bool:
        return bool(self._held) and lane != 0 and not self._held.isdisjoint(self._lane(lane).limiters)

    def _held_limiters(self) -> Sequence[int]:
        return sorted(self._held)

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

    def _running_jobs(self, ids: Sequence[Id]) -> Iterable[tuple[Id, Job, int]]:
        return self._jobs(ids, self._leases) if ids else ()


def end_of(tx: SqlTx, sql: Statements, queue: int, state: int, job: int | str) -> EndRow:
    """Return the end of a dead or cancelled job whose record cannot be read, from the index of ended jobs."""
    return EndRow(*(tx.one(sql["end_of"], {"queue": queue, "state": state, "id": job}) or ()))
