"""Enqueue: writes the rows of new jobs, adds them to their lanes, and acquires their unique keys."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from reprieve.core.duration import milliseconds
from reprieve.core.job import Job
from reprieve.core.series import MINUTE_MS
from reprieve.errors import StoreError
from reprieve.stores.event_record import pack_enqueued
from reprieve.stores.protocol import KEY_RETENTION_SECONDS
from reprieve.stores.record import LANE_COUNTERS, WAIT_NUMBERS, key_of
from reprieve.stores.sql.tried import tried_fields
from reprieve.stores.sqlite.expiring import add_deadlines, add_expiring
from reprieve.stores.sqlite.finished import finished_jobs
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.name_counts import count_names
from reprieve.stores.sqlite.rows import id_of, order_at, pack, ready_at, split_id
from reprieve.stores.sqlite.statements import Tx, run, statements

_COUNTERS = tuple(dict.fromkeys(LANE_COUNTERS))


class NewestRow(NamedTuple):
    """The newest rows of the file."""

    job: int
    finished: int
    """The largest id of a job that succeeded."""
    lanes_deleted: int
    """How often lanes were deleted."""


def enqueue(tx: Tx, lanes: LaneCache, jobs: Sequence[Job], now: int) -> list[str]:
    """Store new jobs; return the id of each: its own, or that of the job that holds its unique key."""
    ids = [split_id(job.id) for job in jobs]
    rows = [row for row, _ in ids]
    newest = NewestRow(*tx.execute(statements("enqueue")["newest"]).fetchone())
    lanes.trim()
    lanes.start(newest.lanes_deleted)
    stored = _stored(tx, newest, rows, jobs)
    known = _acquire_keys(tx, jobs, rows, stored, now) if any(job.key for job in jobs) else {}
    fresh = []
    for number, ((row, middle), job) in enumerate(zip(ids, jobs, strict=True)):
        if row not in stored and number not in known:
            stored.add(row)
            fresh.append((row, middle, job))
    _insert(tx, lanes, fresh, now)
    return [known.get(number, job.id) for number, job in enumerate(jobs)] if known else [job.id for job in jobs]


def _insert(tx: Tx, lanes: LaneCache, fresh: Sequence[tuple[int, bytes, Job]], now: int) -> None:
    sql = statements("enqueue")
    job_rows, ready_rows, delayed_rows = [], [], []
    expiring: list[tuple[int, int]] = []
    fresh_deadlines: dict[int, list[tuple[int, int, int]]] = {}
    counts: dict[int, list[int]] = {}
    tenants: set[int] = set()
    for row, middle, job in fresh:
        lane = lanes.of_job(tx, job)
        wait = WAIT_NUMBERS[job.waiting_for]
        job_rows.append((row, lane.id, job.version, wait, job.due_at, pack(job, row, middle)))
        if job.deadline_at is not None and (job.due_at > now or lane.is_by_sla):
            expiring.append((job.deadline_at, row))
        count = counts.get(lane.id)
        if count is None:
            count = counts[lane.id] = [0] * len(_COUNTERS)
        if job.due_at <= now:
            at = order_at(job, row) if lane.priority % 2 else ready_at(row, job.due_at)
            ready_rows.append((lane.id, at, row))
            count[0] += 1
            if job.deadline_at is not None and not lane.priority % 2:
                fresh_deadlines.setdefault(lane.id, []).append((at, job.deadline_at, row))
            tenants.add(lane.tenant_id)
        else:
            # A job that is due later is scheduled, also if it came without a reason to wait.
            wait = wait or WAIT_NUMBERS["schedule"]
            delayed_rows.append((lane.queue_id, wait, job.due_at, row, lane.id, *tried_fields(job, wait)))
            count[_COUNTERS.index(LANE_COUNTERS[wait])] += 1
    if fresh_deadlines:
        expiring += add_deadlines(tx, fresh_deadlines)
    add_expiring(tx, expiring)
    run(tx, sql["jobs"], job_rows)
    run(tx, sql["ready"], ready_rows)
    run(tx, sql["delayed"], delayed_rows)
    run(tx, sql["count"], [(lane_id, *count) for lane_id, count in counts.items()])
    count_names(tx, lanes, {lane: dict(zip(_COUNTERS, count, strict=True)) for lane, count in counts.items()})
    told = [(job.created_at, row, job.version, pack_enqueued(job)) for row, _, job in fresh if job.tells_all]
    run(tx, statements("settle")["events"], told)
    minute = now // MINUTE_MS
    run(tx, sql["count_for_series"], [(minute, lane_id, sum(count)) for lane_id, count in counts.items()])
    run(tx, sql["open"], [(lane_id,) for lane_id, (ready, *_) in counts.items() if ready])
    run(tx, sql["make_candidates"], [(tenant,) for tenant in tenants])


def _stored(tx: Tx, newest: NewestRow, ids: list[int], jobs: Sequence[Job]) -> set[int]:
    """Return the rows that are stored already, because this enqueue repeats an earlier one."""
    sql = statements("enqueue")
    # Ids grow with time, so a row can only be stored, or have finished, if its id is not newer than all of those.
    older = [row for row in ids if row <= newest.job]
    stored: dict[int, str] = {}
    if older:
        found = tx.execute(sql["known"], (msgspec.json.encode(older).decode(),)).fetchall()
        stored = {row: id_of(row, record) for row, record in found}
    for row in ids:
        for job in finished_jobs(tx, row) if row <= newest.finished else ():
            stored[row] = job.id
    for row, job in zip(ids, jobs, strict=True) if stored else ():
        # Another public id with the same row id: two processes have the same node number.
        if stored.get(row, job.id) != job.id:
            message = f"job id {job.id} collides with another, {stored[row]}; make a new id"
            raise StoreError(message)
    return set(stored)


def _acquire_keys(tx: Tx, jobs: Sequence[Job], ids: list[int], stored: set[int], now: int) -> dict[int, str]:
    """Acquire the unique keys of new jobs; return the id of the holder for each job whose key is held already."""
    sql = statements("enqueue")
    keyed = {number: key_of(job) for number, job in enumerate(jobs) if job.key and ids[number] not in stored}
    holders: dict[bytes, str] = {}
    for start in range(0, len(keyed), 500):
        part = list(keyed.values())[start : start + 500]
        placeholders = ",".join("?" * len(part))
        rows = tx.execute(sql["keys"].replace("{placeholders}", placeholders), part).fetchall()
        # The caller's connection may have a text_factory that returns bytes.
        holders |= {
            key: holder if isinstance(holder, str) else bytes(holder).decode()
            for key, holder, expires_at, is_stored in rows
            if expires_at > now or is_stored
        }
    known: dict[int, str] = {}
    acquired: dict[bytes, tuple[bytes, str, int, int]] = {}
    for number, key in keyed.items():
        job = jobs[number]
        if key in holders:
            known[number] = holders[key]
        else:
            holders[key] = job.id
            ttl = KEY_RETENTION_SECONDS if job.key_ttl is None else job.key_ttl
            acquired[key] = (key, job.id, ids[number], now + milliseconds(ttl))
    run(tx, sql["acquire_keys"], list(acquired.values()))
    return known
