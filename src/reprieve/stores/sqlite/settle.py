"""Settling: checks each change of a job against the lease or version that it expects, and writes all as one batch."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from reprieve.core import change as changes_of
from reprieve.core.change import Change
from reprieve.core.events import Event
from reprieve.core.job import Job
from reprieve.core.unreadable import unreadable_record
from reprieve.stores.event_record import read_event
from reprieve.stores.protocol import ChangeResult
from reprieve.stores.record import DEAD, LANE_COUNTERS, WAIT_NUMBERS, WAITING
from reprieve.stores.sql.ended import IndexedFields
from reprieve.stores.sql.find import end_of
from reprieve.stores.sql.lanes import LaneRef
from reprieve.stores.sqlite.expiring import remove_expiring
from reprieve.stores.sqlite.finished import finished_jobs
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.leases import LeasedJob, lease_ids, pack_lease, unpack_lease
from reprieve.stores.sqlite.rows import order_at, read_job, split_id, unpack
from reprieve.stores.sqlite.statements import run, statements
from reprieve.stores.sqlite.tx import SqliteTx
from reprieve.stores.sqlite.write_batch import Released, WriteBatch


def apply(tx: sqlite3.Connection, lanes: LaneCache, changes: Sequence[Change], now: int) -> list[ChangeResult]:
    """Write changes and release the slots of their tenants; each change is applied or refused by itself."""
    results, released = settle(tx, lanes, changes, now)
    for tenants in released.values():
        release(tx, tenants)
    return results


def release(tx: sqlite3.Connection, tenants: Counter[int]) -> None:
    """Release slots of tenants; a tenant that was at its limit becomes a candidate again."""
    run(tx, statements("settle")["tenants"], list(tenants.items()))


def settle(
    tx: sqlite3.Connection, lanes: LaneCache, changes: Sequence[Change], now: int
) -> tuple[list[ChangeResult], Released]:
    """Write changes; return the result of each, and the slots that tenants release.

    The slots are not written: a claim in the same transaction may hand them out again. If a change cannot be written,
    the batch is rolled back and split until that change stands alone; it is then refused.
    """
    if not changes:
        return [], {}
    tx.execute("savepoint settle")
    try:
        settled = _settle(tx, lanes, changes, now)
    except (OverflowError, TypeError, ValueError, sqlite3.IntegrityError, sqlite3.InterfaceError):
        tx.execute("rollback to settle")
        tx.execute("release settle")
        lanes.clear()
        if len(changes) == 1:
            return ["refused"], {}
        half = len(changes) // 2
        results, released = settle(tx, lanes, changes[:half], now)
        more, also = settle(tx, lanes, changes[half:], now)
        for queue, tenants in also.items():
            released.setdefault(queue, Counter()).update(tenants)
        return [*results, *more], released
    tx.execute("release settle")
    return settled


def _settle(
    tx: sqlite3.Connection, lanes: LaneCache, changes: Sequence[Change], now: int
) -> tuple[list[ChangeResult], Released]:
    leases = _Leases(tx, {change.session for change in changes if change.session})
    batch = WriteBatch(tx, lanes, now)
    results: list[ChangeResult] = []
    applied: dict[int, Event] = {}
    for change in changes:
        try:
            row, middle = split_id(change.job.id)
        except ValueError:  # not an id, so there is no such job
            results.append("missing")
            continue
        if row in applied:
            lane = None  # a second change of the same job in a batch expects a version that the first has replaced
        elif change.session:
            lane = leases.end(change.session, row, change.version)
        else:
            lane = _remove_from_lane(tx, lanes, batch, row, change)
        if lane is None:
            is_repeated = applied.get(row) == change.event
            results.append("already" if is_repeated else _why_not_applied(tx, row, change))
        else:
            applied[row] = change.event
            batch.add((row, middle), lane, change, was_running=bool(change.session))
            results.append("applied")
    leases.write()
    batch.write()
    return results, batch.released


def bury(tx: sqlite3.Connection, lanes: LaneCache, lost: Sequence[tuple[int, Job]], now: int) -> None:
    """Expire jobs that a claim took off their lanes and found to be past their deadline."""
    batch = WriteBatch(tx, lanes, now)
    for lane, job in lost:
        batch.add(split_id(job.id), lane, changes_of.expire(job, now), was_running=False)
    batch.write()


class _Leases:
    """The leases of some sessions, from which settled jobs are removed."""

    def __init__(self, tx: sqlite3.Connection, sessions: Iterable[str]) -> None:
        sql = statements("settle")
        self._tx = tx
        self._jobs: dict[int, dict[int, LeasedJob]] = {}
        """The jobs of each lease, by its id."""
        self._changed: set[int] = set()
        self._of_session: dict[str, list[int]] = {}
        names = msgspec.json.encode(list(sessions)).decode()
        for session, name in tx.execute(sql["sessions"], (names,)).fetchall():
            rows = tx.execute(sql["leases"], lease_ids(session)).fetchall()
            self._jobs |= {lease: unpack_lease(jobs) for lease, jobs in rows}
            self._of_session[name] = [lease for lease, _ in rows]

    def end(self, session: str, row: int, version: int) -> int | None:
        """Remove a job from a session's lease; return its lane, or None if the session does not hold this version."""
        for lease in self._of_session.get(session, ()):
            leased = self._jobs[lease].get(row)
            if leased is not None and leased.version == version:
                del self._jobs[lease][row]
                self._changed.add(lease)
                return leased.lane
        return None

    def write(self) -> None:
        """Write the leases that have changed; delete those without jobs."""
        sql = statements("settle")
        for lease in self._changed:
            if self._jobs[lease]:
                self._tx.execute(sql["release"], (pack_lease(self._jobs[lease]), lease))
            else:
                self._tx.execute(sql["release_all"], (lease,))


