"""The ring: who may be next in a queue, as a claim reads it, with what stands in their way."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from reprieve.core.fairness.candidates import FIRST, BlockReason, FairnessState, Lane, Position, Tenant
from reprieve.core.fairness.settings import DEFAULTS
from reprieve.core.limits import Limits
from reprieve.core.rate import Meter, Rate
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.freed import Freed
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements
from reprieve.stores.postgres.wire import Reply

COUNTED_EVERY = 16
"""Claims of a session of which one looks whether those who wait have become a crowd."""


class Queue(msgspec.Struct):
    """What a queue knows of itself."""

    state: FairnessState
    limits: Limits
    moments: list[int]
    """When there may be more: the first job is due, or somebody may return."""


class Back(msgspec.Struct):
    """A limiter behind which something may return, and the tenant whose lanes returned last."""

    limiter: Limits
    cursor: int


class Resting(msgspec.Struct):
    """A tenant that has a slot back and nothing to do with it now."""

    id: int
    running: int
    weight: float


class Ring(msgspec.Struct):
    """Those who may be next, and up to where they were read."""

    queue: Queue
    backs: list[Back]
    tenants: list[Tenant]
    resting: list[Resting]
    last: Position | None


class Reader:
    """Reads the ring of one queue, as often as a claim has to."""

    def __init__(
        self, tx: Tx, queue: int, now: int, limit: int, freed: Freed | None = None, *, is_counting: bool = False
    ) -> None:
        """Take the queue, and slots that are about to be given back: whoever is read has them already."""
        self._is_counting = is_counting
        self._tx = tx
        self._sql = statements("claim")
        self._queue = queue
        self._now = now
        self._limit = limit
        self._freed = freed or Freed()
        self.limiters: dict[int, Limits] = {}
        """Every limiter that was met. One that is met again has counted since what the plan took through it."""
        self.places: dict[int, str] = {}
        """Where the rows of lanes, tenants and limiters were found."""
        self.watermarks: dict[int, tuple[str, str]] = {}
        """Of each lane: up to where fresh jobs were taken, and before which nothing is ready once more."""

    def ask(self, after: Position = FIRST, asked: Freed | None = None) -> Reply:
        """Ask, and wait for nothing. `asked` names whoever may have slots back, before it is known who has."""
        freed = asked or self._freed
        load, finish, name = after
        wanted = {
            "queue": self._queue,
            "most": self._limit + 2,
            "load": load,
            "finish": finish,
            "name": name,
            "now": self._now,
            "freed": array_of(freed.tenants),
            "freed_limiters": array_of(freed.limiters),
            "is_counting": self._is_counting,
        }
        return self._tx.execute(self._sql["candidates"], wanted)

    def free(self, freed: Freed) -> None:
        """Learn which slots are given back."""
        self._freed = freed

    def read(self, reply: Reply) -> Ring | None:
        """Read the reply; None when nobody knows the queue."""
        kinds: tuple[list[tuple[Any, ...]], ...] = ([], [], [], [], [])
        for row in reply.all():
            kinds[row[0]].append(row)
        (queue, backs, tenants, lanes, limiters) = kinds
        if not queue:
            return None
        for row in limiters:
            self._meet(row)
        known = self._read_queue(queue[0])
        by_tenant: dict[int, list[Lane]] = defaultdict(list)
        for _, tenant, lane, priority, served, ready, task, dependency, group, *_, place, low, back, _ in lanes:
            row = (lane, priority, served, ready, task, dependency, group, place, low, back)
            by_tenant[tenant].append(self._lane(row))
        asked, resting = self._tenants(tenants, by_tenant, known.state.clock)
        return Ring(known, [self._back(row) for row in backs], asked, resting, self._last(tenants))

    def _read_queue(self, row: Sequence[Any]) -> Queue:
        _, clock, last, streak, last_at, other_at, _, limiter, permits, max_running, rate_count, running, *rest = row
        due_at, back_at, _, rate_window, meter, place, *_ = rest
        limits = _limits(
            (limiter, permits, max_running, rate_count, running, rate_window, meter), self._freed.limiters[limiter]
        )
        self.places[limiter] = place
        moments = [moment for moment in (due_at, back_at) if moment is not None]
        return Queue(FairnessState(clock, last, streak, last_at, other_at), limits, moments)

    def _meet(self, row: Sequence[Any]) -> None:
        """Get to know a limiter, unless it was met before."""
        _, limiter, *_, place, _, _, _ = row
        if limiter not in self.limiters:
            self.limiters[limiter] = self._limiter(row)
            self.places[limiter] = place

    def _back(self, row: Sequence[Any]) -> Back:
        _, limiter, _, _, _, _, cursor, *_ = row
        return Back(self.limiters.get(limiter) or self._limiter(row), cursor)

    def _limiter(self, row: Sequence[Any]) -> Limits:
        _, limiter, permits, max_running, rate_count, running, *_, rate_window, meter, _, _, _, _ = row
        return _limits(
            (limiter, permits, max_running, rate_count, running, rate_window, meter), self._freed.limiters[limiter]
        )

    def _last(self, rows: Sequence[Sequence[Any]]) -> Position | None:
        """Return where the last of those in the ring stands, if there may be more behind."""
        places: list[Position] = []
        for _, _, _, _, _, _, load, finish, _, _, _, is_next, *_, name in rows:
            if is_next:
                places.append(Position(load, finish, name))
        return places[-1] if len(places) >= self._limit + 2 else None

    def _tenants(
        self, rows: Iterable[Sequence[Any]], lanes: Mapping[int, list[Lane]], clock: int
    ) -> tuple[list[Tenant], list[Resting]]:
        """Return those who may be next, and those who only give slots back."""
        asked: list[Tenant] = []
        resting: list[Resting] = []
        for row in rows:
            _, tenant, permits, max_running, rate_count, running, _, finish, served, ringed, blocked, _, _, _, *rest = (
                row
            )
            weight, rate_window, meter, place, *_, name = rest
            self.places[tenant] = place
            freed = self._freed.tenants[tenant]
            is_free = bool(freed) and blocked == BlockReason.FULL
            if not ringed and not is_free:
                if freed:
                    resting.append(Resting(tenant, running - freed, weight))
                continue
            limits = _limits((tenant, permits, max_running, rate_count, running, rate_window, meter), freed)
            limits.is_changed = bool(freed)
            mine = lanes[tenant]
            has_more = len(mine) > DEFAULTS.max_lanes_read
            if has_more:
                self._add_oldest(tenant, mine)
            finish = max(finish, clock) if is_free else finish
            asked.append(Tenant(limits, name, weight, finish, served, mine, has_more))
        return asked, resting

    def _add_oldest(self, tenant: int, lanes: list[Lane]) -> None:
        """Add the lanes of each priority that were served longest ago; the last that was read is one too many."""
        lanes.pop()
        known = {lane.id for lane in lanes}
        for oldest in self._tx.all(self._sql["oldest_lanes"], {"tenant": tenant}):
            if oldest[0] not in known:
                for *row, place in self._tx.all(self._sql["limiters"], {"ids": array_of(oldest[4:7])}):
                    if row[0] not in self.limiters:
                        self.limiters[row[0]] = _limits(row, self._freed.limiters[row[0]])
                        self.places[row[0]] = place
                lanes.append(self._lane(oldest))

    def _lane(self, row: Sequence[Any]) -> Lane:
        lane, priority, served, ready, *limiters, place, low, back = row
        self.places[lane], self.watermarks[lane] = place, (low, back)
        return Lane(lane, priority, served, ready, [self.limiters[limiter] for limiter in limiters if limiter])


def _limits(row: Sequence[Any], freed: int) -> Limits:
    number, permits, max_running, rate_count, running, rate_window, meter = row
    if rate_count is None:
        return Limits(number, permits, max_running, None, (), running - freed)
    rate = Rate(count=rate_count, window=rate_window)
    return Limits(number, permits, max_running, rate, msgspec.json.decode(meter, type=Meter), running - freed)
