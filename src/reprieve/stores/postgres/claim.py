"""The claim: settle, promote what is due, let return what may, choose, and lease, in one turn.

Three trips to the server: who asks, what they hold and who may be next; what is taken; and all that this changes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from reprieve.core.fairness.candidates import FIRST, Lane, Weights, load_of
from reprieve.core.fairness.choice import Choice
from reprieve.core.fairness.settings import DEFAULTS
from reprieve.core.fairness.updates import lane_updates, limiter_updates, tenant_updates
from reprieve.core.ids import id_to_bytes
from reprieve.core.job import Job
from reprieve.core.limits import Limits
from reprieve.core.rate import Meter
from reprieve.errors import SessionDead, StaleCall, StoreCorrupt
from reprieve.stores.postgres import settle
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.freed import Freed
from reprieve.stores.postgres.leases import Leases, pack_lease
from reprieve.stores.postgres.places import Places
from reprieve.stores.postgres.ring import COUNTED_EVERY, Back, Reader, Resting, Ring
from reprieve.stores.postgres.rows import Row, array_of, copy, number_of, place_of_job, unpack
from reprieve.stores.postgres.sessions import held
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import ChangeResult, Claim, Claimed
from reprieve.stores.record import WAITING, Lease, lease_model

_encode = msgspec.json.encode
_pack = msgspec.msgpack.encode


class Called(msgspec.Struct, array_like=True):
    """What a session's last call was answered with, for a repeat."""

    results: list[ChangeResult]
    next_at: int | None


def claim(tx: Tx, places: Places, request: Claim) -> Claimed:
    """Carry out a claim."""
    sql = statements("claim")
    queues = request.queues if request.limit > 0 else ()
    turn = places.begin_claim(tx, queues, request.now, max(50, 2 * request.limit))
    asked = tx.execute(sql["session"], {"session": request.session})
    ahead = _Ahead(tx, request)
    rows = asked.all()
    if not rows:
        message = f"session {request.session!r} is not open; open it with a heartbeat"
        raise SessionDead(message)
    session, number, answered, is_alive, slots, has_wishes, *_ = rows[0]
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
    leases = Leases(tx)
    leases.add(request.session, session, ((row[6], row[7]) for row in rows if row[6] is not None))
    freed = Freed()
    freed.has_wishes = has_wishes
    answers = settle.settle(tx, places, request.changes, request.now, leases, freed)
    taking = _Taking(tx, places, request, slots)
    next_at = taking.take(ahead, freed) if is_alive and request.limit > 0 else None
    if turn.counted is None:
        next_at = request.now
    freed.write(tx)
    gone = leases.write()
    if request.changes or taking.jobs:
        # A call that did nothing can be repeated as it is; recording it would be a write for every look in vain.
        row = {
            "sessions": array_of(session for session, _ in gone),
            "numbers": array_of(number for _, number in gone),
            "session": session,
            "number": request.number,
            "now": request.now,
            "answers": _pack(Called(answers, next_at)),
            "first": leases.first(session, request.number),
            "jobs": pack_lease(taking.leased) if taking.leased else None,
        }
        tx.execute(sql["called"], row)
    return Claimed(results=tuple(answers), jobs=tuple(taking.jobs), next_at=next_at)


class _Ahead:
    """What is asked of the first queue together with everything else, before it is known what changes."""

    def __init__(self, tx: Tx, request: Claim) -> None:
        self.reader: Reader | None = None
        if request.limit <= 0 or not request.queues:
            return
        self._asked = Freed()
        for change in request.changes:
            place = place_of_job(change.job)
            if place.queue != request.queues[0]:
                # Slots of another queue are given back before, and nothing can be asked ahead.
                return
            self._asked.add(place, 0)
        is_counting = request.number % COUNTED_EVERY == 1
        queue = number_of("queue", request.queues[0])
        self.reader = Reader(tx, queue, request.now, request.limit, is_counting=is_counting)
        self._answer = self.reader.ask(asked=self._asked)

    def read(self, freed: Freed) -> tuple[Reader, Ring | None] | None:
        """Return the ring with what is given back, or None when it has to be asked again."""
        if self.reader is None or freed.is_moved or not freed.is_within(self._asked):
            return None
        self.reader.free(freed)
        return self.reader, self.reader.read(self._answer)


class _Taking:
    """What a claim takes, queue by queue."""

    def __init__(self, tx: Tx, places: Places, request: Claim, slots: int) -> None:
        self.tx = tx
        self.places = places
        self.request = request
        self.slots = slots
        self.jobs: list[Job] = []
        self.leased: dict[bytes, tuple[int, int]] = {}

    def take(self, ahead: _Ahead, freed: Freed) -> int | None:
        """Take jobs from each queue in its turn; answer the next moment at which there may be more."""
        limit = self.request.limit
        moments: list[int] = []
        known = ahead.read(freed)
        if known is None:
            freed.write(self.tx)
        for name in self.request.queues:
            if len(self.jobs) < limit:
                visit = _Visit(self, name, freed, known)
                self.jobs += visit.take(limit - len(self.jobs))
                moments += visit.moments
            known = None
        return self.request.now if len(self.jobs) >= limit else min(moments, default=None)


