"""Changes carried out: each is checked against the lease or version that it guards, then all are written at once."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TypeAlias

import msgspec

from reprieve.core import change as changes_of
from reprieve.core.change import Change
from reprieve.core.duration import milliseconds
from reprieve.core.events import Event
from reprieve.core.job import CancelRequest, Job
from reprieve.core.move import Start, Succeed
from reprieve.stores.protocol import ChangeResult
from reprieve.stores.record import CANCELLED, COUNTERS, DEAD, NUMBERS, WAITING
from reprieve.stores.sqlite.annotations import cancels
from reprieve.stores.sqlite.finished import finished_jobs, keep
from reprieve.stores.sqlite.places import Places
from reprieve.stores.sqlite.rows import Place, Row, pack, split_id, unpack
from reprieve.stores.sqlite.statements import run, statements

_SILENT = (Start, Succeed)
"""Moves of the happy path, which leave no event."""

_COLUMNS = ("ready", "scheduled", "retrying", "parked", "dead")
_encode = msgspec.msgpack.Encoder().encode
_decode_lease = msgspec.msgpack.Decoder(dict[int, tuple[int, int]]).decode
_decode_event = msgspec.msgpack.Decoder(Event).decode


Released: TypeAlias = dict[int, Counter[int]]
"""Slots that tenants gave back, by queue and tenant."""


def apply(tx: sqlite3.Connection, places: Places, changes: Sequence[Change], now: int) -> list[ChangeResult]:
    """Carry out changes; each stands alone."""
    answers, released = settle(tx, places, changes, now)
    for tenants in released.values():
        release(tx, tenants)
    return answers


def release(tx: sqlite3.Connection, tenants: Counter[int]) -> None:
    """Give back tenants' slots; whoever was at its limit may go on."""
    run(tx, statements("settle")["tenants"], list(tenants.items()))


def settle(
    tx: sqlite3.Connection, places: Places, changes: Sequence[Change], now: int
) -> tuple[list[ChangeResult], Released]:
    """Carry out changes, all but the slots that tenants give back: a claim may hand them out again at once.

    A change that cannot be written is refused by itself: the batch is split until it stands alone.
    """
    if not changes:
        return [], {}
    tx.execute("savepoint settle")
    try:
        answer = _settle(tx, places, changes, now)
    except (OverflowError, TypeError, ValueError, sqlite3.IntegrityError, sqlite3.InterfaceError):
        tx.execute("rollback to settle")
        tx.execute("release settle")
        places.forget()
        if len(changes) == 1:
            return ["refused"], {}
        half = len(changes) // 2
        answers, released = settle(tx, places, changes[:half], now)
        more, also = settle(tx, places, changes[half:], now)
        for queue, tenants in also.items():
            released.setdefault(queue, Counter()).update(tenants)
        return [*answers, *more], released
    tx.execute("release settle")
    return answer


def _settle(
    tx: sqlite3.Connection, places: Places, changes: Sequence[Change], now: int
) -> tuple[list[ChangeResult], Released]:
    leases = _Leases(tx, {change.session for change in changes if change.session})
    ledger = _Ledger(tx, places, now)
    answers: list[ChangeResult] = []
    applied: dict[int, Event] = {}
    for change in changes:
        try:
            row, middle = split_id(change.job.id)
        except ValueError:  # no id at all, so no job either
            answers.append("missing")
            continue
        if row in applied:
            lane = None  # the first change of a batch is heard; whatever else it says of the same job has not seen it
        elif change.session:
            lane = leases.end(change.session, row, change.version)
        else:
            lane = _take_out(tx, places, ledger, row, change)
        if lane is None:
            is_repeated = applied.get(row) == change.event
            answers.append("already" if is_repeated else _why_not(tx, row, change))
        else:
            applied[row] = change.event
            ledger.enter((row, middle), lane, change, was_running=bool(change.session))
            answers.append("applied")
    leases.write()
    ledger.write()
    return answers, ledger.released


def bury(tx: sqlite3.Connection, places: Places, lost: Sequence[tuple[int, Job]], now: int) -> None:
    """End jobs that a claim took off their lanes and found past their deadline."""
    ledger = _Ledger(tx, places, now)
    for lane, job in lost:
        ledger.enter(split_id(job.id), lane, changes_of.expire(job, now), was_running=False)
    ledger.write()


