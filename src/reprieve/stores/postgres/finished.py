"""Succeeded jobs: a row of `finished` for each settlement, found again by the ids in it."""

from collections.abc import Mapping, Sequence

import msgspec

from reprieve.core.job import Job
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Job]).decode


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
        "jobs": _encode([msgspec.Raw(job) for _, job in jobs]),
    }
    tx.execute(statements("finished")["keep"], row)


def finished_job(tx: Tx, job_id: str) -> Job | None:
    """Return a job that has succeeded and is kept."""
    for (packed,) in tx.all(statements("finished")["find"], {"id": job_id}):
        for job in _decode(packed):
            if job.id == job_id:
                return job
    return None


def unpack_jobs(packed: bytes) -> list[Job]:
    """Return the jobs of one row."""
    return _decode(packed)


def shorten(tx: Tx, rows: Mapping[int, int]) -> int:
    """Keep only the last jobs of these rows, as many as given, and the ids of all; return how many were removed."""
    sql = statements("finished")
    removed = 0
    for seq, packed in tx.all(sql["jobs"], {"rows": array_of(rows)}) if rows else ():
        jobs = _decode(packed)
        kept = jobs[len(jobs) - rows[seq] :]
        tx.execute(sql["shorten"], {"kept": len(kept), "jobs": _encode(kept), "seq": seq})
        removed += len(jobs) - len(kept)
    return removed
