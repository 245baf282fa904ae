"""Sessions: who is alive, what they hold, and what becomes of the jobs of the dead."""

import sqlite3

import msgspec

from reprieve.core import change
from reprieve.core.duration import milliseconds
from reprieve.core.job import Job
from reprieve.core.move import Return
from reprieve.stores.protocol import Beat, Pulse
from reprieve.stores.sqlite import settle
from reprieve.stores.sqlite.marks import cancels
from reprieve.stores.sqlite.places import Places
from reprieve.stores.sqlite.rows import Lease, Row, row_id, unpack
from reprieve.stores.sqlite.statements import statements

_decode_lease = msgspec.msgpack.Decoder(dict[int, tuple[int, int]]).decode


def beat(tx: sqlite3.Connection, places: Places, request: Beat) -> Pulse:
    """Keep a session alive, open it, or end it."""
    sql = statements("sessions")
    expires_at = request.now + milliseconds(request.lease)
    if request.is_new:
        number = tx.execute(sql["number"]).fetchone()[0]
        tx.execute(sql["open"], (number, request.session, expires_at, request.slots))
    is_over = request.lease <= 0
    kept = tx.execute(
        sql["beat"],
        {
            "name": request.session,
            "expires_at": expires_at,
            "slots": request.slots,
            "is_dead": is_over,
        },
    ).fetchone()
    if kept is None:
        return Pulse(is_alive=False)
    session = int(kept[0])
    returned = 0
    if request.holds is not None:
        returned = _return_lost(tx, places, session, request)
    stop = [job.id for job in held(tx, places, session, request.session, only_marked=True)]
    return Pulse(is_alive=not is_over, stop=tuple(stop), returned=returned)


def _return_lost(tx: sqlite3.Connection, places: Places, session: int, request: Beat) -> int:
    """Give back what the session was leased and does not know of: the answer to its claim was lost."""
    known = {row_id(job_id) for job_id in request.holds or ()}
    jobs = held(tx, places, session, request.session, up_to=request.claimed, but=known)
    changes = [change.settle(job, Return(), request.now) for job in jobs]
    return settle.apply(tx, places, changes, request.now).count("applied")


def held(  # noqa: PLR0913 - which of a session's jobs
    tx: sqlite3.Connection,
    places: Places,
    session: int,
    name: str,
    *,
    since: int = 0,
    up_to: int = 0xFFFF_FFFF,
    but: frozenset[int] | set[int] = frozenset(),
    only_marked: bool = False,
    limit: int = 0,
) -> list[Job]:
    """Answer jobs that a session holds, by the numbers of the claims that brought them; at most `limit`, if given."""
    sql = statements("sessions")
    first = session << 32
    marked = cancels(tx)
    jobs: list[Job] = []
    for at, packed in tx.execute(sql["leases"], (first | since, first | up_to)).fetchall():
        lease = _decode_lease(packed)
        wanted = [row for row in lease if row not in but and (not only_marked or row in marked)]
        places.load(tx, {lease[row][0] for row in wanted})
        for row in wanted:
            found = tx.execute(sql["job"], (row,)).fetchone()
            place = places[lease[row][0]]
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
