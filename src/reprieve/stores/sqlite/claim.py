"""The claim: settle, promote what is due, let return what may, choose, and lease, in one transaction."""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from reprieve.core.job import Job
from reprieve.core.rate import Meter, Rate
from reprieve.errors import SessionDead, StaleCall
from reprieve.stores.plan import Lane, Limits, Place, Plan, Tenant, Turn, load_of
from reprieve.stores.protocol import ChangeResult, Claim, Claimed
from reprieve.stores.record import COUNTERS, Lease, lease_model
from reprieve.stores.sqlite import settle
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.rows import Row, copy, unpack
from reprieve.stores.sqlite.sessions import held
from reprieve.stores.sqlite.statements import run, statements
from reprieve.stores.sqlite.write_batch import Released

FEW = 4
"""Lanes that give at most so many jobs are read apart from the others: the limit of a read is that of its largest."""

LANES = 64
"""Open lanes of a tenant that a claim reads at once."""

_decode = msgspec.json.decode
_pack = msgspec.msgpack.encode


class Taken(Row, array_like=True, frozen=True):
    """A row that a claim read, and where its record is among those that were read with it."""

    lane: int
    length: int


_decode_taken = msgspec.json.Decoder(list[Taken]).decode


class Called(msgspec.Struct, array_like=True):
    """What a session's last call was answered with, for a repeat."""

    results: list[ChangeResult]
    next_at: int | None


def claim(tx: sqlite3.Connection, places: LaneCache, request: Claim) -> Claimed:
    """Carry out a claim."""
    sql = statements("claim")
    row = tx.execute(sql["session"], {"session": request.session}).fetchone()
    if row is None:
        message = f"session {request.session!r} is not open; open it with a heartbeat"
        raise SessionDead(message)
    session, number, answered, is_alive, slots = row
    if request.number < number:
        message = f"call {request.number} of session {request.session!r} comes after call {number}"
        raise StaleCall(message)
    if request.number == number:
        called = msgspec.msgpack.decode(answered, type=Called)
        # The dead are told what became of their changes; what they held belongs to others.
        jobs = held(tx, places, session, request.session, since=number, up_to=number) if is_alive else []
        return Claimed(results=tuple(called.results), jobs=tuple(jobs), next_at=called.next_at)
    if not is_alive and not request.changes:
        message = f"session {request.session!r} is dead: its time was up, and others have its jobs"
        raise SessionDead(message)
    answers, released = settle.settle(tx, places, request.changes, request.now)
    leased: list[Job] = []
    next_at = None
    if is_alive and request.limit > 0:
        leased, next_at = _claim(tx, places, request, session, slots, released)
    for tenants in released.values():
        settle.release(tx, tenants)
    if request.changes or leased:
        # A call that did nothing can be repeated as it is; recording it would wake everybody who waits.
        tx.execute(sql["called"], (request.number, _pack(Called(answers, next_at)), session))
    return Claimed(results=tuple(answers), jobs=tuple(leased), next_at=next_at)


def _claim(
    tx: sqlite3.Connection, places: LaneCache, request: Claim, session: int, slots: int, released: Released
) -> tuple[list[Job], int | None]:
    """Take jobs from each queue in its turn; answer them and the next moment at which there may be more."""
    taken: list[Job] = []
    moments: list[int] = []
    leased: dict[int, tuple[int, int]] = {}
    for name in request.queues:
        if len(taken) < request.limit:
            visit = _Visit(tx, places, request, slots, name, released)
            taken += visit.take(request.limit - len(taken), leased)
            moments += visit.moments
    if leased:
        tx.execute(statements("claim")["lease"], (session << 32 | request.number, request.now, _pack(leased)))
    if len(taken) >= request.limit:
        return taken, request.now
    return taken, min(moments, default=None)