def _remove_from_lane(
    tx: sqlite3.Connection, lanes: LaneCache, batch: WriteBatch, row: int, change: Change
) -> int | None:
    """Remove a job that does not run from its lane; return the lane, or None if the job has another version or runs."""
    sql = statements("settle")
    found = read_job(tx, row)
    if found is None or found.version != change.version:
        return None
    if found.wait >= len(LANE_COUNTERS):  # of a later release
        return None
    lane = lanes.get(tx, found.lane)
    if found.state == WAITING:
        job = unpack(found, found.record, lane)
        wait = found.wait or WAIT_NUMBERS["schedule"]
        if tx.execute(sql["undelay"], (lane.queue_id, wait, found.due, row)).rowcount:
            batch.counts[lane.id][LANE_COUNTERS[wait]] -= 1
        elif _remove_ready(tx, lane, job, row):
            batch.counts[lane.id]["ready"] -= 1
        else:
            return None  # it runs
        if job.expires_at is not None:
            remove_expiring(tx, [(job.expires_at, row)])
        return lane.id
    finished_at = unpack(found, found.record, lane).finished_at
    if finished_at is None:  # its record cannot be read
        finished_at = end_of(SqliteTx(tx), statements("find"), lane.queue_id, found.state, row).at
    for fields in tx.execute(sql["unend"], (lane.queue_id, found.state, finished_at, row)).fetchall():
        if found.state == DEAD:
            batch.causes.remove_dead(IndexedFields(*fields).failure_names())
    batch.counts[lane.id]["dead" if found.state == DEAD else "cancelled"] -= 1
    return lane.id


def _remove_ready(tx: sqlite3.Connection, lane: LaneRef, job: Job, row: int) -> bool:
    """Remove a job from the ready ones of its lane; return whether it was there."""
    sql = statements("settle")
    if tx.execute(sql["unready"], (lane.id, order_at(job, row), row)).rowcount:
        return True
    # The SLA that orders it is lost if its record cannot be read.
    is_misplaced = lane.is_by_sla and unreadable_record(job) is not None
    return is_misplaced and tx.execute(sql["unready_anywhere"], (lane.id, row)).rowcount > 0


def _why_not_applied(tx: sqlite3.Connection, row: int, change: Change) -> ChangeResult:
    """Return the result of a change that was not applied: it was before, it conflicts, or the job is gone."""
    sql = statements("settle")
    recorded = tx.execute(sql["event"], (row, change.event.version)).fetchall()
    if any(read_event(data) == change.event for (data,) in recorded):
        return "already"
    if read_job(tx, row) is not None:
        return "refused"
    for job in finished_jobs(tx, row):
        if job.id == change.job.id:
            return "already" if job == change.job else "refused"
    return "missing"
