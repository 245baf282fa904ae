"""Rates: no window sees more than its count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.rate import Meter, Rate, carry, opens_at, refund, room, spend
from reprieve.errors import ValidationError

NOW = 1_760_000_000_000
HUNDRED_A_MINUTE = Rate(count=100, window=60)


def test_a_rate_grants_its_count_at_once_and_then_nothing() -> None:
    assert room(HUNDRED_A_MINUTE, (), NOW) == 100
    spent = spend(HUNDRED_A_MINUTE, (), NOW, 100)
    assert room(HUNDRED_A_MINUTE, spent, NOW) == 0
    assert room(HUNDRED_A_MINUTE, spent, NOW + 60_000 - 1) == 0


def test_room_returns_when_the_grants_have_left_the_window() -> None:
    spent = spend(HUNDRED_A_MINUTE, (), NOW, 100)
    opens = opens_at(HUNDRED_A_MINUTE, spent, NOW)
    assert NOW + 60_000 <= opens <= NOW + 62_000
    assert room(HUNDRED_A_MINUTE, spent, opens) == 100
    assert room(HUNDRED_A_MINUTE, spent, opens - 1) == 0


def test_a_rate_with_room_is_open_now() -> None:
    assert opens_at(HUNDRED_A_MINUTE, (), NOW) == NOW
    assert opens_at(HUNDRED_A_MINUTE, spend(HUNDRED_A_MINUTE, (), NOW, 99), NOW) == NOW


def test_only_the_buckets_in_the_way_are_waited_for() -> None:
    meter = spend(HUNDRED_A_MINUTE, spend(HUNDRED_A_MINUTE, (), NOW, 1), NOW + 30_000, 99)
    assert opens_at(HUNDRED_A_MINUTE, meter, NOW + 30_000) <= NOW + 62_000


def test_grants_of_one_bucket_are_kept_together() -> None:
    meter: Meter = ()
    for _ in range(10):
        meter = spend(HUNDRED_A_MINUTE, meter, NOW, 1)
    assert [grants for _, grants in meter] == [10]


def test_a_clock_that_went_back_gives_nothing_away() -> None:
    meter = spend(HUNDRED_A_MINUTE, (), NOW, 60)
    meter = spend(HUNDRED_A_MINUTE, meter, NOW - 30_000, 40)
    assert room(HUNDRED_A_MINUTE, meter, NOW + 59_000) == 0


def test_grants_that_came_to_nothing_are_taken_back() -> None:
    meter = spend(HUNDRED_A_MINUTE, spend(HUNDRED_A_MINUTE, (), NOW, 30), NOW + 30_000, 20)
    assert room(HUNDRED_A_MINUTE, refund(meter, 5), NOW + 30_000) == 55
    assert room(HUNDRED_A_MINUTE, refund(meter, 20), NOW + 30_000) == 70
    assert room(HUNDRED_A_MINUTE, refund(meter, 45), NOW + 30_000) == 95
    assert refund(meter, 99) == ()


def test_a_rate_that_replaces_another_counts_what_was_granted() -> None:
    meter = spend(HUNDRED_A_MINUTE, spend(HUNDRED_A_MINUTE, (), NOW, 30), NOW + 30_000, 20)
    assert carry(HUNDRED_A_MINUTE, meter, Rate(count=60, window=60), NOW + 30_000) == meter
    ten_minutes = Rate(count=60, window=600)
    assert room(ten_minutes, carry(HUNDRED_A_MINUTE, meter, ten_minutes, NOW + 30_000), NOW + 30_000) == 10
    assert carry(HUNDRED_A_MINUTE, meter, ten_minutes, NOW + 10**6) == ()


def test_what_was_granted_leaves_the_window_of_another_rate_in_its_own_time() -> None:
    meter = spend(HUNDRED_A_MINUTE, spend(HUNDRED_A_MINUTE, (), NOW, 30), NOW + 30_000, 20)
    ten_seconds = Rate(count=60, window=10)
    carried = carry(HUNDRED_A_MINUTE, meter, ten_seconds, NOW + 35_000)
    assert room(ten_seconds, carried, NOW + 35_000) == 40
    assert room(ten_seconds, carried, NOW + 40_000 - 1) == 40
    assert room(ten_seconds, carried, NOW + 40_000 + HUNDRED_A_MINUTE.bucket + 2 * ten_seconds.bucket) == 60


def test_what_was_granted_just_now_does_not_count_from_the_end_of_a_long_bucket() -> None:
    daily, hasty = Rate(count=1, window=86_400), Rate(count=1, window=1)
    carried = carry(daily, spend(daily, (), NOW, 1), hasty, NOW)
    assert room(hasty, carried, NOW + 1_000 - 1) == 0
    assert opens_at(hasty, carried, NOW) <= NOW + 65 * hasty.bucket


@pytest.mark.parametrize(("count", "window"), [(0, 60), (-1, 60), (1, 0), (1, 0.01), (1, float("nan")), (1, 1e9)])
def test_a_rate_that_is_none_is_refused(count: int, window: float) -> None:
    with pytest.raises(ValidationError, match="rate must be"):
        Rate(count=count, window=window)


@given(
    st.integers(1, 20),
    st.floats(0.1, 100),
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 10)), max_size=60),
)
def test_no_window_sees_more_than_its_count(count: int, window: float, asks: list[tuple[int, int]]) -> None:
    rate, now, grants = Rate(count=count, window=window), NOW, []
    meter: Meter = ()
    for pause, wanted in asks:
        now += pause
        granted = min(wanted, room(rate, meter, now))
        if granted:
            meter = spend(rate, meter, now, granted)
            grants.append((now, granted))
        else:
            assert room(rate, meter, opens_at(rate, meter, now)) > 0
    for end, _ in grants:
        assert sum(granted for at, granted in grants if end - window * 1_000 < at <= end) <= count


@given(
    st.tuples(st.integers(1, 20), st.floats(0.1, 100)),
    st.tuples(st.integers(1, 20), st.floats(0.1, 100)),
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 10)), max_size=30),
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 10)), max_size=30),
)
def test_no_window_across_a_change_of_rates_sees_more_than_the_new_count(
    before: tuple[int, float],
    after: tuple[int, float],
    asks: list[tuple[int, int]],
    more: list[tuple[int, int]],
) -> None:
    old, new = (Rate(count=count, window=window) for count, window in (before, after))
    meter, now, grants = _grant(old, (), NOW, asks)
    meter, now, later = _grant(new, carry(old, meter, new, now), now, more)
    # The old meter has forgotten what lies before its own window.
    window = min(old.window, new.window) * 1_000
    for end, _ in later:
        assert sum(granted for at, granted in grants + later if end - window < at <= end) <= new.count


def _grant(rate: Rate, meter: Meter, now: int, asks: list[tuple[int, int]]) -> tuple[Meter, int, list[tuple[int, int]]]:
    grants = []
    for pause, wanted in asks:
        now += pause
        granted = min(wanted, room(rate, meter, now))
        if granted:
            meter = spend(rate, meter, now, granted)
            grants.append((now, granted))
    return meter, now, grants
