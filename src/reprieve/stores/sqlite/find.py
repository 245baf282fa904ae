"""Finding and counting jobs in a file; see `stores/sql/find.py` for how."""

import sqlite3
from collections.abc import Iterator, Sequence

import msgspec

from reprieve.core.job import Job
from reprieve.stores.record import Lease
from reprieve.stores.search import Shapes, is_number
from reprieve.stores.sql.find import MAX_INT, JobRow, SqlSearch
from reprieve.stores.sql.lanes import LaneRef
from reprieve.stores.sqlite.annotations import cancel_requests
from reprieve.stores.sqlite.finished import finished_jobs
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.leases import unpack_lease
from reprieve.stores.sqlite.rows import Row, may_have_part, row_id, unpack
from reprieve.stores.sqlite.statements import statements
from reprieve.stores.sqlite.tx import SqliteTx

CURSOR_SHAPES: Shapes = {
    "living": [is_number],
    "running": [is_number],
    "ended": [is_number] * 4,
    "succeeded": [is_number] * 2,
}


class Search(SqlSearch[int]):
    """One search of the file."""

    ids = (-1, MAX_INT)
    queues = (-1, MAX_INT)

    def __init__(self, tx: sqlite3.Connection, lanes: LaneCache, now: int) -> None:
        """Read the leases, and the limiters that are held."""
        sql, self._connection, self._lanes = statements("find"), tx, lanes
        requests = cancel_requests(tx)
        leases = {
            row: Lease(session, at, requests.get(row))
            for session, at, packed in tx.execute(sql["leases"])
            for row in unpack_lease(packed)
        }
        held = frozenset(limiter for (limiter,) in tx.execute(sql["held"]))
        super().__init__(SqliteTx(tx), sql, now, leases=leases, held=held)

    def _id_of(self, job_id: str) -> int:
        return row_id(job_id)

    def _jobs(self, ids: Sequence[int]) -> list[tuple[int, Job, int]]:
        found = (self._tx.one(self._sql["job"], {"id": row}) for row in ids)
        rows: list[JobRow[int]] = [JobRow(*row) for row in found if row is not None]
        self._load_lanes(row.lane for row in rows)
        return [(row.id, self._read(row), row.lane) for row in rows]

    def _job(self, row: JobRow[int]) -> Job:
        facts = Row(row.id, row.state, row.version, row.wait, row.due)
        return unpack(facts, row.record or b"", self._lanes[row.lane], self._leases.get(row.id))

    def _succeeded_job(self, job_id: str) -> Job | None:
        return next((job for job in finished_jobs(self._connection, row_id(job_id)) if job.id == job_id), None)

    def _lane(self, lane: int) -> LaneRef:
        return self._lanes[lane]

    def _load_lanes(self, lanes: Iterator[int]) -> None:
        self._lanes.load(self._connection, lanes)

    def _queue_id(self, queue: str) -> int:
        row = self._connection.execute(statements("lanes")["queue"], (queue,)).fetchone()
        return row[0] if row else -1

    def _may_match(self, row: JobRow[int], parts: Sequence[str]) -> bool:
        return may_have_part(row.id, parts)

    def _list_of(self, lanes: Sequence[int]) -> str:
        return msgspec.json.encode(lanes).decode()
