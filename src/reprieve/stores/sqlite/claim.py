"""The claim, in one transaction: settle, and lease jobs from each queue in turn.

The outline of a claim from one queue is `_QueueClaim.take`; docs/extend/claim.md explains the steps on all stores.
"""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from reprieve.core.fairness.candidates import Capacity
from reprieve.core.fairness.choice import Choice
from reprieve.core.fairness.settings import DEFAULTS
from reprieve.core.fairness.updates import (
    LimiterUpdate,
    TenantUpdate,
    lane_updates,
    limiter_updates,
    tenant_updates,
)
from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.stores.event_record import pack_started
from reprieve.stores.protocol import Claim, Claimed
from reprieve.stores.record import LANE_COUNTERS, Lease, lease_model
from reprieve.stores.sql.claim import LastClaim, pack_last_claim, repeated, require_session
from reprieve.stores.sql.series import add_deltas
from reprieve.stores.sql.sessions import capacity_of
from reprieve.stores.sqlite import settle
from reprieve.stores.sqlite.candidates import Candidates, LimiterRow, QueueRow, read_exclusion, read_queue
from reprieve.stores.sqlite.expiring import remove_expiring
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.leases import pack_lease
from reprieve.stores.sqlite.name_counts import count_names
from reprieve.stores.sqlite.rows import Row, copy, is_fresh, order_at, read_job, ready_at, row_id, unpack
from reprieve.stores.sqlite.sessions import held
from reprieve.stores.sqlite.statements import run, statements
from reprieve.stores.sqlite.tx import SqliteTx
from reprieve.stores.sqlite.write_batch import Released

SMALL_BATCH_JOBS = 4
"""Lanes that give at most so many jobs are read apart from the others: the limit of a read is that of its largest."""


class TakenRow(Row, array_like=True, frozen=True):
    """A job's row that a claim took, and how long its record is among those that were read with it."""

    lane: int
    length: int
    at: int
    """Where it stood in its lane."""


class DueRow(msgspec.Struct, array_like=True, frozen=True):
    """A job whose time has come."""

    wait: int
    due: int
    id: int
    lane: int


_decode_taken = msgspec.json.Decoder(list[TakenRow]).decode
_decode_due = msgspec.json.Decoder(list[DueRow]).decode


class SessionRow(NamedTuple):
    """The session that claims."""

    id: int
    last_claim: int
    last_results: bytes | None
    is_alive: bool
    offers: str
    """What the live sessions run and fetch ahead, by the queues that they serve: see `sql.sessions.capacity_of`."""


def claim(tx: sqlite3.Connection, lanes: LaneCache, request: Claim) -> Claimed:
    """Settle the changes of a session and lease jobs to it; a call that is repeated returns what it returned before."""
    lanes.trim()
    sql = statements("claim")
    row = tx.execute(sql["session"], {"session": request.session}).fetchone()
    session = require_session(None if row is None else SessionRow(*row), request)
    if request.number == session.last_claim:
        return _repeat(tx, lanes, session, request)
    if request.starts and session.is_alive:
        _tell_starts(tx, request.starts)
    results, released = settle.settle(tx, lanes, request.changes, request.now)
    leased: list[Job] = []
    next_at = None
    if session.is_alive and request.limit > 0:
        leased, next_at = _lease(tx, lanes, request, session, released)
    for tenants in released.values():
        settle.release(tx, tenants)
    if request.series:
        add_deltas(SqliteTx(tx), statements("series"), request.series)
    if request.changes or leased or request.series or request.starts:
        # A call that did nothing can be repeated as it is; recording it would wake every worker that waits.
        tx.execute(sql["called"], (request.number, pack_last_claim(LastClaim(results, next_at)), session.id))
    return Claimed(results=tuple(results), jobs=tuple(leased), next_at=next_at)


