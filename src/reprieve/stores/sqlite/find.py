"""Looking: jobs by what is known of them, and how many there are. Read only, and a page at a time."""

import base64
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from reprieve.core.events import Event
from reprieve.core.job import Job
from reprieve.core.status import Status, status_of
from reprieve.errors import InvalidCursor
from reprieve.stores.protocol import Filter, Page, Tally
from reprieve.stores.record import COUNTERS, Lease
from reprieve.stores.sqlite.finished import finished_jobs, unpack_jobs
from reprieve.stores.sqlite.marks import cancels
from reprieve.stores.sqlite.places import Places
from reprieve.stores.sqlite.rows import Place, Row, row_id, unpack
from reprieve.stores.sqlite.statements import statements

EXAMINED = 5_000
"""Rows that one page looks at: a page may come back short, but never late."""

_decode_lease = msgspec.msgpack.Decoder(dict[int, tuple[int, int]]).decode
_decode_event = msgspec.msgpack.Decoder(Event).decode

Source: TypeAlias = Literal["living", "running", "ended", "succeeded"]
"""Where jobs are looked for."""

Step: TypeAlias = tuple[list[int], Job | None, int]
"""A key of its source, the job that stands there, and its shelf."""


class Search:
    """One look at the store."""

    def __init__(self, tx: sqlite3.Connection, places: Places, now: int) -> None:
        """Read what every look needs: who holds which job, and which gates are held."""
        sql = statements("find")
        self._tx = tx
        self._places = places
        self._now = now
        wishes = cancels(tx)
        self._leased: dict[int, Lease] = {}
        for _, name, at, jobs in tx.execute(sql["leases"]):
            self._leased |= {row: Lease(name, at, wishes.get(row)) for row in _decode_lease(jobs)}
        self._held = {gate for (gate,) in tx.execute(sql["held"])}

    def status(self, job: Job, shelf: int) -> Status:
        """Answer how a job looks to people."""
        return status_of(job, self._now, held=self._is_held(shelf))

    def _is_held(self, shelf: int) -> bool:
        return bool(self._held) and shelf > 0 and not self._held.isdisjoint(self._places[shelf].gates)

    def by_ids(self, ids: Iterable[str]) -> Iterator[tuple[Job, int]]:
        """Answer jobs by their ids, those that succeeded as well."""
        sql = statements("find")
        for job_id in ids:
            row = row_id(job_id)
            found = self._tx.execute(sql["job"], (row,)).fetchone()
            if found is not None:
                job, shelf = self._unpack(found)
                if job.id == job_id:
                    yield job, shelf
                continue
            yield from ((job, 0) for job in finished_jobs(self._tx, row) if job.id == job_id)

    def walk(self, source: Source, after: Sequence[int], wanted: Filter) -> Iterator[Step]:
        """Answer the jobs of one source after a key, each with its own key; now and then none, to take a breath."""
        match source:
            case "living":
                return self._living(after, wanted)
            case "running":
                return self._running(after)
            case "ended":
                return self._ended(after, wanted)
            case "succeeded":
                return self._succeeded(after)

    def _living(self, after: Sequence[int], wanted: Filter) -> Iterator[Step]:
        sql, last = statements("find")["jobs"], after[0] if after else -1
        shelves = _shelves_of(self._tx, wanted)
        while True:
            rows = self._tx.execute(sql, {"after": last, "most": EXAMINED, "shelves": shelves}).fetchall()
            for row in rows:
                if row[6] is not None:
                    yield [row[0]], *self._unpack(row)
            if len(rows) < EXAMINED:
                return
            last = rows[-1][0]
            yield [last], None, 0

    def _running(self, after: Sequence[int]) -> Iterator[Step]:
        sql = statements("find")["job"]
        for row in sorted(self._leased):
            if not after or row > after[0]:
                yield [row], *self._unpack(self._tx.execute(sql, (row,)).fetchone())

    def _ended(self, after: Sequence[int], wanted: Filter) -> Iterator[Step]:
        sql = statements("find")
        queue = self._tx.execute(statements("places")["queue"], (wanted.queue,)).fetchone()
        parameters = {
            "wanted": None if not wanted.queue else queue[0] if queue else -1,
            "death": wanted.death or "",
            "is_dead": wanted.statuses == {"dead"},
            "is_cancelled": wanted.statuses == {"cancelled"},
            "code": wanted.code,
            "fingerprint": wanted.fingerprint,
        }
        key = list(after) or [0, 0, 0, 0]
        while True:
            place = dict(zip(("queue", "state", "at", "id"), key, strict=True))
            keys = self._tx.execute(sql["ended"], {**parameters, **place}).fetchall()
            for found in keys:
                key = list(found)
                yield key, *self._unpack(self._tx.execute(sql["job"], (found[3],)).fetchone())
            if not keys:
                return

    def _succeeded(self, after: Sequence[int]) -> Iterator[Step]:
        sql = statements("find")["finished"]
        seq, place = after or (0, -1)
        while (found := self._tx.execute(sql, (seq,)).fetchone()) is not None:
            for number, job in enumerate(unpack_jobs(found[1])):
                if found[0] > seq or number > place:
                    yield [found[0], number], job, 0
            seq, place = found[0] + 1, -1

    def counts(self) -> Iterator[tuple[Status, int, int]]:
        """Answer status, shelf and number of everything that has not succeeded, from the counters that are kept."""
        sql = statements("find")
        due: dict[int, Counter[str]] = {}
        for shelf, wait, number in self._tx.execute(sql["due"], (self._now,)):
            due.setdefault(shelf, Counter())[COUNTERS[wait]] += number
        rows = self._tx.execute(sql["counts"]).fetchall()
        self._places.load(self._tx, (row[0] for row in rows))
        for shelf, ready, scheduled, retrying, parked, dead in rows:
            late = due.get(shelf, Counter())
            yield ("parked" if self._is_held(shelf) else "ready"), shelf, ready + late.total()
            yield "scheduled", shelf, scheduled - late["scheduled"]
            yield "retrying", shelf, retrying - late["retrying"]
            yield "parked", shelf, parked - late["parked"]
            yield "dead", shelf, dead
        for shelf, number in self._tx.execute(sql["cancelled"]).fetchall():
            yield "cancelled", shelf, number
        for _, job, shelf in self._running(()):
            if job is not None:
                yield self.status(job, shelf), shelf, 1

    def _unpack(self, found: tuple[int, int, int, int, int, int, bytes]) -> tuple[Job, int]:
        *row, shelf, rec = found
        self._places.load(self._tx, (shelf,))
        return unpack(Row(*row), rec, self._places[shelf], self._leased.get(row[0])), shelf