class _Leases:
    """The leases of some sessions, from which jobs are taken."""

    def __init__(self, tx: sqlite3.Connection, sessions: Iterable[str]) -> None:
        sql = statements("settle")
        self._tx = tx
        self._rows: dict[int, dict[int, tuple[int, int]]] = {}
        self._changed: set[int] = set()
        self._of_session: dict[str, list[int]] = {}
        names = msgspec.json.encode(list(sessions)).decode()
        for session, name in tx.execute(sql["sessions"], (names,)).fetchall():
            first = session << 32
            rows = tx.execute(sql["leases"], (first, first | 0xFFFF_FFFF)).fetchall()
            self._rows |= {lease: _decode_lease(jobs) for lease, jobs in rows}
            self._of_session[name] = [lease for lease, _ in rows]

    def end(self, session: str, row: int, version: int) -> int | None:
        """Take a job out of its session's lease; answer its lane, or None when the session does not hold it so."""
        for lease in self._of_session.get(session, ()):
            held = self._rows[lease].get(row)
            if held is not None and held[1] == version:
                del self._rows[lease][row]
                self._changed.add(lease)
                return held[0]
        return None

    def write(self) -> None:
        sql = statements("settle")
        for lease in self._changed:
            if self._rows[lease]:
                self._tx.execute(sql["release"], (_encode(self._rows[lease]), lease))
            else:
                self._tx.execute(sql["release_all"], (lease,))


class _Ledger:
    """What a batch of changes writes, gathered so that each table is written once."""

    def __init__(self, tx: sqlite3.Connection, places: Places, now: int) -> None:
        self._tx = tx
        self._places = places
        self._now = now
        self.counts: dict[int, Counter[str]] = defaultdict(Counter)
        self.released: Released = defaultdict(Counter)
        self._ran: list[int] = []
        self._ran_on: dict[int, int] = {}
        self._candidates: set[int] = set()
        self._succeeded: dict[int, dict[int, Job]] = defaultdict(dict)
        self._rows: list[tuple[object, ...]] = []
        self._ready: list[tuple[int, int]] = []
        self._delayed: list[tuple[int, int, int, int, int]] = []
        self._ended: list[tuple[object, ...]] = []
        self._events: list[tuple[int, int, int, bytes]] = []
        self._results: list[tuple[int, int, bytes]] = []

    def enter(self, ids: tuple[int, bytes], lane: int, change: Change, *, was_running: bool) -> None:
        """Note one change of a job, named by the parts of its id, that was found on, or leased from, a lane."""
        job = change.job
        row, middle = ids
        if was_running:
            self._ran.append(row)
            self._ran_on[lane] = self._ran_on.get(lane, 0) + 1
        self._note(row, change.event)
        if change.result is not None:
            self._results.append((row, self._now + milliseconds(change.result_ttl), change.result))
        if was_running and job.state == "waiting" and (wish := self._wishes.get(row)) is not None:
            cancel = changes_of.give_up(change, wish)
            if cancel is not None:
                self._note(row, cancel.event)
                job = cancel.job
        if job.state == "succeeded":
            self._succeeded[self._places.at(self._tx, lane).queue_id][row] = job
            return
        target, place = self._places.of_job(self._tx, job)
        state = self._place(row, target, place, job)
        wait = NUMBERS[job.waiting_for]
        self._rows.append((row, target, state, job.version, wait, job.due_at, pack(job, row, middle)))

    @cached_property
    def _wishes(self) -> dict[int, CancelRequest]:
        """Which running jobs somebody wants cancelled: asked for only when one of them would wait again."""
        return cancels(self._tx)

    def _note(self, row: int, event: Event) -> None:
        if type(event.move) not in _SILENT:
            self._events.append((event.at, row, event.version, _encode(event)))

    def _place(self, row: int, lane: int, place: Place, job: Job) -> int:
        """Note where a job goes; answer its state."""
        wait, state = NUMBERS[job.waiting_for], WAITING
        if job.state in ("dead", "cancelled"):
            state = DEAD if job.state == "dead" else CANCELLED
            if state == DEAD:
                self.counts[lane]["dead"] += 1
            code = job.cause.code if job.cause else ""
            fingerprint = job.cause.fingerprint if job.cause else ""
            at = job.finished_at or self._now
            self._ended.append((place.queue_id, state, at, row, lane, job.death or "", code, fingerprint))
        elif job.due_at > self._now:
            wait = wait or NUMBERS["schedule"]
            self._delayed.append((place.queue_id, wait, job.due_at, row, lane))
            self.counts[lane][COUNTERS[wait]] += 1
        else:
            self._ready.append((lane, row))
            self.counts[lane]["ready"] += 1
            self._candidates.add(place.tenant_id)
        return state

    def write(self) -> None:
        """Write everything that was noted."""
        tx, sql, enqueue = self._tx, statements("settle"), statements("enqueue")
        for queue, jobs in self._succeeded.items():
            tx.execute(sql["forget"], (msgspec.json.encode(list(jobs)).decode(),))
            keep(tx, queue, jobs, self._now)
        run(tx, sql["rewrite"], self._rows)
        run(tx, enqueue["ready"], self._ready)
        run(tx, enqueue["delayed"], self._delayed)
        run(tx, sql["end"], self._ended)
        run(tx, sql["events"], self._events)
        run(tx, sql["results"], self._results)
        run(tx, sql["count"], [(lane, *(count[name] for name in _COLUMNS)) for lane, count in self.counts.items()])
        run(tx, sql["limiters"], list(self._release().items()))
        run(tx, enqueue["open"], [(lane,) for lane in {lane for lane, _ in self._ready}])
        run(tx, enqueue["make_candidates"], [(tenant,) for tenant in self._candidates])
        if self._ran and tx.execute(sql["is_marked"]).fetchone():
            tx.execute(sql["unmark"], (msgspec.json.encode(self._ran).decode(),))

    def _release(self) -> Counter[int]:
        """Note the slots that tenants give back; answer those of the limiters."""
        sql = statements("settle")
        limiters: Counter[int] = Counter()
        queues: Counter[str] = Counter()
        for lane, count in self._ran_on.items():
            place = self._places.at(self._tx, lane)
            self.released[place.queue_id][place.tenant_id] += count
            queues[place.queue] += count
            for limiter in place.limiters:
                limiters[limiter] += count
        for queue, count in queues.items():
            limiters[self._tx.execute(sql["queue_limiter"], (queue,)).fetchone()[0]] += count
        return limiters


