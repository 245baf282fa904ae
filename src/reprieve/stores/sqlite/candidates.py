"""What a claim reads before it chooses: a queue, and its candidates with their open lanes and limiters."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from reprieve.core.fairness.candidates import FIRST, FairnessState, Lane, Position, Tenant, Weights
from reprieve.core.fairness.settings import DEFAULTS
from reprieve.core.limits import Limits
from reprieve.stores.sql.candidates import CandidateRow, LaneRow, LimitsRow
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


class Candidates:
    """Reads the candidates of a queue, as often as a claim needs more of them."""

    def __init__(self, tx: sqlite3.Connection, queue: int, released: Released) -> None:
        """Take the slots that the claim's changes released; a tenant that is read has them already."""
        self._tx = tx
        self._sql = statements("claim")
        self._queue = queue
        self._released = released
        self._limiters: dict[int, Limits] = {}
        """Every limiter that was read. One that is met again has counted since what was picked through it."""

    def read(self, count: int, after: Position | None = FIRST) -> tuple[list[Tenant], Position | None]:
        """Read so many tenants after a position; return them, and up to where they were read if there may be others."""
        load, finish, name, _ = after or FIRST
        wanted = {"queue": self._queue, "limit": count, "load": load, "finish": finish, "name": name}
        rows = self._read_tenants("in_order", wanted)
        read_up_to = None
        if len(rows) >= count:
            last = rows[-1]
            read_up_to = Position(last.load, last.finish, last.name)
        released = self._released.pop(self._queue, None) or Counter()
        if released:
            rows += self._release({row.id for row in rows}, released, read_up_to)
        self._load_limiters({limiter for row in rows for lane in row.lanes for limiter in lane.limiters})
        return [self._tenant(row, released[row.id]) for row in rows], read_up_to

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
        load, finish, name, _ = read_up_to or FIRST
        ids = msgspec.json.encode(list(others)).decode()
        parameters = {"tenants": ids, "is_cut": read_up_to is not None, "load": load, "finish": finish, "name": name}
        return self._read_tenants("released", parameters)

    def _load_limiters(self, ids: set[int]) -> None:
        unknown = [limiter for limiter in ids if limiter and limiter not in self._limiters]
        if unknown:
            wanted = msgspec.json.encode(unknown).decode()
            rows = _decode_limiters(self._tx.execute(self._sql["limiters"], (wanted,)).fetchone()[0])
            self._limiters |= {row.id: row.limits() for row in rows}

    def _tenant(self, row: TenantRow, released: int) -> Tenant:
        has_more = len(row.lanes) > DEFAULTS.max_lanes_read
        lanes = self._with_oldest(row) if has_more else row.lanes
        limits = row.limits()
        if released:
            limits.running -= released
            limits.is_changed = True
        return Tenant(limits, row.name, row.weight, row.finish, row.served, self._lanes(lanes), has_more)

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
