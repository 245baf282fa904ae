"""Changes carried out: each is checked against the lease or version that it guards, then all are written at once."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import msgspec

from reprieve.core import change as changes_of
from reprieve.core.change import Change
from reprieve.core.duration import milliseconds
from reprieve.core.events import Event
from reprieve.core.ids import is_id
from reprieve.core.job import CancelRequest, Job
from reprieve.core.move import Start, Succeed
from reprieve.stores.postgres.annotations import cancels
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.finished import finished_job, keep
from reprieve.stores.postgres.freed import Freed
from reprieve.stores.postgres.leases import Leases
from reprieve.stores.postgres.places import Places
from reprieve.stores.postgres.rows import (
    LARGEST,
    Place,
    Row,
    array_of,
    bytes_of,
    due_of,
    names_of,
    pack,
    place_of_job,
    unpack,
)
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import ChangeResult
from reprieve.stores.record import CANCELLED, COUNTERS, DEAD, NUMBERS, WAITING

_COLUMNS = ("ready", "scheduled", "retrying", "parked", "dead")
_NOWHERE = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_LARGEST_VERSION = (1 << 31) - 1
_LONGEST_LIFE = 1 << 53
_TYPED = re.compile(r"%\((\w)\)s::(\w+)\[\]")
_encode = msgspec.msgpack.Encoder().encode
_encode_json = msgspec.json.Encoder().encode
_decode_event = msgspec.msgpack.Decoder(Event).decode


class Written(msgspec.Struct, frozen=True):
    """A change as it is written: the record of the job, or all of it if it succeeded; and the event, unless silent."""

    record: bytes
    event: bytes | None


def settle(
    tx: Tx,
    places: Places,
    changes: Sequence[Change],
    now: int,
    leases: Leases | None = None,
    freed: Freed | None = None,
) -> list[ChangeResult]:
    """Carry out changes, in a turn of ours; each stands alone, and one that cannot be written is refused by itself.

    A claim writes leases, and slots that are free again, itself: it is about to change the same rows.
    """
    if not changes:
        return []
    is_claim = freed is not None
    freed = freed or Freed()
    leases = leases or Leases(tx)
    leases.load({change.session for change in changes if change.session})
    resting = _Resting(tx, places, changes)
    book = Book(tx, places, now, freed)
    answers: list[ChangeResult] = []
    applied: dict[str, Event] = {}
    for change in changes:
        job_id = change.job.id
        if not is_id(job_id):
            answers.append("missing")
            continue
        written = write(change)
        if written is None:
            answers.append("refused")
            continue
        if job_id in applied:
            lane = None  # the first change of a batch is heard; whatever else it says of the same job has not seen it
        elif change.session:
            lane = leases.end(change.session, job_id, change.version)
        else:
            lane = resting.take_out(change, book)
        if lane is None:
            is_repeated = applied.get(job_id) == change.event
            answers.append("already" if is_repeated else _why_not(tx, change))
        else:
            applied[job_id] = change.event
            book.enter(lane, change, written)
            answers.append("applied")
    book.write()
    if not is_claim:
        freed.write(tx)
        leases.delete(leases.write())
    return answers


def bury(tx: Tx, places: Places, lost: Sequence[tuple[int, Job]], now: int) -> None:
    """End jobs that a claim took off their lanes and found past their deadline."""
    book = Book(tx, places, now, Freed())
    for lane, job in lost:
        change = changes_of.expire(job, now)
        book.enter(lane, change, Written(pack(change.job), _encode(change.event)))
    book.write()


def write(change: Change) -> Written | None:
    """Write a change down; None when no row can hold it, so that nothing that others say suffers from it."""
    job = change.job
    if not 0 <= job.version <= _LARGEST_VERSION:
        return None
    try:
        if change.result is not None and milliseconds(change.result_ttl) > _LONGEST_LIFE:
            return None
        if type(change.event.move) is Succeed:
            return Written(_encode(job), None)
        record, event = pack(job), _encode(change.event)
        cause = (job.cause.code, job.cause.fingerprint) if job.cause else ()
        texts = (job.death or "", *cause, job.queue, job.tenant, job.task, job.dependency, job.group)
        is_text = b"\0" not in "".join(texts).encode()
    except (OverflowError, TypeError, ValueError):
        return None
    numbers = (job.due_at, job.finished_at or 0, job.priority, change.event.at, change.event.version)
    if not is_text or not all(-LARGEST <= number <= LARGEST for number in numbers):
        return None
    return Written(record, None if type(change.event.move) is Start else event)


class Book:
    """What a batch of changes writes, gathered so that each table is written once."""

    def __init__(self, tx: Tx, places: Places, now: int, freed: Freed) -> None:
        """Begin with nothing; slots that are free again are noted elsewhere."""
        self._tx = tx
        self._places = places
        self._now = now
        self._freed = freed
        self._counts: dict[int, Counter[str]] = defaultdict(Counter)
        self._backs: dict[int, str] = {}
        self._ran_on: Counter[int] = Counter()
        self._ringing: set[int] = set()
        self._made: dict[int, Place] = {}
        self._succeeded: dict[int, list[tuple[str, bytes]]] = defaultdict(list)
        self._rows: list[tuple[object, ...]] = []
        self._ready: list[tuple[int, str]] = []
        self._delayed: list[tuple[int, int, int, str, int]] = []
        self._ended: list[tuple[object, ...]] = []
        self._events: list[tuple[int, str, int, bytes]] = []
        self._results: list[tuple[str, int, bytes]] = []
        self.unready: list[tuple[int, str]] = []
        self.undelayed: list[tuple[int, int, int, str]] = []
        self.unended: list[tuple[int, int, int, str]] = []

    def leave(self, lane: int, counter: str) -> None:
        """Count a job that leaves where it was."""
        self._counts[lane][counter] -= 1
        self._freed.is_moved = True

    def enter(self, lane: int, change: Change, written: Written) -> None:
        """Note one change of a job that was found on, or leased from, a lane."""
        job = change.job
        if change.session:
            self._freed.jobs.append(job.id)
            self._ran_on[lane] += 1
        if change.result is not None:
            self._results.append((job.id, self._now + milliseconds(change.result_ttl), change.result))
        if job.state == "succeeded":
            self._succeeded[self._places.at(self._tx, lane).queue_id].append((job.id, written.record))
            return
        self._note(change, written)
        if change.session and job.state == "waiting":
            change, written = self._give_up(change, written)
            job = change.job
        place = place_of_job(job)
        if place.lane != lane:
            self._made[place.lane] = place
        state = self._put(place, job)
        row = (job.id, place.lane, due_of(job), job.version, state, NUMBERS[job.waiting_for], written.record)
        self._rows.append(row)

    def _note(self, change: Change, written: Written) -> None:
        if written.event is not None:
            self._events.append((change.event.at, change.job.id, change.event.version, written.event))

    def _give_up(self, made: Change, written: Written) -> tuple[Change, Written]:
        """Cancel a job that would wait again, if somebody asked it to stop."""
        wish = self._wishes.get(made.job.id)
        cancel = None if wish is None else changes_of.give_up(made, wish)
        record = None if cancel is None else write(cancel)
        if cancel is None or record is None:
            return made, written
        self._note(cancel, record)
        return cancel, record

    @cached_property
    def _wishes(self) -> dict[str, CancelRequest]:
        """Which running jobs somebody wants cancelled: asked for only when one of them would wait again."""
        return cancels(self._tx) if self._freed.has_wishes else {}

    def _put(self, place: Place, job: Job) -> int:
        """Note where a job goes; answer its state."""
        count = self._counts[place.lane]
        if job.state in ("dead", "cancelled"):
            state = DEAD if job.state == "dead" else CANCELLED
            if state == DEAD:
                count["dead"] += 1
            code = job.cause.code if job.cause else ""
            fingerprint = job.cause.fingerprint if job.cause else ""
            at = job.finished_at or self._now
            self._ended.append((place.queue_id, state, at, job.id, place.lane, job.death or "", code, fingerprint))
            return state
        if job.due_at > self._now:
            wait = NUMBERS[job.waiting_for] or NUMBERS["schedule"]
            self._delayed.append((place.queue_id, wait, job.due_at, job.id, place.lane))
            self._freed.delayed.append((place.queue_id, job.due_at))
            count[COUNTERS[wait]] += 1
        else:
            self._ready.append((place.lane, job.id))
            self._freed.is_moved = True
            count["ready"] += 1
            self._backs[place.lane] = min(job.id, self._backs.get(place.lane, _NOWHERE))
            self._ringing.add(place.tenant_id)
        return WAITING

    def write(self) -> None:
        """Write everything that was noted, but slots."""
        tx, sql = self._tx, statements("settle")
        if self._made:
            tx.execute(
                statements("places")["make"],
                {"lanes": _encode_json([names_of(place) for place in self._made.values()]).decode()},
            )
        for queue, jobs in self._succeeded.items():
            keep(tx, queue, jobs, self._now)
        for name, rows in (
            ("unready", self.unready),
            ("undelay", self.undelayed),
            ("unend", self.unended),
            ("rewrite", self._rows),
            ("ready", self._ready),
            ("delay", self._delayed),
            ("end", self._ended),
            ("events", self._events),
            ("results", self._results),
        ):
            if rows:
                run(tx, sql[name], rows)
        if self._counts:
            counts = [
                {
                    "id": lane,
                    "back": self._backs.get(lane, _NOWHERE),
                    **{name: count[name] for name in _COLUMNS},
                }
                for lane, count in self._counts.items()
            ]
            tx.execute(sql["count"], {"rows": _encode_json(counts).decode()})
            self._freed.counted.update(self._counts)
        if self._ringing:
            tx.execute(sql["ring"], {"tenants": array_of(self._ringing)})
        self._places.load(tx, self._ran_on)
        for lane, count in self._ran_on.items():
            self._freed.add(self._places[lane], count)


def run(tx: Tx, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Run a statement on many rows at once, which it takes as columns `a`, `b` … of the types that it states."""
    columns = zip(_columns(statement), zip(*rows, strict=True), strict=True)
    tx.execute(statement, {name: _column(kind, values) for (name, kind), values in columns})


