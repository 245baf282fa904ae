"""Whose jobs a claim takes: the choice itself, in memory, from what the claim has read.

The rules are those of `core.fairness` and `core.lane`, for a whole batch at a time: loads are kept in a heap instead of
being compared one by one. Everything here is changed by planning and then written back.
"""

import heapq
import math
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from reprieve.core.fairness import STANDARD, Fairness
from reprieve.core.lane import OLDEST_EVERY
from reprieve.core.rate import Meter, Rate, opens_at, refund, room, spend

ROUND = 1_000_000
"""Loads and virtual times are whole millionths, so that they survive every store unchanged."""

MOST_ASIDE = 256
"""Lanes that one claim puts aside at the most; the next goes on."""

HELD, FULL, SPENT = 3, 1, 2
"""Why a tenant is blocked: it is held, at its limit, or has spent its rate."""


Place: TypeAlias = tuple[int, int, int]
"""Where a tenant stands in the ring: its load, its virtual time and its id."""


class Limits:
    """What a limiter or a tenant may have under way, and has."""

    __slots__ = ("id", "is_changed", "is_free", "max_running", "meter", "permits", "rate", "running")

    def __init__(
        self,
        id: int,  # noqa: A002 - a row's word
        permits: int | None,
        max_running: int | None,
        rate: Rate | None,
        meter: Meter,
        running: int,
    ) -> None:
        """Take a row as it was read."""
        self.id = id
        self.permits = permits
        self.max_running = max_running
        self.rate = rate
        self.meter = meter
        self.running = running
        self.is_changed = False
        self.is_free = permits is None and max_running is None and rate is None
        """Whether nothing limits it, so that it need not be asked."""

    def room(self, now: int) -> int | None:
        """Return how many more may start; None is any number."""
        if self.is_free:
            return None
        limits = [limit - self.running for limit in (self.permits, self.max_running) if limit is not None]
        if self.rate is not None:
            limits.append(room(self.rate, self.meter, now))
        return max(0, min(limits)) if limits else None

    def take(self, now: int) -> None:
        """Count one more."""
        self.running += 1
        self.is_changed = True
        if self.rate is not None:
            self.meter = spend(self.rate, self.meter, now, 1)

    def give_back(self) -> None:
        """Count one less: what was taken came to nothing."""
        self.running -= 1
        self.meter = refund(self.meter, 1)

    def back_at(self, now: int) -> int | None:
        """Return when to look again if there is no room; None when only an end or a person makes some."""
        if self.rate is None or room(self.rate, self.meter, now):
            return None
        return opens_at(self.rate, self.meter, now)


class Lane:
    """An open lane of a tenant."""

    __slots__ = ("id", "is_alone", "limiters", "limits", "priority", "ready", "served", "taken")

    def __init__(self, id: int, priority: int, served: int, ready: int, limiters: list[Limits]) -> None:  # noqa: A002 - a row's word
        """Take a row as it was read."""
        self.id = id
        self.priority = priority
        self.served = served
        self.ready = ready
        self.limiters = limiters
        self.limits = [limiter for limiter in limiters if not limiter.is_free]
        self.taken = 0
        self.is_alone = False
        """Whether its tenant has no other: then nobody asks whose turn it is."""


class Tenant:
    """A tenant that may have a job for us."""

    __slots__ = ("finish", "has_more", "lanes", "limits", "served", "step", "taken", "weight")

    def __init__(
        self, limits: Limits, weight: float, finish: int, served: int, lanes: list[Lane], *, has_more: bool
    ) -> None:
        """Take a row as it was read, with its first lanes; `has_more` says that there are others."""
        self.limits = limits
        self.weight = weight
        self.finish = finish
        self.served = served
        self.lanes = lanes
        self.has_more = has_more
        self.step = round(ROUND / weight)
        self.taken = 0
        if len(lanes) == 1:
            lanes[0].is_alone = True

    @property
    def load(self) -> int:
        """Slots held for its weight."""
        return load_of(self.limits.running, self.weight)


