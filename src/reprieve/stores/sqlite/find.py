"""Finding and counting jobs in a file; see `stores/sql/find.py` for how."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from reprieve.core.job import Job
from reprieve.stores.record import Lease
from reprieve.stores.search import Shapes, is_number
from reprieve.stores.sql.find import MAX_INT, JobRow, SqlSearch
from reprieve.stores.sql.lanes import LaneRef
from reprieve.stores.sqlite.annotations import cancel_requests
from reprieve.stores.sqlite.finished import finished_jobs
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.leases import packed_row, unpack_lease
from reprieve.stores.sqlite.rows import Row, may_have_part, row_id, unpack
from reprieve.stores.sqlite.statements import statements
from reprieve.stores.sqlite.tx import SqliteTx

CURSOR_SHAPES: Shapes = {
    "living": [is_number],
    "running": [is_number],
    "ended": [is_number] * 4,
    "succeeded": [is_number] * 2,
}


def read_held(tx: sqlite3.Connection) -> tuple[frozenset[int], frozenset[int]]:
    """Return the limiters that are held, and the lanes whose tenant and dependency are held together."""
    sql = statements("find")
    held = frozenset(limiter for (limiter,) in tx.execute(sql["held"]))
    return held, frozenset(lane for (lane,) in tx.execute(sql["lanes_of_held_pairs"])) if held else frozenset()


class Search(SqlSearch[int]):
    """One search of the file."""

    ids = (-1, MAX_INT)
    queues = (-1, MAX_INT)

    def __init__(self, tx: sqlite3.Connection, lanes: LaneCache, now: int) -> None:
        """Read the limiters that are held."""
        sql, self._connection, self._lanes = statements("find"), tx, lanes
        held, self._held_lanes = read_held(tx)
        super().__init__(SqliteTx(tx), sql, now, held=held)

    def _is_held(self, lane: int) -> bool:
        return lane in self._held_lanes or super()._is_held(lane)

    def _id_of(self, job_id: str) -> int:
        return row_id(job_id)

    def _rows(self, ids: Sequence[int]) -> Iterable[Sequence[Any]]:
        found = (self._tx.one(self._sql["job"], {"id": row}) for row in ids)
        return (row for row in found if row is not None)

    def _find_leases(self, ids: Sequence[int]) -> Iterable[Sequence[Any]]:
        for row in ids:
            yield from self._tx.all(self._sql["leases_of_job"], {"packed": packed_row(row)})

    def _unpack_leases(self, rows: Iterable[Sequence[Any]]) -> Mapping[int, Lease]:
        requests = cancel_requests(self._connection)
        return {
            row: Lease(session, at, requests.get(row)) for session, at, packed in rows for row in unpack_lease(packed)
        }

    def _job(self, row: JobRow[int], lease: Lease | None) -> Job:
        facts = Row(row.id, row.state, row.version, row.wait, row.due)
        return unpack(facts, row.record or b"", self._lanes[row.lane], lease)

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
