"""Finding and counting jobs in a schema; see `stores/sql/find.py` for how."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from reprieve.core.ids import id_from_bytes, is_id
from reprieve.core.job import Job
from reprieve.stores.postgres.annotations import cancels
from reprieve.stores.postgres.finished import finished_job
from reprieve.stores.postgres.lane_cache import LaneCache
from reprieve.stores.postgres.lane_ref import LaneRef, hash_id
from reprieve.stores.postgres.leases import unpack_lease
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import StoredJob, array_of, unpack
from reprieve.stores.postgres.statements import statements
from reprieve.stores.record import Lease
from reprieve.stores.search import Shapes, has_part, is_number
from reprieve.stores.sql.find import MAX_INT, JobRow, SqlSearch

CURSOR_SHAPES: Shapes = {
    "living": [is_id],
    "running": [is_id],
    "ended": [is_number, is_number, is_number, is_id],
    "succeeded": [is_number] * 2,
}


class Search(SqlSearch[str]):
    """One search of the schema."""

    ids = ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff")
    queues = (-MAX_INT - 1, MAX_INT)

    def __init__(self, tx: Tx, lanes: LaneCache, now: int) -> None:
        """Read the limiters that are held."""
        sql, self._lanes, self._postgres = statements("find"), lanes, tx
        super().__init__(tx, sql, now, held=frozenset(limiter for (limiter,) in tx.all(sql["held"])))

    def _id_of(self, job_id: str) -> str:
        return job_id

    def _rows(self, ids: Sequence[str]) -> Iterable[Sequence[Any]]:
        return self._tx.all(statements("sessions")["jobs"], {"ids": array_of(ids)}) if ids else []

    def _find_leases(self, ids: Sequence[str]) -> Iterable[Sequence[Any]]:
        return self._tx.all(self._sql["leases_of_jobs"], {"ids": array_of(ids)})

    def _unpack_leases(self, rows: Iterable[Sequence[Any]]) -> Mapping[str, Lease]:
        requests = cancels(self._postgres)
        return {
            job: Lease(session, at, requests.get(job))
            for session, at, packed in rows
            for job in map(id_from_bytes, unpack_lease(packed))
        }

    def _job(self, row: JobRow[str], lease: Lease | None) -> Job:
        stored = StoredJob(row.id, row.state, row.version, row.wait, row.due, row.lane, row.record or b"")
        return unpack(stored, self._lanes[row.lane], lease)

    def _succeeded_job(self, job_id: str) -> Job | None:
        return finished_job(self._postgres, job_id)

    def _lane(self, lane: int) -> LaneRef:
        return self._lanes[lane]

    def _load_lanes(self, lanes: Iterator[int]) -> None:
        self._lanes.load(self._postgres, lanes)

    def _queue_id(self, queue: str) -> int:
        return hash_id("queue", queue)

    def _may_match(self, row: JobRow[str], parts: Sequence[str]) -> bool:
        return has_part(row.id.replace("-", ""), parts)

    def _list_of(self, lanes: Sequence[int]) -> Sequence[int]:
        return lanes
