"""The choice itself: picks the jobs of one claim, by tenant and lane."""

import heapq
import math
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from reprieve.core.fairness.candidates import (
    FIRST,
    BlockReason,
    Capacity,
    FairnessState,
    Lane,
    Position,
    Tenant,
    Weights,
    load_of,
    weigh,
)
from reprieve.core.fairness.settings import DEFAULTS, FairnessSettings
from reprieve.core.limits import Limits


class BlockedLane(NamedTuple):
    """A lane that gives no job, and the limiter that keeps it."""

    lane: Lane
    limiter: Limits


Need: TypeAlias = Literal["tenants", "weights"]
"""What a choice has to be given before it can go on: more tenants (`add`), or `weights`."""


HeapItem: TypeAlias = tuple[int, int, str, Tenant]
"""A position as a plain tuple, which is made faster, with its tenant. Names are unique, so no tenants are compared."""


class Choice:
    """The picks of one claim from one queue. It changes what it was given; the updates say what to write back."""

    def __init__(
        self,
        state: FairnessState,
        queue: Limits,
        *,
        capacity: Capacity,
        now: int,
        settings: FairnessSettings = DEFAULTS,
    ) -> None:
        """Take the queue's state and limits, and the capacity of the live sessions that serve it.

        A tenant's jobs are counted from their lease on. So the ceiling allows for jobs that are only fetched ahead:
        they hold no slot.
        """
        self.state = state
        self.queue = queue
        self.now = now
        self.settings = settings
        self.weights: Weights | None = None
        self.tenants: dict[int, Tenant] = {}
        self.picks: list[Lane] = []
        """A lane for each job, in the order in which they are to be leased."""
        self.taken: dict[int, Lane] = {}
        """The lanes that jobs were picked from."""
        self.blocked_lanes: dict[int, BlockedLane] = {}
        self.is_cut = False
        """Whether it stopped early, so that the next claim should come at once."""
        self.ceiling_until: int | None = None
        """When a tenant that is alone may take the slots that are kept for tenants active a moment ago."""
        self.read_up_to: Position | None = FIRST
        """The last position that was read; None when no candidate is beyond it."""
        self._need: Need | None = None
        self._slots = capacity.slots
        self._ceiling = max(1, math.floor(capacity.slots * settings.max_share_of_slots)) + capacity.prefetch
        self._run_length = _run_length(capacity, settings)
        self._current: Tenant | None = None
        """The tenant whose run of picks goes on, if it still has room; it is not on the heap."""
        self._waiting = 0
        self._heap: list[HeapItem] = []

    def add(self, tenants: Iterable[Tenant], read_up_to: Position | None) -> None:
        """Go on with more tenants; beyond `read_up_to` there may be others, None says that there are not."""
        for tenant in tenants:
            if tenant.limits.id not in self.tenants:
                self.tenants[tenant.limits.id] = tenant
                if tenant.lanes:
                    self._waiting += 1
                    self._heap.append(_heap_item(tenant))
                elif tenant.has_excluded and tenant.limits.running:
                    # Another session runs its jobs. If none did, it would keep slots free that no session can use.
                    self._waiting += 1
        heapq.heapify(self._heap)
        self.read_up_to = read_up_to

    def run(self, limit: int) -> Need | None:
        """Pick jobs up to the limit; return what has to be read before it can go on, or None when it is done."""
        room = self.queue.room(self.now)
        limit = limit if room is None else min(limit, len(self.picks) + room)
        self._need = None
        while len(self.picks) < limit:
            tenant = self._next_tenant()
            if tenant is None:
                return self._need
            lane = self._next_lane(tenant)
            if lane is not None:
                self._take(tenant, lane)
            if len(self.blocked_lanes) >= self.settings.max_blocked_lanes:
                self.is_cut = True
                return None
        return None

    def finish(self) -> None:
        """Count the picks where nothing limits them. To be called once, after the last `run`."""
        for lane in self.taken.values():
            for limiter in lane.limiters:
                if limiter.is_unlimited:
                    limiter.running += lane.taken
        if self.queue.is_unlimited:
            self.queue.running += len(self.picks)

    def give_back(self, tenant: int, lane: Lane) -> None:
        """Undo a pick after `finish`, because its job cannot run; its slots are free again."""
        for limits in (self.tenants[tenant].limits, self.queue, *lane.limiters):
            limits.give_back()
        self.tenants[tenant].blocked = BlockReason.NONE

    def _next_tenant(self) -> Tenant | None:
        """Take the next tenant off the heap; None when there is none, or when something has to be read first."""
        if self._current is not None and (current := self._go_on_with(self._current)) is not None:
            return current
        skipped: list[Tenant] = []
        chosen, had_enough = None, None
        repeated = self.state.last_tenant if self.state.in_a_row >= self.settings.max_in_a_row else None
        while self._heap and chosen is None and self._need is None:
            tenant = heapq.heappop(self._heap)[-1]
            may_take = self._may_take_a_slot(tenant)
            if may_take and had_enough is None and tenant.limits.id == repeated:
                had_enough = tenant
            elif may_take and (had_enough is None or self._is_below_share(tenant)):
                chosen = tenant
            elif may_take is not False:
                skipped.append(tenant)
        if chosen is None and self._need is None:
            if self.read_up_to is not None:
                self._need = "tenants"
            else:
                chosen, had_enough = had_enough, None
        if had_enough is not None:
            skipped.append(had_enough)
        for tenant in skipped:
            heapq.heappush(self._heap, _heap_item(tenant))
        return chosen

    def _go_on_with(self, tenant: Tenant) -> Tenant | None:
        """Return the current tenant if it has room for one more of its run; otherwise put it on the heap again."""
        self._current = None
        if tenant.limits.running < self._ceiling and tenant.limits.room(self.now) != 0:
            return tenant
        heapq.heappush(self._heap, _heap_item(tenant))
        return None

    def _may_take_a_slot(self, tenant: Tenant) -> bool | None:
        """Whether a tenant is within its own limits and the ceiling; if not, this claim is done with it.

        None, with `_need` set, when that cannot be told yet.
        """
        if self.read_up_to is not None and tenant.position > self.read_up_to:
            # Tenants that were not read may come before it.
            self._need = "tenants"
            return None
        limits = tenant.limits
        if not limits.is_unlimited and limits.room(self.now) == 0:
            is_spent = limits.reopens_at(self.now) is not None
            held = BlockReason.HELD if limits.permits == 0 else None
            tenant.blocked = held or (BlockReason.SPENT if is_spent else BlockReason.FULL)
            return False
        return limits.running < self._ceiling or self._is_alone(limits.id)

    def _is_alone(self, tenant: int) -> bool | None:
        """Whether no other tenant waits, runs, or was active a moment ago; None, with `_need` set, if unknown."""
        if self._waiting > 1:
            return False
        if self.read_up_to is not None or self.weights is None:
            self._need = "weights" if self.read_up_to is None else "tenants"
            return None
        if self.weights.running > 0:
            return False
        state = self.state
        seen_at = state.other_served_at
        if state.last_tenant != tenant:
            seen_at = max(seen_at, state.last_served_at)
        active_until = seen_at + self.settings.activity_window_seconds * 1_000
        if self.now < active_until:
            self.ceiling_until = active_until
            return False
        return True

    def _is_below_share(self, tenant: Tenant) -> bool:
        """Whether a tenant holds fewer slots than are its own by weight."""
        if self.weights is None:
            self._need = "weights"
            return False
        own = weigh(tenant.weight)
        # The tenant waits, so its weight is in the sum, unless the sum was cut short.
        return tenant.limits.running < self._slots * own / max(own, self.weights.waiting + self.weights.running)

    def _next_lane(self, tenant: Tenant) -> Lane | None:
        """Return the lane of a tenant that is next and may give a job; note those that are blocked."""
        is_for_oldest = (tenant.served + 1) % self.settings.oldest_every_picks == 0
        while tenant.lanes:
            lane = tenant.lanes[0]
            if len(tenant.lanes) > 1:
                lane = min(tenant.lanes, key=_by_age if is_for_oldest else _by_priority)
            for limiter in lane.limited:
                if limiter.room(self.now) == 0:
                    break
            else:
                return lane
            self.blocked_lanes[lane.id] = BlockedLane(lane, limiter)
            tenant.lanes.remove(lane)
        if tenant.has_more:
            self.is_cut = True
        else:
            tenant.is_empty = True
        return None

    def _take(self, tenant: Tenant, lane: Lane) -> None:
        tenant.served += 1
        tenant.taken += 1
        tenant.limits.take(self.now)
        self._remember(tenant)
        tenant.finish += tenant.step
        lane.served = tenant.served
        lane.taken += 1
        lane.ready -= 1
        for limiter in lane.limited:
            limiter.take(self.now)
        if not self.queue.is_unlimited:
            self.queue.take(self.now)
        self.picks.append(lane)
        self.taken[lane.id] = lane
        if not lane.ready:
            tenant.lanes.remove(lane)
        if tenant.lanes and self.state.in_a_row < self._run_length:
            self._current = tenant
        elif tenant.lanes or tenant.has_more:
            heapq.heappush(self._heap, _heap_item(tenant))
        else:
            tenant.is_empty = True

    def _remember(self, tenant: Tenant) -> None:
        state = self.state
        if tenant.finish > state.clock:  # noqa: PLR1730 - writing a field is what costs most here
            state.clock = tenant.finish
        if tenant.limits.id == state.last_tenant:
            state.in_a_row += 1
        else:
            state.other_served_at = max(state.other_served_at, state.last_served_at)
            state.last_tenant, state.in_a_row = tenant.limits.id, 1
        if self.now > state.last_served_at:  # noqa: PLR1730 - as above
            state.last_served_at = self.now


def _run_length(capacity: Capacity, settings: FairnessSettings) -> int:
    """Return how many jobs of a tenant are picked in a row, although another would be next.

    Where sessions fetch more jobs ahead than they have slots, jobs take milliseconds. The others wait that much longer,
    but a claim writes to fewer tenants.
    """
    return min(settings.max_in_a_row, 1 + capacity.prefetch // max(1, capacity.slots))


def _heap_item(tenant: Tenant) -> HeapItem:
    return load_of(tenant.limits.running, tenant.weight), tenant.finish, tenant.name, tenant


def _by_priority(lane: Lane) -> tuple[int, int]:
    return lane.priority, lane.served


def _by_age(lane: Lane) -> tuple[int, int]:
    return lane.served, -lane.priority
