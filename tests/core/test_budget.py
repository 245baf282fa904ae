"""Retry budgets."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.budget import Budget, step
from reprieve.errors import InvalidBudget


def instant(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


NOW = instant("2025-10-09 10:00")


def spend(budget: Budget, times: int, now: int = NOW, cost: float = 0.0) -> Budget:
    for _ in range(times):
        spending = step(budget, now, cost)
        assert spending.opens_at <= now
        budget = spending.budget
    return budget


def test_without_limits_everything_is_granted() -> None:
    assert step(spend(Budget(), 100), NOW).opens_at == NOW


def test_a_rate_grants_its_burst_and_then_one_at_a_time() -> None:
    budget = spend(Budget(per_second=2, burst=3), 3)
    refused = step(budget, NOW)
    assert refused.opens_at == NOW + 500
    assert step(refused.budget, NOW + 499).opens_at == NOW + 500
    granted = step(refused.budget, NOW + 500)
    assert granted.opens_at == NOW + 500
    assert step(granted.budget, NOW + 500).opens_at == NOW + 1_000


def test_a_rate_never_saves_more_than_its_burst() -> None:
    budget = spend(Budget(per_second=2, burst=3), 1)
    later = spend(budget, 3, NOW + 10**6)
    assert step(later, NOW + 10**6).opens_at > NOW + 10**6


def test_a_day_that_is_spent_opens_at_midnight() -> None:
    budget = spend(Budget(daily=2), 2)
    refused = step(budget, NOW)
    assert refused.opens_at == instant("2025-10-10 00:00")
    assert refused.budget.spent_today == 2
    tomorrow = step(refused.budget, instant("2025-10-10 00:00"))
    assert (tomorrow.opens_at, tomorrow.budget.spent_today) == (instant("2025-10-10 00:00"), 1)
    assert tomorrow.budget.spent_this_month == 3


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        ("2025-10-09 10:00", "2025-11-01"),
        ("2025-12-31 23:59", "2026-01-01"),
        ("2024-01-31 12:00", "2024-02-01"),
    ],
)
def test_a_month_that_is_spent_opens_on_the_first(now: str, opens: str) -> None:
    budget = spend(Budget(monthly=1, daily=9), 1, instant(now))
    assert step(budget, instant(now)).opens_at == instant(opens)
    assert step(budget, instant(opens)).opens_at == instant(opens)


def test_the_cost_of_a_month_is_limited() -> None:
    budget = spend(Budget(cost=10), 2, cost=4)
    assert step(budget, NOW, cost=2).opens_at == NOW
    assert step(budget, NOW, cost=2.5).opens_at == instant("2025-11-01")
    assert step(budget, instant("2025-11-01"), cost=10).budget.cost_this_month == 10


def test_a_limit_of_nothing_grants_nothing() -> None:
    assert step(Budget(daily=0), NOW).opens_at > NOW


def test_the_strictest_limit_decides() -> None:
    budget = spend(Budget(per_second=1, daily=1), 1)
    assert step(budget, NOW).opens_at == instant("2025-10-10 00:00")


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    budget = spend(Budget(per_second=1), 1)
    assert step(budget, NOW - 5_000).opens_at > NOW - 5_000
    assert step(step(budget, NOW - 5_000).budget, NOW).opens_at == NOW + 1_000


@pytest.mark.parametrize(
    "limits",
    [
        {"daily": -1},
        {"monthly": -1},
        {"cost": math.nan},
        {"burst": 0},
        {"per_second": 0},
        {"per_second": math.inf},
        {"per_second": math.nan},
        {"per_second": -1},
    ],
)
def test_limits_that_make_no_sense_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(InvalidBudget) as caught:
        Budget(**limits)  # type: ignore[arg-type]  # which is the point
    assert caught.value.code == "invalid_budget"


@given(st.floats(0.1, 100), st.integers(1, 20), st.lists(st.integers(0, 2_000), max_size=200))
def test_no_stretch_of_time_sees_more_than_its_rate_and_burst(rate: float, burst: int, pauses: list[int]) -> None:
    budget, now, granted = Budget(per_second=rate, burst=burst), NOW, 0
    for pause in pauses:
        now += pause
        spending = step(budget, now)
        budget = spending.budget
        granted += spending.opens_at <= now
    assert granted <= burst + (now - NOW) / 1_000 * rate + 1e-6