def _take_out(tx: sqlite3.Connection, places: Places, ledger: _Ledger, row: int, change: Change) -> int | None:
    """Take a job that does not run from where it is; answer its lane, or None when it is not as the change saw it."""
    sql = statements("settle")
    found = tx.execute(sql["job"], (row,)).fetchone()
    if found is None or found[2] != change.version:
        return None
    _, state, _, wait, due, lane, rec = found
    places.load(tx, (lane,))
    queue = places[lane].queue_id
    if state == WAITING:
        if tx.execute(sql["undelay"], (queue, wait or NUMBERS["schedule"], due, row)).rowcount:
            ledger.counts[lane][COUNTERS[wait or NUMBERS["schedule"]]] -= 1
        elif tx.execute(sql["unready"], (lane, row)).rowcount:
            ledger.counts[lane]["ready"] -= 1
        else:
            return None  # somebody runs it
        return int(lane)
    job = unpack(Row(*found[:5]), rec, places[lane])
    tx.execute(sql["unend"], (queue, state, job.finished_at, row))
    if state == DEAD:
        ledger.counts[lane]["dead"] -= 1
    return int(lane)


def _why_not(tx: sqlite3.Connection, row: int, change: Change) -> ChangeResult:
    """Return why a change was not carried out."""
    sql = statements("settle")
    recorded = tx.execute(sql["event"], (row, change.event.version)).fetchall()
    if any(_decode_event(data) == change.event for (data,) in recorded):
        return "already"
    if tx.execute(sql["job"], (row,)).fetchone() is not None:
        return "refused"
    for job in finished_jobs(tx, row):
        if job.id == change.job.id:
            return "already" if job == change.job else "refused"
    return "missing"