def _tell_starts(tx: sqlite3.Connection, jobs: Sequence[Job]) -> None:
    """Add the starts of leased jobs to the events."""
    events = [(job.leased_at, row_id(job.id), job.version, pack_started(job)) for job in jobs]
    run(tx, statements("settle")["events"], events)


def _repeat(tx: sqlite3.Connection, lanes: LaneCache, session: SessionRow, request: Claim) -> Claimed:
    """Return what the session's last claim returned."""
    number = session.last_claim
    # A dead session learns what became of its changes; its jobs belong to other sessions.
    jobs = held(tx, lanes, session.id, request.session, since=number, up_to=number) if session.is_alive else []
    return repeated(session.last_results, jobs)


def _lease(
    tx: sqlite3.Connection, lanes: LaneCache, request: Claim, session: SessionRow, released: Released
) -> tuple[list[Job], int | None]:
    """Take jobs from each queue in turn; return them, and the next moment at which there may be more."""
    jobs: list[Job] = []
    moments: list[int] = []
    leases: dict[int, tuple[int, int]] = {}
    for name in request.queues:
        queue = read_queue(tx, name) if len(jobs) < request.limit else None
        if queue is not None:
            work = _QueueClaim(tx, lanes, request, queue, capacity_of(session.offers, name))
            jobs += work.take(request.limit - len(jobs), released)
            moments += work.moments
            leases |= work.leases
    if leases:
        tx.execute(statements("claim")["lease"], (session.id << 32 | request.number, request.now, pack_lease(leases)))
    if len(jobs) >= request.limit:
        return jobs, request.now
    return jobs, min(moments, default=None)