class _Visit:
    """A claim's visit to one queue."""

    def __init__(self, taking: _Taking, name: str, freed: Freed, known: tuple[Reader, Ring | None] | None) -> None:
        self.tx = taking.tx
        self.places = taking.places
        self.sql = statements("claim")
        self.now = taking.request.now
        self.session = taking.request.session
        self.slots = taking.slots
        self.leased = taking.leased
        self.freed = freed
        self.is_counting = taking.request.number % COUNTED_EVERY == 1
        self.queue = number_of("queue", name)
        self._known = known
        self.moments: list[int] = []
        """When there may be more."""

    def take(self, limit: int) -> list[Job]:
        """Take so many jobs at the most."""
        if self._known is None:
            reader = Reader(self.tx, self.queue, self.now, limit, self.freed, is_counting=self.is_counting)
            ring = reader.read(reader.ask())
        else:
            reader, ring = self._known
        if ring is None:
            return []
        queue, backs = ring.queue, ring.backs
        if backs:
            # Limiters are looked at as they are, so what they have back is written before.
            self.freed.write(self.tx)
            self._return_lanes(backs)
            reader = Reader(self.tx, self.queue, self.now, limit)
            ring = reader.read(reader.ask()) or ring
        jobs: list[Job] = []
        is_settled = not backs
        if ring.tenants:
            choice = self._choose(ring, reader, limit)
            jobs = self._carry_out(choice, ring, reader)
            if choice.is_cut:
                self.moments.append(self.now)
            if choice.ceiling_until is not None:
                self.moments.append(choice.ceiling_until)
            if (reopens_at := choice.queue.reopens_at(self.now)) is not None:
                self.moments.append(reopens_at)
            is_settled = is_settled and not choice.blocked_lanes and not any(t.blocked for t in choice.tenants.values())
        if len(jobs) < limit:
            self.moments += queue.moments if is_settled else self._ask_moments()
            self.moments += self.freed.dues(self.queue)
        return jobs

    def _choose(self, ring: Ring, reader: Reader, limit: int) -> Choice:
        choice = Choice(ring.queue.state, ring.queue.limits, slots=self.slots, now=self.now)
        choice.add(ring.tenants, ring.last)
        while need := choice.run(limit):
            if need == "weights":
                choice.weights = self._weigh()
            else:
                more = reader.read(reader.ask(choice.read_up_to or FIRST))
                choice.add(more.tenants if more else [], more.last if more else None)
        choice.finish()
        return choice

    def _ask_moments(self) -> list[int]:
        moments = self.tx.one(self.sql["moments"], {"queue": self.queue}) or ()
        return [moment for moment in moments if moment is not None]

    def _return_lanes(self, backs: Sequence[Back]) -> None:
        """Let lanes return from behind limiters that have room again, a few tenants more than there is room for."""
        for back in backs:
            limiter = back.limiter
            room = limiter.room(self.now)
            row = {
                "limiter": limiter.id,
                "cursor": back.cursor,
                "back_at": limiter.reopens_at(self.now),
                "now": self.now,
            }
            if room == 0:
                self.tx.execute(self.sql["limiter_waits"], row)
                continue
            most = DEFAULTS.max_returning_tenants
            count = most if room is None else min(most, room + 1)
            self.tx.execute(self.sql["limiter_returns"], row | {"count": count})

    def _weigh(self) -> Weights:
        """Sum the weights of the tenants that wait, and of those that only run."""
        parameters = {"queue": self.queue, "limit": DEFAULTS.max_tenants_weighed}
        return Weights(*(self.tx.one(self.sql["weights"], parameters) or (0, 0)))

    def _carry_out(self, choice: Choice, ring: Ring, reader: Reader) -> list[Job]:
        """Take the jobs that were planned, and write back what the plan changed."""
        watermarks = _Watermarks({}, {})
        self._find_moved(choice, reader)
        jobs, lost = self._take(choice, watermarks, reader) if choice.picks else ([], [])
        for lane, _ in lost:
            choice.give_back(self.places[lane.id].tenant_id, lane)
        freed = [reader.limiters[limiter] for limiter in self.freed.limiters if limiter in reader.limiters]
        served = msgspec.structs.astuple(choice.state)
        changed = {
            **_lane_columns(choice, watermarks, reader.places),
            **_tenant_columns(choice, ring.resting, reader.places),
            **_limiter_columns(choice, freed, reader.places),
            "queue": self.queue,
            "turn": array_of(served) if choice.picks else None,
            "ended": array_of(self.freed.jobs),
        }
        self.tx.execute(self.sql["carry_out"], changed)
        self.freed.forget()
        if lost:
            settle.bury(self.tx, self.places, [(lane.id, job) for lane, job in lost], self.now)
            self.moments.append(self.now)
        return jobs

    def _find_moved(self, choice: Choice, reader: Reader) -> None:
        """Find the places of lanes whose rows were written by what the claim settled."""
        moved = self.freed.counted.intersection((*choice.taken, *choice.blocked_lanes))
        if moved:
            reader.places.update(self.tx.all(self.sql["lane_places"], {"lanes": array_of(moved)}))

    def _take(
        self, choice: Choice, watermarks: "_Watermarks", reader: Reader
    ) -> tuple[list[Job], list[tuple[Lane, Job]]]:
        """Take the planned jobs off their lanes; answer those to run, and those whose time is up."""
        counts = {
            "lanes": array_of(choice.taken),
            "counts": array_of(lane.taken for lane in choice.taken.values()),
            "lows": array_of(reader.watermarks[lane][0] for lane in choice.taken),
            "backs": array_of(reader.watermarks[lane][1] for lane in choice.taken),
        }
        found: dict[int, list[Row]] = {lane: [] for lane in choice.taken}
        rows = self.tx.all(self.sql["take"], counts)
        self.places.load(self.tx, found)
        for number, is_back, job_id, version, wait, due, rec in rows:
            found[number].append(Row(job_id, WAITING, version, wait, due, number, rec))
            (watermarks.back if is_back else watermarks.low)[number] = job_id
        lease = Lease(self.session, self.now)
        models = {lane: lease_model(self.places[lane].model, lease) for lane in found}
        next_of = {lane: iter(rows) for lane, rows in found.items()}
        jobs: list[Job] = []
        lost: list[tuple[Lane, Job]] = []
        for lane in choice.picks:
            number = lane.id
            row = next(next_of[number], None)
            if row is None:
                message = f"lane {number} holds fewer jobs than it counts; restore the database from a backup"
                raise StoreCorrupt(message)
            job = copy(models[number], row)
            if job.deadline_at is not None and job.deadline_at <= self.now:
                lost.append((lane, unpack(row, self.places[number])))
            else:
                self.leased[id_to_bytes(job.id)] = (number, job.version)
                jobs.append(job)
        return jobs, lost


