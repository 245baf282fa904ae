"""Looking: jobs by what is known of them, and how many there are. Read only, and a page at a time."""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from reprieve.core.events import Event
from reprieve.core.ids import id_from_bytes, is_id
from reprieve.core.job import Job
from reprieve.core.status import Status, status_of
from reprieve.stores import search
from reprieve.stores.postgres.annotations import cancels
from reprieve.stores.postgres.finished import finished_job, unpack_jobs
from reprieve.stores.postgres.lane_cache import LaneCache
from reprieve.stores.postgres.lane_ref import LaneRef, hash_id
from reprieve.stores.postgres.leases import unpack_lease
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import MAX_INT8, JobRow, array_of, unpack
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Filter, Page, Tally
from reprieve.stores.record import COUNTERS, Lease
from reprieve.stores.search import EXAMINED, Key, Source, Step, has_part, is_in, is_number, name_of

_SHAPES: search.Shapes = {
    "living": [is_id],
    "running": [is_id],
    "ended": [is_number, is_number, is_number, is_id],
    "succeeded": [is_number] * 2,
}
_FIRST = "00000000-0000-0000-0000-000000000000"
_LAST = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_decode_event = msgspec.msgpack.Decoder(Event).decode


class Search:
    """One look at the store."""

    def __init__(self, tx: Tx, lanes: LaneCache, now: int) -> None:
        """Read what every look needs: who holds which job, and which limiters are held."""
        sql = statements("find")
        self._tx = tx
        self._lanes = lanes
        self._now = now
        leases, held = tx.execute(sql["leases"]), tx.execute(sql["held"])
        wishes = cancels(tx)
        self._leased: dict[str, Lease] = {}
        for name, at, packed in leases.all():
            self._leased |= {job: Lease(name, at, wishes.get(job)) for job in map(id_from_bytes, unpack_lease(packed))}
        self._held = {limiter for (limiter,) in held.all()}

    def status(self, job: Job, lane: int) -> Status:
        """Return how a job looks to people."""
        return status_of(job, self._now, held=self._is_held(lane))

    def _is_held(self, lane: int) -> bool:
        return bool(self._held) and lane != 0 and not self._held.isdisjoint(self._lanes[lane].limiters)

    def by_ids(self, ids: Sequence[str]) -> Iterator[tuple[Job, int]]:
        """Return jobs by their ids, those that succeeded as well."""
        found = {job.id: (job, lane) for job, lane in self._read(ids)}
        for job_id in ids:
            if job_id in found:
                yield found[job_id]
            elif (finished := finished_job(self._tx, job_id)) is not None:
                yield finished, 0

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
        last = str(after[0]) if after else _LAST if wanted.newest_first else _FIRST
        lanes = _lanes_of(self._tx, wanted)
        while True:
            rows = self._tx.all(sql, {"after": last, "most": EXAMINED, "lanes": lanes})
            self._lanes.load(self._tx, (row[5] for row in rows))
            for row in rows:
                if row[6] is not None and has_part(row[0].replace("-", ""), wanted.id_parts):
                    yield [row[0]], *self._unpack(JobRow(*row))
            if len(rows) < EXAMINED:
                return
            last = rows[-1][0]
            yield [last], None, 0

    def _running(self, after: Sequence[Key], *, newest_first: bool = False) -> Iterator[Step]:
        last = str(after[0]) if after else None
        ids = [job for job in self._leased if last is None or (job < last if newest_first else job > last)]
        for job, lane in sorted(self._read(ids), key=lambda found: found[0].id, reverse=newest_first):
            yield [job.id], job, lane

    def _ended(self, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        sql = statements("find")
        parameters = {
            "wanted": hash_id("queue", wanted.queue) if wanted.queue else None,
            "death": wanted.death or "",
            "is_dead": wanted.statuses == {"dead"},
            "is_cancelled": wanted.statuses == {"cancelled"},
            "code": wanted.code,
            "fingerprint": wanted.fingerprint,
        }
        first: list[Key] = [MAX_INT8, 9, MAX_INT8, _LAST] if wanted.newest_first else [-MAX_INT8 - 1, 0, 0, _FIRST]
        key = list(after) or first
        statement = sql["ended_newest" if wanted.newest_first else "ended"]
        while True:
            place = dict(zip(("queue", "state", "at", "id"), key, strict=True))
            keys = self._tx.all(statement, {**parameters, **place})
            found = {job.id: (job, lane) for job, lane in self._read([row[3] for row in keys])}
            for row in keys:
                key = list(row)
                if row[3] in found:
                    yield key, *found[row[3]]
            if not keys:
                return

    def _succeeded(self, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        sql = statements("find")["finished"]
        seq, place = (int(after[0]), int(after[1])) if after else (0, -1)
        if not after and wanted.finished_since is not None:
            older = self._tx.one(statements("find")["finished_before"], {"since": wanted.finished_since})
            seq = 0 if older is None else older[0] + 1
        while (found := self._tx.one(sql, {"seq": seq})) is not None:
            for number, job in enumerate(unpack_jobs(found[1])):
                if found[0] > seq or number > place:
                    yield [found[0], number], job, 0
            seq, place = found[0] + 1, -1

    def _newest_succeeded(self, after: Sequence[Key]) -> Iterator[Step]:
        sql = statements("find")["finished_newest"]
        seq, place = (int(after[0]), int(after[1])) if after else (MAX_INT8, 0)
        while (found := self._tx.one(sql, {"seq": seq})) is not None:
            for number, job in reversed(list(enumerate(unpack_jobs(found[1])))):
                if found[0] < seq or number < place:
                    yield [found[0], number], job, 0
            seq, place = found[0] - 1, MAX_INT8

    def counts(self) -> Iterator[tuple[Status, LaneRef, int]]:
        """Return status, place and number of everything that has not succeeded, from the counters that are kept."""
        sql = statements("find")
        due: dict[int, Counter[str]] = {}
        for lane, wait, number in self._tx.all(sql["due"], {"now": self._now}):
            due.setdefault(lane, Counter())[COUNTERS[wait]] += number
        rows = self._tx.all(sql["counts"])
        self._lanes.load(self._tx, (row[0] for row in rows))
        for lane, ready, scheduled, retrying, parked, dead in rows:
            late = due.get(lane, Counter())
            place = self._lanes[lane]
            yield ("parked" if self._is_held(lane) else "ready"), place, ready + late.total()
            yield "scheduled", place, scheduled - late["scheduled"]
            yield "retrying", place, retrying - late["retrying"]
            yield "parked", place, parked - late["parked"]
            yield "dead", place, dead
        for lane, number in self._tx.all(sql["cancelled"]):
            yield "cancelled", self._lanes.get(self._tx, lane), number
        for _, job, lane in self._running(()):
            if job is not None:
                yield self.status(job, lane), self._lanes[lane], 1

    def succeeded(self, by: Tally, wanted: Filter) -> Counter[str]:
        """Count the succeeded jobs: from the counts of their rows where these tell, else by reading them."""
        sql = statements("find")
        counts: Counter[str] = Counter()
        if by in ("status", "queue") and wanted.tenant is None and not wanted.task and wanted.dependency is None:
            for queue, number in self._tx.all(sql["finished_counts"], {"queue": wanted.queue}):
                counts["succeeded" if by == "status" else queue] += number
            return counts
        for (jobs,) in self._tx.all(sql["all_finished"]):
            counts.update(name_of(by, "succeeded", job) for job in unpack_jobs(jobs) if is_in(job, wanted))
        return counts

    def _read(self, ids: Sequence[str]) -> list[tuple[Job, int]]:
        rows = self._tx.all(statements("sessions")["jobs"], {"ids": array_of(ids)}) if ids else []
        self._lanes.load(self._tx, (row[5] for row in rows))
        return [self._unpack(JobRow(*row)) for row in rows]

    def _unpack(self, row: JobRow) -> tuple[Job, int]:
        return unpack(row, self._lanes[row.lane], self._leased.get(row.id)), row.lane


def find(tx: Tx, lanes: LaneCache, wanted: Filter, now: int, cursor: str, limit: int) -> Page:
    """Return a page of jobs."""
    return search.find(Search(tx, lanes, now), wanted, cursor, limit, _SHAPES)


def tally(tx: Tx, lanes: LaneCache, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
    """Count jobs by something."""
    return search.tally(Search(tx, lanes, now), by, wanted)


def events(tx: Tx, after: int, limit: int, job_id: str) -> list[tuple[int, Event]]:
    """Return events in their order."""
    wanted = {"job": job_id or None, "after": after, "limit": limit}
    rows = tx.all(statements("find")["events_of" if job_id else "events"], wanted)
    return [(seq, _decode_event(data)) for seq, data in rows]


def _lanes_of(tx: Tx, wanted: Filter) -> list[int] | None:
    if not wanted.queue and wanted.tenant is None and not wanted.task and wanted.dependency is None:
        return None
    parameters = {
        "queue": wanted.queue,
        "tenant": wanted.tenant,
        "task": wanted.task,
        "dependency": wanted.dependency,
    }
    return [lane for (lane,) in tx.all(statements("find")["lanes"], parameters)]


def progress(tx: Tx, job_id: str) -> bytes | None:
    """Return what a running job noted of its progress."""
    found = tx.one(statements("find")["progress"], {"id": job_id})
    return found[0] if found else None


def result(tx: Tx, job_id: str) -> bytes | None:
    """Return what a job returned."""
    found = tx.one(statements("find")["result"], {"id": job_id})
    return found[0] if found else None
