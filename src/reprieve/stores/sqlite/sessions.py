"""Sessions: their heartbeats, the jobs that they hold, and the recovery of the jobs of dead sessions."""

import sqlite3

from reprieve.core.duration import milliseconds
from reprieve.core.job import Job
from reprieve.errors import StoreCorrupt
from reprieve.stores.protocol import Heartbeat
from reprieve.stores.record import Lease
from reprieve.stores.session_notices import session_died, session_ended, session_opened
from reprieve.stores.session_record import pack_origin
from reprieve.stores.sql.sessions import encode_queues
from reprieve.stores.sqlite.annotations import cancel_requests
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.leases import MAX_CLAIM_NUMBER, lease_ids, unpack_lease
from reprieve.stores.sqlite.notices import tell
from reprieve.stores.sqlite.rows import read_job, unpack
from reprieve.stores.sqlite.statements import statements


def heartbeat(tx: sqlite3.Connection, request: Heartbeat) -> bool:
    """Open a session, extend its lease or end it; return whether it is alive."""
    sql = statements("sessions")
    expires_at = request.now + milliseconds(request.lease)
    if request.is_new:
        number = tx.execute(sql["number"]).fetchone()[0]
        if tx.execute(sql["open"], (number, request.session, expires_at, request.slots)).rowcount:
            tell(tx, [session_opened(request)])
        tx.execute(sql["open_origin"], (pack_origin(request), request.session))
    is_over = request.lease <= 0
    facts = {
        "name": request.session,
        "expires_at": expires_at,
        "slots": request.slots,
        "prefetch": request.prefetch,
        "running": request.running,
        "queues": encode_queues(request.queues),
        "now": request.now,
        "is_dead": is_over,
    }
    was_alive = bool(tx.execute(sql["heartbeat"], facts).rowcount)
    if was_alive and is_over:
        tell(tx, [session_ended(request)])
    return was_alive and not is_over


def held(  # noqa: PLR0913 - which of a session's jobs
    tx: sqlite3.Connection,
    lanes: LaneCache,
    session: int,
    name: str,
    *,
    since: int = 0,
    up_to: int = MAX_CLAIM_NUMBER,
    limit: int = 0,
) -> list[Job]:
    """Return the jobs that a session holds from claims of these numbers; at most `limit` jobs, 0: all of them."""
    sql = statements("sessions")
    requests = cancel_requests(tx)
    jobs: list[Job] = []
    for at, packed in tx.execute(sql["leases"], lease_ids(session, since, up_to)).fetchall():
        leased = unpack_lease(packed)
        lanes.load(tx, {job.lane for job in leased.values()})
        for row, job in leased.items():
            stored = read_job(tx, row)
            if stored is None:
                message = (
                    f"a lease of session {name!r} holds job {row}, which has no row; restore the file from a backup"
                )
                raise StoreCorrupt(message)
            jobs.append(unpack(stored, stored.record, lanes[job.lane], Lease(name, at, requests.get(row))))
            if len(jobs) == limit:
                return jobs
    return jobs


def recover(tx: sqlite3.Connection, lanes: LaneCache, now: int, limit: int) -> list[Job]:
    """Expire sessions past their lease; return the jobs that dead sessions still hold."""
    sql = statements("sessions")
    expired = tx.execute(sql["expire"], (now,)).fetchall()
    tell(tx, [session_died(name, now) for (name,) in expired])
    jobs: list[Job] = []
    for session, name in tx.execute(sql["dead"]).fetchall():
        if len(jobs) >= limit:
            break
        found = held(tx, lanes, session, name, limit=limit - len(jobs))
        if not found:
            tx.execute(sql["close"], (session,))
            tx.execute(sql["close_origin"], (session,))
        jobs += found
    return jobs
