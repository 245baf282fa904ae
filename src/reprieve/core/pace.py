"""A pace: an adaptive limit of concurrent calls to one dependency (AIMD).

It grows by one call for each round of successes and shrinks by a share when the dependency asks to slow down, so the
limit settles just below the capacity of the dependency.
"""

import math

from msgspec.structs import replace

from reprieve.core.duration import milliseconds
from reprieve.core.record import Record
from reprieve.errors import ValidationError

SHRINK_FACTOR = 0.7
"""The share of the limit that is left after a refusal."""

REFUSAL_WINDOW_SECONDS = 1.0
"""Refusals within this time count once: a burst is one request to slow down."""

MIN_UTILISATION = 0.5
"""The share of the limit that must be in use before it grows: an unused limit is no evidence."""


class Pace(Record):
    """The limit of one dependency and its bounds."""

    limit: float = 8.0
    least: float = 1.0
    most: float = 1_000.0
    cut_at: int | None = None

    def __post_init__(self) -> None:
        """Refuse a limit outside its bounds."""
        if not 1 <= self.least <= self.limit <= self.most:
            message = f"limit must be between {self.least} (1 or more) and {self.most}, got {self.limit}"
            raise ValidationError(message)

    @property
    def slots(self) -> int:
        """How many calls may run at once."""
        return int(self.limit)


class Results(Record):
    """Results since the last step, and how many calls were running."""

    oks: int = 0
    refusals: int = 0
    under_way: int = 0


def step(pace: Pace, results: Results, now: int) -> Pace:
    """Return the pace after some results."""
    if results.refusals:
        # After the clock went back, a refusal counts as new.
        is_news = pace.cut_at is None or not 0 <= now - pace.cut_at < milliseconds(REFUSAL_WINDOW_SECONDS)
        return replace(pace, limit=max(pace.least, pace.limit * SHRINK_FACTOR), cut_at=now) if is_news else pace
    if results.under_way < MIN_UTILISATION * pace.limit:
        return pace
    # One more call for each round of successes: a batch counts as its successes would one by one.
    return replace(pace, limit=min(pace.most, math.sqrt(pace.limit**2 + 2 * results.oks)))
