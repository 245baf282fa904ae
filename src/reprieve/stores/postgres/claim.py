"""The claim: settle, promote what is due, let return what may, choose, and lease, in one turn.

Four trips to the server: who asks and what they hold; who may be next; what is taken; and everything that this changes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from reprieve.core.job import Job
from reprieve.core.rate import Meter, Rate
from reprieve.errors import SessionDead, StaleCall, StoreCorrupt
from reprieve.stores.plan import Limits, Place, Plan, Shelf, Tenant, Turn, load_of
from reprieve.stores.postgres import settle
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.leases import Leases, pack_lease
from reprieve.stores.postgres.places import Places
from reprieve.stores.postgres.rows import Row, array_of, copy, number_of, raw, unpack
from reprieve.stores.postgres.sessions import held
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Answer, Claim, Claimed
from reprieve.stores.record import WAITING, Lease, lease_model

SHELVES = 64
"""Open shelves of a tenant that a claim reads at once."""

FIRST: Place = (-1, -1, -(1 << 63))
"""Before everybody in the ring."""

_decode = msgspec.json.decode
_encode = msgspec.json.encode
_pack = msgspec.msgpack.encode


class Called(msgspec.Struct, array_like=True):
    """What a session's last call was answered with, for a repeat."""

    answers: list[Answer]
    next_at: int | None


def claim(tx: Tx, places: Places, request: Claim) -> Claimed:
    """Carry out a claim."""
    sql = statements("claim")
    places.begin_claim(tx, request.queues if request.limit > 0 else (), request.now, max(50, 2 * request.limit))
    rows = tx.all(sql["session"], {"session": request.session})
    if not rows:
        message = f"session {request.session!r} is not open; open it with a beat"
        raise SessionDead(message)
    session, number, answered, is_alive, slots, *_ = rows[0]
    if request.number < number:
        message = f"call {request.number} of session {request.session!r} comes after call {number}"
        raise StaleCall(message)
    if request.number == number:
        called = msgspec.msgpack.decode(answered, type=Called)
        # The dead are told what became of their changes; what they held belongs to others.
        jobs = held(tx, places, session, request.session, since=number, up_to=number) if is_alive else []
        return Claimed(answers=tuple(called.answers), jobs=tuple(jobs), next_at=called.next_at)
    if not is_alive and not request.changes:
        message = f"session {request.session!r} is dead: its time was up, and others have its jobs"
        raise SessionDead(message)
    leases = Leases(tx)
    leases.add(request.session, session, ((row[5], row[6]) for row in rows if row[5] is not None))
    answers = settle.settle(tx, places, request.changes, request.now, leases)
    taking = _Taking(tx, places, request, slots)
    next_at = taking.take() if is_alive and request.limit > 0 else None
    if request.changes or taking.jobs:
        # A call that did nothing can be repeated as it is; recording it would be a write for every look in vain.
        row = {
            "session": session,
            "number": request.number,
            "now": request.now,
            "answers": _pack(Called(answers, next_at)),
            "jobs": pack_lease(taking.leased) if taking.leased else None,
        }
        tx.execute(sql["called"], row)
    return Claimed(answers=tuple(answers), jobs=tuple(taking.jobs), next_at=next_at)


class _Taking:
    """What a claim takes, queue by queue."""

    def __init__(self, tx: Tx, places: Places, request: Claim, slots: int) -> None:
        self.tx = tx
        self.places = places
        self.request = request
        self.slots = slots
        self.jobs: list[Job] = []
        self.leased: dict[bytes, tuple[int, int]] = {}

    def take(self) -> int | None:
        """Take jobs from each queue in its turn; answer the next moment at which there may be more."""
        limit = self.request.limit
        moments: list[int] = []
        for name in self.request.queues:
            if len(self.jobs) < limit:
                visit = _Visit(self, name)
                self.jobs += visit.take(limit - len(self.jobs))
                moments += visit.moments
        return self.request.now if len(self.jobs) >= limit else min(moments, default=None)


