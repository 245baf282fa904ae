"""Finding and counting jobs in a file; see `stores/sql/find.py` for how."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from reprieve.core.job import Job
from reprieve.stores.places import LaneGroup, Place, PlaceKey
from reprieve.stores.record import Lease
from reprieve.stores.search import has_numbers, is_number
from reprieve.stores.sql.counting import LeasedRow
from reprieve.stores.sql.find import JobRow, SqlSearch
from reprieve.stores.sql.lanes import LaneRef
from reprieve.stores.sql.place_steps import MAX_INT, After, KeyRow, Stream
from reprieve.stores.sqlite.annotations import cancel_requests
from reprieve.stores.sqlite.finished import finished_jobs
from reprieve.stores.sqlite.lane_cache import LaneCache
from reprieve.stores.sqlite.leases import packed_row, unpack_lease
from reprieve.stores.sqlite.merge import merged
from reprieve.stores.sqlite.rows import Row, may_have_part, row_id, unpack
from reprieve.stores.sqlite.statements import statements
from reprieve.stores.sqlite.tx import SqliteTx


def is_key(place: Place, key: PlaceKey) -> bool:
    """Return whether a search can go on after a key."""
    return has_numbers(key, place) and is_number(key.id)


def read_held(tx: sqlite3.Connection) -> tuple[frozenset[int], frozenset[int]]:
    """Return the limiters that are held, and the lanes whose tenant and dependency are held together."""
    sql = statements("find")
    held = frozenset(limiter for (limiter,) in tx.execute(sql["held"]))
    return held, frozenset(lane for (lane,) in tx.execute(sql["lanes_of_held_pairs"])) if held else frozenset()


class Search(SqlSearch[int]):
    """One search of the file."""

    ids = (-1, MAX_INT)
    first_lane = 1

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
        return unpack(facts, row.record, self._lanes[row.lane], lease)

    def _succeeded_job(self, job_id: str) -> Job | None:
        return next((job for job in finished_jobs(self._connection, row_id(job_id)) if job.id == job_id), None)

    def _lane(self, lane: int) -> LaneRef:
        return self._lanes[lane]

    def _load_lanes(self, lanes: Iterator[int]) -> None:
        self._lanes.load(self._connection, lanes)

    def _queue_ids(self, names: Sequence[str]) -> list[int]:
        if not names:
            return [queue for (queue,) in self._tx.all(self._sql["all_queues"])]
        found = (self._connection.execute(statements("lanes")["queue"], (name,)).fetchone() for name in names)
        return [row[0] for row in found if row is not None]

    def _lanes_by(self, field: str, name: str | int, group: LaneGroup, most: int) -> Iterable[Sequence[Any]]:
        statement = self._sql[f"lanes_by_{field}" if field else "lanes"]
        return self._tx.all(statement, {"name": name, "first": group.first, "end": group.end, "most": most})

    def _numbers(self, lanes: Sequence[int]) -> Iterable[Sequence[Any]]:
        return self._tx.all(self._sql["lane_counts"], {"lanes": msgspec.json.encode(lanes).decode()})

    def _leased(self) -> Sequence[LeasedRow[int]]:
        return [
            LeasedRow(job, at, leased.lane)
            for _, at, packed in self._tx.all(self._sql["leases"])
            for job, leased in unpack_lease(packed).items()
        ]

    def _may_have_part(self, job: int, parts: Sequence[str]) -> bool:
        return may_have_part(job, parts)

    def _keys(self, streams: Sequence[Stream], after: After[int], most: int, *, newest: bool) -> list[KeyRow[int]]:
        def fetch(stream: Stream, start: After[int], count: int) -> list[KeyRow[int]]:
            statement = self._directed(str(stream["from"]), newest=newest)
            parameters = {**stream, "at": start.at, "id": start.id, "most": count}
            return [KeyRow(*row) for row in self._tx.all(statement, parameters)]

        return merged(fetch, streams, after, most, newest=newest)
