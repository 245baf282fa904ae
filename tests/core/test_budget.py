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
        assert spending.opens_at == now
        budget = spending.budget
    return budget


def opens(budget: Budget, times: int, now: int = NOW, cost: float = 0.0) -> list[int]:
    moments = []
    for _ in range(times):
        spending = step(budget, now, cost)
        moments.append(spending.opens_at)
        budget = spending.budget
    return moments


def test_without_limits_everything_is_granted() -> None:
    assert step(spend(Budget(), 100), NOW).opens_at == NOW


def test_a_rate_grants_its_burst_and_then_one_after_the_other() -> None:
    assert opens(Budget(per_second=2, burst=3), 6) == [NOW, NOW, NOW, NOW + 500, NOW + 1_000, NOW + 1_500]


def test_those_who_wait_for_a_rate_do_not_come_back_together() -> None:
    moments = opens(Budget(per_second=1), 1_000)
    assert moments == [NOW + 1_000 * number for number in range(1_000)]


def test_a_rate_never_saves_more_than_its_burst() -> None:
    budget = spend(Budget(per_second=2, burst=3), 1)
    later = spend(budget, 3, NOW + 10**6)
    assert step(later, NOW + 10**6).opens_at == NOW + 10**6 + 500


def test_a_day_that_is_spent_reserves_the_days_after_it() -> None:
    days = [instant("2025-10-10"), instant("2025-10-11")]
    assert opens(Budget(daily=2), 6) == [NOW, NOW, days[0], days[0], days[1], days[1]]
    assert step(spend(Budget(daily=2), 2), instant("2025-10-10")).opens_at == instant("2025-10-10")


@pytest.mark.parametrize(
    ("now", "first"),
    [("2025-10-09 10:00", "2025-11-01"), ("2025-12-31 23:59", "2026-01-01"), ("2024-01-31 12:00", "2024-02-01")],
)
def test_a_month_that_is_spent_opens_on_the_first(now: str, first: str) -> None:
    budget = spend(Budget(monthly=1, daily=9), 1, instant(now))
    assert step(budget, instant(now)).opens_at == instant(first)
    assert step(budget, instant(first)).opens_at == instant(first)


def test_the_cost_of_a_month_is_limited() -> None:
    budget = spend(Budget(cost=10), 2, cost=4)
    assert step(budget, NOW, cost=2).opens_at == NOW
    assert step(budget, NOW, cost=2.5).opens_at == instant("2025-11-01")
    assert opens(budget, 3, cost=5) == [instant("2025-11-01"), instant("2025-11-01"), instant("2025-12-01")]


def test_what_has_passed_is_forgotten() -> None:
    budget = spend(spend(Budget(daily=5), 2), 1, instant("2026-03-01"))
    assert set(budget.days) == {"2026-03-01"}
    assert set(budget.months) == {"2026-03"}


def test_clocks_that_disagree_about_midnight_do_not_double_a_day() -> None:
    budget, before, after = Budget(daily=1), instant("2025-10-09 23:59:59"), instant("2025-10-10 00:00:01")
    granted = 0
    for number in range(20):
        now = (before, after)[number % 2]
        spending = step(budget, now)
        budget = spending.budget
        granted += spending.opens_at <= now
    assert granted == 2


def test_a_limit_of_nothing_grants_nothing_in_a_jobs_lifetime() -> None:
    assert step(Budget(daily=0), NOW).opens_at > NOW + 365 * 86_400_000


def test_the_strictest_limit_decides() -> None:
    budget = spend(Budget(per_second=1, daily=1), 1)
    assert step(budget, NOW).opens_at == instant("2025-10-10 00:00")


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    budget = spend(Budget(per_second=1), 1)
    assert step(budget, NOW - 5_000).opens_at == NOW + 1_000


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
    budget, now, moments = Budget(per_second=rate, burst=burst), NOW, []
    for pause in pauses:
        now += pause
        spending = step(budget, now)
        budget = spending.budget
        moments.append(spending.opens_at)
    assert moments == sorted(moments)
    for number, moment in enumerate(moments):
        assert number + 1 <= burst + (moment - NOW) / 1_000 * rate + 1e-6
