"""Whose job is next: the executable specification that every store's claim follows.

The next job goes to the waiting tenant that holds the fewest slots for its weight. Slots held, not jobs served, make
it fair in seconds: a tenant with long jobs holds its slots longer and is passed over meanwhile. Among equals virtual
time decides, so that they take turns.
"""

import math
from collections.abc import Sequence

from msgspec.structs import replace

from reprieve.core.record import Record
from reprieve.errors import ValidationError

LIGHTEST, HEAVIEST = 0.001, 1_000
"""Weights between these keep loads and virtual times exact in every store."""


class Fairness(Record):
    """The numbers of fairness, for those who want others."""

    most_in_a_row: int = 3
    """Jobs of one tenant in a row while another waits below its share."""
    most_slots: float = 0.9
    """The share of all slots that one tenant takes at the most while others were active in the last minute."""
    base_priority: int = 5
    priority_increment: int = 1

    def __post_init__(self) -> None:
        """Refuse numbers that would stop everything."""
        if self.most_in_a_row < 1 or not 0 < self.most_slots <= 1:
            message = "most_in_a_row is 1 or more, and most_slots a share above 0 and up to 1"
            raise ValidationError(message)


STANDARD = Fairness()


class Tenant(Record):
    """A tenant as the choice sees it."""

    name: str
    weight: float = 1.0
    running: int = 0
    finish: float = 0.0
    """Its virtual time: when, in rounds, it has had its share. Never behind the queue's clock as it begins to wait."""
    served: int = 0
    served_at: int | None = None

    def __post_init__(self) -> None:
        """Refuse a weight that is none."""
        if not LIGHTEST <= self.weight <= HEAVIEST:
            message = f"tenant {self.name!r} has weight {self.weight!r}; give a number from {LIGHTEST} to {HEAVIEST}"
            raise ValidationError(message)


class Turn(Record):
    """What a queue remembers from one grant to the next."""

    clock: float = 0.0
    """The queue's virtual time, in rounds."""
    last: str = ""
    streak: int = 0


class Crowd(Record):
    """Everybody who matters to the choice: who waits, who was active in the last minute, and how many slots are."""

    waiting: tuple[Tenant, ...]
    active: tuple[Tenant, ...] = ()
    """Tenants that do not wait, but run jobs or did so in the last minute."""
    slots: int

    def share_of(self, tenant: Tenant) -> float:
        """Return the slots that are this tenant's by weight."""
        total = sum(other.weight for other in (*self.waiting, *self.active))
        return self.slots * tenant.weight / total


class Metrics(Record):
    """Fairness as people watch it, a tenant at a time."""

    tenant: str
    rounds_without_processing: int
    current_priority: int
    consecutive_batch_count: int
    total_processed: int
    last_processed_at: int | None


def arrive(tenant: Tenant, turn: Turn) -> Tenant:
    """Let a tenant begin to wait: what it did not use while it was away is gone."""
    return replace(tenant, finish=max(tenant.finish, turn.clock))


def choose(crowd: Crowd, turn: Turn, rules: Fairness = STANDARD) -> Tenant | None:
    """Choose whose job is leased next; None when nobody may take a slot."""
    eligible = _below_ceiling(crowd, rules)
    if not eligible:
        return None
    best = _least(eligible)
    if best.name != turn.last or turn.streak < rules.most_in_a_row:
        return best
    others = [tenant for tenant in eligible if tenant is not best and tenant.running < crowd.share_of(tenant)]
    return _least(others) if others else best


def grant(tenant: Tenant, turn: Turn, now: int) -> tuple[Tenant, Turn]:
    """Give one slot to the tenant; answer it and the turn as they are afterwards."""
    after = replace(
        tenant,
        running=tenant.running + 1,
        finish=tenant.finish + 1 / tenant.weight,
        served=tenant.served + 1,
        served_at=now,
    )
    streak = turn.streak + 1 if tenant.name == turn.last else 1
    return after, Turn(clock=max(turn.clock, tenant.finish), last=tenant.name, streak=streak)


def measure(tenant: Tenant, turn: Turn, rules: Fairness = STANDARD) -> Metrics:
    """Put a tenant's standing into the words that people watch."""
    rounds = max(0, math.floor(turn.clock - tenant.finish))
    return Metrics(
        tenant=tenant.name,
        rounds_without_processing=rounds,
        current_priority=aged_priority(rounds, rules),
        consecutive_batch_count=turn.streak if tenant.name == turn.last else 0,
        total_processed=tenant.served,
        last_processed_at=tenant.served_at,
    )


def aged_priority(rounds: int, rules: Fairness = STANDARD) -> int:
    """Return the priority of a tenant that was passed over for so many rounds: 1 is the most urgent."""
    return max(1, rules.base_priority - rules.priority_increment * rounds)


def _below_ceiling(crowd: Crowd, rules: Fairness) -> Sequence[Tenant]:
    if len(crowd.waiting) + len(crowd.active) < 2:  # noqa: PLR2004 - one tenant alone may have everything
        return crowd.waiting
    ceiling = max(1, math.floor(crowd.slots * rules.most_slots))
    return [tenant for tenant in crowd.waiting if tenant.running < ceiling]


def _least(tenants: Sequence[Tenant]) -> Tenant:
    return min(tenants, key=lambda tenant: (tenant.running / tenant.weight, tenant.finish, tenant.name))
