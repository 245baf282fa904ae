"""What a claim reads before it chooses: a queue, and its candidates with their open lanes and limiters."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from reprieve.core.fairness.candidates import FIRST, FairnessState, Lane, Position, Tenant, Weights
from reprieve.core.fairness.exclusion import Exclusion
from reprieve.core.fairness.settings import DEFAULTS
from reprieve.core.limits import Limits
from reprieve.stores.sql.candidates import CandidateRow, LaneRow, LimitsRow
from reprieve.stores.sql.exclusion import TenantLanes, skip_excluded
from reprieve.stores.sqlite import settle
from reprieve.stores.sqlite.statements import statements
from reprieve.stores.sqlite.write_batch import Released


class LimiterRow(LimitsRow, frozen=True):
    """A limiter that may have room again."""

    last_returned_tenant: int


class QueueRow(LimitsRow, frozen=True):
    """A queue, with its own limits."""

    queue: int
    clock: int
    last_tenant: int
    in_a_row: int
    last_served_at: int
    other_served_at: int
    pauses: int
    """Bit 1: scheduled jobs wait; bit 2: retries wait."""

    def state(self) -> FairnessState:
        """Return what the queue remembers from one claim to the next."""
        return FairnessState(self.clock, self.last_tenant, self.in_a_row, self.last_served_at, self.other_served_at)


class TenantRow(CandidateRow, frozen=True):
    """A candidate, with its first open lanes."""

    lanes: list[LaneRow]


_decode_lanes = msgspec.json.Decoder(list[LaneRow]).decode
_decode_tenants = msgspec.json.Decoder(list[TenantRow]).decode
_decode_limiters = msgspec.json.Decoder(list[LimitsRow]).decode


def read_queue(tx: sqlite3.Connection, name: str) -> QueueRow | None:
    """Read a queue by its name."""
    row = tx.execute(statements("claim")["queue"], (name,)).fetchone()
    return None if row is None else QueueRow(*row)


def read_exclusion(tx: sqlite3.Connection, tasks: Sequence[str], number: int) -> Exclusion | None:
    """Return what a claim skips of a queue; None if it excludes no task."""
    if not tasks:
        return None
    names = msgspec.json.encode(tasks).decode()
    return Exclusion({limiter for (limiter,) in tx.execute(statements("claim")["task_limiters"], (names,))}, number)


class Candidates:
    """Reads the candidates of a queue, as often as a claim needs more of them."""

    def __init__(
        self, tx: sqlite3.Connection, queue: int, released: Released, exclusion: Exclusion | None = None
    ) -> None:
        """Take the slots that the claim's changes released; a tenant that is read has them already."""
        self._tx = tx
        self._sql = statements("claim")
        self._queue = queue
        self._released = released
        self._exclusion = exclusion
        self._limiters: dict[int, Limits] = {}
        """Every limiter that was read. One that is met again has counted since what was picked through it."""

    def read(self, count: int, after: Position | None = FIRST) -> tuple[list[Tenant], Position | None]:
        """Read so many tenants after a position; return them, and up to where they were read if there may be others."""
        position = after or FIRST
        if self._exclusion is not None and self._exclusion.is_far:
            jumped = self._jump(self._exclusion, position)
            if jumped is None:
                return [], None
            position, count = jumped, max(count, DEFAULTS.max_excluded_tenants)
        rows = self._read_tenants("in_order", {**self._beyond(position), "limit": count})
        read_up_to = None
        if len(rows) >= count:
            last = rows[-1]
            read_up_to = Position(last.load, last.finish, last.name)
        released = self._released.pop(self._queue, None) or Counter()
        if released:
            rows += self._release({row.id for row in rows}, released, read_up_to)
        self._load_limiters({limiter for row in rows for lane in row.lanes for limiter in lane.limiters})
        lanes = {row.id: self._open_lanes(row) for row in rows}
        if self._exclusion is not None:
            skip_excluded(self._exclusion, lanes, self)
        return [self._tenant(row, lanes[row.id], released[row.id]) for row in rows], read_up_to

    def _beyond(self, position: Position) -> dict[str, object]:
        """Return the parameters of a statement that reads candidates after a position."""
        return {"queue": self._queue, "load": position.load, "finish": position.finish, "name": position.name}

    def _jump(self, exclusion: Exclusion, position: Position) -> Position | None:
        """Return a later position at which the claim goes on; None if it has read enough."""
        parameters = self._beyond(position)
        (count,) = self._tx.execute(self._sql["count_candidates"], parameters).fetchone()
        skip = exclusion.jump(count)
        if not skip:
            return None if skip is None else position
        return Position(*self._tx.execute(self._sql["candidate_at"], {**parameters, "index": skip - 1}).fetchone())

    def count_open_lanes(self, tenants: Sequence[int]) -> list[int]:
        """Return how many open lanes each tenant has."""
        return [self._tx.execute(self._sql["count_open_lanes"], (tenant,)).fetchone()[0] for tenant in tenants]

    def lanes_among(self, tenants: Sequence[int], skips: Sequence[int], size: int) -> list[list[LaneRow]]:
        """Return of each tenant the lanes that are not excluded, among those after the first `skip` ones."""
        excluded = msgspec.json.encode(list(self._exclusion.tasks if self._exclusion else ())).decode()
        found = []
        for tenant, skip in zip(tenants, skips, strict=True):
            most = DEFAULTS.max_lanes_read + 1
            wanted = {"tenant": tenant, "skip": skip, "size": size, "excluded": excluded, "lanes": most}
            lanes = _decode_lanes(self._tx.execute(self._sql["lanes_among"], wanted).fetchone()[0])
            self._load_limiters({limiter for lane in lanes for limiter in lane.limiters})
            found.append(lanes)
        return found

    def weights(self) -> Weights:
        """Sum the weights of the tenants that wait, and of those that only run."""
        parameters = {"queue": self._queue, "limit": DEFAULTS.max_tenants_weighed}
        return Weights(*self._tx.execute(self._sql["weights"], parameters).fetchone())

    def _read_tenants(self, which: str, parameters: Mapping[str, object]) -> list[TenantRow]:
        statement = self._sql["candidates"].replace("{tenants}", self._sql[which])
        lanes = DEFAULTS.max_lanes_read + 1
        return _decode_tenants(self._tx.execute(statement, {**parameters, "lanes": lanes}).fetchone()[0])

    def _release(self, read: set[int], released: Counter[int], read_up_to: Position | None) -> list[TenantRow]:
        """Write the slots that other tenants released; return those tenants that now belong among those that were read.

        The slots of tenants that were read are written with the choice.
        """
        others = Counter({tenant: count for tenant, count in released.items() if tenant not in read})
        if not others:
            return []
        settle.release(self._tx, others)
        for tenant in others:
            del released[tenant]
        load, finish, name = read_up_to or FIRST
        ids = msgspec.json.encode(list(others)).decode()
        parameters = {"tenants": ids, "is_cut": read_up_to is not None, "load": load, "finish": finish, "name": name}
        return self._read_tenants("released", parameters)

    def _load_limiters(self, ids: set[int]) -> None:
        unknown = [limiter for limiter in ids if limiter and limiter not in self._limiters]
        if unknown:
            wanted = msgspec.json.encode(unknown).decode()
            rows = _decode_limiters(self._tx.execute(self._sql["limiters"], (wanted,)).fetchone()[0])
            self._limiters |= {row.id: row.limits() for row in rows}

    def _open_lanes(self, row: TenantRow) -> TenantLanes[LaneRow]:
        has_more = len(row.lanes) > DEFAULTS.max_lanes_read
        return TenantLanes(self._with_oldest(row) if has_more else row.lanes, has_more)

    def _tenant(self, row: TenantRow, open_lanes: TenantLanes[LaneRow], released: int) -> Tenant:
        limits = row.limits()
        if released:
            limits.running -= released
            limits.is_changed = True
        lanes = self._lanes(open_lanes.rows)
        has_more, has_excluded = open_lanes.has_more, open_lanes.has_excluded
        return Tenant(limits, row.name, row.weight, row.finish, row.served, lanes, has_more, has_excluded)

    def _with_oldest(self, row: TenantRow) -> Sequence[LaneRow]:
        """Return the lanes of a tenant that has many, with those of each priority that were served longest ago."""
        lanes = row.lanes[: DEFAULTS.max_lanes_read]
        oldest = _decode_lanes(self._tx.execute(self._sql["oldest_lanes"], (row.id,)).fetchone()[0])
        self._load_limiters({limiter for lane in oldest for limiter in lane.limiters})
        known = {lane.id for lane in lanes}
        return [*lanes, *(lane for lane in oldest if lane.id not in known)]

    def _lanes(self, rows: Iterable[LaneRow]) -> list[Lane]:
        limiters = self._limiters
        return [
            Lane(
                row.id, row.priority, row.served, row.ready, [limiters[limiter] for limiter in row.limiters if limiter]
            )
            for row in rows
        ]