class _Visit:
    """A claim's visit to one queue."""

    def __init__(
        self,
        tx: sqlite3.Connection,
        places: LaneCache,
        request: Claim,
        slots: int,
        name: str,
        released: Released,
    ) -> None:
        self.tx = tx
        self.released = released
        self.places = places
        self.sql = statements("claim")
        self.now = request.now
        self.session = request.session
        self.slots = slots
        self.name = name
        self.limiters: dict[int, Limits] = {}
        self.moments: list[int] = []
        """When there may be more."""

    def take(self, limit: int, leased: dict[int, tuple[int, int]]) -> list[Job]:
        row = self.tx.execute(self.sql["queue"], (self.name,)).fetchone()
        if row is None:
            return []
        self.queue, clock, served_last, streak, last_at, other_at, pauses, *limiter = row
        pause = {"schedule": 0 if pauses & 1 else self.now, "retry": 0 if pauses & 2 else self.now}
        self._promote(limit, pause)
        self._return_lanes()
        self.tx.execute(self.sql["tenants_back"], (self.now,))
        tenants, last = self._candidates(limit, (-1, -1, -1))
        jobs: list[Job] = []
        if tenants:
            plan = Plan(
                tenants,
                Turn(clock, served_last, streak, last_at, other_at),
                _limits(limiter),
                slots=self.slots,
                crowd=self._weigh,
                last=last,
                now=self.now,
            )
            plan.run(limit)
            while plan.wants_more:
                plan.add(*self._candidates(limit, plan.last or (-1, -1, -1)))
                plan.run(limit)
            jobs = self._carry_out(plan, leased)
            if plan.is_cut:
                self.moments.append(self.now)
            if plan.ceiling_until is not None:
                self.moments.append(plan.ceiling_until)
            if (queue_back := plan.queue.back_at(self.now)) is not None:
                self.moments.append(queue_back)
        if len(jobs) < limit:
            self._note_moments(pause)
        return jobs

    def _note_moments(self, pause: dict[str, int]) -> None:
        for moment in (
            self.tx.execute(self.sql["next_due"], {"queue": self.queue, **pause}).fetchone()[0],
            self.tx.execute(self.sql["next_back"]).fetchone()[0],
        ):
            if moment is not None:
                self.moments.append(moment)

    def _promote(self, limit: int, pause: dict[str, int]) -> None:
        """Move due jobs to their lanes."""
        parameters = {"queue": self.queue, "now": self.now, "limit": max(50, 2 * limit), **pause}
        due: list[list[int]] = _decode(self.tx.execute(self.sql["due"], parameters).fetchone()[0])
        if due:
            promote(self.tx, self.places, self.queue, due)

    def _return_lanes(self) -> None:
        """Let lanes return from behind limiters that have room again, a few tenants more than there is room for."""
        for *limits, _aside, cursor in self.tx.execute(self.sql["limiters_back"], (self.now,)).fetchall():
            limiter = _limits(limits)
            room = limiter.room(self.now)
            if room == 0:
                back = {"limiter": limiter.id, "cursor": cursor, "back_at": limiter.back_at(self.now)}
                self.tx.execute(self.sql["limiter_returned"], back)
                continue
            count = 256 if room is None else min(256, room + 1)
            tenants = [row[0] for row in self.tx.execute(self.sql["returning"], (limiter.id, cursor, count))]
            if len(tenants) < count:
                more = self.tx.execute(self.sql["returning"], (limiter.id, 0, count - len(tenants)))
                tenants += [row[0] for row in more if row[0] <= cursor]
            self.tx.execute(self.sql["return_lanes"], (limiter.id, msgspec.json.encode(tenants).decode()))
            run(self.tx, statements("enqueue")["make_candidates"], [(tenant,) for tenant in tenants])
            is_left = self.tx.execute(self.sql["returning"], (limiter.id, 0, 1)).fetchone() is not None
            back = {
                "limiter": limiter.id,
                "cursor": tenants[-1] if tenants else 0,
                "back_at": self.now if is_left else None,
            }
            self.tx.execute(self.sql["limiter_returned"], back)

    def _candidates(self, limit: int, after: Place) -> tuple[list[Tenant], Place | None]:
        """Read the tenants that may be next, with their open lanes and limiters; and up to where they were read."""
        load, finish, tenant_id = after
        wanted = {"queue": self.queue, "limit": limit + 2, "load": load, "finish": finish, "id": tenant_id}
        rows = _decode(self.tx.execute(self._candidates_from("in_turn"), wanted).fetchone()[0])
        last = (load_of(rows[-1][6], rows[-1][7]), rows[-1][8], rows[-1][0]) if len(rows) >= limit + 2 else None
        given = self.released.pop(self.queue, None)
        if given:
            rows += self._release({row[0] for row in rows}, given, last)
        self._learn({limiter for row in rows for lane in row[10] for limiter in lane[4:] if limiter})
        tenants = []
        for row in rows:
            lanes = [self._lane(lane) for lane in row[10][:LANES]]
            has_more = len(row[10]) > LANES
            if has_more:
                self._add_oldest(row[0], lanes)
            tenant = Tenant(_limits(row[:7]), row[7], row[8], row[9], lanes, has_more=has_more)
            if given and given[row[0]]:
                tenant.limits.running -= given[row[0]]
                tenant.limits.is_changed = True
            tenants.append(tenant)
        return tenants, last

    def _candidates_from(self, tenants: str) -> str:
        return self.sql["candidates"].replace("{tenants}", self.sql[tenants])

    def _release(self, read: set[int], given: Counter[int], last: Place | None) -> list[list[Any]]:
        """Write the slots that tenants gave back, but for those that were read and will be written with the plan.

        Returns those of them that now belong among the tenants that were read.
        """
        others = Counter({tenant: count for tenant, count in given.items() if tenant not in read})
        if not others:
            return []
        settle.release(self.tx, others)
        load, finish, _ = last or (0, 0, 0)
        parameters = {
            "tenants": msgspec.json.encode(list(others)).decode(),
            "is_cut": last is not None,
            "load": load,
            "finish": finish,
        }
        near = [tenant for (tenant,) in self.tx.execute(self.sql["released"], parameters)]
        for tenant in others:
            del given[tenant]
        if not near:
            return []
        ids = {"tenants": msgspec.json.encode(near).decode()}
        rows: list[list[Any]] = _decode(self.tx.execute(self._candidates_from("by_id"), ids).fetchone()[0])
        return rows

    def _weigh(self) -> tuple[float, float]:
        """Return the weight of those who wait, and of those who only run."""
        waiting, running = self.tx.execute(self.sql["weights"], {"queue": self.queue}).fetchone()
        return waiting, running

    def _add_oldest(self, tenant: int, lanes: list[Lane]) -> None:
        oldest = self.tx.execute(self.sql["oldest_lane"], (tenant,)).fetchone()
        if oldest[0] not in {lane.id for lane in lanes}:
            self._learn({limiter for limiter in oldest[4:] if limiter})
            lanes.append(self._lane(oldest))

    def _learn(self, ids: set[int]) -> None:
        """Get to know limiters. One that was met before has counted since what the plan took through it."""
        unknown = [limiter for limiter in ids if limiter not in self.limiters]
        if unknown:
            rows = _decode(
                self.tx.execute(self.sql["limiters"], (msgspec.json.encode(unknown).decode(),)).fetchone()[0]
            )
            self.limiters |= {row[0]: _limits(row) for row in rows}

    def _lane(self, row: Sequence[int]) -> Lane:
        lane, priority, served, ready, *ids = row
        return Lane(lane, priority, served, ready, [self.limiters[limiter] for limiter in ids if limiter])

    def _carry_out(self, plan: Plan, leased: dict[int, tuple[int, int]]) -> list[Job]:
        """Take the jobs that were planned, and write back what the plan changed."""
        plan.count()
        jobs, lost = self._take(plan, leased)
        for lane, _ in lost:
            plan.give_back(self.places[lane.id].tenant_id, lane)
        self._write_lanes(plan)
        self._write_tenants(plan)
        self._write_limiters(plan)
        if plan.picks:
            turn = plan.turn
            row = (turn.clock, turn.last, turn.streak, turn.last_at, turn.other_at, self.queue)
            self.tx.execute(self.sql["turn"], row)
        if lost:
            settle.bury(self.tx, self.places, [(lane.id, job) for lane, job in lost], self.now)
            self.moments.append(self.now)
        return jobs

    def _take(self, plan: Plan, leased: dict[int, tuple[int, int]]) -> tuple[list[Job], list[tuple[Lane, Job]]]:
        """Read the planned jobs and take them off their lanes; answer those to run, and those whose time is up."""
        found: dict[int, list[tuple[Taken, bytes]]] = {lane: [] for lane in plan.taken}
        few = [lane.id for lane in plan.taken.values() if lane.taken <= FEW]
        many = [lane.id for lane in plan.taken.values() if lane.taken > FEW]
        for wanted in (few, many):
            if wanted:
                self._read(wanted, max(plan.taken[lane].taken for lane in wanted), found)
        self.places.load(self.tx, found)
        rows = [(lane.id, row.id) for lane in plan.taken.values() for row, _ in found[lane.id][: lane.taken]]
        run(self.tx, self.sql["unready"], rows)
        lease = Lease(self.session, self.now)
        models = {lane: lease_model(self.places[lane].model, lease) for lane in found}
        next_of = {lane: iter(rows) for lane, rows in found.items()}
        jobs: list[Job] = []
        lost: list[tuple[Lane, Job]] = []
        for lane in plan.picks:
            number = lane.id
            row, rec = next(next_of[number])
            job = copy(models[number], row, rec)
            if job.deadline_at is not None and job.deadline_at <= self.now:
                lost.append((lane, unpack(row, rec, self.places[number])))
            else:
                leased[row.id] = (number, job.version)
                jobs.append(job)
        return jobs, lost

    def _read(self, lanes: Sequence[int], most: int, found: dict[int, list[tuple[Taken, bytes]]]) -> None:
        wanted = msgspec.json.encode(lanes).decode()
        heads, recs = self.tx.execute(self.sql["take"], (wanted, most)).fetchone()
        start = 0
        for row in _decode_taken(heads):
            end = start + row.length
            found[row.lane].append((row, recs[start:end]))
            start = end

    def _write_lanes(self, plan: Plan) -> None:
        run(self.tx, self.sql["count"], [(lane.id, lane.taken) for lane in plan.taken.values()])
        moved = [
            (lane.id, int(lane.ready > 0), 0, lane.served)
            for lane in plan.taken.values()
            if lane.id not in plan.asides and not (lane.is_alone and lane.ready)
        ]
        moved += [(lane.id, 0, limiter.id, lane.served) for lane, limiter in plan.asides.values()]
        run(self.tx, self.sql["lanes"], moved)

    def _write_tenants(self, plan: Plan) -> None:
        rows = []
        for tenant in plan.tenants.values():
            limits = tenant.limits
            blocked = plan.blocked.get(limits.id, 0)
            is_ringed = not blocked and limits.id not in plan.empty
            if not limits.is_changed and is_ringed:
                continue
            rows.append(
                (
                    limits.id,
                    limits.running,
                    load_of(limits.running, tenant.weight),
                    tenant.finish,
                    int(is_ringed),
                    blocked,
                    limits.back_at(self.now) if blocked else None,
                    tenant.served,
                    self.now if tenant.taken else None,
                    _meter(limits),
                )
            )
        run(self.tx, self.sql["tenants"], rows)

    def _write_limiters(self, plan: Plan) -> None:
        asides = Counter(limiter.id for _, limiter in plan.asides.values())
        limiters = {limiter.id: limiter for lane in plan.taken.values() for limiter in lane.limiters}
        limiters |= {limiter.id: limiter for _, limiter in plan.asides.values()}
        if plan.picks:
            limiters[plan.queue.id] = plan.queue
        rows = [
            (
                limiter.id,
                limiter.running,
                _meter(limiter),
                asides[limiter.id],
                limiter.back_at(self.now) if limiter.room(self.now) == 0 else self.now,
            )
            for limiter in limiters.values()
        ]
        run(self.tx, self.sql["limiters_taken"], rows)