@cache
def _columns(statement: str) -> list[tuple[str, str]]:
    """Return the names and the types of the columns that a statement takes, in their order."""
    return sorted(set(_TYPED.findall(statement)))


def _column(kind: str, values: Sequence[Any]) -> str | list[Any]:
    """Write a column as the database reads it quickest; texts that may hold anything are left to the driver."""
    if kind == "bytea":
        return bytes_of(values)
    return list(values) if kind == "text" else array_of(values)


class _Resting:
    """Jobs that do not run, as a batch of changes found them."""

    def __init__(self, tx: Tx, places: Places, changes: Sequence[Change]) -> None:
        self._places = places
        ids = [change.job.id for change in changes if not change.session and is_id(change.job.id)]
        rows = tx.all(statements("settle")["resting"], {"ids": array_of(ids)}) if ids else []
        places.load(tx, (row[5] for row in rows))
        self._rows: Mapping[str, tuple[Row, str]] = {row[0]: (Row(*row[:7]), row[7]) for row in rows}

    def take_out(self, change: Change, book: Book) -> int | None:
        """Take a job from where it is; answer its lane, or None when it is not as the change saw it."""
        row, where = self._rows.get(change.job.id, (None, ""))
        if row is None or row.version != change.version or where == "running":
            return None
        place = self._places[row.lane]
        match where:
            case "ready":
                book.leave(row.lane, "ready")
                book.unready.append((row.lane, row.id))
            case "fresh":
                book.leave(row.lane, "ready")
            case "delayed":
                wait = row.wait or NUMBERS["schedule"]
                book.leave(row.lane, COUNTERS[wait])
                book.undelayed.append((place.queue_id, wait, unpack(row, place).due_at, row.id))
            case _:
                at = unpack(row, place).finished_at or 0
                book.unended.append((place.queue_id, row.state, at, row.id))
                if row.state == DEAD:
                    book.leave(row.lane, "dead")
        return row.lane


def _why_not(tx: Tx, change: Change) -> ChangeResult:
    """Return why a change was not carried out."""
    sql = statements("settle")
    wanted = {"id": change.job.id, "version": change.event.version}
    recorded = tx.all(sql["event"], wanted) if -LARGEST <= change.event.version <= LARGEST else []
    if any(_decode_event(data) == change.event for (data,) in recorded):
        return "already"
    if tx.one(sql["exists"], wanted) is not None:
        return "refused"
    job = finished_job(tx, change.job.id)
    if job is None:
        return "missing"
    return "already" if job == change.job else "refused"
