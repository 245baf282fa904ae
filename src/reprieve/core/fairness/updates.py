"""What a claim writes back after a choice."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from reprieve.core.fairness.candidates import BlockReason, load_of
from reprieve.core.fairness.choice import Choice
from reprieve.core.limits import Limits
from reprieve.core.rate import Meter


class LaneUpdate(msgspec.Struct, frozen=True, gc=False):
    """A lane as a claim leaves it."""

    id: int
    taken: int
    is_open: bool
    blocked_by: int
    """The id of the limiter that it waits for, or 0."""
    served: int | None
    """None when it did not change in a way that matters."""


class TenantUpdate(msgspec.Struct, frozen=True, gc=False):
    """A tenant as a claim leaves it."""

    id: int
    running: int
    load: int
    finish: int
    is_candidate: bool
    blocked: BlockReason
    reopens_at: int | None
    served: int
    served_at: int | None
    """None when it got nothing."""
    meter: Meter | None
    """None when it has no rate."""


class LimiterUpdate(msgspec.Struct, frozen=True, gc=False):
    """A limiter as a claim leaves it."""

    id: int
    running: int
    blocked_lanes: int
    """How many more lanes wait for it."""
    reopens_at: int | None
    """When to open these lanes again: 0 is at once, whatever the clock does; None is not by time."""
    meter: Meter | None
    """None when it has no rate."""


def lane_updates(choice: Choice) -> list[LaneUpdate]:
    """Return the lanes to write back."""
    updates = []
    for lane in choice.taken.values():
        if lane.id not in choice.blocked_lanes:
            served = None if lane.is_alone and lane.ready else lane.served
            updates.append(LaneUpdate(lane.id, lane.taken, lane.ready > 0, 0, served))
    for lane, limiter in choice.blocked_lanes.values():
        updates.append(LaneUpdate(lane.id, lane.taken, is_open=False, blocked_by=limiter.id, served=lane.served))
    return updates


def tenant_updates(choice: Choice) -> list[TenantUpdate]:
    """Return the tenants to write back."""
    updates = []
    for tenant in choice.tenants.values():
        limits, blocked, is_candidate = tenant.limits, tenant.blocked, tenant.is_candidate
        if limits.is_changed or not is_candidate:
            updates.append(
                TenantUpdate(
                    limits.id,
                    limits.running,
                    load_of(limits.running, tenant.weight),
                    tenant.finish,
                    is_candidate,
                    blocked,
                    limits.reopens_at(choice.now) if blocked else None,
                    tenant.served,
                    choice.now if tenant.taken else None,
                    None if limits.rate is None else limits.meter,
                )
            )
    return updates


def limiter_updates(choice: Choice, others: Iterable[Limits] = ()) -> list[LimiterUpdate]:
    """Return the limiters to write back, those of the lanes and the queue and others."""
    blocked = Counter(limiter.id for _, limiter in choice.blocked_lanes.values())
    limiters = {limiter.id: limiter for limiter in others}
    limiters |= {limiter.id: limiter for lane in choice.taken.values() for limiter in lane.limiters}
    limiters |= {limiter.id: limiter for _, limiter in choice.blocked_lanes.values()}
    if choice.picks or choice.queue.id in limiters:
        limiters[choice.queue.id] = choice.queue
    return [
        LimiterUpdate(
            limiter.id,
            limiter.running,
            blocked[limiter.id],
            limiter.reopens_at(choice.now) if limiter.room(choice.now) == 0 else 0,
            None if limiter.rate is None else limiter.meter,
        )
        for limiter in limiters.values()
    ]
