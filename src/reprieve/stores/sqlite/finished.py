"""Succeeded jobs: one row for each settlement, found again by the ids in it."""

from collections.abc import Iterator, Mapping, Sequence
from struct import pack

from reprieve.core.job import Job
from reprieve.stores.sql import finished
from reprieve.stores.sql.finished import pack_jobs, unpack_jobs
from reprieve.stores.sqlite.rows import row_id
from reprieve.stores.sqlite.statements import Tx, statements


def keep(tx: Tx, queue: int, jobs: Mapping[int, Job], now: int) -> None:
    """Keep jobs that succeeded together, by their row ids."""
    sql = statements("finished")
    tx.execute(sql["number"])
    row = {
        "queue": queue,
        "at": now,
        "count": len(jobs),
        "lo": min(jobs),
        "hi": max(jobs),
        "ids": _ids(list(jobs)),
        "jobs": pack_jobs(list(jobs.values())),
    }
    tx.execute(sql["keep"], row)


def finished_jobs(tx: Tx, row: int) -> Iterator[Job]:
    """Return the succeeded jobs with a row id: one, or none."""
    wanted = {"id": row, "bytes": row.to_bytes(8, "big", signed=True)}
    for (packed,) in tx.execute(statements("finished")["find"], wanted).fetchall():
        yield from (job for job in unpack_jobs(packed) if row_id(job.id) == row)


def shorten(tx: Tx, seq: int, count: int) -> int:
    """Keep only the last `count` jobs of a row; return how many were deleted, 0 if the row cannot be read."""
    sql = statements("finished")
    (packed,) = tx.execute(sql["jobs"], {"seq": seq}).fetchone()
    shortened = finished.shorten(packed, count)
    if shortened is None:
        return 0
    kept, deleted = shortened
    ids = _ids([row_id(job.id) for job in kept])
    tx.execute(sql["shorten"], {"count": count, "ids": ids, "jobs": pack_jobs(kept), "seq": seq})
    return deleted


def _ids(rows: Sequence[int]) -> bytes:
    return pack(f">{len(rows)}q", *rows)
