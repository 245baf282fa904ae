"""A retry budget: how many retries somebody may cause, per second, day and month, and what they may cost.

An empty budget makes jobs wait; it never kills them. Days and months are those of UTC.
"""

import math
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from reprieve.core.duration import milliseconds
from reprieve.core.record import Record
from reprieve.errors import InvalidBudget


class Budget(Record):
    """The limits of a budget and what is spent of it. A limit of None is no limit."""

    per_second: float | None = None
    burst: int = 1
    daily: int | None = None
    monthly: int | None = None
    cost: float | None = None
    """What the retries of a month may cost."""

    tokens: float | None = None
    """Retries that may start at once; None is a full burst."""
    filled_at: int = 0
    day: str = ""
    month: str = ""
    spent_today: int = 0
    spent_this_month: int = 0
    cost_this_month: float = 0.0

    def __post_init__(self) -> None:
        """Refuse limits below zero, and a rate that never gives a token."""
        limits = (self.daily, self.monthly, self.cost)
        if any(limit is not None and not limit >= 0 for limit in limits) or self.burst < 1:
            message = "a budget's limits are numbers from 0, and its burst is 1 or more"
            raise InvalidBudget(message)
        if self.per_second is not None and not 0 < self.per_second < math.inf:
            message = f"per_second {self.per_second!r} is no rate; leave it out, or hold the gate instead"
            raise InvalidBudget(message)


class Spending(Record):
    """The budget after a request, and when it has room: not later than the request when it was granted."""

    budget: Budget
    opens_at: int


def step(budget: Budget, now: int, cost: float = 0.0) -> Spending:
    """Ask for one retry that costs so much. Granted, it is spent; refused, nothing is."""
    budget = _turn_over(budget, now)
    opens_at = max(_opens_by_calendar(budget, cost, now), _opens_by_rate(budget, now))
    if opens_at > now:
        return Spending(budget=budget, opens_at=opens_at)
    return Spending(
        budget=replace(
            budget,
            tokens=_tokens(budget) - 1,
            spent_today=budget.spent_today + 1,
            spent_this_month=budget.spent_this_month + 1,
            cost_this_month=budget.cost_this_month + cost,
        ),
        opens_at=now,
    )


def _turn_over(budget: Budget, now: int) -> Budget:
    """Begin a new day or month where one has begun, and fill the bucket for the time that has passed."""
    today = _date(now)
    day, month = today.strftime("%Y-%m-%d"), today.strftime("%Y-%m")
    gained = 0.0 if budget.per_second is None else max(0, now - budget.filled_at) / 1_000 * budget.per_second
    return replace(
        budget,
        tokens=min(float(budget.burst), _tokens(budget) + gained),
        filled_at=max(now, budget.filled_at),
        day=day,
        month=month,
        spent_today=budget.spent_today if budget.day == day else 0,
        spent_this_month=budget.spent_this_month if budget.month == month else 0,
        cost_this_month=budget.cost_this_month if budget.month == month else 0.0,
    )


def _opens_by_calendar(budget: Budget, cost: float, now: int) -> int:
    midnight = _date(now).replace(hour=0, minute=0, second=0, microsecond=0)
    is_month_full = budget.monthly is not None and budget.spent_this_month >= budget.monthly
    is_too_dear = budget.cost is not None and budget.cost_this_month + cost > budget.cost
    if is_month_full or is_too_dear:
        return _instant((midnight.replace(day=1) + timedelta(days=32)).replace(day=1))
    if budget.daily is not None and budget.spent_today >= budget.daily:
        return _instant(midnight + timedelta(days=1))
    return now


def _opens_by_rate(budget: Budget, now: int) -> int:
    missing = 1 - _tokens(budget)
    if budget.per_second is None or missing <= 0:
        return now
    return now + milliseconds(missing / budget.per_second)


def _tokens(budget: Budget) -> float:
    return float(budget.burst) if budget.tokens is None or budget.per_second is None else budget.tokens


def _date(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1_000, UTC)


def _instant(date: datetime) -> int:
    return round(date.timestamp() * 1_000)
