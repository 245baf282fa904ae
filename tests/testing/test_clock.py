"""The clock that stands still."""

from datetime import UTC, datetime, timedelta

import pytest

from reprieve.clock import Clock
from reprieve.errors import InvalidDuration, ValidationError
from reprieve.testing import FakeClock

MORNING = datetime(2030, 5, 6, 8, 30, tzinfo=UTC)


def test_a_clock_stands_still_until_it_is_told_to_move() -> None:
    clock: Clock = FakeClock(MORNING)
    assert clock.now() == clock.now() == 1_904_286_600_000


@pytest.mark.parametrize("by", ["5m", 300, timedelta(minutes=5)])
def test_time_passes_by_any_duration(by: str | float | timedelta) -> None:
    clock = FakeClock(1_000)
    clock.advance(by)
    assert clock.now() == 301_000


def test_time_does_not_pass_backwards_but_can_be_set_back() -> None:
    clock = FakeClock(MORNING)
    with pytest.raises(InvalidDuration, match="advance"):
        clock.advance(-1)
    clock.set(MORNING - timedelta(days=1))
    assert clock.moment == datetime(2030, 5, 5, 8, 30, tzinfo=UTC)


def test_a_moment_without_a_time_zone_is_none() -> None:
    with pytest.raises(ValidationError, match="time zone"):
        FakeClock(MORNING.replace(tzinfo=None))


def test_a_clock_shows_its_moment() -> None:
    assert repr(FakeClock(MORNING)) == "FakeClock(2030-05-06T08:30:00+00:00)"
