"""The part of a claim that concerns one queue: read the candidates, choose, take the jobs, write back."""

from collections.abc import Sequence

import msgspec

from reprieve.core.fairness.candidates import FIRST, Lane
from reprieve.core.fairness.choice import Choice
from reprieve.core.fairness.settings import DEFAULTS
from reprieve.core.fairness.updates import lane_updates
from reprieve.core.ids import id_to_bytes
from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.errors import StoreCorrupt
from reprieve.stores.postgres import settle
from reprieve.stores.postgres.array_statements import run
from reprieve.stores.postgres.candidates import CandidateReader, Candidates, LimiterRow
from reprieve.stores.postgres.claim_updates import ClaimUpdates, Watermarks
from reprieve.stores.postgres.lane_cache import LaneCache
from reprieve.stores.postgres.lane_ref import hash_id
from reprieve.stores.postgres.name_counts import count_names
from reprieve.stores.postgres.pipeline import Result
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.released import ReleasedSlots
from reprieve.stores.postgres.rows import StoredJob, array_of, copy, unpack
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Claim
from reprieve.stores.record import Lease, lease_model
from reprieve.stores.sql.sessions import capacity_of

CHECK_CROWD_EVERY_CLAIMS = 16
"""Claims of a session after which one checks whether the candidates of a queue have become a crowd."""


class TakenRow(StoredJob, frozen=True):
    """A job that was taken off its lane."""

    ready_at: int | None
    """When it became ready; None for a fresh job, which was not in `ready`."""


class ClaimState(msgspec.Struct, frozen=True):
    """What the parts of a claim share."""

    tx: Tx
    lanes: LaneCache
    request: Claim
    offers: str
    """As in `SessionRow`."""
    released: ReleasedSlots
    """Slots that the changes released."""
    jobs: list[Job]
    """The jobs that were leased so far."""
    leases: dict[bytes, tuple[int, int]]
    """The lane and the version of each of them."""
    times: list[int]
    """When there may be more to claim."""

    @property
    def room(self) -> int:
        """How many more jobs the claim may lease."""
        return self.request.limit - len(self.jobs)

    def note(self, *times: int | None) -> None:
        """Note when there may be more to claim."""
        self.times.extend(time for time in times if time is not None)


def reader_of(tx: Tx, request: Claim, queue: str, limit: int, released: ReleasedSlots) -> CandidateReader:
    """Return a reader of the candidates of a queue."""
    checks_crowd = request.number % CHECK_CROWD_EVERY_CLAIMS == 1
    return CandidateReader(tx, request, hash_id("queue", queue), limit, released, checks_crowd=checks_crowd)


