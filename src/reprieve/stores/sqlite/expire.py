"""Expiry: ends waiting jobs that no worker claims, past their deadline or parked for `max_parked`."""

import sqlite3

from reprieve.core import change as changes_of
from reprieve.core.job import Job
from reprieve.stores.protocol import Expired
from reprieve.stores.record import WAITING
from reprieve.stores.sql.expiring import MAX_EXPIRING_LANES, MAX_LEFTOVER_ROWS, LaneSpan, look_again_at
from reprieve.stores.sqlite import settle
from reprieve.stores.sqlite.expiring import add_expiring, remove_expiring
from reprieve.stores.sqlite.find import read_held
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.rows import StoredJob, read_job, unpack
from reprieve.stores.sqlite.statements import run, statements


def is_due(tx: sqlite3.Connection, now: int) -> bool:
    """Return whether there are rows or lanes to look at."""
    return bool(tx.execute(statements("expire")["is_due"], {"now": now}).fetchone()[0])


def expire(tx: sqlite3.Connection, lanes: LaneCache, now: int, limit: int) -> Expired:
    """End waiting jobs whose time has come, at most so many; return them as they are now."""
    tx.execute(statements("expire")["remove_leftovers"], (now, MAX_LEFTOVER_ROWS))
    found = _due_jobs(tx, lanes, now, limit)
    for span in _due_lanes(tx, now):
        if len(found) < limit:
            most = limit - len(found)
            found += _first_jobs(tx, lanes, span, now, most, most)
    changes = [changes_of.expire(job, now) for job in {job.id: job for job in found}.values()]
    results = settle.apply(tx, lanes, changes, now)
    ended = (change.job for change, result in zip(changes, results, strict=True) if result == "applied")
    return Expired(jobs=tuple(ended), has_more=is_due(tx, now))


def _due_jobs(tx: sqlite3.Connection, lanes: LaneCache, now: int, limit: int) -> list[Job]:
    """Take the rows of jobs whose own time has come; return those of them that wait and must end."""
    due = tx.execute(statements("expire")["due"], (now, limit)).fetchall()
    if not due:
        return []
    remove_expiring(tx, due)
    held, held_lanes = read_held(tx)
    jobs: list[Job] = []
    again: list[tuple[int, int]] = []
    for _, row in due:
        stored = read_job(tx, row)
        if stored is None or stored.state != WAITING:
            continue
        lane = lanes.get(tx, stored.lane)
        job = unpack(stored, stored.record, lane)
        if job.deadline_at is not None and job.deadline_at <= now:
            jobs.append(job)
        elif job.expires_at is not None and job.expires_at <= now:
            if held.isdisjoint(lane.limiters) and lane.id not in held_lanes:
                again.append((look_again_at(job, now), row))
            else:
                jobs.append(job)
    add_expiring(tx, again)
    return jobs


def _due_lanes(tx: sqlite3.Connection, now: int) -> list[LaneSpan]:
    rows = tx.execute(statements("expire")["due_lanes"], (now, MAX_EXPIRING_LANES)).fetchall()
    return [LaneSpan(*columns) for columns in rows]


def _first_jobs(tx: sqlite3.Connection, lanes: LaneCache, span: LaneSpan, now: int, limit: int, size: int) -> list[Job]:
    """Return those of the first jobs of a lane that are past their deadline, and note when to look at it again.

    More jobs are read only if all became ready in the same millisecond, and none of them has expired.
    """
    sql = statements("expire")
    until = now - (span.span or 0)
    rows = tx.execute(sql["first_ready"], (span.lane, span.swept_until, until, size)).fetchall()
    lane = lanes.get(tx, span.lane)
    jobs = [unpack(stored := StoredJob(*columns), stored.record, lane) for _, *columns in rows]
    expired = [job for job in jobs if job.deadline_at is not None and job.deadline_at <= now]
    expires_at: int | None = now
    if len(expired) > limit:
        until = span.swept_until
    elif len(rows) == size:
        first_at, last_at = rows[0][0], rows[-1][0]
        if first_at == last_at and not expired:
            return _first_jobs(tx, lanes, span, now, limit, 2 * size)
        # More may have become ready in the same millisecond as the last one.
        until = max(span.swept_until, last_at - 1)
    else:
        next_at = tx.execute(sql["next_ready_at"], (span.lane, until)).fetchone()[0]
        expires_at = None if next_at is None else next_at + (span.span or 0)
    run(tx, sql["set_spans"], [(span.lane, span.span, until, expires_at)])
    return expired[:limit]