class _QueueClaim:
    """The part of a claim that concerns one queue."""

    def __init__(
        self, tx: sqlite3.Connection, lanes: LaneCache, request: Claim, queue: QueueRow, capacity: Capacity
    ) -> None:
        self.tx = tx
        self.sql = statements("claim")
        self.lanes = lanes
        self.now = request.now
        self.session = request.session
        self.exclusion = read_exclusion(tx, request.exclude, request.number)
        self.queue = queue
        self.capacity = capacity
        self.moments: list[int] = []
        """When there may be more to claim."""
        self.leases: dict[int, tuple[int, int]] = {}
        """The lane and the version of each job that was leased."""

    def take(self, limit: int, released: Released) -> list[Job]:
        """Lease up to so many jobs of the queue."""
        due_until = self._due_until()
        self._promote(limit, due_until)
        self._return_blocked_lanes()
        self._return_blocked_tenants()
        choice = self._choose(limit, Candidates(self.tx, self.queue.queue, released, self.exclusion))
        jobs, expired = self._take_picks(choice)
        for lane, _ in expired:
            choice.give_back(self.lanes[lane].tenant_id, choice.taken[lane])
        self._write_back(choice)
        if expired:
            settle.bury(self.tx, self.lanes, expired, self.now)
        self._note_moments(choice, due_until, is_done=len(jobs) < limit, is_cut=bool(expired))
        return jobs

    def _due_until(self) -> dict[str, int]:
        """Return up to when scheduled jobs and retries are due; 0 while they are paused."""
        pauses = self.queue.pauses
        return {"schedule": 0 if pauses & 1 else self.now, "retry": 0 if pauses & 2 else self.now}

    def _promote(self, limit: int, due_until: dict[str, int]) -> None:
        """Move due jobs to their lanes."""
        queue, enqueue = self.queue.queue, statements("enqueue")
        parameters = {"queue": queue, "now": self.now, "limit": max(50, 2 * limit), **due_until}
        due = _decode_due(self.tx.execute(self.sql["due"], parameters).fetchone()[0])
        if not due:
            return
        run(self.tx, self.sql["undelay"], [(queue, row.wait, row.due, row.id) for row in due])
        self.lanes.load(self.tx, {row.lane for row in due})
        run(self.tx, enqueue["ready"], [(row.lane, self._order_at(row), row.id) for row in due])
        counts: dict[int, Counter[Status]] = defaultdict(Counter)
        for row in due:
            counts[row.lane][LANE_COUNTERS[row.wait]] += 1
        promoted = [
            (lane, *(count[name] for name in ("scheduled", "retrying", "parked"))) for lane, count in counts.items()
        ]
        run(self.tx, self.sql["promote"], promoted)
        moved = {
            lane: {"ready": count.total(), **{name: -number for name, number in count.items()}}
            for lane, count in counts.items()
        }
        count_names(self.tx, self.lanes, moved)
        run(self.tx, enqueue["open"], [(lane,) for lane in counts])
        tenants = {self.lanes[lane].tenant_id for lane in counts}
        run(self.tx, enqueue["make_candidates"], [(tenant,) for tenant in tenants])

    def _order_at(self, row: DueRow) -> int:
        """Return what orders a due job in its lane."""
        lane = self.lanes[row.lane]
        stored = read_job(self.tx, row.id) if lane.is_by_sla else None
        return ready_at(row.id, row.due) if stored is None else order_at(unpack(stored, stored.record, lane), row.id)

    def _return_blocked_lanes(self) -> None:
        """Open lanes behind limiters that have room again, of one tenant more than there is room for."""
        rows = self.tx.execute(self.sql["reopening_limiters"], (self.now,)).fetchall()
        for row in [LimiterRow(*columns) for columns in rows]:
            limiter = row.limits()
            room = limiter.room(self.now)
            last, reopens_at = row.last_returned_tenant, limiter.reopens_at(self.now)
            if room != 0:
                count = DEFAULTS.max_returning_tenants if room is None else room + 1
                last = self._return_lanes_of(row, min(DEFAULTS.max_returning_tenants, count))
                blocked = self.tx.execute(self.sql["tenants_of_blocked_lanes"], (row.id, 0, 1)).fetchone()
                reopens_at = None if blocked is None else 0
            written = {"limiter": row.id, "last_returned_tenant": last, "reopens_at": reopens_at}
            self.tx.execute(self.sql["limiter_returned"], written)

    def _return_lanes_of(self, limiter: LimiterRow, count: int) -> int:
        """Open the blocked lanes of so many tenants, the next after the last that returned; return the new last."""
        last = limiter.last_returned_tenant
        tenants = [row[0] for row in self.tx.execute(self.sql["tenants_of_blocked_lanes"], (limiter.id, last, count))]
        if len(tenants) < count:
            more = self.tx.execute(self.sql["tenants_of_blocked_lanes"], (limiter.id, 0, count - len(tenants)))
            tenants += [row[0] for row in more if row[0] <= last]
        self.tx.execute(self.sql["return_lanes"], (limiter.id, msgspec.json.encode(tenants).decode()))
        run(self.tx, statements("enqueue")["make_candidates"], [(tenant,) for tenant in tenants])
        return tenants[-1] if tenants else 0

    def _return_blocked_tenants(self) -> None:
        """Make tenants candidates again whose rate has room."""
        self.tx.execute(self.sql["return_tenants"], (self.now,))

    def _choose(self, limit: int, candidates: Candidates) -> Choice:
        """Choose the jobs to take, reading more only where the choice depends on it."""
        choice = Choice(self.queue.state(), self.queue.limits(), capacity=self.capacity, now=self.now)
        need = "tenants"
        while need:
            if need == "tenants":
                choice.add(*candidates.read(limit + 2, choice.read_up_to))
            else:
                choice.weights = candidates.weights()
            need = choice.run(limit) or ""
        choice.finish()
        return choice

    def _take_picks(self, choice: Choice) -> tuple[list[Job], list[tuple[int, Job]]]:
        """Take the picked jobs off their lanes; return those to run, and by lane those past their deadline."""
        rows = self._read_picks(choice)
        self.lanes.load(self.tx, rows)
        taken = [(lane.id, row.at, row.id) for lane in choice.taken.values() for row, _ in rows[lane.id][: lane.taken]]
        run(self.tx, self.sql["take_off"], taken)
        lease = Lease(self.session, self.now)
        models = {lane: lease_model(self.lanes[lane].model, lease) for lane in rows}
        next_of = {lane: iter(found) for lane, found in rows.items()}
        jobs: list[Job] = []
        expired: list[tuple[int, Job]] = []
        expiring: list[tuple[int, int]] = []
        for pick in choice.picks:
            lane = pick.id
            row, record = next(next_of[lane])
            job = copy(models[lane], row, record)
            if (row.version or job.deadline_at is not None) and not is_fresh(row) and job.expires_at is not None:
                expiring.append((job.expires_at, row.id))
            if job.deadline_at is not None and job.deadline_at <= self.now:
                expired.append((lane, unpack(row, record, self.lanes[lane])))
            else:
                self.leases[row.id] = (lane, job.version)
                jobs.append(job)
        remove_expiring(self.tx, expiring)
        return jobs, expired

    def _read_picks(self, choice: Choice) -> dict[int, list[tuple[TakenRow, bytes]]]:
        """Read the first jobs of each lane that was picked, with their records."""
        found: dict[int, list[tuple[TakenRow, bytes]]] = {lane: [] for lane in choice.taken}
        few = [lane for lane in choice.taken.values() if lane.taken <= SMALL_BATCH_JOBS]
        many = [lane for lane in choice.taken.values() if lane.taken > SMALL_BATCH_JOBS]
        for lanes in (few, many):
            if lanes:
                wanted = msgspec.json.encode([lane.id for lane in lanes]).decode()
                most = max(lane.taken for lane in lanes)
                heads, records = self.tx.execute(self.sql["first_jobs"], (wanted, most)).fetchone()
                start = 0
                for row in _decode_taken(heads):
                    end = start + row.length
                    found[row.lane].append((row, records[start:end]))
                    start = end
        return found

    def _write_back(self, choice: Choice) -> None:
        """Write the lanes, tenants, limiters and the queue as the choice left them."""
        lanes = lane_updates(choice)
        run(self.tx, self.sql["count_taken"], [(lane.id, lane.taken) for lane in lanes if lane.taken])
        count_names(self.tx, self.lanes, {lane.id: {"ready": -lane.taken} for lane in lanes if lane.taken})
        moved = [(lane.id, lane.is_open, lane.blocked_by, lane.served) for lane in lanes if lane.served is not None]
        run(self.tx, self.sql["lanes"], moved)
        run(self.tx, self.sql["tenants"], [_columns(tenant) for tenant in tenant_updates(choice)])
        run(self.tx, self.sql["limiters_taken"], [_columns(limiter) for limiter in limiter_updates(choice)])
        if choice.picks:
            state = msgspec.structs.astuple(choice.state)
            self.tx.execute(self.sql["queue_state"], (*state, self.queue.queue))

    def _note_moments(self, choice: Choice, due_until: dict[str, int], *, is_done: bool, is_cut: bool) -> None:
        """Note when there may be more; `is_done` says that the queue has no more for now."""
        moments = [self.now if choice.is_cut or is_cut else None, choice.ceiling_until]
        if choice.tenants:
            moments.append(choice.queue.reopens_at(self.now))
        if is_done:
            if self.exclusion is not None:
                moments.append(self.exclusion.next_at(self.now, has_picks=bool(choice.picks)))
            moments += self.tx.execute(self.sql["next_due"], {"queue": self.queue.queue, **due_until}).fetchone()
            moments += self.tx.execute(self.sql["next_reopening"]).fetchone()
        self.moments += [moment for moment in moments if moment is not None]


def _columns(update: TenantUpdate | LimiterUpdate) -> tuple[object, ...]:
    """Return an update as columns, its meter as text."""
    *columns, meter = msgspec.structs.astuple(update)
    return *columns, None if meter is None else msgspec.json.encode(meter).decode()
