"""How many calls of a dependency may be under way."""

import pytest

from reprieve.core.pace import Pace, Results, step
from reprieve.errors import ValidationError

NOW = 1_760_000_000_000


def test_a_round_of_successes_adds_one_call() -> None:
    pace = step(Pace(limit=8), Results(oks=9, under_way=8), NOW)
    assert pace.slots == 9
    assert step(Pace(limit=8), Results(oks=4, under_way=8), NOW).slots == 8


def test_a_batch_of_successes_counts_as_they_would_one_by_one() -> None:
    batch = step(Pace(limit=8), Results(oks=1_000, under_way=8), NOW)
    single = Pace(limit=8)
    for _ in range(1_000):
        single = step(single, Results(oks=1, under_way=1_000), NOW)
    assert batch.limit == pytest.approx(single.limit, rel=0.01)


def test_a_clock_that_went_back_hides_no_refusal() -> None:
    cut = step(Pace(limit=10), Results(refusals=1), NOW)
    assert step(cut, Results(refusals=1), NOW - 3_600_000).limit == pytest.approx(4.9)


def test_a_refusal_cuts_the_limit_once_a_second() -> None:
    cut = step(Pace(limit=10), Results(oks=5, refusals=3, under_way=10), NOW)
    assert cut.limit == pytest.approx(7)
    assert cut.cut_at == NOW
    assert step(cut, Results(refusals=50), NOW + 999) == cut
    assert step(cut, Results(refusals=1), NOW + 1_000).limit == pytest.approx(4.9)


def test_an_idle_limit_does_not_grow() -> None:
    idle = Pace(limit=10)
    assert step(idle, Results(oks=10, under_way=4), NOW) == idle
    assert step(idle, Results(oks=10, under_way=5), NOW).limit > 10.9


def test_the_limit_stays_within_its_bounds() -> None:
    assert step(Pace(limit=2, least=2), Results(refusals=1), NOW).limit == 2
    assert step(Pace(limit=3, most=3), Results(oks=9, under_way=3), NOW).limit == 3


def test_it_settles_below_what_the_dependency_can_take() -> None:
    pace, capacity, limits = Pace(), 40, []
    for second in range(600):
        sent = pace.slots
        results = Results(oks=min(sent, capacity), refusals=max(0, sent - capacity), under_way=sent)
        pace = step(pace, results, NOW + second * 1_000)
        limits.append(sent)
    settled = limits[100:]
    assert max(settled) <= capacity + 1
    assert sum(settled) / len(settled) >= 0.75 * capacity


@pytest.mark.parametrize(("limit", "least", "most"), [(5, 6, 10), (5, 1, 4), (1, 0, 2), (float("nan"), 1, 2)])
def test_bounds_that_no_limit_fits_are_refused(limit: float, least: float, most: float) -> None:
    with pytest.raises(ValidationError):
        Pace(limit=limit, least=least, most=most)
