"""A retry budget: how many retries are allowed per second, day and month, and what they may cost.

An empty budget makes jobs wait; it never ends them. Every request is granted, now or for later: a later grant is
reserved, so that waiting jobs do not all return at once. Days and months are those of UTC.
"""

import math
from datetime import UTC, date, datetime, time, timedelta

import msgspec
from msgspec.structs import replace

from reprieve.core.duration import milliseconds
from reprieve.core.record import Record
from reprieve.errors import InvalidBudget

MAX_DAYS_AHEAD = 400
"""Days that are searched for room: beyond them the wait exceeds what any job may wait."""


class Budget(Record):
    """The limits of a budget and what is spent of it. None: no limit."""

    per_second: float | None = None
    burst: int = 1
    daily: int | None = None
    monthly: int | None = None
    cost: float | None = None
    """What the retries of a month may cost."""

    free_at: float = 0.0
    """When the token bucket will be full again, in milliseconds: the later, the fewer tokens are left."""
    days: dict[str, int] = msgspec.field(default_factory=dict)
    """Retries granted for today and the days to come."""
    months: dict[str, tuple[int, float]] = msgspec.field(default_factory=dict)
    """Retries granted for this month and those to come, and what they cost."""

    def __post_init__(self) -> None:
        """Refuse limits below 0 and a rate that never gives a token."""
        limits = (self.daily, self.monthly, self.cost)
        if any(limit is not None and not limit >= 0 for limit in limits) or self.burst < 1:
            message = f"daily, monthly and cost must be 0 or more and burst 1 or more, got {limits} and {self.burst}"
            raise InvalidBudget(message)
        if self.per_second is not None and not 0 < self.per_second < math.inf:
            message = f"per_second must be more than 0 (None: no limit), got {self.per_second!r}"
            raise InvalidBudget(message)


class Spending(Record):
    """The budget after a request, and when the granted retry may start."""

    budget: Budget
    opens_at: int


def step(budget: Budget, now: int, cost: float = 0.0) -> Spending:
    """Return the budget with one more retry of this cost granted, for the first time that has room for it."""
    day = _first_day(budget, _date(now), cost)
    opens_at = max(now, _instant(day))
    if budget.per_second is not None:
        gap = 1_000 / budget.per_second
        opens_at = max(opens_at, math.ceil(round(budget.free_at - (budget.burst - 1) * gap, 6)))
        budget = replace(budget, free_at=max(budget.free_at, opens_at) + gap)
    return Spending(budget=_note(budget, _date(opens_at), cost, today=_date(now)), opens_at=opens_at)


def _first_day(budget: Budget, today: date, cost: float) -> date:
    day = today
    for _ in range(MAX_DAYS_AHEAD):
        granted, spent = budget.months.get(_month(day), (0, 0.0))
        is_month_full = budget.monthly is not None and granted >= budget.monthly
        is_too_dear = budget.cost is not None and spent + cost > budget.cost
        if is_month_full or is_too_dear:
            day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
        elif budget.daily is not None and budget.days.get(day.isoformat(), 0) >= budget.daily:
            day += timedelta(days=1)
        else:
            break
    return day


def _note(budget: Budget, day: date, cost: float, *, today: date) -> Budget:
    # Past days are dropped, except yesterday: clocks of two workers differ around midnight.
    yesterday = today - timedelta(days=1)
    days = {name: count for name, count in budget.days.items() if name >= yesterday.isoformat()}
    months = {name: spent for name, spent in budget.months.items() if name >= _month(yesterday)}
    days[day.isoformat()] = days.get(day.isoformat(), 0) + 1
    granted, spent = months.get(_month(day), (0, 0.0))
    months[_month(day)] = (granted + 1, spent + cost)
    return replace(budget, days=days, months=months)


def _month(day: date) -> str:
    return day.isoformat()[:7]


def _date(at: int) -> date:
    return datetime.fromtimestamp(at / 1_000, UTC).date()


def _instant(day: date) -> int:
    return milliseconds(datetime.combine(day, time(), UTC).timestamp())
