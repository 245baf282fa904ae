"""Looking: jobs by what is known of them, and how many there are. Read only, and a page at a time."""

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from reprieve.core.events import Event
from reprieve.core.job import Job
from reprieve.core.status import Status, status_of
from reprieve.errors import InvalidCursor
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.finished import finished_job, unpack_jobs
from reprieve.stores.postgres.leases import unpack_lease
from reprieve.stores.postgres.places import Places
from reprieve.stores.postgres.rows import LARGEST, Place, Row, array_of, is_id, number_of, raw, text, unpack
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Filter, Page, Tally
from reprieve.stores.record import COUNTERS, Lease

EXAMINED = 5_000
"""Rows that one page looks at: a page may come back short, but never late."""

_FIRST = "00000000-0000-0000-0000-000000000000"
_decode_event = msgspec.msgpack.Decoder(Event).decode

Source: TypeAlias = Literal["living", "running", "ended", "succeeded"]
"""Where jobs are looked for."""

Key: TypeAlias = int | str

Step: TypeAlias = tuple[list[Key], Job | None, int]
"""A key of its source, the job that stands there, and its shelf."""


class Search:
    """One look at the store."""

    def __init__(self, tx: Tx, places: Places, now: int) -> None:
        """Read what every look needs: who holds which job, and which gates are held."""
        sql = statements("find")
        self._tx = tx
        self._places = places
        self._now = now
        marks, leases, held = tx.execute(sql["marks"]), tx.execute(sql["leases"]), tx.execute(sql["held"])
        marked = {raw(job) for (job,) in marks}
        self._leased: dict[str, Lease] = {}
        for name, at, jobs in leases:
            self._leased |= {text(job): Lease(name, at, job in marked) for job in unpack_lease(jobs)}
        self._held = {gate for (gate,) in held}

    def status(self, job: Job, shelf: int) -> Status:
        """Answer how a job looks to people."""
        return status_of(job, self._now, held=self._is_held(shelf))

    def _is_held(self, shelf: int) -> bool:
        return bool(self._held) and shelf != 0 and not self._held.isdisjoint(self._places[shelf].gates)

    def by_ids(self, ids: Sequence[str]) -> Iterator[tuple[Job, int]]:
        """Answer jobs by their ids, those that succeeded as well."""
        found = {job.id: (job, shelf) for job, shelf in self._read(ids)}
        for job_id in ids:
            if job_id in found:
                yield found[job_id]
            elif (finished := finished_job(self._tx, job_id)) is not None:
                yield finished, 0

    def walk(self, source: Source, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
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

    def _living(self, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        sql, last = statements("find")["jobs"], str(after[0]) if after else _FIRST
        shelves = _shelves_of(self._tx, wanted)
        while True:
            rows = self._tx.all(sql, {"after": last, "most": EXAMINED, "shelves": shelves})
            self._places.load(self._tx, (row[5] for row in rows))
            for row in rows:
                if row[6] is not None:
                    yield [row[0]], *self._unpack(Row(*row))
            if len(rows) < EXAMINED:
                return
            last = rows[-1][0]
            yield [last], None, 0

    def _running(self, after: Sequence[Key]) -> Iterator[Step]:
        ids = sorted(job for job in self._leased if not after or job > str(after[0]))
        for job, shelf in sorted(self._read(ids), key=lambda found: found[0].id):
            yield [job.id], job, shelf

    def _ended(self, after: Sequence[Key], wanted: Filter) -> Iterator[Step]:
        sql = statements("find")
        parameters = {
            "wanted": number_of("queue", wanted.queue) if wanted.queue else None,
            "death": wanted.death or "",
            "is_dead": wanted.statuses == {"dead"},
            "is_cancelled": wanted.statuses == {"cancelled"},
            "code": wanted.code,
            "fingerprint": wanted.fingerprint,
        }
        key = list(after) or [-LARGEST - 1, 0, 0, _FIRST]
        while True:
            place = dict(zip(("queue", "state", "at", "id"), key, strict=True))
            keys = self._tx.all(sql["ended"], {**parameters, **place})
            found = {job.id: (job, shelf) for job, shelf in self._read([row[3] for row in keys])}
            for row in keys:
                key = list(row)
                if row[3] in found:
                    yield key, *found[row[3]]
            if not keys:
                return

    def _succeeded(self, after: Sequence[Key]) -> Iterator[Step]:
        sql = statements("find")["finished"]
        seq, place = (int(after[0]), int(after[1])) if after else (0, -1)
        while (found := self._tx.one(sql, {"seq": seq})) is not None:
            for number, job in enumerate(unpack_jobs(found[1])):
                if found[0] > seq or number > place:
                    yield [found[0], number], job, 0
            seq, place = found[0] + 1, -1

    def counts(self) -> Iterator[tuple[Status, int, int]]:
        """Answer status, shelf and number of everything that has not succeeded, from the counters that are kept."""
        sql = statements("find")
        due: dict[int, Counter[str]] = {}
        for shelf, wait, number in self._tx.all(sql["due"], {"now": self._now}):
            due.setdefault(shelf, Counter())[COUNTERS[wait]] += number
        rows = self._tx.all(sql["counts"])
        self._places.load(self._tx, (row[0] for row in rows))
        for shelf, ready, scheduled, retrying, parked, dead in rows:
            late = due.get(shelf, Counter())
            yield ("parked" if self._is_held(shelf) else "ready"), shelf, ready + late.total()
            yield "scheduled", shelf, scheduled - late["scheduled"]
            yield "retrying", shelf, retrying - late["retrying"]
            yield "parked", shelf, parked - late["parked"]
            yield "dead", shelf, dead
        for shelf, number in self._tx.all(sql["cancelled"]):
            yield "cancelled", shelf, number
        for _, job, shelf in self._running(()):
            if job is not None:
                yield self.status(job, shelf), shelf, 1

    def _read(self, ids: Sequence[str]) -> list[tuple[Job, int]]:
        rows = self._tx.all(statements("sessions")["jobs"], {"ids": array_of(ids)}) if ids else []
        self._places.load(self._tx, (row[5] for row in rows))
        return [self._unpack(Row(*row)) for row in rows]

    def _unpack(self, row: Row) -> tuple[Job, int]:
        return unpack(row, self._places[row.shelf], self._leased.get(row.id)), row.shelf


def find(tx: Tx, places: Places, wanted: Filter, now: int, cursor: str, limit: int) -> Page:
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


def tally(tx: Tx, places: Places, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
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


def _tally_succeeded(tx: Tx, by: Tally, wanted: Filter) -> Counter[str]:
    """Count the succeeded jobs: from the counts of their rows where these tell, else by reading them."""
    sql = statements("find")
    counts: Counter[str] = Counter()
    if by in ("status", "queue") and wanted.tenant is None and not wanted.task and wanted.dependency is None:
        for queue, number in tx.all(sql["finished_counts"], {"queue": wanted.queue}):
            counts["succeeded" if by == "status" else queue] += number
        return counts
    for (jobs,) in tx.all(sql["all_finished"]):
        counts.update(_name(by, "succeeded", job) for job in unpack_jobs(jobs) if _is_in(job, wanted))
    return counts


def events(tx: Tx, after: int, limit: int, job_id: str) -> list[tuple[int, Event]]:
    """Answer events in their order."""
    wanted = {"job": job_id or None, "after": after, "limit": limit}
    rows = tx.all(statements("find")["events_of" if job_id else "events"], wanted)
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


def _shelves_of(tx: Tx, wanted: Filter) -> list[int] | None:
    if not wanted.queue and wanted.tenant is None and not wanted.task and wanted.dependency is None:
        return None
    parameters = {
        "queue": wanted.queue,
        "tenant": wanted.tenant,
        "task": wanted.task,
        "dependency": wanted.dependency,
    }
    return [shelf for (shelf,) in tx.all(statements("find")["shelves"], parameters)]


def _write_cursor(source: Source, key: Sequence[Key]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([source, *key])).decode()


def _read_cursor(cursor: str, sources: Sequence[Source]) -> tuple[Source, list[Key]]:
    try:
        source, *key = msgspec.json.decode(base64.urlsafe_b64decode(cursor.encode()), type=list[str | int])
        kinds = {"living": [str], "running": [str], "ended": [int, int, int, str], "succeeded": [int, int]}[str(source)]
    except (ValueError, KeyError, msgspec.MsgspecError):
        source, key, kinds = "", [], [int]
    fits = [type(part) for part in key] == kinds and all(is_id(part) for part in key if isinstance(part, str))
    if source not in sources or not fits:
        message = f"cursor {cursor[:80]!r} does not belong to this search; begin again without one"
        raise InvalidCursor(message)
    return sources[sources.index(source)], key


def progress(tx: Tx, job_id: str) -> bytes | None:
    """Answer what a running job noted of its progress."""
    found = tx.one(statements("find")["progress"], {"id": job_id})
    return found[0] if found else None


def result(tx: Tx, job_id: str) -> bytes | None:
    """Answer what a job returned."""
    found = tx.one(statements("find")["result"], {"id": job_id})
    return found[0] if found else None
