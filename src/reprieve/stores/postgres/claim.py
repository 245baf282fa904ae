"""The claim: settle, promote what is due, let return what may, choose, and lease, in one turn.

Four trips to the server: who asks and what they hold; who may be next; what is taken; and everything that this changes.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from reprieve.core.job import Job
from reprieve.core.rate import Meter, Rate
from reprieve.errors import SessionDead, StaleCall, StoreCorrupt
from reprieve.stores.plan import Limits, Place, Plan, Shelf, Tenant, Turn, load_of
from reprieve.stores.postgres import settle
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.leases import write_lease
from reprieve.stores.postgres.places import Places
from reprieve.stores.postgres.rows import WAITING, Lease, Row, copy, lease_model, number_of, raw, unpack
from reprieve.stores.postgres.sessions import held
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Answer, Claim, Claimed

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
    places.take_turn(tx)
    row = tx.one(sql["session"], {"session": request.session, "now": request.now})
    if row is None:
        message = f"session {request.session!r} is not open; open it with a beat"
        raise SessionDead(message)
    session, number, answered, is_alive, slots = row
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
    answers = settle.settle(tx, places, request.changes, request.now)
    leased: list[Job] = []
    next_at = None
    if is_alive and request.limit > 0:
        leased, next_at = _claim(tx, places, request, session, slots)
    if request.changes or leased:
        # A call that did nothing can be repeated as it is; recording it would be a write for every look in vain.
        called = Called(answers, next_at)
        tx.execute(sql["called"], {"number": request.number, "answers": _pack(called), "session": session})
    return Claimed(answers=tuple(answers), jobs=tuple(leased), next_at=next_at)


def _claim(tx: Tx, places: Places, request: Claim, session: int, slots: int) -> tuple[list[Job], int | None]:
    """Take jobs from each queue in its turn; answer them and the next moment at which there may be more."""
    taken: list[Job] = []
    moments: list[int] = []
    leased: dict[bytes, tuple[int, int]] = {}
    for name in request.queues:
        if len(taken) < request.limit:
            visit = _Visit(tx, places, request, slots, name)
            taken += visit.take(request.limit - len(taken), leased)
            moments += visit.moments
    if leased:
        write_lease(tx, session, request.number, request.now, leased)
    if len(taken) >= request.limit:
        return taken, request.now
    return taken, min(moments, default=None)


class _Visit:
    """A claim's visit to one queue."""

    def __init__(self, tx: Tx, places: Places, request: Claim, slots: int, name: str) -> None:
        self.tx = tx
        self.places = places
        self.sql = statements("claim")
        self.now = request.now
        self.session = request.session
        self.slots = slots
        self.queue = number_of("queue", name)
        self.moments: list[int] = []
        """When there may be more."""

    def take(self, limit: int, leased: dict[bytes, tuple[int, int]]) -> list[Job]:
        wanted = {"queue": self.queue, "now": self.now, "most": max(50, 2 * limit)}
        self.tx.execute(self.sql["promote"], wanted)
        self.tx.execute(self.sql["tenants_back"], wanted)
        gates_back = self.tx.execute(self.sql["gates_back"], wanted)
        queue = self.tx.execute(self.sql["queue"], wanted)
        tenants, last = self._candidates(limit, FIRST)
        row = queue.fetchone()
        if row is None:
            return []
        if self._return_shelves(gates_back.fetchall()):
            tenants, last = self._candidates(limit, FIRST)
        clock, served_last, streak, last_at, other_at, pauses, *gate = row
        jobs: list[Job] = []
        if tenants:
            plan = Plan(
                tenants,
                Turn(clock, served_last, streak, last_at, other_at),
                _limits(gate),
                slots=self.slots,
                crowd=self._weigh,
                last=last,
                now=self.now,
            )
            plan.run(limit)
            while plan.wants_more:
                plan.add(*self._candidates(limit, plan.last or FIRST))
                plan.run(limit)
            jobs = self._carry_out(plan, leased)
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

    def _candidates(self, limit: int, after: Place) -> tuple[list[Tenant], Place | None]:
        """Read the tenants that may be next, with their open shelves and gates; and up to where they were read."""
        load, finish, tenant_id = after
        wanted = {"queue": self.queue, "limit": limit + 2, "load": load, "finish": finish, "id": tenant_id}
        tenant_rows, shelf_rows, gate_rows = self.tx.one(self.sql["candidates"], wanted) or ("[]", "[]", "[]")
        rows: list[list[Any]] = _decode(tenant_rows)
        gates = {row[0]: _limits(row) for row in _decode(gate_rows)}
        shelves: dict[int, list[Shelf]] = defaultdict(list)
        for tenant, *shelf in _decode(shelf_rows):
            shelves[tenant].append(_shelf(shelf, gates))
        last = (load_of(rows[-1][6], rows[-1][7]), rows[-1][8], rows[-1][0]) if len(rows) >= limit + 2 else None
        tenants = []
        for row in rows:
            mine = shelves[row[0]]
            has_more = len(mine) > SHELVES
            if has_more:
                self._add_oldest(row[0], mine, gates)
            tenants.append(Tenant(_limits(row[:7]), row[7], row[8], row[9], mine, has_more=has_more))
        return tenants, last

    def _weigh(self) -> tuple[float, float]:
        """Answer the weight of those who wait, and of those who only run."""
        waiting, running = self.tx.one(self.sql["weights"], {"queue": self.queue}) or (0.0, 0.0)
        return waiting, running

    def _add_oldest(self, tenant: int, shelves: list[Shelf], gates: dict[int, Limits]) -> None:
        """Put the shelf that was served longest ago in the place of the one that was read too much."""
        shelves.pop()
        oldest = self.tx.one(self.sql["oldest_shelf"], {"tenant": tenant})
        if oldest is not None and oldest[0] not in {shelf.id for shelf in shelves}:
            missing = [gate for gate in oldest[4:] if gate and gate not in gates]
            rows = self.tx.all(self.sql["gates"], {"ids": missing})
            gates |= {row[0]: _limits(row) for row in rows}
            shelves.append(_shelf(oldest, gates))

    def _carry_out(self, plan: Plan, leased: dict[bytes, tuple[int, int]]) -> list[Job]:
        """Take the jobs that were planned, and write back what the plan changed."""
        plan.count()
        lows: dict[int, str] = {}
        jobs, lost = self._take(plan, leased, lows) if plan.picks else ([], [])
        for shelf, _ in lost:
            plan.give_back(self.places[shelf.id].tenant_id, shelf)
        self._write_shelves(plan, lows)
        self._write_tenants(plan)
        self._write_gates(plan)
        if plan.picks:
            turn = plan.turn
            row = {
                "clock": turn.clock,
                "last": turn.last,
                "streak": turn.streak,
                "last_at": turn.last_at,
                "other_at": turn.other_at,
                "queue": self.queue,
            }
            self.tx.execute(self.sql["turn"], row)
        if lost:
            settle.bury(self.tx, self.places, [(shelf.id, job) for shelf, job in lost], self.now)
            self.moments.append(self.now)
        return jobs

    def _take(
        self, plan: Plan, leased: dict[bytes, tuple[int, int]], lows: dict[int, str]
    ) -> tuple[list[Job], list[tuple[Shelf, Job]]]:
        """Take the planned jobs off their shelves; answer those to run, and those whose time is up."""
        counts = {"shelves": list(plan.taken), "counts": [shelf.taken for shelf in plan.taken.values()]}
        found: dict[int, list[Row]] = {shelf: [] for shelf in plan.taken}
        rows = self.tx.execute(self.sql["take"], counts)
        self.places.load(self.tx, found)
        for number, job_id, version, wait, due, rec in rows:
            found[number].append(Row(job_id, WAITING, version, wait, due, number, rec))
            lows[number] = job_id
        lease = Lease(self.session, self.now)
        models = {shelf: lease_model(self.places[shelf], lease) for shelf in found}
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
                leased[raw(job.id)] = (number, job.version)
                jobs.append(job)
        return jobs, lost

    def _write_shelves(self, plan: Plan, lows: dict[int, str]) -> None:
        rows = [
            {
                "id": shelf.id,
                "taken": shelf.taken,
                "low": lows[shelf.id],
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
                "low": lows.get(shelf.id),
                "is_open": False,
                "aside": gate.id,
                "served": shelf.served,
            }
            for shelf, gate in plan.asides.values()
        ]
        if rows:
            self.tx.execute(self.sql["shelves"], {"rows": _encode(rows).decode()})

    def _write_tenants(self, plan: Plan) -> None:
        rows = []
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
                    "back_at": limits.back_at(self.now) if blocked else None,
                    "served": tenant.served,
                    "served_at": self.now if tenant.taken else None,
                    "meter": _meter(limits),
                }
            )
        if rows:
            self.tx.execute(self.sql["tenants"], {"rows": _encode(rows).decode()})

    def _write_gates(self, plan: Plan) -> None:
        asides = Counter(gate.id for _, gate in plan.asides.values())
        gates = {gate.id: gate for shelf in plan.taken.values() for gate in shelf.gates}
        gates |= {gate.id: gate for _, gate in plan.asides.values()}
        if plan.picks:
            gates[plan.queue.id] = plan.queue
        rows = [
            {
                "id": gate.id,
                "running": gate.running,
                "meter": _meter(gate),
                "is_aside": asides[gate.id] > 0,
                "back_at": gate.back_at(self.now) if gate.room(self.now) == 0 else self.now,
            }
            for gate in gates.values()
        ]
        if rows:
            self.tx.execute(self.sql["gates_taken"], {"rows": _encode(rows).decode()})


def _limits(row: Sequence[Any]) -> Limits:
    number, permits, max_running, rate_count, rate_window, meter, running = row
    if rate_count is None:
        return Limits(number, permits, max_running, None, (), running)
    rate = Rate(count=rate_count, window=rate_window)
    return Limits(number, permits, max_running, rate, _decode(meter, type=Meter), running)


def _meter(limits: Limits) -> str:
    return _encode(limits.meter).decode()


def _shelf(row: Sequence[int], gates: dict[int, Limits]) -> Shelf:
    shelf, priority, served, ready, *ids = row
    return Shelf(shelf, priority, served, ready, [gates[gate] for gate in ids if gate])
