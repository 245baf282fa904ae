"""Sessions: which are alive, which jobs they hold, and which jobs dead sessions leave behind."""

from reprieve.core.duration import milliseconds
from reprieve.core.ids import id_from_bytes
from reprieve.core.job import Job
from reprieve.stores.postgres.annotations import cancels
from reprieve.stores.postgres.claim_lock import ClaimLock
from reprieve.stores.postgres.functions import release
from reprieve.stores.postgres.lane_cache import LaneCache
from reprieve.stores.postgres.leases import unpack_lease
from reprieve.stores.postgres.notices import tell
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import StoredJob, array_of, unpack
from reprieve.stores.postgres.schema import AppliedMigration, require_usable_after
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Heartbeat
from reprieve.stores.record import Lease
from reprieve.stores.session_notices import session_died, session_ended, session_opened
from reprieve.stores.session_record import pack_origin
from reprieve.stores.sql.sessions import encode_queues


def heartbeat(tx: Tx, lock: ClaimLock, request: Heartbeat) -> bool:
    """Open a session, renew it or end it; return whether it lives."""
    sql = statements("sessions")
    is_over = request.lease <= 0
    row = {
        "name": request.session,
        "expires_at": request.now + milliseconds(request.lease),
        "slots": request.slots,
        "prefetch": request.prefetch,
        "running": request.running,
        "queues": encode_queues(request.queues),
        "now": request.now,
        "is_dead": is_over,
        "release": release(),
    }
    if request.is_new:
        require_usable_after(tx.records(AppliedMigration, statements("schema")["versions"]))
        lock.acquire(tx)
        if tx.one(sql["open"], {**row, "origin": pack_origin(request)}) is not None:
            tell(tx, [session_opened(request)])
    elif is_over:
        lock.acquire(tx)
    was_alive = tx.one(sql["heartbeat"], row) is not None
    if was_alive and is_over:
        tell(tx, [session_ended(request)])
    return was_alive and not is_over


def held(  # noqa: PLR0913 - which of a session's jobs
    tx: Tx,
    lanes: LaneCache,
    session: int,
    name: str,
    *,
    since: int = 0,
    up_to: int = (1 << 62),
    limit: int = 0,
) -> list[Job]:
    """Return the jobs that a session holds from the claims of these numbers; at most `limit`, if it is given."""
    sql = statements("sessions")
    leases: dict[str, tuple[int, int]] = {}
    for leased_at, packed in tx.all(sql["leases"], {"session": session, "since": since, "up_to": up_to}):
        jobs = ((id_from_bytes(job), lane) for job, (lane, _) in unpack_lease(packed).items())
        leases |= {job: (lane, leased_at) for job, lane in jobs}
    if not leases:
        return []
    wanted = list(leases)[:limit] if limit else list(leases)
    rows = {row.id: row for row in tx.records(StoredJob, sql["jobs"], {"ids": array_of(wanted)})}
    lanes.load(tx, (lane for lane, _ in leases.values()))
    cancel_requests = cancels(tx)
    return [
        unpack(rows[job], lanes[lane], Lease(name, leased_at, cancel_requests.get(job)))
        for job, (lane, leased_at) in leases.items()
        if job in rows
    ]


def recover(tx: Tx, lock: ClaimLock, lanes: LaneCache, now: int, limit: int) -> list[Job]:
    """Expire sessions past their lease; return jobs that dead sessions hold."""
    sql = statements("sessions")
    lock.acquire(tx)
    tell(tx, [session_died(name, now) for (name,) in tx.all(sql["expire"], {"now": now})])
    jobs: list[Job] = []
    for session, name in tx.all(sql["dead"]):
        if len(jobs) >= limit:
            break
        found = held(tx, lanes, session, name, limit=limit - len(jobs))
        if not found:
            tx.execute(sql["close"], {"session": session})
        jobs += found
    return jobs