class QueueClaim:
    """A claim from one queue."""

    def __init__(self, state: ClaimState, queue: str, reader: CandidateReader) -> None:
        """Take the reader of its candidates, which were requested."""
        self._state = state
        self._tx = state.tx
        self._sql = statements("claim")
        self._now = state.request.now
        self._queue = hash_id("queue", queue)
        self._capacity = capacity_of(state.offers, queue)
        self._reader = reader
        self._watermarks = Watermarks(fresh={}, ready={})

    def take(self, result: Result) -> None:
        """Lease jobs of the queue, as many as the claim has room for."""
        state, limit = self._state, self._state.room
        candidates = self._reader.read(result)
        if candidates is None:
            return
        is_current = not candidates.returning
        if candidates.returning:
            candidates = self._return_blocked_lanes(candidates, limit)
        if candidates.tenants:
            choice = self._choose(candidates, limit)
            expired = self._take_picks(choice)
            for lane, _ in expired:
                choice.give_back(state.lanes[lane.id].tenant_id, lane)
            self._write_back(choice, candidates)
            if expired:
                settle.bury(self._tx, state.lanes, [(lane.id, job) for lane, job in expired], self._now)
            self._note_times(choice, is_cut=bool(expired))
            has_blocked = bool(choice.blocked_lanes) or any(tenant.blocked for tenant in choice.tenants.values())
            is_current = is_current and not has_blocked
            if self._reader.exclusion is not None and state.room:
                state.note(self._reader.exclusion.next_at(self._now, has_picks=bool(choice.picks)))
        if state.room:
            queue = candidates.queue
            times = [queue.first_due_at, queue.first_reopens_at] if is_current else self._next_times()
            state.note(*times)
            state.times.extend(state.released.due_ats(self._queue))

    def _return_blocked_lanes(self, candidates: Candidates, limit: int) -> Candidates:
        """Open lanes behind limiters that have room again, then read the candidates anew."""
        released = self._state.released
        # The rows of limiters are read again, so the slots that they have back are written before.
        released.write(self._tx)
        for limiter in candidates.returning:
            self._open_lanes_behind(limiter)
        self._reader = CandidateReader(self._tx, self._state.request, self._queue, limit, released)
        return self._reader.read(self._reader.request()) or candidates

    def _open_lanes_behind(self, row: LimiterRow) -> None:
        """Open the blocked lanes of one tenant more than the limiter has room for."""
        limiter = self._reader.limiters[row.id]
        room, reopens_at = limiter.room(self._now), limiter.reopens_at(self._now)
        if room == 0:
            self._tx.execute(self._sql["keep_blocked"], {"limiter": row.id, "reopens_at": reopens_at})
            return
        count = DEFAULTS.max_returning_tenants if room is None else min(DEFAULTS.max_returning_tenants, room + 1)
        parameters = {"limiter": row.id, "last_returned_tenant": row.last_returned_tenant, "max_tenants": count}
        self._tx.execute(self._sql["open_blocked_lanes"], parameters)

    def _choose(self, candidates: Candidates, limit: int) -> Choice:
        """Choose the jobs to take, reading more only where the choice depends on it."""
        queue, reader = candidates.queue, self._reader
        choice = Choice(queue.state(), reader.limiters[queue.limiter], capacity=self._capacity, now=self._now)
        choice.add(candidates.tenants, candidates.read_up_to)
        while need := choice.run(limit):
            if need == "weights":
                choice.weights = reader.weights()
            else:
                more = reader.read_more(choice.read_up_to or FIRST)
                choice.add(more.tenants if more else [], more.read_up_to if more else None)
        choice.finish()
        return choice

    def _take_picks(self, choice: Choice) -> list[tuple[Lane, Job]]:
        """Take the picked jobs off their lanes and lease them; return those that are past their deadline instead."""
        if not choice.picks:
            return []
        state = self._state
        rows = self._read_picks(choice)
        state.lanes.load(self._tx, rows)
        lease = Lease(state.request.session, self._now)
        models = {lane: lease_model(state.lanes[lane].model, lease) for lane in rows}
        next_of = {lane: iter(taken) for lane, taken in rows.items()}
        expired: list[tuple[Lane, Job]] = []
        expiring: list[tuple[int, str]] = []
        for lane in choice.picks:
            row = next(next_of[lane.id], None)
            if row is None:
                message = f"lane {lane.id} holds fewer jobs than it counts; restore the database from a backup"
                raise StoreCorrupt(message)
            job = copy(models[lane.id], row)
            if row.ready_at is not None and job.expires_at is not None:
                expiring.append((job.expires_at, job.id))
            if job.deadline_at is not None and job.deadline_at <= self._now:
                expired.append((lane, unpack(row, state.lanes[lane.id])))
            else:
                state.leases[id_to_bytes(job.id)] = (lane.id, job.version)
                state.jobs.append(job)
        if expiring:
            run(self._tx, statements("expire")["remove"], expiring)
        return expired

    def _read_picks(self, choice: Choice) -> dict[int, list[TakenRow]]:
        """Read the first jobs of each lane that was picked from, and take them off it."""
        lanes = [self._reader.lanes[lane] for lane in choice.taken]
        parameters = {
            "lanes": array_of(choice.taken),
            "counts": array_of(lane.taken for lane in choice.taken.values()),
            "fresh_watermarks": array_of(lane.fresh_watermark for lane in lanes),
            "ready_watermarks": array_of(lane.ready_watermark for lane in lanes),
        }
        rows: dict[int, list[TakenRow]] = {lane: [] for lane in choice.taken}
        for row in self._tx.records(TakenRow, self._sql["take_jobs"], parameters):
            rows[row.lane].append(row)
            if row.ready_at is None:
                self._watermarks.fresh[row.lane] = row.id
            else:
                self._watermarks.ready[row.lane] = row.ready_at
        return rows

    def _write_back(self, choice: Choice, candidates: Candidates) -> None:
        """Write what the choice has changed, and the slots that were released before."""
        released = self._state.released
        # The settlement may have written the rows of lanes after they were read.
        moved = released.written_lanes.intersection((*choice.taken, *choice.blocked_lanes))
        if moved:
            self._reader.refresh_locations(moved)
        updates = ClaimUpdates(choice, self._reader, self._watermarks, candidates.idle, released)
        self._tx.execute(self._sql["write_claim"], updates.parameters(self._queue))
        taken: dict[int, dict[Status, int]] = {
            lane.id: {"ready": -lane.taken} for lane in lane_updates(choice) if lane.taken
        }
        count_names(self._tx, self._state.lanes, taken)
        released.clear()

    def _note_times(self, choice: Choice, *, is_cut: bool) -> None:
        """Note when there may be more, by what the choice found."""
        at_once = self._now if choice.is_cut or is_cut else None
        times = (at_once, choice.ceiling_until, choice.queue.reopens_at(self._now))
        self._state.note(*times)

    def _next_times(self) -> Sequence[int | None]:
        """Return when the next job is due and the next lane or tenant may return, after what was written."""
        return self._tx.one(self._sql["next_times"], {"queue": self._queue}) or ()
