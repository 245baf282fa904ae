"""Succeeded jobs: kept one row for each settlement, and found again by the ids in it."""

from collections.abc import Iterator, Sequence

import msgspec

from reprieve.core.job import Job
from reprieve.stores.sqlite.rows import row_id
from reprieve.stores.sqlite.statements import Tx, statements

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Job]).decode


def keep(tx: Tx, queue: int, jobs: Sequence[Job], now: int) -> None:
    """Keep jobs that succeeded together."""
    rows = sorted(row_id(job.id) for job in jobs)
    tx.execute(statements("finished")["number"])
    row = (queue, now, len(jobs), rows[0], rows[-1], rows[-1], _ids(jobs), _encode(jobs))
    tx.execute(statements("finished")["keep"], row)


def finished_jobs(tx: Tx, row: int) -> Iterator[Job]:
    """Answer the succeeded jobs with a row's id: one, or none."""
    needle = row.to_bytes(8, "big")
    for (packed,) in tx.execute(statements("finished")["find"], (row, row, needle)).fetchall():
        yield from (job for job in _decode(packed) if row_id(job.id) == row)


def unpack_jobs(packed: bytes) -> list[Job]:
    """Answer the jobs of one row."""
    return _decode(packed)


def shorten(tx: Tx, seq: int, count: int) -> int:
    """Keep only the last so many jobs of a row; answer how many went."""
    jobs = _decode(tx.execute(statements("finished")["jobs"], (seq,)).fetchone()[0])
    kept = jobs[len(jobs) - count :]
    tx.execute(statements("finished")["shorten"], (count, _ids(kept), _encode(kept), seq))
    return len(jobs) - count


def _ids(jobs: Sequence[Job]) -> bytes:
    return b"".join(row_id(job.id).to_bytes(8, "big") for job in jobs)
