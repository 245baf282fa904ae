"""Situations of a claim, drawn at random: what a store could have read before it chooses.

They are plain data, so that the choice in Lua can be given the same.
"""

from dataclasses import dataclass, field
from random import Random

from reprieve.core.fairness.candidates import (
    FIRST,
    Capacity,
    FairnessState,
    Lane,
    Position,
    Tenant,
    Weights,
    load_of,
    weigh,
)
from reprieve.core.fairness.choice import Choice
from reprieve.core.fairness.settings import FairnessSettings
from reprieve.core.limits import Limits
from reprieve.core.rate import Meter, Rate, spend

NOW = 1_760_000_000_000
WEIGHTS = (1.0, 1.0, 1.0, 2.0, 3.0, 10.0, 0.1, 0.0015, 0.3, 7.7, 128.0, 1000.0)


@dataclass(frozen=True)
class LimitsFacts:
    """Limits as a store has them."""

    permits: int | None
    max_running: int | None
    rate: Rate | None
    meter: Meter
    running: int

    def make(self, number: int) -> Limits:
        return Limits(number, self.permits, self.max_running, self.rate, self.meter, self.running)


@dataclass(frozen=True)
class LaneFacts:
    """A lane; its limiters are places in the situation's list, and its number is that of the lane in the situation."""

    number: int
    priority: int
    served: int
    ready: int
    limiters: tuple[int, ...]


@dataclass(frozen=True)
class TenantFacts:
    """A tenant; its number is its place in the situation's list, from 1 on."""

    number: int
    name: str
    limits: LimitsFacts
    weight: float
    finish: int
    served: int
    lanes: tuple[LaneFacts, ...]
    has_more: bool
    has_excluded: bool

    @property
    def position(self) -> Position:
        return Position(load_of(self.limits.running, self.weight), self.finish, self.name)


@dataclass(frozen=True)
class Situation:
    """Everything that a choice depends on."""

    limit: int
    capacity: Capacity
    settings: FairnessSettings
    state: tuple[int, int, int, int, int]
    weights: Weights
    queue: LimitsFacts
    limiters: tuple[LimitsFacts, ...]
    tenants: tuple[TenantFacts, ...]
    now: int = NOW

    @property
    def in_order(self) -> list[TenantFacts]:
        return sorted(self.tenants, key=lambda tenant: tenant.position)


@dataclass
class Reading:
    """A situation as a store reads it, page by page."""

    situation: Situation
    at_once: int
    """How many tenants are read at once."""
    limiters: list[Limits] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.limiters = [facts.make(100 + number) for number, facts in enumerate(self.situation.limiters)]

    def choose(self) -> Choice:
        """Let the choice run to its end."""
        situation = self.situation
        state = FairnessState(*situation.state)
        choice = Choice(
            state, situation.queue.make(99), capacity=situation.capacity, now=situation.now, settings=situation.settings
        )
        choice.add(*self.page(FIRST))
        while need := choice.run(situation.limit):
            if need == "weights":
                choice.weights = situation.weights
            else:
                choice.add(*self.page(choice.read_up_to or FIRST))
        choice.finish()
        return choice

    def page(self, after: Position) -> tuple[list[Tenant], Position | None]:
        """Return the next tenants after a position, and up to where they were read if the page is full."""
        page = [tenant for tenant in self.situation.in_order if tenant.position > after][: self.at_once]
        return [self.tenant(facts) for facts in page], page[-1].position if len(page) == self.at_once else None

    def tenant(self, facts: TenantFacts) -> Tenant:
        limits = facts.limits.make(facts.number)
        lanes = [
            Lane(lane.number, lane.priority, lane.served, lane.ready, [self.limiters[place] for place in lane.limiters])
            for lane in facts.lanes
        ]
        return Tenant(
            limits, facts.name, facts.weight, facts.finish, facts.served, lanes, facts.has_more, facts.has_excluded
        )


def draw(random: Random) -> Situation:
    """Draw a situation. Few tenants, small numbers and many ties, since that is where rules meet."""
    slots = random.choice((1, 2, 5, 10, 20, 100))
    limiters = tuple(draw_limits(random, busy=4) for _ in range(random.randint(1, 4)))
    tenants = _draw_tenants(random, len(limiters), slots)
    waiting = sum(weigh(tenant.weight) for tenant in tenants if tenant.lanes)
    last = random.randint(0, len(tenants))
    ago = (0, 1, 59_999, 60_000, 60_001, 10**6, -50)
    return Situation(
        limit=random.choice((1, 2, 3, 10, 40)),
        capacity=Capacity(slots, random.choice((0, 0, 1, 3, 30))),
        settings=draw_settings(random),
        state=(
            random.choice((0, 10**6, 3 * 10**6)),
            last,
            random.randint(0, 5) if last else 0,
            NOW - random.choice(ago) if last else 0,
            NOW - random.choice(ago) if last else 0,
        ),
        weights=Weights(random.choice((waiting, waiting // 2)), random.choice((0, 0, 1_000, 5_500))),
        queue=draw_limits(random, busy=slots),
        limiters=limiters,
        tenants=tenants,
    )


def _draw_tenants(random: Random, limiters: int, slots: int) -> tuple[TenantFacts, ...]:
    number = 0
    tenants = []
    # Names in an order of their own, some of them not ASCII, one the beginning of another.
    names = random.sample(("", "a", "b", "ab", "B", "ä", "z", "\U0001f600", "\uffff", "a-1", "a-10", "a-2"), 12)
    for place in range(1, random.choice((2, 3, 4, 13))):
        lanes = []
        for _ in range(random.choice((0, 1, 1, 2, 5))):
            number += 1
            through = tuple(sorted(random.sample(range(limiters), random.randint(0, min(3, limiters)))))
            lanes.append(
                LaneFacts(number, random.choice((1, 5, 9)), random.randint(0, 4), random.choice((1, 2, 9)), through)
            )
        limits = draw_limits(random, busy=slots)
        weight = random.choice(WEIGHTS)
        tenants.append(
            TenantFacts(
                place,
                names[place - 1],
                limits,
                weight,
                random.choice((0, 10**6, 10**6, 2_500_000)),
                random.choice((0, 3, 13, 14, 15, 16)),
                tuple(lanes),
                has_more=bool(lanes) and random.random() < 0.1,
                has_excluded=random.random() < 0.2,
            )
        )
    return tuple(tenants)


def draw_limits(random: Random, busy: int) -> LimitsFacts:
    """Draw limits: most are none, some are full."""
    running = random.randint(0, busy) if random.random() < 0.6 else 0
    permits = random.choice((None,) * 12 + (0, 1, 4))
    max_running = random.choice((None,) * 8 + (1, 3, 10))
    rate = random.choice((None,) * 5 + (Rate(count=1, window=1.0), Rate(count=3, window=10.0)))
    meter: Meter = ()
    if rate is not None:
        for ago in sorted(random.choices((0, 900, 1_100, 9_000, 10_200, 30_000), k=random.randint(0, 3)), reverse=True):
            meter = spend(rate, meter, NOW - ago, 1)
    return LimitsFacts(permits, max_running, rate, meter, running)


def draw_settings(random: Random) -> FairnessSettings:
    """Draw settings, now and then others than the usual."""
    if random.random() < 0.7:
        return FairnessSettings()
    return FairnessSettings(
        max_in_a_row=random.choice((1, 2, 3, 5)),
        max_share_of_slots=random.choice((0.5, 0.9, 1)),
        activity_window_seconds=random.choice((1, 60)),
        oldest_every_picks=random.choice((1, 2, 16)),
        max_blocked_lanes=random.choice((1, 2, 128)),
    )
