"""What the fair choice is given: a queue's state, its tenants with their open lanes, and their order.

The choice changes these records in memory, so they are not frozen.
"""

from enum import IntEnum
from typing import NamedTuple

import msgspec

from reprieve.core.limits import Limits

ROUND = 1_000_000
"""Loads and virtual times are whole millionths, so that every store keeps them unchanged."""


class BlockReason(IntEnum):
    """Why a tenant gets no job, as stores keep it."""

    NONE = 0
    FULL = 1
    """It runs as many jobs as it may."""
    SPENT = 2
    """Its rate has no room."""
    HELD = 3
    """It has no permits."""


class FairnessState(msgspec.Struct, eq=False, gc=False):
    """What a queue remembers from one claim to the next."""

    clock: int
    """The queue's virtual time, in millionths of a round."""
    last_tenant: int
    """The id of the tenant that was served last."""
    in_a_row: int
    """How many jobs it got in a row."""
    last_served_at: int
    other_served_at: int
    """When a tenant other than the last was served."""


class Lane(msgspec.Struct, eq=False):
    """An open lane of a tenant: it has ready jobs and is not known to be blocked."""

    id: int
    priority: int
    served: int
    """The number of the tenant's pick that last took from it."""
    ready: int
    limiters: list[Limits]
    """Those of its task, dependency and group."""
    limited: list[Limits] = []
    """Those of them that limit anything."""
    taken: int = 0
    is_alone: bool = False
    """Whether its tenant has no other, so that it does not matter when it was served."""

    def __post_init__(self) -> None:
        """Derive `limited`."""
        self.limited = [limiter for limiter in self.limiters if not limiter.is_unlimited]


class Tenant(msgspec.Struct, eq=False):
    """A tenant that may have a job for the claim."""

    limits: Limits
    name: str
    weight: float
    finish: int
    """Its virtual time: when, in millionths of a round, it has had its share."""
    served: int
    """How many jobs it ever got."""
    lanes: list[Lane]
    """Its first lanes, by priority; lanes that are equal by every rule are served in this order."""
    has_more: bool = False
    """Whether it has lanes that were not read."""
    has_excluded: bool = False
    """Whether it has open lanes of tasks that the claim excludes: other sessions may still take from them."""
    taken: int = 0
    blocked: BlockReason = BlockReason.NONE
    is_empty: bool = False
    """Whether it has no open lane left."""
    step: int = 0
    """By how much a lease moves its virtual time."""

    def __post_init__(self) -> None:
        """Derive the rest, and note a lane that is alone."""
        self.step = int(ROUND / self.weight + 0.5)
        self.is_empty = not self.lanes
        if len(self.lanes) == 1 and not self.has_excluded:
            self.lanes[0].is_alone = True

    @property
    def is_candidate(self) -> bool:
        """Whether the next claim should read it."""
        return not self.blocked and (not self.is_empty or self.has_excluded)

    @property
    def position(self) -> "Position":
        """Where it stands among the candidates."""
        return Position(load_of(self.limits.running, self.weight), self.finish, self.name)


class Position(NamedTuple):
    """The order of the candidates: the smallest is next."""

    load: int
    """Slots held for its weight, in millionths."""
    finish: int
    name: str


FIRST = Position(-1, -1, "")
"""Before every tenant."""


class Capacity(NamedTuple):
    """How many jobs the live sessions of a queue take, in all."""

    slots: int
    """That they run at once."""
    prefetch: int = 0
    """That they fetch ahead."""


class Weights(NamedTuple):
    """Sums of the weights of tenants, in whole thousandths, so that they are exact."""

    waiting: int
    """Of those with an open lane."""
    running: int
    """Of those that run jobs and have no open lane."""


def load_of(running: int, weight: float) -> int:
    """Return the slots held for a weight, in whole millionths."""
    return int(running * ROUND / weight)


def weigh(weight: float) -> int:
    """Return a weight in whole thousandths."""
    return int(weight * 1_000 + 0.5)
