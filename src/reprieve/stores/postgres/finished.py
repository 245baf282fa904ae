"""Succeeded jobs: a row of `finished` for each settlement, found again by the ids in it."""

from collections.abc import Mapping, Sequence

import msgspec

from reprieve.core.job import Job
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements
from reprieve.stores.sql import finished
from reprieve.stores.sql.finished import FinishedRow, pack_jobs, unpack_jobs


def keep(tx: Tx, queue: int, jobs: Sequence[tuple[str, bytes]], now: int) -> None:
    """Move jobs that succeeded together, each with its id, from their rows into one row of `finished`."""
    ids = [job_id for job_id, _ in jobs]
    row = {
        "queue": queue,
        "finished_at": now,
        "kept": len(jobs),
        "lowest_id": min(ids),
        "highest_id": max(ids),
        "ids": array_of(ids),
        "jobs": pack_jobs([msgspec.Raw(job) for _, job in jobs]),
    }
    tx.execute(statements("finished")["keep"], row)


def finished_job(tx: Tx, job_id: str) -> Job | None:
    """Return a succeeded job, while it is kept."""
    rows = tx.all(statements("finished")["find"], {"id": job_id})
    return next((job for (packed,) in rows for job in unpack_jobs(packed) if job.id == job_id), None)


def shorten(tx: Tx, rows: Mapping[int, int]) -> int:
    """Keep only the last so many jobs of each of these rows, but all of their ids; return how many were deleted."""
    sql = statements("finished")
    total = 0
    for row in map(FinishedRow._make, tx.all(sql["jobs"], {"rows": array_of(rows)}) if rows else ()):
        shortened = finished.shorten(row.jobs, rows[row.seq])
        if shortened is None:
            continue
        kept, deleted = shortened
        tx.execute(sql["shorten"], {"kept": len(kept), "jobs": pack_jobs(kept), "seq": row.seq})
        total += deleted
    return total
