"""Finding and counting jobs in a schema; see `stores/sql/find.py` for how."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any
from uuid import UUID

from reprieve.core.ids import id_from_bytes
from reprieve.core.job import Job
from reprieve.stores.places import LaneGroup, Place, PlaceKey
from reprieve.stores.postgres.annotations import cancels
from reprieve.stores.postgres.finished import finished_job
from reprieve.stores.postgres.lane_cache import LaneCache
from reprieve.stores.postgres.lane_ref import LaneRef, hash_id
from reprieve.stores.postgres.leases import unpack_lease
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import StoredJob, array_of, unpack
from reprieve.stores.postgres.statements import statements
from reprieve.stores.record import Lease
from reprieve.stores.search import has_numbers, has_part, is_number
from reprieve.stores.sql.counting import LeasedRow
from reprieve.stores.sql.find import JobRow, SqlSearch
from reprieve.stores.sql.place_steps import MAX_INT, After, KeyRow, Stream
from reprieve.stores.tallying import COUNTERS, LaneCount, Part

MAX_MOMENT = (1 << 48) - 1
_ZEROS, _ONES = "-0000-0000-000000000000", "-ffff-ffff-ffffffffffff"

MAX_UNCOUNTED = 5_000
"""Rows of what no claim has counted yet which a tally reads: without a worker there may be one for each enqueue."""

MIN_ROWS = 8
"""Rows that are read of a lane at first, if there are many lanes."""


def is_key(place: Place, key: PlaceKey) -> bool:
    """Return whether a search can go on after a key."""
    is_job = is_number(key.id) if place == "succeeded" else _is_uuid(key.id)
    return has_numbers(key, place) and is_job


class Search(SqlSearch[str]):
    """One search of the schema."""

    ids = ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff")
    first_lane = -MAX_INT
    _has_more_uncounted = False

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
        stored = StoredJob(row.id, row.state, row.version, row.wait, row.due, row.lane, row.record)
        return unpack(stored, self._lanes[row.lane], lease)

    def _succeeded_job(self, job_id: str) -> Job | None:
        return finished_job(self._postgres, job_id)

    def _lane(self, lane: int) -> LaneRef:
        return self._lanes[lane]

    def _load_lanes(self, lanes: Iterator[int]) -> None:
        self._lanes.load(self._postgres, lanes)

    def _queue_ids(self, names: Sequence[str]) -> list[int]:
        if names:
            return [hash_id("queue", name) for name in names]
        return [queue for (queue,) in self._tx.all(self._sql["all_queues"])]

    def _lanes_by(self, field: str, name: str | int, group: LaneGroup, most: int) -> Iterable[Sequence[Any]]:
        statement = self._sql[f"lanes_by_{field}" if field else "lanes"]
        return self._tx.all(statement, {"name": name, "first": group.first, "end": group.end, "most": most})

    @cached_property
    def _uncounted(self) -> dict[int, str]:
        """The lanes whose last enqueues are not counted yet, each with the lowest id of these; perhaps not all."""
        rows = self._tx.all(self._sql["uncounted_lanes"], {"most": MAX_UNCOUNTED})
        self._has_more_uncounted = sum(enqueues for _, _, enqueues in rows) >= MAX_UNCOUNTED
        return {lane: lowest_id for lane, lowest_id, _ in rows}

    def _uncounted_lanes(self, group: LaneGroup, most: int) -> Iterable[int]:
        found = sorted(lane for lane in self._uncounted if int(group.first) <= lane < int(group.end))
        if not self._has_more_uncounted:
            return found
        place = {"first": group.first, "end": group.end, "most": most}
        lanes = [lane for (lane,) in self._tx.all(self._sql["fresh_lanes"], place)]
        self._uncounted.update(dict.fromkeys(lanes, self.ids[0]))
        return lanes

    def _numbers(self, lanes: Sequence[int]) -> Iterable[Sequence[Any]]:
        return self._tx.all(self._sql["lane_counts"], {"lanes": array_of(lanes)})

    def _leased(self) -> Sequence[LeasedRow[str]]:
        return [
            LeasedRow(id_from_bytes(job), at, lane)
            for _, at, packed in self._tx.all(self._sql["leases"])
            for job, (lane, _) in unpack_lease(packed).items()
        ]

    def uncounted(self) -> Part:
        """Return what was enqueued and no claim has counted yet, of so many rows."""
        rows = self._tx.all(self._sql["uncounted_counts"], {"most": MAX_UNCOUNTED})
        self._load_lanes(lane for lane, *_ in rows)
        lanes = [
            LaneCount(self._lane(lane), self._is_held(lane), dict(zip(COUNTERS, numbers, strict=False)))
            for lane, _, *numbers in rows
        ]
        return Part(lanes, sum(enqueues for _, enqueues, *_ in rows) < MAX_UNCOUNTED)

    def _may_have_part(self, job: str, parts: Sequence[str]) -> bool:
        return has_part(job.replace("-", ""), parts)

    def _keys(self, streams: Sequence[Stream], after: After[str], most: int, *, newest: bool) -> list[KeyRow[str]]:
        if streams[0]["from"] == "ready":
            return self._ready_keys([int(stream["lane"]) for stream in streams], after, most, newest=newest)
        found: list[KeyRow[str]] = []
        for name in dict.fromkeys(str(stream["from"]) for stream in streams):
            same = [stream for stream in streams if stream["from"] == name]
            columns = {field: [stream[field] for stream in same] for field in same[0] if field != "from"}
            arrays = {
                field: column if isinstance(column[0], str) else array_of(column) for field, column in columns.items()
            }
            parameters = {**arrays, "at": after.at, "id": after.id, "most": most}
            found += [KeyRow(*row) for row in self._tx.all(self._directed(name, newest=newest), parameters)]
        return sorted(found, reverse=newest)[:most]

    def _ready_keys(self, lanes: Sequence[int], after: After[str], most: int, *, newest: bool) -> list[KeyRow[str]]:
        """Read a few keys of each lane at a time, and go on after the first lane that has no more of them."""
        statement = self._directed("ready", newest=newest)
        count = max(MIN_ROWS, 2 * most // len(lanes))
        arrays = {"lane": array_of(lanes), "uncounted": array_of(self._uncounted.get(lane) for lane in lanes)}
        found: dict[str, KeyRow[str]] = {}
        while len(found) < most:
            place = {"at": after.at, "id": after.id, "fresh_id": _fresh_id(after), "most": count}
            rows = [KeyRow(*row) for row in self._tx.all(statement, arrays | place)]
            left = Counter(row.lane for row in rows)
            cut = {lane for lane, number in left.items() if number == count}
            for row in rows:
                found.setdefault(row.id, row)
                left[row.lane] -= 1
                if not left[row.lane] and row.lane in cut:
                    after = After(row.at, row.id)
                    break
            else:
                break
        return list(found.values())[:most]


def _is_uuid(text: int | str) -> bool:
    try:
        return isinstance(text, str) and str(UUID(text)) == text
    except ValueError:
        return False


def _fresh_id(after: After[str]) -> str:
    """Return the id after which fresh jobs go on, which are in the order of their ids alone."""
    moment = f"{min(max(after.at, 0), MAX_MOMENT):012x}"
    lowest, highest = (f"{moment[:8]}-{moment[8:]}{rest}" for rest in (_ZEROS, _ONES))
    return min(max(after.id, lowest), highest)
