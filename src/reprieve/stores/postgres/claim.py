"""The claim, in one transaction and three round trips.

1. Acquire the claim lock and promote due jobs; read the session, its leases, and the candidates of the first queue.
2. Settle the changes, choose, and take the chosen jobs off their lanes.
3. Write back what the settlement and the choice have changed, record the claim, and commit.

`claim` is the outline of the whole; `QueueClaim.take` in queue_claim.py is that of the part that concerns one queue.
docs/extend/claim.md explains the steps on all stores.
"""

import msgspec

from reprieve.stores.event_record import pack_started
from reprieve.stores.postgres import settle
from reprieve.stores.postgres.array_statements import run
from reprieve.stores.postgres.candidates import CandidateReader
from reprieve.stores.postgres.claim_lock import ClaimLock
from reprieve.stores.postgres.lane_cache import LaneCache
from reprieve.stores.postgres.lane_ref import lane_of
from reprieve.stores.postgres.leases import Leases, pack_lease
from reprieve.stores.postgres.pipeline import Result
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.queue_claim import ClaimState, QueueClaim, reader_of
from reprieve.stores.postgres.released import ReleasedSlots
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.sessions import held
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Claim, Claimed
from reprieve.stores.sql.claim import LastClaim, pack_last_claim, repeated, require_session
from reprieve.stores.sql.series import add_deltas

MIN_PROMOTED_JOBS = 50
"""Due jobs of each kind of wait that a claim promotes at least, however few it takes."""


class SessionRow(msgspec.Struct, frozen=True):
    """The session that claims, with one of its leases if it has any."""

    id: int
    last_claim: int
    last_results: bytes | None
    is_alive: bool
    offers: str
    """What the live sessions run and fetch ahead, by the queues that they serve: see `sql.sessions.capacity_of`."""
    has_cancel_requests: bool
    """Whether any running job has a cancel request."""
    lease_claim: int | None
    lease_jobs: bytes | None


def claim(tx: Tx, lock: ClaimLock, lanes: LaneCache, request: Claim) -> Claimed:
    """Settle the changes of a session and lease jobs to it; a repeated call returns what it returned before."""
    queues = request.queues if request.limit > 0 else ()
    acquired = lock.begin_claim(tx, queues, request.now, max(MIN_PROMOTED_JOBS, 2 * request.limit))
    session_result = tx.execute(statements("claim")["session"], {"session": request.session})
    early_read = _EarlyRead(tx, request)
    rows = session_result.records(SessionRow)
    session = require_session(rows[0] if rows else None, request)
    if request.number == session.last_claim:
        return _repeat(tx, lanes, session, request)

    leases = Leases(tx)
    held_leases = [(row.lease_claim, row.lease_jobs) for row in rows if row.lease_claim is not None and row.lease_jobs]
    leases.add(request.session, session.id, held_leases)
    released = ReleasedSlots()
    released.may_have_cancel_requests = session.has_cancel_requests
    if request.starts and session.is_alive:
        starts = [(job.leased_at, job.id, job.version, pack_started(job)) for job in request.starts]
        run(tx, statements("settle")["add_events"], starts)
    results = settle.settle(tx, lanes, request.changes, request.now, leases, released)

    state = ClaimState(tx, lanes, request, session.offers, released, jobs=[], leases={}, times=[])
    next_at = _lease(state, early_read) if session.is_alive and request.limit > 0 else None
    if not acquired.is_all_counted:
        next_at = request.now
    released.write(tx)
    empty_leases = leases.write()
    add_deltas(tx, statements("series"), request.series)
    if request.changes or state.jobs or request.series or request.starts:
        # A claim that did nothing can be repeated as it is; recording it would be a write for each of them.
        record = {
            "empty_lease_sessions": array_of(session_id for session_id, _ in empty_leases),
            "empty_lease_claims": array_of(number for _, number in empty_leases),
            "session": session.id,
            "claim": request.number,
            "now": request.now,
            "results": pack_last_claim(LastClaim(results, next_at)),
            "first_lease": leases.first(session.id, request.number),
            "jobs": pack_lease(state.leases) if state.leases else None,
        }
        tx.execute(statements("claim")["record_claim"], record)
    return Claimed(results=tuple(results), jobs=tuple(state.jobs), next_at=next_at)


def _repeat(tx: Tx, lanes: LaneCache, session: SessionRow, request: Claim) -> Claimed:
    """Return what the session's last claim returned."""
    number = session.last_claim
    # A dead session learns what became of its changes; its jobs belong to other sessions.
    jobs = held(tx, lanes, session.id, request.session, since=number, up_to=number) if session.is_alive else []
    return repeated(session.last_results, jobs)


def _lease(state: ClaimState, early_read: "_EarlyRead") -> int | None:
    """Lease jobs of each queue in turn; return the next time at which there may be more."""
    request = state.request
    read = early_read.unless_changed(state.released)
    if read is None:
        state.released.write(state.tx)
    for queue in request.queues:
        if state.room > 0:
            reader, result = read or _request(state, queue)
            QueueClaim(state, queue, reader).take(result)
        read = None
    return min(state.times, default=None) if state.room > 0 else request.now


def _request(state: ClaimState, queue: str) -> tuple[CandidateReader, Result]:
    reader = reader_of(state.tx, state.request, queue, state.room, state.released)
    return reader, reader.request()


class _EarlyRead:
    """The candidates of the first queue, requested in the first round trip, before the changes are settled."""

    def __init__(self, tx: Tx, request: Claim) -> None:
        self._reader: CandidateReader | None = None
        if request.limit <= 0 or not request.queues:
            return
        self._may_release = ReleasedSlots()
        for change in request.changes:
            lane = lane_of(change.job)
            if lane.queue != request.queues[0]:
                # Slots of another queue are written before this one is read.
                return
            self._may_release.add(lane, 0)
        self._reader = reader_of(tx, request, request.queues[0], request.limit, self._may_release)
        self._result = self._reader.request()

    def unless_changed(self, released: ReleasedSlots) -> tuple[CandidateReader, Result] | None:
        """Return what was requested; None when the settlement has changed what was read."""
        if self._reader is None or released.has_moved_jobs or not released.is_within(self._may_release):
            return None
        self._reader.use(released)
        return self._reader, self._result
