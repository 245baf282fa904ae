"""Sessions: who is alive, what they hold, and what becomes of the jobs of the dead."""

from collections.abc import Collection, Sequence

from reprieve.core import change
from reprieve.core.duration import milliseconds
from reprieve.core.job import Job
from reprieve.core.move import Return
from reprieve.stores.postgres import settle
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.leases import unpack_lease
from reprieve.stores.postgres.places import Places
from reprieve.stores.postgres.rows import Row, array_of, raw, text, unpack
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Beat, Mark, Pulse
from reprieve.stores.record import Lease


def beat(tx: Tx, places: Places, request: Beat) -> Pulse:
    """Keep a session alive, open it, or end it."""
    sql = statements("sessions")
    expires_at = request.now + milliseconds(request.lease)
    is_over = request.lease <= 0
    row = {
        "name": request.session,
        "expires_at": expires_at,
        "slots": request.slots,
        "is_dead": is_over,
    }
    if request.holds is not None:
        places.take_turn(tx)
    if request.is_new:
        tx.execute(sql["open"], row)
    kept = tx.one(sql["beat"], row)
    if kept is None:
        return Pulse(is_alive=False)
    session = int(kept[0])
    returned = 0
    if request.holds is not None:
        returned = _return_lost(tx, places, session, request)
    marked = [text(job) for job in _marked(tx)]
    stop = [job.id for job in held(tx, places, session, request.session, only=marked)] if marked else []
    return Pulse(is_alive=not is_over, stop=tuple(stop), returned=returned)


def _return_lost(tx: Tx, places: Places, session: int, request: Beat) -> int:
    """Give back what the session was leased and does not know of: the answer to its claim was lost."""
    jobs = held(tx, places, session, request.session, up_to=request.claimed, but=frozenset(request.holds or ()))
    changes = [change.settle(job, Return(), request.now) for job in jobs]
    return settle.settle(tx, places, changes, request.now).count("applied")


def held(  # noqa: PLR0913 - which of a session's jobs
    tx: Tx,
    places: Places,
    session: int,
    name: str,
    *,
    since: int = 0,
    up_to: int = (1 << 62),
    but: Collection[str] = frozenset(),
    only: Collection[str] | None = None,
    limit: int = 0,
) -> list[Job]:
    """Answer jobs that a session holds, by the numbers of the claims that brought them; at most `limit`, if given."""
    sql = statements("sessions")
    leases: dict[str, tuple[int, int]] = {}
    for at, packed in tx.all(sql["leases"], {"session": session, "since": since, "up_to": up_to}):
        jobs = ((text(job), shelf) for job, (shelf, _) in unpack_lease(packed).items())
        leases |= {job: (shelf, at) for job, shelf in jobs if job not in but and (only is None or job in only)}
    if not leases:
        return []
    wanted = list(leases)[:limit] if limit else list(leases)
    rows = {row[0]: Row(*row) for row in tx.all(sql["jobs"], {"ids": array_of(wanted)})}
    places.load(tx, (shelf for shelf, _ in leases.values()))
    marked = _marked(tx)
    return [
        unpack(rows[job], places[shelf], Lease(name, at, raw(job) in marked))
        for job, (shelf, at) in leases.items()
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


def mark(tx: Tx, places: Places, requests: Sequence[Mark]) -> list[bool]:
    """Note cancel requests and progress beside jobs that run."""
    sql = statements("sessions")
    places.take_turn(tx)
    holders: dict[bytes, str] = {}
    for name, packed in tx.all(sql["holders"]):
        holders |= dict.fromkeys(unpack_lease(packed), name)
    answers = []
    for request in requests:
        job = raw(request.job_id)
        is_heard = job in holders and request.session in ("", holders[job])
        if is_heard:
            row = {"id": request.job_id, "cancel": request.cancel, "progress": request.progress}
            tx.execute(sql["mark"], row)
        answers.append(is_heard)
    return answers


def _marked(tx: Tx) -> set[bytes]:
    return {raw(job) for (job,) in tx.all(statements("sessions")["marks"])}
