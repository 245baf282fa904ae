"""Succeeded jobs: kept one row for each settlement, and found again by the ids in it."""

from collections.abc import Iterator, Mapping, Sequence
from struct import pack

import msgspec

from reprieve.core.job import Job
from reprieve.stores.sqlite.rows import row_id
from reprieve.stores.sqlite.statements import Tx, statements

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Job]).decode


def keep(tx: Tx, queue: int, jobs: Mapping[int, Job], now: int) -> None:
    """Keep jobs that succeeded together, by the ids of their rows."""
    lowest, highest = min(jobs), max(jobs)
    tx.execute(statements("finished")["number"])
    row = (queue, now, len(jobs), lowest, highest, highest, _ids(list(jobs)), _encode(list(jobs.values())))
    tx.execute(statements("finished")["keep"], row)


def finished_jobs(tx: Tx, row: int) -> Iterator[Job]:
    """Return the succeeded jobs with a row's id: one, or none."""
    needle = row.to_bytes(8, "big")
    for (packed,) in tx.execute(statements("finished")["find"], (row, row, needle)).fetchall():
        yield from (job for job in _decode(packed) if row_id(job.id) == row)


def unpack_jobs(packed: bytes) -> list[Job]:
    """Return the jobs of one row."""
    return _decode(packed)


def shorten(tx: Tx, seq: int, count: int) -> int:
    """Keep only the last so many jobs of a row; answer how many went."""
    jobs = _decode(tx.execute(statements("finished")["jobs"], (seq,)).fetchone()[0])
    kept = jobs[len(jobs) - count :]
    tx.execute(statements("finished")["shorten"], (count, _ids([row_id(job.id) for job in kept]), _encode(kept), seq))
    return len(jobs) - count


def _ids(rows: Sequence[int]) -> bytes:
    return pack(f">{len(rows)}q", *rows)
