"""What a claim reads before it chooses: a queue, and its candidates with their open lanes and limiters."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from reprieve.core.fairness.candidates import FIRST, BlockReason, FairnessState, Lane, Position, Tenant, Weights
from reprieve.core.fairness.exclusion import Exclusion
from reprieve.core.fairness.settings import DEFAULTS
from reprieve.core.limits import Limits
from reprieve.stores.postgres.lane_ref import hash_id
from reprieve.stores.postgres.pipeline import Result
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.released import ReleasedSlots
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Claim
from reprieve.stores.sql.candidates import CandidateRow, LaneRow, LimitsRow
from reprieve.stores.sql.exclusion import TenantLanes, skip_excluded


class QueueRow(msgspec.Struct, array_like=True, frozen=True):
    """A queue."""

    clock: int
    last_tenant: int
    in_a_row: int
    last_served_at: int
    other_served_at: int
    limiter: int
    """The id of its own limiter."""
    first_due_at: int | None
    """When its first delayed job is due."""
    first_reopens_at: int | None
    """When the first blocked lane or tenant, of any queue, may return."""

    def state(self) -> FairnessState:
        """Return what the queue remembers from one claim to the next."""
        return FairnessState(self.clock, self.last_tenant, self.in_a_row, self.last_served_at, self.other_served_at)


class LimiterRow(LimitsRow, frozen=True):
    """A limiter."""

    last_returned_tenant: int
    is_returning: bool
    """Whether it blocks lanes that may be opened again."""
    row_location: str


class TenantRow(CandidateRow, frozen=True):
    """A tenant that is a candidate, or has slots back."""

    is_candidate: bool
    blocked: BlockReason
    is_next: bool
    """Whether it was read in the order of the candidates, not only because it has slots back."""
    row_location: str


class OpenLaneRow(LaneRow, frozen=True):
    """An open lane of such a tenant."""

    tenant: int
    fresh_watermark: str
    """The last fresh job that was taken."""
    ready_watermark: int
    """No row of `ready` became ready before it."""
    row_location: str
    is_oldest: bool
    """Whether it was read because no lane of its priority was served longer ago, and its tenant has many lanes."""


class CandidateRows(msgspec.Struct, frozen=True):
    """What the function `candidates` returns."""

    queue: QueueRow | None
    tenants: list[TenantRow]
    lanes: list[OpenLaneRow]
    limiters: list[LimiterRow]


class LanesAmong(msgspec.Struct, frozen=True):
    """Some lanes of tenants, with their limiters."""

    lanes: list[OpenLaneRow]
    limiters: list[LimiterRow]


_decode = msgspec.json.Decoder(CandidateRows).decode
_decode_lanes_among = msgspec.json.Decoder(LanesAmong).decode


@lru_cache(maxsize=16)
def _task_limiters(tasks: tuple[str, ...]) -> frozenset[int]:
    return frozenset(hash_id("limiter", "task", task) for task in tasks)


class IdleTenant(msgspec.Struct, frozen=True):
    """A tenant that has slots back and no job that may use them."""

    id: int
    running: int
    weight: float


class Candidates(msgspec.Struct, frozen=True):
    """The candidates of a queue, in the form in which they are chosen from."""

    queue: QueueRow
    returning: list[LimiterRow]
    tenants: list[Tenant]
    idle: list[IdleTenant]
    read_up_to: Position | None
    """The position of the last tenant that was read; None when there are no others."""


class CandidateReader:
    """Reads the candidates of one queue, as often as a claim needs more of them."""

    def __init__(
        self, tx: Tx, request: Claim, queue: int, limit: int, released: ReleasedSlots, *, checks_crowd: bool = False
    ) -> None:
        """Take the slots that the claim has released and not written: a tenant that is read has them already."""
        self._tx = tx
        self._sql = statements("claim")
        self._queue = queue
        self._now = request.now
        self.exclusion = Exclusion(_task_limiters(request.exclude), request.number) if request.exclude else None
        self._max_tenants = limit + 2
        self._released = released
        self._checks_crowd = checks_crowd
        self.limiters: dict[int, Limits] = {}
        """Every limiter that was read. One that is read again keeps what was picked through it."""
        self.row_locations: dict[int, str] = {}
        """Where the rows of lanes, tenants and limiters were read."""
        self.lanes: dict[int, OpenLaneRow] = {}

    def request(self, after: Position = FIRST) -> Result:
        """Request the candidates after a position, without waiting for them."""
        parameters = {
            "queue": self._queue,
            "max_tenants": self._max_tenants,
            "max_lanes": DEFAULTS.max_lanes_read,
            "load": after.load,
            "finish": after.finish,
            "name": after.name,
            "now": self._now,
            "released_tenants": array_of(self._released.tenants),
            "released_limiters": array_of(self._released.limiters),
            "checks_crowd": self._checks_crowd,
        }
        return self._tx.execute(self._sql["candidates"], parameters)

    def read_more(self, after: Position) -> Candidates | None:
        """Read the candidates after a position; None when there are no others, or the claim has read enough of them."""
        if self.exclusion is not None and self.exclusion.is_far:
            self._max_tenants = max(self._max_tenants, DEFAULTS.max_excluded_tenants)
            parameters = {"queue": self._queue, **after._asdict()}
            (count,) = self._tx.one(self._sql["count_candidates"], parameters) or (0,)
            skip = self.exclusion.jump(count)
            if skip is None:
                return None
            if skip:
                after = Position(*(self._tx.one(self._sql["candidate_at"], {**parameters, "index": skip - 1}) or after))
        return self.read(self.request(after))

    def count_open_lanes(self, tenants: Sequence[int]) -> list[int]:
        """Return how many open lanes each tenant has."""
        rows = dict(self._tx.all(self._sql["count_open_lanes"], {"tenants": array_of(tenants)}))
        return [rows[tenant] for tenant in tenants]

    def lanes_among(self, tenants: Sequence[int], skips: Sequence[int], size: int) -> list[list[OpenLaneRow]]:
        """Return of each tenant the lanes that are not excluded, among those after the first `skip` ones."""
        parameters = {
            "tenants": array_of(tenants),
            "skips": array_of(skips),
            "size": size,
            "excluded": array_of(self.exclusion.tasks if self.exclusion else ()),
            "max_lanes": DEFAULTS.max_lanes_read + 1,
        }
        (text,) = self._tx.one(self._sql["lanes_among"], parameters) or ("",)
        read = _decode_lanes_among(text)
        self._add_limiters(read.limiters)
        found: dict[int, list[OpenLaneRow]] = {tenant: [] for tenant in tenants}
        for lane in read.lanes:
            found[lane.tenant].append(lane)
        return list(found.values())

    def use(self, released: ReleasedSlots) -> None:
        """Take the slots that are released; when the candidates were requested, only those that may be were known."""
        self._released = released

    def read(self, result: Result) -> Candidates | None:
        """Return the candidates; None when the queue does not exist."""
        (text,) = result.one() or ("{}",)
        rows = _decode(text)
        if rows.queue is None:
            return None
        self._add_limiters(rows.limiters)
        lanes: dict[int, list[OpenLaneRow]] = defaultdict(list)
        for lane in rows.lanes:
            lanes[lane.tenant].append(lane)
        open_lanes = {row.id: _open_lanes(lanes[row.id]) for row in rows.tenants}
        if self.exclusion is not None:
            skip_excluded(self.exclusion, open_lanes, self)
        tenants: list[Tenant] = []
        idle: list[IdleTenant] = []
        for row in rows.tenants:
            self.row_locations[row.id] = row.row_location
            released = self._released.tenants[row.id]
            if row.is_candidate or (released and row.blocked == BlockReason.FULL):
                tenants.append(self._tenant(row, open_lanes[row.id], released, rows.queue.clock))
            elif released:
                idle.append(IdleTenant(row.id, row.running - released, row.weight))
        returning = [row for row in rows.limiters if row.is_returning]
        return Candidates(rows.queue, returning, tenants, idle, self._read_up_to(rows.tenants))

    def weights(self) -> Weights:
        """Return the sums of the weights of the tenants that wait, and of those that only run."""
        parameters = {"queue": self._queue, "max_tenants": DEFAULTS.max_tenants_weighed}
        return Weights(*(self._tx.one(self._sql["weights"], parameters) or (0, 0)))

    def refresh_locations(self, lanes: Iterable[int]) -> None:
        """Read again where the rows of lanes are, which were written after they were read."""
        self.row_locations.update(self._tx.all(self._sql["lane_locations"], {"lanes": array_of(lanes)}))

    def _read_up_to(self, rows: Iterable[TenantRow]) -> Position | None:
        in_order = [row for row in rows if row.is_next]
        if len(in_order) < self._max_tenants:
            return None
        last = in_order[-1]
        return Position(last.load, last.finish, last.name)

    def _tenant(self, row: TenantRow, open_lanes: TenantLanes[OpenLaneRow], released: int, clock: int) -> Tenant:
        limits = row.limits()
        limits.running -= released
        limits.is_changed = bool(released)
        # A tenant that was blocked begins at the queue's virtual time.
        finish = row.finish if row.is_candidate else max(row.finish, clock)
        lanes, (_, has_more, has_excluded) = list(map(self._lane, open_lanes.rows)), open_lanes
        return Tenant(limits, row.name, row.weight, finish, row.served, lanes, has_more, has_excluded)

    def _lane(self, row: OpenLaneRow) -> Lane:
        self.row_locations[row.id] = row.row_location
        self.lanes[row.id] = row
        known = self.limiters
        # A tenant and a dependency together have a limiter only if they have limits.
        limiters = [known[limiter] for limiter in row.limiters if limiter in known]
        return Lane(row.id, row.priority, row.served, row.ready, limiters)

    def _add_limiters(self, rows: Iterable[LimiterRow]) -> None:
        for row in rows:
            if row.id not in self.limiters:
                limits = self.limiters[row.id] = row.limits()
                limits.running -= self._released.limiters[row.id]
                self.row_locations[row.id] = row.row_location


def _open_lanes(lanes: list[OpenLaneRow]) -> TenantLanes[OpenLaneRow]:
    """Return the lanes of a tenant that a claim considers: the first, and of many also the oldest of each priority."""
    first = [lane for lane in lanes if not lane.is_oldest]
    if len(first) <= DEFAULTS.max_lanes_read:
        return TenantLanes(first, has_more=False)
    del first[DEFAULTS.max_lanes_read :]
    known = {lane.id for lane in first}
    return TenantLanes([*first, *(lane for lane in lanes if lane.is_oldest and lane.id not in known)], has_more=True)
