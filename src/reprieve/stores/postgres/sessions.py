"""Sessions: who is alive, what they hold, and what becomes of the jobs of the dead."""

from reprieve.core.duration import milliseconds
from reprieve.core.ids import id_from_bytes
from reprieve.core.job import Job
from reprieve.stores.postgres.annotations import cancels
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.leases import unpack_lease
from reprieve.stores.postgres.places import Places
from reprieve.stores.postgres.rows import Row, array_of, unpack
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Heartbeat
from reprieve.stores.record import Lease


def heartbeat(tx: Tx, request: Heartbeat) -> bool:
    """Keep a session alive, open it, or end it; answer whether it lives."""
    sql = statements("sessions")
    is_over = request.lease <= 0
    row = {
        "name": request.session,
        "expires_at": request.now + milliseconds(request.lease),
        "slots": request.slots,
        "is_dead": is_over,
    }
    if request.is_new:
        tx.execute(sql["open"], row)
    return tx.one(sql["heartbeat"], row) is not None and not is_over


def time(tx: Tx) -> int:
    """Return the time that sessions live and die by: the server's, in microseconds since 1970."""
    (now,) = tx.all(statements("sessions")["time"])[0]
    return int(now)


def held(  # noqa: PLR0913 - which of a session's jobs
    tx: Tx,
    places: Places,
    session: int,
    name: str,
    *,
    since: int = 0,
    up_to: int = (1 << 62),
    limit: int = 0,
) -> list[Job]:
    """Return jobs that a session holds, by the numbers of the claims that brought them; at most `limit`, if given."""
    sql = statements("sessions")
    leases: dict[str, tuple[int, int]] = {}
    for at, packed in tx.all(sql["leases"], {"session": session, "since": since, "up_to": up_to}):
        jobs = ((id_from_bytes(job), lane) for job, (lane, _) in unpack_lease(packed).items())
        leases |= {job: (lane, at) for job, lane in jobs}
    if not leases:
        return []
    wanted = list(leases)[:limit] if limit else list(leases)
    rows = {row[0]: Row(*row) for row in tx.all(sql["jobs"], {"ids": array_of(wanted)})}
    places.load(tx, (lane for lane, _ in leases.values()))
    wishes = cancels(tx)
    return [
        unpack(rows[job], places[lane], Lease(name, at, wishes.get(job)))
        for job, (lane, at) in leases.items()
        if job in rows
    ]


def recover(tx: Tx, places: Places, now: int, limit: int) -> list[Job]:
    """Declare sessions dead whose time is up; answer jobs that the dead still hold."""
    sql = statements("sessions")
    places.take_turn(tx)
    tx.execute(sql["bury"], {"now": now})
    jobs: list[Job] = []
    for session, name in tx.all(sql["dead"]):
        if len(jobs) >= limit:
            break
        found = held(tx, places, session, name, limit=limit - len(jobs))
        if not found:
            tx.execute(sql["close"], {"session": session})
        jobs += found
    return jobs