class _Visit:
    """A claim's visit to one queue."""

    def __init__(self, taking: _Taking, name: str) -> None:
        self.tx = taking.tx
        self.places = taking.places
        self.sql = statements("claim")
        self.now = taking.request.now
        self.session = taking.request.session
        self.slots = taking.slots
        self.leased = taking.leased
        self.queue = number_of("queue", name)
        self.gates: dict[int, Limits] = {}
        self.moments: list[int] = []
        """When there may be more."""

    def take(self, limit: int) -> list[Job]:
        ring = self._candidates(limit, FIRST)
        queue = ring.queue
        if queue is None:
            return []
        if self._return_shelves(ring.gates_back):
            ring = self._candidates(limit, FIRST)
        clock, served_last, streak, last_at, other_at, pauses, *gate = queue
        jobs: list[Job] = []
        if ring.tenants:
            plan = Plan(
                ring.tenants,
                Turn(clock, served_last, streak, last_at, other_at),
                _limits(gate),
                slots=self.slots,
                crowd=self._weigh,
                last=ring.last,
                now=self.now,
            )
            plan.run(limit)
            while plan.wants_more:
                ring = self._candidates(limit, plan.last or FIRST)
                plan.add(ring.tenants, ring.last)
                plan.run(limit)
            jobs = self._carry_out(plan)
            if plan.is_cut:
                self.moments.append(self.now)
            if plan.ceiling_until is not None:
                self.moments.append(plan.ceiling_until)
            if (queue_back := plan.queue.back_at(self.now)) is not None:
                self.moments.append(queue_back)
        if len(jobs) < limit:
            moments = self.tx.one(self.sql["moments"], {"queue": self.queue, "pauses": pauses}) or ()
            self.moments += [moment for moment in moments if moment is not None]
        return jobs

    def _return_shelves(self, gates: Sequence[Sequence[Any]]) -> bool:
        """Let shelves return from behind gates that have room again, a few tenants more than there is room for."""
        has_returned = False
        for *limits, cursor in gates:
            gate = _limits(limits)
            room = gate.room(self.now)
            back = {"gate": gate.id, "cursor": cursor, "back_at": gate.back_at(self.now), "now": self.now}
            if room == 0:
                self.tx.execute(self.sql["gate_waits"], back)
                continue
            count = 256 if room is None else min(256, room + 1)
            self.tx.execute(self.sql["gate_returns"], back | {"count": count})
            has_returned = True
        return has_returned

    def _candidates(self, limit: int, after: Place) -> "_Ring":
        """Read the tenants that may be next, with their open shelves and gates; and up to where they were read."""
        load, finish, tenant_id = after
        wanted = {
            "queue": self.queue,
            "limit": limit + 2,
            "load": load,
            "finish": finish,
            "id": tenant_id,
            "now": self.now,
        }
        found = self.tx.one(self.sql["candidates"], wanted) or ()
        queue, gates_back, rows, shelf_rows, gate_rows = [_decode(part) if part else [] for part in found]
        self._learn(gate_rows)
        shelves: dict[int, list[Shelf]] = defaultdict(list)
        for tenant, *shelf in shelf_rows:
            shelves[tenant].append(self._shelf(shelf))
        last = (load_of(rows[-1][6], rows[-1][7]), rows[-1][8], rows[-1][0]) if len(rows) >= limit + 2 else None
        tenants = []
        for row in rows:
            mine = shelves[row[0]]
            has_more = len(mine) > SHELVES
            if has_more:
                self._add_oldest(row[0], mine)
            tenants.append(Tenant(_limits(row[:7]), row[7], row[8], row[9], mine, has_more=has_more))
        return _Ring(queue or None, gates_back, tenants, last)

    def _weigh(self) -> tuple[float, float]:
        """Answer the weight of those who wait, and of those who only run."""
        waiting, running = self.tx.one(self.sql["weights"], {"queue": self.queue}) or (0.0, 0.0)
        return waiting, running

    def _add_oldest(self, tenant: int, shelves: list[Shelf]) -> None:
        """Put the shelf that was served longest ago in the place of the one that was read too much."""
        shelves.pop()
        oldest = self.tx.one(self.sql["oldest_shelf"], {"tenant": tenant})
        if oldest is not None and oldest[0] not in {shelf.id for shelf in shelves}:
            self._learn(self.tx.all(self.sql["gates"], {"ids": array_of(oldest[4:])}))
            shelves.append(self._shelf(oldest))

    def _learn(self, rows: Iterable[Sequence[Any]]) -> None:
        """Get to know gates. One that was met before has counted since what the plan took through it."""
        for row in rows:
            if row[0] not in self.gates:
                self.gates[row[0]] = _limits(row)

    def _shelf(self, row: Sequence[int]) -> Shelf:
        shelf, priority, served, ready, *gates = row
        return Shelf(shelf, priority, served, ready, [self.gates[gate] for gate in gates if gate])

    def _carry_out(self, plan: Plan) -> list[Job]:
        """Take the jobs that were planned, and write back what the plan changed."""
        plan.count()
        marks = _Marks({}, {})
        jobs, lost = self._take(plan, marks) if plan.picks else ([], [])
        for shelf, _ in lost:
            plan.give_back(self.places[shelf.id].tenant_id, shelf)
        turn = plan.turn
        changed = {
            "shelves": _encode(_shelf_rows(plan, marks)).decode(),
            "tenants": _encode(_tenant_rows(plan)).decode(),
            "gates": _encode(_gate_rows(plan)).decode(),
            "queue": self.queue,
            "clock": turn.clock,
            "last": turn.last,
            "streak": turn.streak,
            "last_at": turn.last_at,
            "other_at": turn.other_at,
            "is_served": bool(plan.picks),
        }
        self.tx.execute(self.sql["carry_out"], changed)
        if lost:
            settle.bury(self.tx, self.places, [(shelf.id, job) for shelf, job in lost], self.now)
            self.moments.append(self.now)
        return jobs

    def _take(self, plan: Plan, marks: "_Marks") -> tuple[list[Job], list[tuple[Shelf, Job]]]:
        """Take the planned jobs off their shelves; answer those to run, and those whose time is up."""
        counts = {
            "shelves": array_of(plan.taken),
            "counts": array_of(shelf.taken for shelf in plan.taken.values()),
        }
        found: dict[int, list[Row]] = {shelf: [] for shelf in plan.taken}
        rows = self.tx.all(self.sql["take"], counts)
        self.places.load(self.tx, found)
        for number, is_back, job_id, version, wait, due, rec in rows:
            found[number].append(Row(job_id, WAITING, version, wait, due, number, rec))
            (marks.back if is_back else marks.low)[number] = job_id
        lease = Lease(self.session, self.now)
        models = {shelf: lease_model(self.places[shelf].model, lease) for shelf in found}
        next_of = {shelf: iter(rows) for shelf, rows in found.items()}
        jobs: list[Job] = []
        lost: list[tuple[Shelf, Job]] = []
        for shelf in plan.picks:
            number = shelf.id
            row = next(next_of[number], None)
            if row is None:
                message = f"shelf {number} holds fewer jobs than it counts; restore the database from a backup"
                raise StoreCorrupt(message)
            job = copy(models[number], row)
            if job.deadline_at is not None and job.deadline_at <= self.now:
                lost.append((shelf, unpack(row, self.places[number])))
            else:
                self.leased[raw(job.id)] = (number, job.version)
                jobs.append(job)
        return jobs, lost


