"""Changes applied: each is checked against the lease or version that guards it, then all are written together."""

from collections.abc import Mapping, Sequence

from reprieve.core import change as changes_of
from reprieve.core.change import Change
from reprieve.core.events import Event
from reprieve.core.ids import is_id
from reprieve.core.job import Job
from reprieve.stores.event_record import pack_event, read_event
from reprieve.stores.postgres.claim_lock import ClaimLock
from reprieve.stores.postgres.finished import finished_job
from reprieve.stores.postgres.lane_cache import LaneCache
from reprieve.stores.postgres.leases import Leases
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.released import ReleasedSlots
from reprieve.stores.postgres.rows import MAX_INT8, StoredJob, array_of, pack, unpack
from reprieve.stores.postgres.statements import statements
from reprieve.stores.postgres.write_batch import Packed, WriteBatch, pack_change
from reprieve.stores.protocol import ChangeResult
from reprieve.stores.record import DEAD, LANE_COUNTERS, WAIT_NUMBERS
from reprieve.stores.sql.find import end_of


def settle(
    tx: Tx,
    lanes: LaneCache,
    changes: Sequence[Change],
    now: int,
    leases: Leases | None = None,
    released: ReleasedSlots | None = None,
) -> list[ChangeResult]:
    """Apply changes under the claim lock; return what became of each. One that cannot be stored is refused alone.

    A claim gives `leases` and `released` and writes them itself, since it changes the same rows.
    """
    if not changes:
        return []
    is_claim = released is not None
    released = released or ReleasedSlots()
    leases = leases or Leases(tx)
    leases.load({change.session for change in changes if change.session})
    unleased = _UnleasedJobs(tx, lanes, changes)
    batch = WriteBatch(tx, lanes, now, released)
    results: list[ChangeResult] = []
    applied: dict[str, Event] = {}
    for change in changes:
        job_id = change.job.id
        if not is_id(job_id):
            results.append("missing")
            continue
        packed = pack_change(change)
        if packed is None:
            results.append("refused")
            continue
        if job_id in applied:
            lane = None  # of several changes of one job the first is applied; the others were made without it
        elif change.session:
            lane = leases.end(change.session, job_id, change.version)
        else:
            lane = unleased.remove(change, batch)
        if lane is None:
            is_repeated = applied.get(job_id) == change.event
            results.append("already" if is_repeated else _why_not_applied(tx, change))
        else:
            applied[job_id] = change.event
            batch.add(lane, change, packed)
            results.append("applied")
    batch.write()
    if not is_claim:
        released.write(tx)
        leases.delete(leases.write())
    return results


def bury(tx: Tx, lanes: LaneCache, expired: Sequence[tuple[int, Job]], now: int) -> None:
    """End jobs that a claim took off their lanes and found past their deadline."""
    batch = WriteBatch(tx, lanes, now, ReleasedSlots())
    for lane, job in expired:
        change = changes_of.expire(job, now)
        batch.add(lane, change, Packed(pack(change.job), pack_event(change.event)))
    batch.write()


class UnleasedRow(StoredJob, frozen=True):
    """A job, and in which table it waits: `location` is fresh, ready, delayed, ended, running or uncounted."""

    ready_at: int
    """Its place in its lane if it is ready, also where the record that has the SLA cannot be read."""
    location: str


def read_unleased(tx: Tx, lanes: LaneCache, ids: Sequence[str]) -> list[UnleasedRow]:
    """Return jobs and where they wait, under the claim lock, and load their lanes.

    A job that was committed after the lock was acquired may have a lane that does not exist yet, so that nothing would
    count its change. Then what was committed is counted first.
    """
    if not ids:
        return []
    sql, wanted = statements("settle"), {"ids": array_of(ids)}
    rows = tx.records(UnleasedRow, sql["unleased"], wanted)
    if any(row.location == "uncounted" for row in rows):
        while not ClaimLock().acquire(tx).is_all_counted:
            pass
        rows = tx.records(UnleasedRow, sql["unleased"], wanted)
    lanes.load(tx, (row.lane for row in rows))
    return rows


class _UnleasedJobs:
    """The jobs that a batch of changes concerns and that no session holds."""

    def __init__(self, tx: Tx, lanes: LaneCache, changes: Sequence[Change]) -> None:
        self._tx = tx
        self._lanes = lanes
        ids = [change.job.id for change in changes if not change.session and is_id(change.job.id)]
        self._rows: Mapping[str, UnleasedRow] = {row.id: row for row in read_unleased(tx, lanes, ids)}

    def remove(self, change: Change, batch: WriteBatch) -> int | None:
        """Remove a job from where it is; return its lane, or None when it is not as the change has seen it."""
        row = self._rows.get(change.job.id)
        if (
            row is None
            or row.version != change.version
            or row.location in ("running", "uncounted")
            or row.waiting_for >= len(LANE_COUNTERS)
        ):
            return None
        lane = self._lanes[row.lane]
        job = unpack(row, lane)
        if row.location != "ended" and job.expires_at is not None:
            batch.no_longer_expiring.append((job.expires_at, job.id))
        match row.location:
            case "ready":
                batch.leave(row.lane, "ready")
                batch.no_longer_ready.append((row.lane, row.ready_at, row.id))
            case "fresh":
                batch.leave(row.lane, "ready")
            case "delayed":
                wait = row.waiting_for or WAIT_NUMBERS["schedule"]
                batch.leave(row.lane, LANE_COUNTERS[wait])
                batch.no_longer_delayed.append((lane.queue_id, wait, job.due_at, row.id))
            case _:
                ended_at = job.finished_at
                if ended_at is None:  # its record cannot be read
                    ended_at = end_of(self._tx, statements("find"), lane.queue_id, row.state, row.id).at
                batch.no_longer_ended.append((lane.queue_id, row.state, ended_at, row.id))
                batch.leave(row.lane, "dead" if row.state == DEAD else "cancelled")
        return row.lane


def _why_not_applied(tx: Tx, change: Change) -> ChangeResult:
    """Return why a change was not applied."""
    sql = statements("settle")
    wanted = {"id": change.job.id, "version": change.event.version}
    recorded = tx.all(sql["event"], wanted) if -MAX_INT8 <= change.event.version <= MAX_INT8 else []
    if any(read_event(data) == change.event for (data,) in recorded):
        return "already"
    if tx.one(sql["exists"], wanted) is not None:
        return "refused"
    job = finished_job(tx, change.job.id)
    if job is None:
        return "missing"
    return "already" if job == change.job else "refused"
