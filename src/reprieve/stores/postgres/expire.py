"""Expiry: ends waiting jobs that no worker claims, past their deadline or parked for `max_parked`."""

from collections.abc import Sequence
from typing import Final

from reprieve.core import change as changes_of
from reprieve.core.ids import created_at, make_id
from reprieve.core.job import Job
from reprieve.stores.postgres import settle
from reprieve.stores.postgres.array_statements import run
from reprieve.stores.postgres.lane_cache import LaneCache
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import StoredJob, array_of, unpack
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Expired
from reprieve.stores.sql.expiring import MAX_EXPIRING_LANES, MAX_LEFTOVER_ROWS, LaneSpan, look_again_at

MAX_ADDITIONS: Final = 100
"""Additions that one call looks at."""

MAX_ADDED_JOBS: Final = 500
"""Jobs of additions that one call reads to find their deadlines."""

_WAITING: Final = ("fresh", "ready", "delayed")


class AddedJob(StoredJob, frozen=True):
    """A job, and with which addition it came to a lane whose deadline span not all jobs of the addition have."""

    addition: int


def is_due(tx: Tx, now: int) -> bool:
    """Return whether there are rows, lanes or additions to look at."""
    return tx.one(statements("expire")["is_due"], {"now": now}) == (True,)


def may_be_due(tx: Tx, counted: str, now: int) -> bool:
    """Return whether there is anything to look at, once what was enqueued since a snapshot is counted."""
    return is_due(tx, now) or tx.one(statements("expire")["has_uncounted_deadline"], {"counted": counted}) == (True,)


def expire(tx: Tx, lanes: LaneCache, now: int, limit: int) -> Expired:
    """End waiting jobs whose time has come, at most so many, under the claim lock; return them as they are now."""
    _sweep_additions(tx, lanes)
    tx.execute(statements("expire")["remove_leftovers"], {"now": now, "limit": MAX_LEFTOVER_ROWS})
    found = _due_jobs(tx, lanes, now, limit)
    wanted = {"now": now, "limit": MAX_EXPIRING_LANES}
    for span in tx.records(LaneSpan, statements("expire")["due_lanes"], wanted):
        if len(found) < limit:
            most = limit - len(found)
            found += _first_jobs(tx, lanes, span, now, most, most)
    changes = [changes_of.expire(job, now) for job in {job.id: job for job in found}.values()]
    results = settle.settle(tx, lanes, changes, now)
    ended = (change.job for change, result in zip(changes, results, strict=True) if result == "applied")
    return Expired(jobs=tuple(ended), has_more=is_due(tx, now))


def _add_expiring(tx: Tx, rows: Sequence[tuple[int, str]]) -> None:
    if rows:
        run(tx, statements("expire")["add"], rows)


def _sweep_additions(tx: Tx, lanes: LaneCache) -> None:
    """Give jobs of additions rows of their own, by their deadlines, which only the client can read."""
    sql = statements("expire")
    additions = [addition for (addition,) in tx.all(sql["unswept_additions"], {"limit": MAX_ADDITIONS})]
    if not additions:
        return
    rows = tx.records(AddedJob, sql["added_jobs"], {"additions": array_of(additions), "limit": MAX_ADDED_JOBS})
    lanes.load(tx, (row.lane for row in rows))
    jobs = [unpack(row, lanes[row.lane]) for row in rows]
    _add_expiring(tx, [(job.expires_at, job.id) for job in jobs if job.expires_at is not None])
    if len(rows) == MAX_ADDED_JOBS:
        last = rows[-1]
        additions = [addition for addition in additions if addition < last.addition]
        tx.execute(sql["shorten_addition"], {"addition": last.addition, "lowest_id": last.id})
    tx.execute(sql["remove_additions"], {"additions": array_of(additions)})


def _due_jobs(tx: Tx, lanes: LaneCache, now: int, limit: int) -> list[Job]:
    """Take the rows of jobs whose own time has come; return those of them that wait and must end."""
    due = [str(job_id) for (job_id,) in tx.all(statements("expire")["take_due"], {"now": now, "limit": limit})]
    if not due:
        return []
    held = {limiter for (limiter,) in tx.all(statements("find")["held"])}
    rows = settle.read_unleased(tx, lanes, due)
    jobs: list[Job] = []
    again: list[tuple[int, str]] = []
    for row in rows:
        if row.location not in _WAITING:
            continue
        lane = lanes[row.lane]
        job = unpack(row, lane)
        if job.deadline_at is not None and job.deadline_at <= now:
            jobs.append(job)
        elif job.expires_at is not None and job.expires_at <= now:
            if held.isdisjoint(lane.limiters):
                again.append((look_again_at(job, now), job.id))
            else:
                jobs.append(job)
    _add_expiring(tx, again)
    return jobs


def _first_jobs(tx: Tx, lanes: LaneCache, span: LaneSpan, now: int, limit: int, size: int) -> list[Job]:
    """Return those of the first fresh jobs of a lane that are past their deadline, and note when to look at it again.

    More jobs are read only if all became ready in the same millisecond, and none of them has expired.
    """
    sql = statements("expire")
    until = now - (span.span or 0)
    lowest, highest = make_id(span.swept_until + 1, 0), make_id(max(until, span.swept_until) + 1, 0)
    wanted = {"lane": span.lane, "lowest_id": lowest, "highest_id": highest, "limit": size}
    rows = tx.records(StoredJob, sql["fresh_jobs"], wanted)
    jobs = [unpack(row, lanes.get(tx, span.lane)) for row in rows]
    expired = [job for job in jobs if job.deadline_at is not None and job.deadline_at <= now]
    expires_at: int | None = now
    if len(expired) > limit:
        until = span.swept_until
    elif len(rows) == size:
        first_at, last_at = created_at(rows[0].id), created_at(rows[-1].id)
        if first_at == last_at and not expired:
            return _first_jobs(tx, lanes, span, now, limit, 2 * size)
        # More may have become ready in the same millisecond as the last one.
        until = last_at - 1
    else:
        next_id = tx.one(sql["next_fresh_id"], {"lane": span.lane, "lowest_id": highest})
        expires_at = None if next_id is None else created_at(str(next_id[0])) + (span.span or 0)
    until = max(until, span.swept_until)
    tx.execute(sql["set_span"], {"lane": span.lane, "swept_until": until, "expires_at": expires_at})
    return expired[:limit]