class Turn:
    """What the queue remembers from one claim to the next."""

    __slots__ = ("clock", "last", "last_at", "other_at", "streak")

    def __init__(self, clock: int, last: int, streak: int, last_at: int, other_at: int) -> None:
        """Take a row as it was read."""
        self.clock = clock
        self.last = last
        self.streak = streak
        self.last_at = last_at
        self.other_at = other_at


class Plan:
    """Plans one claim of one queue."""

    def __init__(  # noqa: PLR0913 - everything that the choice depends on
        self,
        tenants: list[Tenant],
        turn: Turn,
        queue: Limits,
        *,
        slots: int,
        crowd: Callable[[], tuple[float, float]],
        last: Place | None,
        now: int,
        rules: Fairness = STANDARD,
    ) -> None:
        """Take what was read: beyond `last` others may wait; `crowd` weighs who waits, and who only runs, if asked."""
        self.tenants = {tenant.limits.id: tenant for tenant in tenants}
        self.turn = turn
        self.queue = queue
        self.now = now
        self.rules = rules
        self.picks: list[Lane] = []
        self.taken: dict[int, Lane] = {}
        """The lanes that jobs were picked from."""
        self.asides: dict[int, tuple[Lane, Limits]] = {}
        self.blocked: dict[int, int] = {}
        self.empty: set[int] = set()
        self.is_cut = False
        """Whether to look again at once."""
        self.wants_more = False
        """Whether the tenants that were read are through, and others may wait beyond them."""
        self.ceiling_until: int | None = None
        self._slots = slots
        self._ceiling = max(1, math.floor(slots * rules.most_slots))
        self._crowd = cache(crowd)
        self._heap = [(tenant.load, tenant.finish, tenant.limits.id) for tenant in tenants]
        heapq.heapify(self._heap)
        self.last = last

    def add(self, tenants: list[Tenant], last: Place | None) -> None:
        """Go on with more tenants, read up to another last one."""
        for tenant in tenants:
            if tenant.limits.id not in self.tenants:
                self.tenants[tenant.limits.id] = tenant
                heapq.heappush(self._heap, (tenant.load, tenant.finish, tenant.limits.id))
        self.last = last
        self.wants_more = False

    def run(self, limit: int) -> None:
        """Pick jobs until the limit, or until there is nothing that may run."""
        room_of_queue = self.queue.room(self.now)
        limit = limit if room_of_queue is None else min(limit, room_of_queue)
        while len(self.picks) < limit:
            tenant = self._choose()
            if tenant is None:
                return
            lane = self._lane_of(tenant)
            if lane is not None:
                self._take(tenant, lane)
            if len(self.asides) >= MOST_ASIDE:
                self.is_cut = True
                return

    def count(self) -> None:
        """Count what was taken through limiters without limits: nobody had to know on the way. To be called once."""
        for lane in self.taken.values():
            for limiter in lane.limiters:
                if limiter.is_free:
                    limiter.running += lane.taken
        if self.queue.is_free:
            self.queue.running += len(self.picks)

    def give_back(self, tenant: int, lane: Lane) -> None:
        """Undo a pick whose job turned out not to be one; whatever it made full has room again."""
        for limits in (self.tenants[tenant].limits, self.queue, *lane.limiters):
            limits.give_back()
        self.blocked.pop(tenant, None)

    def _choose(self) -> Tenant | None:
        """Return the tenant that is next, taken off the heap; it is put back when it has been served."""
        passed: list[Place] = []
        chosen, fallback = None, None
        while self._heap:
            entry = heapq.heappop(self._heap)
            if self.last is not None and entry > self.last:
                # Beyond what was read others may be next.
                passed.append(entry)
                break
            tenant = self.tenants[entry[2]]
            if not self._may_run(tenant):
                continue
            is_third = entry[2] == self.turn.last and self.turn.streak >= self.rules.most_in_a_row
            if is_third and fallback is None:
                fallback = entry
            elif fallback is None or tenant.limits.running < self._share_of(tenant):
                chosen = entry
                break
            else:
                passed.append(entry)
        if chosen is None and self.last is not None:
            self.wants_more = True
        elif chosen is None:
            chosen, fallback = fallback, None
        if fallback is not None:
            passed.append(fallback)
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return None if chosen is None else self.tenants[chosen[2]]

    def _may_run(self, tenant: Tenant) -> bool:
        """Whether the tenant is within its own limits and the ceiling; if not, it leaves this claim."""
        limits = tenant.limits
        if not limits.is_free and limits.room(self.now) == 0:
            is_spent = limits.rate is not None and not room(limits.rate, limits.meter, self.now)
            self.blocked[limits.id] = HELD if limits.permits == 0 else SPENT if is_spent else FULL
            return False
        return limits.running < self._ceiling or not self._has_company(limits.id)

    def _share_of(self, tenant: Tenant) -> float:
        return self._slots * tenant.weight / sum(self._crowd())

    def _has_company(self, tenant: int) -> bool:
        """Whether another tenant waits, or was served in the last minute."""
        if len(self.tenants) > 1 or self._crowd()[1] > 0:
            return True
        seen_at = self.turn.other_at if self.turn.last == tenant else max(self.turn.last_at, self.turn.other_at)
        if self.now - seen_at < _MINUTE:
            self.ceiling_until = seen_at + _MINUTE
            return True
        return False

    def _lane_of(self, tenant: Tenant) -> Lane | None:
        """Return the lane that is next and may give a job; those that may not are put aside."""
        is_oldest_turn = (tenant.served + 1) % OLDEST_EVERY == 0
        while tenant.lanes:
            lane = tenant.lanes[0]
            if len(tenant.lanes) > 1:
                lane = min(tenant.lanes, key=_by_age if is_oldest_turn else _by_priority)
            for limiter in lane.limits:
                if limiter.room(self.now) == 0:
                    break
            else:
                return lane
            self.asides[lane.id] = (lane, limiter)
            tenant.lanes.remove(lane)
        if tenant.has_more:
            self.is_cut = True
        else:
            self.empty.add(tenant.limits.id)
        return None

    def _take(self, tenant: Tenant, lane: Lane) -> None:
        limits, now = tenant.limits, self.now
        tenant.served += 1
        tenant.taken += 1
        limits.take(now)
        self._remember(tenant)
        tenant.finish += tenant.step
        lane.served = tenant.served
        lane.taken += 1
        lane.ready -= 1
        for limiter in lane.limits:
            limiter.take(now)
        if not self.queue.is_free:
            self.queue.take(now)
        self.picks.append(lane)
        self.taken[lane.id] = lane
        if not lane.ready:
            tenant.lanes.remove(lane)
        if tenant.lanes or tenant.has_more:
            heapq.heappush(self._heap, (load_of(limits.running, tenant.weight), tenant.finish, limits.id))
        else:
            self.empty.add(limits.id)

    def _remember(self, tenant: Tenant) -> None:
        turn, number = self.turn, tenant.limits.id
        turn.clock = max(turn.clock, tenant.finish)
        if number == turn.last:
            turn.streak += 1
        else:
            turn.other_at = max(turn.other_at, turn.last_at)
            turn.last, turn.streak = number, 1
        turn.last_at = max(turn.last_at, self.now)


_MINUTE = 60_000


def load_of(running: int, weight: float) -> int:
    """Return the slots held for a weight, in whole millionths."""
    return int(running * ROUND / weight)


def _by_priority(lane: Lane) -> tuple[int, int]:
    return lane.priority, lane.served


def _by_age(lane: Lane) -> tuple[int, int]:
    return lane.served, -lane.priority