class _Watermarks(msgspec.Struct):
    """The last jobs that were taken of each lane: of those that were fresh, and of those that were ready once more."""

    low: dict[int, str]
    back: dict[int, str]


def _lane_columns(choice: Choice, watermarks: _Watermarks, places: Mapping[int, str]) -> dict[str, str]:
    lanes = lane_updates(choice)
    return {
        "lanes": array_of(_quoted(places[lane.id]) for lane in lanes),
        "taken": array_of(lane.taken for lane in lanes),
        "lows": array_of(watermarks.low.get(lane.id) for lane in lanes),
        "backs": array_of(watermarks.back.get(lane.id) for lane in lanes),
        "open": array_of(lane.is_open for lane in lanes),
        "asides": array_of(lane.blocked_by for lane in lanes),
        "turns": array_of(lane.served for lane in lanes),
    }


def _tenant_columns(choice: Choice, resting: Sequence[Resting], places: Mapping[int, str]) -> dict[str, str]:
    rows: list[tuple[object, ...]] = [
        (_quoted(places[tenant.id]), tenant.running, load_of(tenant.running, tenant.weight), *(None,) * 7)
        for tenant in resting
    ]
    for update in tenant_updates(choice):
        tenant, *values, blocked, reopens_at, served, served_at, meter = msgspec.structs.astuple(update)
        rows.append((_quoted(places[tenant]), *values, int(blocked), reopens_at, served, served_at, _meter(meter)))
    ring_names = ("tenants", "running", "loads", "finishes", "ringed", "blocked", "back_ats")
    return _columns((*ring_names, "served", "served_ats", "meters"), rows)


def _limiter_columns(choice: Choice, freed: Sequence[Limits], places: Mapping[int, str]) -> dict[str, str]:
    rows: list[tuple[object, ...]] = [
        (
            _quoted(places[limiter.id]),
            limiter.running,
            _meter(limiter.meter),
            limiter.blocked_lanes > 0,
            limiter.reopens_at,
        )
        for limiter in limiter_updates(choice, freed)
    ]
    return _columns(("limiters", "limiter_running", "limiter_meters", "limiter_asides", "limiter_back_ats"), rows)


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, str]:
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return {name: array_of(values) for name, values in zip(names, columns, strict=True)}


def _quoted(place: str) -> str:
    """Return where a row is as an element of an array."""
    return f'"{place}"'


def _meter(meter: Meter | None) -> str | None:
    """Return the meter as an element of an array: it is made of numbers and brackets."""
    return None if meter is None else f'"{_encode(meter).decode()}"'