def promote(tx: sqlite3.Connection, places: LaneCache, queue: int, due: Sequence[Sequence[int]]) -> None:
    """Move jobs that wait for a time to their lanes: rows of wait, due, id and lane."""
    sql = statements("claim")
    run(tx, sql["undelay"], [(queue, wait, at, row) for wait, at, row, _ in due])
    run(tx, statements("enqueue")["ready"], [(lane, row) for _, _, row, lane in due])
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for wait, _, _, lane in due:
        counts[lane][COUNTERS[wait]] += 1
    run(tx, sql["promote"], [(lane, c["scheduled"], c["retrying"], c["parked"]) for lane, c in counts.items()])
    run(tx, statements("enqueue")["open"], [(lane,) for lane in counts])
    places.load(tx, counts)
    tenants = {places[lane].tenant_id for lane in counts}
    run(tx, statements("enqueue")["make_candidates"], [(tenant,) for tenant in tenants])


def _limits(row: Sequence[Any]) -> Limits:
    number, permits, max_running, rate_count, rate_window, meter, running = row
    if rate_count is None:
        return Limits(number, permits, max_running, None, (), running)
    rate = Rate(count=rate_count, window=rate_window)
    return Limits(number, permits, max_running, rate, _decode(meter, type=Meter), running)


def _meter(limits: Limits) -> str:
    return msgspec.json.encode(limits.meter).decode()
