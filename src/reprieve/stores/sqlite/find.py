"""Looking: jobs by what is known of them, and how many there are. Read only, and a page at a time."""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from reprieve.core.events import Event
from reprieve.core.job import Job
from reprieve.core.status import Status, status_of
from reprieve.stores import search
from reprieve.stores.protocol import Filter, Page, Tally
from reprieve.stores.record import COUNTERS, Lease
from reprieve.stores.search import EXAMINED, Key, Source, Step, is_in, is_number, name_of
from reprieve.stores.sqlite.annotations import cancel_requests
from reprieve.stores.sqlite.finished import finished_jobs, unpack_jobs
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.leases import unpack_lease
from reprieve.stores.sqlite.rows import LaneRef, Row, may_have_part, row_id, unpack
from reprieve.stores.sqlite.statements import statements

_SHAPES: search.Shapes = {
    "living": [is_number],
    "running": [is_number],
    "ended": [is_number] * 4,
    "succeeded": [is_number] * 2,
}
_LARGEST = (1 << 63) - 1
_decode_event = msgspec.msgpack.Decoder(Event).decode


class Search:
    """One look at the store."""

    def __init__(self, tx: sqlite3.Connection, places: LaneCache, now: int) -> None:
        """Read what every look needs: who holds which job, and which limiters are held."""
        sql = statements("find")
        self._tx = tx
        self._places = places
        self._now = now
        wishes = cancel_requests(tx)
        self._leased: dict[int, Lease] = {}
        for _, name, at, jobs in tx.execute(sql["leases"]):
            self._leased |= {row: Lease(name, at, wishes.get(row)) for row in unpack_lease(jobs)}
        self._held = {limiter for (limiter,) in tx.execute(sql["held"])}

    def status(self, job: Job, lane: int) -> Status:
        """Return how a job looks to people."""
        return status_of(job, self._now, held=self._is_held(lane))

    def _is_held(self, lane: int) -> bool:
        return bool(self._held) and lane > 0 and not self._held.isdisjoint(self._places[lane].limiters)

    def by_ids(self, ids: Sequence[str]) -> Iterator[tuple[Job, int]]:
        """Return jobs by their ids, those that succeeded as well."""
        sql = statements("find")
        for job_id in ids:
            row = row_id(job_id)
            found = self._tx.execute(sql["job"], (row,)).fetchone()
            if found is not None:
                job, lane = self._unpack(found)
                if job.id == job_id:
                    yield job, lane
                continue
            yield from ((job, 0) for job in finished_jobs(self._tx, row) if job.id == job_id)

    def walk(self, source: Source, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        """Return the jobs of one source after a key, each with its own key; now and then none, to take a breath."""
        match source:
            case "living":
                return self._living(after, wanted)
            case "running":
                return self._running(after, newest_first=wanted.newest_first)
            case "ended":
                return self._ended(after, wanted)
            case "succeeded":
                return self._newest_succeeded(after) if wanted.newest_first else self._succeeded(after, wanted)

    def _living(self, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        sql = statements("find")["jobs_newest" if wanted.newest_first else "jobs"]
        last = after[0] if after else _LARGEST if wanted.newest_first else -1
        lanes = _lanes_of(self._tx, wanted)
        while True:
            rows = self._tx.execute(sql, {"after": last, "most": EXAMINED, "lanes": lanes}).fetchall()
            for row in rows:
                if row[6] is not None and may_have_part(row[0], wanted.id_parts):
                    yield [row[0]], *self._unpack(row)
            if len(rows) < EXAMINED:
                return
            last = rows[-1][0]
            yield [last], None, 0

    def _running(self, after: Sequence[Key], *, newest_first: bool = False) -> Iterator[Step]:
        sql = statements("find")["job"]
        for row in sorted(self._leased, reverse=newest_first):
            if not after or (row < int(after[0]) if newest_first else row > int(after[0])):
                yield [row], *self._unpack(self._tx.execute(sql, (row,)).fetchone())

    def _ended(self, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        sql = statements("find")
        queue = self._tx.execute(statements("lanes")["queue"], (wanted.queue,)).fetchone()
        parameters = {
            "wanted": None if not wanted.queue else queue[0] if queue else -1,
            "death": wanted.death or "",
            "is_dead": wanted.statuses == {"dead"},
            "is_cancelled": wanted.statuses == {"cancelled"},
            "code": wanted.code,
            "fingerprint": wanted.fingerprint,
        }
        key = list(after) or [_LARGEST if wanted.newest_first else 0] * 4
        statement = sql["ended_newest" if wanted.newest_first else "ended"]
        while True:
            place = dict(zip(("queue", "state", "at", "id"), key, strict=True))
            keys = self._tx.execute(statement, {**parameters, **place}).fetchall()
            for found in keys:
                key = list(found)
                yield key, *self._unpack(self._tx.execute(sql["job"], (found[3],)).fetchone())
            if not keys:
                return

    def _succeeded(self, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        sql = statements("find")["finished"]
        seq, place = map(int, after or (0, -1))
        if not after and wanted.finished_since is not None:
            older = self._tx.execute(statements("find")["finished_before"], (wanted.finished_since,)).fetchone()
            seq = 0 if older is None else older[0] + 1
        while (found := self._tx.execute(sql, (seq,)).fetchone()) is not None:
            for number, job in enumerate(unpack_jobs(found[1])):
                if found[0] > seq or number > place:
                    yield [found[0], number], job, 0
            seq, place = found[0] + 1, -1

    def _newest_succeeded(self, after: Sequence[Key]) -> Iterator[Step]:
        sql = statements("find")["finished_newest"]
        seq, place = map(int, after or (_LARGEST, 0))
        while (found := self._tx.execute(sql, (seq,)).fetchone()) is not None:
            for number, job in reversed(list(enumerate(unpack_jobs(found[1])))):
                if found[0] < seq or number < place:
                    yield [found[0], number], job, 0
            seq, place = found[0] - 1, _LARGEST

    def counts(self) -> Iterator[tuple[Status, LaneRef, int]]:
        """Return status, place and number of everything that has not succeeded, from the counters that are kept."""
        sql = statements("find")
        due: dict[int, Counter[str]] = {}
        for lane, wait, number in self._tx.execute(sql["due"], (self._now,)):
            due.setdefault(lane, Counter())[COUNTERS[wait]] += number
        rows = self._tx.execute(sql["counts"]).fetchall()
        self._places.load(self._tx, (row[0] for row in rows))
        for lane, ready, scheduled, retrying, parked, dead in rows:
            late = due.get(lane, Counter())
            place = self._places[lane]
            yield ("parked" if self._is_held(lane) else "ready"), place, ready + late.total()
            yield "scheduled", place, scheduled - late["scheduled"]
            yield "retrying", place, retrying - late["retrying"]
            yield "parked", place, parked - late["parked"]
            yield "dead", place, dead
        for lane, number in self._tx.execute(sql["cancelled"]).fetchall():
            yield "cancelled", self._places.get(self._tx, lane), number
        for _, job, lane in self._running(()):
            if job is not None:
                yield self.status(job, lane), self._places[lane], 1

    def succeeded(self, by: Tally, wanted: Filter) -> Counter[str]:
        """Count the succeeded jobs: from the counts of their rows where these tell, else by reading them."""
        sql = statements("find")
        counts: Counter[str] = Counter()
        if by in ("status", "queue") and wanted.tenant is None and not wanted.task and wanted.dependency is None:
            for queue, number in self._tx.execute(sql["finished_counts"], {"queue": wanted.queue}):
                counts["succeeded" if by == "status" else queue] += number
            return counts
        for (jobs,) in self._tx.execute(sql["all_finished"]):
            counts.update(name_of(by, "succeeded", job) for job in unpack_jobs(jobs) if is_in(job, wanted))
        return counts

    def _unpack(self, found: tuple[int, int, int, int, int, int, bytes]) -> tuple[Job, int]:
        *row, lane, rec = found
        self._places.load(self._tx, (lane,))
        return unpack(Row(*row), rec, self._places[lane], self._leased.get(row[0])), lane


def find(tx: sqlite3.Connection, places: LaneCache, wanted: Filter, now: int, cursor: str, limit: int) -> Page:
    """Return a page of jobs."""
    return search.find(Search(tx, places, now), wanted, cursor, limit, _SHAPES)


def tally(tx: sqlite3.Connection, places: LaneCache, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
    """Count jobs by something."""
    return search.tally(Search(tx, places, now), by, wanted)


def events(tx: sqlite3.Connection, after: int, limit: int, job_id: str) -> list[tuple[int, Event]]:
    """Return events in their order."""
    sql = statements("find")
    if job_id:
        rows = tx.execute(sql["events_of"], (row_id(job_id), after, limit))
    else:
        rows = tx.execute(sql["events"], (after, limit))
    return [(seq, _decode_event(data)) for seq, data in rows]


def _lanes_of(tx: sqlite3.Connection, wanted: Filter) -> str | None:
    if not wanted.queue and wanted.tenant is None and not wanted.task and wanted.dependency is None:
        return None
    parameters = {
        "queue": wanted.queue,
        "tenant": wanted.tenant,
        "task": wanted.task,
        "dependency": wanted.dependency,
    }
    lanes = [lane for (lane,) in tx.execute(statements("find")["lanes"], parameters)]
    return msgspec.json.encode(lanes).decode()


def progress(tx: sqlite3.Connection, job_id: str) -> bytes | None:
    """Return what a running job noted of its progress."""
    found = tx.execute(statements("find")["progress"], (row_id(job_id),)).fetchone()
    return None if found is None or found[0] is None else bytes(found[0])


def result(tx: sqlite3.Connection, job_id: str) -> bytes | None:
    """Return what a job returned."""
    found = tx.execute(statements("find")["result"], (row_id(job_id),)).fetchone()
    return None if found is None else bytes(found[0])
