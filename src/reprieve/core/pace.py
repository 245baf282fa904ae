"""A pace: how many calls of one dependency may be under way at once, found by trying (AIMD).

It grows by one call for each round of successes and shrinks by a share when the dependency asks to slow down, so the
fleet settles just below what the dependency can take.
"""

import math

from msgspec.structs import replace

from reprieve.core.duration import milliseconds
from reprieve.core.record import Record
from reprieve.errors import ValidationError

CUT = 0.7
"""What is left of the limit after a refusal."""

CALM = 1.0
"""Seconds in which refusals count once: a burst of them is one message."""

BUSY = 0.5
"""The share of the limit that must be in use before it grows: an idle limit proves nothing."""


class Pace(Record):
    """The limit of one dependency and its bounds."""

    limit: float = 8.0
    least: float = 1.0
    most: float = 1_000.0
    cut_at: int | None = None

    def __post_init__(self) -> None:
        """Refuse bounds that no limit fits."""
        if not 1 <= self.least <= self.limit <= self.most:
            message = f"a pace of {self.limit} does not lie between {self.least} and {self.most}, from 1 on"
            raise ValidationError(message)

    @property
    def slots(self) -> int:
        """How many calls may be under way now."""
        return int(self.limit)


class Results(Record):
    """What came back since the last step, and how many calls were under way."""

    oks: int = 0
    refusals: int = 0
    under_way: int = 0


def step(pace: Pace, results: Results, now: int) -> Pace:
    """Return the pace after some results."""
    if results.refusals:
        # A clock that went back must not make refusals old for as long as it went back.
        is_news = pace.cut_at is None or not 0 <= now - pace.cut_at < milliseconds(CALM)
        return replace(pace, limit=max(pace.least, pace.limit * CUT), cut_at=now) if is_news else pace
    if results.under_way < BUSY * pace.limit:
        return pace
    # One more call for each round of successes: a batch counts as its successes would one by one.
    return replace(pace, limit=min(pace.most, math.sqrt(pace.limit**2 + 2 * results.oks)))
