"""Sessions: who is alive, what they hold, and what becomes of the jobs of the dead."""

import sqlite3

import msgspec

from reprieve.core.duration import milliseconds
from reprieve.core.job import Job
from reprieve.stores.protocol import Heartbeat
from reprieve.stores.record import Lease
from reprieve.stores.sqlite.annotations import cancels
from reprieve.stores.sqlite.places import Places
from reprieve.stores.sqlite.rows import Row, unpack
from reprieve.stores.sqlite.statements import statements

_decode_lease = msgspec.msgpack.Decoder(dict[int, tuple[int, int]]).decode


def heartbeat(tx: sqlite3.Connection, request: Heartbeat) -> bool:
    """Keep a session alive, open it, or end it; answer whether it lives."""
    sql = statements("sessions")
    expires_at = request.now + milliseconds(request.lease)
    if request.is_new:
        number = tx.execute(sql["number"]).fetchone()[0]
        tx.execute(sql["open"], (number, request.session, expires_at, request.slots))
    is_over = request.lease <= 0
    facts = {"name": request.session, "expires_at": expires_at, "slots": request.slots, "is_dead": is_over}
    return bool(tx.execute(sql["heartbeat"], facts).rowcount) and not is_over


def held(  # noqa: PLR0913 - which of a session's jobs
    tx: sqlite3.Connection,
    places: Places,
    session: int,
    name: str,
    *,
    since: int = 0,
    up_to: int = 0xFFFF_FFFF,
    limit: int = 0,
) -> list[Job]:
    """Return jobs that a session holds, by the numbers of the claims that brought them; at most `limit`, if given."""
    sql = statements("sessions")
    first = session << 32
    marked = cancels(tx)
    jobs: list[Job] = []
    for at, packed in tx.execute(sql["leases"], (first | since, first | up_to)).fetchall():
        lease = _decode_lease(packed)
        places.load(tx, {lane for lane, _ in lease.values()})
        for row, (lane, _) in lease.items():
            found = tx.execute(sql["job"], (row,)).fetchone()
            place = places[lane]
            jobs.append(unpack(Row(*found[:5]), found[5], place, Lease(name, at, marked.get(row))))
            if len(jobs) == limit:
                return jobs
    return jobs


def recover(tx: sqlite3.Connection, places: Places, now: int, limit: int) -> list[Job]:
    """Declare sessions dead whose time is up; answer jobs that the dead still hold."""
    sql = statements("sessions")
    tx.execute(sql["bury"], (now,))
    jobs: list[Job] = []
    for session, name in tx.execute(sql["dead"]).fetchall():
        if len(jobs) >= limit:
            break
        found = held(tx, places, session, name, limit=limit - len(jobs))
        if not found:
            tx.execute(sql["close"], (session,))
        jobs += found
    return jobs