class _Marks(msgspec.Struct):
    """The last jobs that were taken of each shelf: of those that were fresh, and of those that were ready once more."""

    low: dict[int, str]
    back: dict[int, str]


class _Ring(msgspec.Struct):
    """Those who may be next in a queue, and what stands in their way."""

    queue: list[Any] | None
    gates_back: list[list[Any]]
    tenants: list[Tenant]
    last: Place | None


def _shelf_rows(plan: Plan, marks: _Marks) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [
        {
            "id": shelf.id,
            "taken": shelf.taken,
            "low": marks.low.get(shelf.id),
            "back": marks.back.get(shelf.id),
            "is_open": shelf.ready > 0,
            "aside": 0,
            # Of a shelf that is alone nobody asks when it was served; not to write it keeps its index as it is.
            "served": None if shelf.is_alone and shelf.ready else shelf.served,
        }
        for shelf in plan.taken.values()
        if shelf.id not in plan.asides
    ]
    rows += [
        {
            "id": shelf.id,
            "taken": shelf.taken,
            "low": marks.low.get(shelf.id),
            "back": marks.back.get(shelf.id),
            "is_open": False,
            "aside": gate.id,
            "served": shelf.served,
        }
        for shelf, gate in plan.asides.values()
    ]
    return rows


def _tenant_rows(plan: Plan) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for tenant in plan.tenants.values():
        limits = tenant.limits
        blocked = plan.blocked.get(limits.id, 0)
        is_ringed = not blocked and limits.id not in plan.empty
        if not limits.is_changed and is_ringed:
            continue
        rows.append(
            {
                "id": limits.id,
                "running": limits.running,
                "load": load_of(limits.running, tenant.weight),
                "finish": tenant.finish,
                "ringed": is_ringed,
                "blocked": blocked,
                "back_at": limits.back_at(plan.now) if blocked else None,
                "served": tenant.served,
                "served_at": plan.now if tenant.taken else None,
                "meter": _meter(limits),
            }
        )
    return rows


def _gate_rows(plan: Plan) -> list[dict[str, object]]:
    asides = Counter(gate.id for _, gate in plan.asides.values())
    gates = {gate.id: gate for shelf in plan.taken.values() for gate in shelf.gates}
    gates |= {gate.id: gate for _, gate in plan.asides.values()}
    if plan.picks:
        gates[plan.queue.id] = plan.queue
    return [
        {
            "id": gate.id,
            "running": gate.running,
            "meter": _meter(gate),
            "is_aside": asides[gate.id] > 0,
            "back_at": gate.back_at(plan.now) if gate.room(plan.now) == 0 else plan.now,
        }
        for gate in gates.values()
    ]


def _limits(row: Sequence[Any]) -> Limits:
    number, permits, max_running, rate_count, rate_window, meter, running = row
    if rate_count is None:
        return Limits(number, permits, max_running, None, (), running)
    rate = Rate(count=rate_count, window=rate_window)
    return Limits(number, permits, max_running, rate, _decode(meter, type=Meter), running)


def _meter(limits: Limits) -> str:
    return _encode(limits.meter).decode()