def find(tx: sqlite3.Connection, places: Places, wanted: Filter, now: int, cursor: str, limit: int) -> Page:
    """Answer a page of jobs."""
    search = Search(tx, places, now)
    if wanted.ids is not None:
        found = (job for job, shelf in search.by_ids(wanted.ids) if _matches(search, job, shelf, wanted))
        return Page(jobs=tuple(found))
    sources = _sources_of(wanted)
    source, after = _read_cursor(cursor, sources) if cursor else (sources[0], [])
    jobs: list[Job] = []
    examined = 0
    for current in sources[sources.index(source) :]:
        for key, job, shelf in search.walk(current, after if current == source else [], wanted):
            examined += 1
            if job is not None and _matches(search, job, shelf, wanted):
                jobs.append(job)
            if job is None or len(jobs) == limit or examined == EXAMINED:
                return Page(jobs=tuple(jobs), cursor=_write_cursor(current, key))
    return Page(jobs=tuple(jobs))


def tally(tx: sqlite3.Connection, places: Places, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
    """Count jobs by something."""
    search = Search(tx, places, now)
    counts: Counter[str] = Counter()
    if by in ("death", "code", "fingerprint") or wanted.ids is not None or _is_narrow(wanted):
        for job, shelf in _all(search, wanted):
            name = _name(by, search.status(job, shelf), job)
            if name or by not in ("death", "code", "fingerprint"):
                counts[name] += 1
    else:
        for status, shelf, number in search.counts():
            places.load(tx, (shelf,))
            place = places[shelf]
            if number and _is_in(place, wanted) and (not wanted.statuses or status in wanted.statuses):
                counts[_name(by, status, place)] += number
        if not wanted.statuses or "succeeded" in wanted.statuses:
            counts.update(_tally_succeeded(tx, by, wanted))
    return dict(counts)


def _tally_succeeded(tx: sqlite3.Connection, by: Tally, wanted: Filter) -> Counter[str]:
    """Count the succeeded jobs: from the counts of their rows where these tell, else by reading them."""
    sql = statements("find")
    counts: Counter[str] = Counter()
    if by in ("status", "queue") and wanted.tenant is None and not wanted.task and wanted.dependency is None:
        for queue, number in tx.execute(sql["finished_counts"], {"queue": wanted.queue}):
            counts["succeeded" if by == "status" else queue] += number
        return counts
    for (jobs,) in tx.execute(sql["all_finished"]):
        counts.update(_name(by, "succeeded", job) for job in unpack_jobs(jobs) if _is_in(job, wanted))
    return counts


def events(tx: sqlite3.Connection, after: int, limit: int, job_id: str) -> list[tuple[int, Event]]:
    """Answer events in their order."""
    sql = statements("find")
    if job_id:
        rows = tx.execute(sql["events_of"], (row_id(job_id), after, limit))
    else:
        rows = tx.execute(sql["events"], (after, limit))
    return [(seq, _decode_event(data)) for seq, data in rows]


def _all(search: Search, wanted: Filter) -> Iterator[tuple[Job, int]]:
    if wanted.ids is not None:
        found: Iterable[tuple[Job | None, int]] = search.by_ids(wanted.ids)
    else:
        steps = (search.walk(source, [], wanted) for source in _sources_of(wanted))
        found = ((job, shelf) for walk in steps for _, job, shelf in walk)
    for job, shelf in found:
        if job is not None and _matches(search, job, shelf, wanted):
            yield job, shelf


def _sources_of(wanted: Filter) -> list[Source]:
    """Answer the tables in which the wanted jobs can be."""
    statuses = wanted.statuses
    if wanted.death or (statuses and statuses <= {"dead", "cancelled"}):
        return ["ended"]
    if wanted.session or (statuses and statuses <= {"running", "stuck"}):
        return ["running"]
    if statuses == {"succeeded"}:
        return ["succeeded"]
    return ["living", "succeeded"] if not statuses or "succeeded" in statuses else ["living"]


def _matches(search: Search, job: Job, shelf: int, wanted: Filter) -> bool:
    cause = job.cause
    return (
        _is_in(job, wanted)
        and (not wanted.key or job.key == wanted.key)
        and (not wanted.session or job.session == wanted.session)
        and (wanted.death is None or job.death == wanted.death)
        and (not wanted.code or (cause is not None and cause.code == wanted.code))
        and (not wanted.fingerprint or (cause is not None and cause.fingerprint == wanted.fingerprint))
        and (not wanted.statuses or search.status(job, shelf) in wanted.statuses)
    )


def _is_in(place: Place | Job, wanted: Filter) -> bool:
    return (
        (not wanted.queue or place.queue == wanted.queue)
        and (wanted.tenant is None or place.tenant == wanted.tenant)
        and (not wanted.task or place.task == wanted.task)
        and (wanted.dependency is None or place.dependency == wanted.dependency)
    )


def _is_narrow(wanted: Filter) -> bool:
    return bool(wanted.key or wanted.session or wanted.death or wanted.code or wanted.fingerprint)


def _name(by: Tally, status: Status, job: Place | Job) -> str:
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


def _shelves_of(tx: sqlite3.Connection, wanted: Filter) -> str | None:
    if not wanted.queue and wanted.tenant is None and not wanted.task and wanted.dependency is None:
        return None
    parameters = {
        "queue": wanted.queue,
        "tenant": wanted.tenant,
        "task": wanted.task,
        "dependency": wanted.dependency,
    }
    shelves = [shelf for (shelf,) in tx.execute(statements("find")["shelves"], parameters)]
    return msgspec.json.encode(shelves).decode()


def _write_cursor(source: Source, key: Sequence[int]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([source, *key])).decode()


def _read_cursor(cursor: str, sources: Sequence[Source]) -> tuple[Source, list[int]]:
    try:
        source, *key = msgspec.json.decode(base64.urlsafe_b64decode(cursor.encode()), type=list[str | int])
        width = {"living": 1, "running": 1, "ended": 4, "succeeded": 2}[str(source)]
    except (ValueError, KeyError, msgspec.MsgspecError):
        source, key, width = "", [], -1
    if source not in sources or len(key) != width or not all(isinstance(part, int) for part in key):
        message = f"cursor {cursor[:80]!r} does not belong to this search; begin again without one"
        raise InvalidCursor(message)
    return sources[sources.index(source)], [int(part) for part in key]


def progress(tx: sqlite3.Connection, job_id: str) -> bytes | None:
    """Answer what a running job noted of its progress."""
    found = tx.execute(statements("find")["progress"], (row_id(job_id),)).fetchone()
    return None if found is None or found[0] is None else bytes(found[0])


def result(tx: sqlite3.Connection, job_id: str) -> bytes | None:
    """Answer what a job returned."""
    found = tx.execute(statements("find")["result"], (row_id(job_id),)).fetchone()
    return None if found is None else bytes(found[0])
