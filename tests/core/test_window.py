"""Hours in which no retry may start."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.window import Window
from reprieve.errors import InvalidWindow, UnknownTimeZone, WindowNeverOpens

BUSINESS_HOURS = Window(closed="mon-fri 09:00-17:00")


def instant(text: str, zone: str = "UTC", fold: int = 0) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1_000)


@pytest.mark.parametrize(
    ("at", "opens"),
    [
        ("2025-10-08 08:59:59.999", "2025-10-08 08:59:59.999"),
        ("2025-10-08 09:00", "2025-10-08 17:00"),
        ("2025-10-08 16:59:59.999", "2025-10-08 17:00"),
        ("2025-10-08 17:00", "2025-10-08 17:00"),
        ("2025-10-11 12:00", "2025-10-11 12:00"),
    ],
)
def test_a_retry_in_a_closed_window_moves_to_its_end(at: str, opens: str) -> None:
    assert BUSINESS_HOURS.opens_at(instant(at)) == instant(opens)


def test_the_hours_are_those_of_the_time_zone() -> None:
    window = Window(closed="mon-fri 09:00-17:00", zone="America/Sao_Paulo")
    assert window.opens_at(instant("2025-10-08 10:00", "UTC")) == instant("2025-10-08 10:00", "UTC")
    assert window.opens_at(instant("2025-10-08 12:00", "UTC")) == instant("2025-10-08 20:00", "UTC")


def test_a_span_may_run_past_midnight_and_past_the_week() -> None:
    night = Window(closed="22:00-06:00")
    assert night.opens_at(instant("2025-10-08 23:00")) == instant("2025-10-09 06:00")
    assert night.opens_at(instant("2025-10-08 05:59")) == instant("2025-10-08 06:00")
    weekend = Window(closed=["sat-sun 00:00-24:00", "mon 00:00-08:00"])
    assert weekend.opens_at(instant("2025-10-11 00:00")) == instant("2025-10-13 08:00")
    assert weekend.opens_at(instant("2025-10-12 23:59")) == instant("2025-10-13 08:00")
    assert weekend.opens_at(instant("2025-10-13 07:00")) == instant("2025-10-13 08:00")


def test_days_may_run_over_the_weekend() -> None:
    window = Window(closed="fri-mon 00:00-24:00")
    assert window.opens_at(instant("2025-10-10 12:00")) == instant("2025-10-14 00:00")
    assert window.opens_at(instant("2025-10-09 12:00")) == instant("2025-10-09 12:00")


def test_spans_that_touch_are_one() -> None:
    window = Window(closed=["09:00-12:00", "12:00-13:00", "12:30-17:00"])
    assert window.opens_at(instant("2025-10-08 10:00")) == instant("2025-10-08 17:00")


def test_a_window_may_name_the_hours_in_which_it_is_open() -> None:
    nights = Window(open="MON-SUN 22:00-06:00")
    assert nights.opens_at(instant("2025-10-08 12:00")) == instant("2025-10-08 22:00")
    assert nights.opens_at(instant("2025-10-08 03:00")) == instant("2025-10-08 03:00")


def test_a_window_without_spans_is_always_open() -> None:
    assert Window().opens_at(12_345) == 12_345


def test_an_hour_that_happens_twice_ends_twice() -> None:
    window = Window(closed="02:00-02:30", zone="Europe/Berlin")
    first = instant("2025-10-26 02:10", "Europe/Berlin", fold=0)
    second = instant("2025-10-26 02:10", "Europe/Berlin", fold=1)
    assert second - first == 3_600_000
    assert window.opens_at(first) == first + 20 * 60_000
    assert window.opens_at(second) == second + 20 * 60_000


def test_a_span_whose_end_the_clock_skips_ends_there() -> None:
    window = Window(closed="01:00-02:30", zone="Europe/Berlin")
    at = instant("2025-03-30 01:30", "Europe/Berlin")
    assert window.opens_at(at) == instant("2025-03-30 03:00", "Europe/Berlin")


@pytest.mark.parametrize(
    "text",
    [
        "9-17",
        "mon 9:00-17:00",
        "mon-fri",
        "noday 09:00-17:00",
        "mon-xyz 09:00-10:00",
        "10:60-11:00",
        "10:00-11:60",
        "24:00-25:00",
        "09:00-09:00",
        "10:00-24:01",
        "",
        "mon  09:00-10:00",
    ],
)
def test_a_span_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidWindow, match="a span must look like") as caught:
        Window(closed=text)
    assert caught.value.code == "invalid_window"


@pytest.mark.parametrize(
    "never",
    [
        lambda: Window(closed="00:00-24:00"),
        lambda: Window(closed=["mon-fri 00:00-24:00", "sat-sun 00:00-24:00"]),
        lambda: Window(closed=["06:00-05:00", "05:00-06:00"]),
    ],
)
def test_a_window_that_never_opens_is_refused(never: Callable[[], Window]) -> None:
    with pytest.raises(WindowNeverOpens) as caught:
        never()
    assert caught.value.code == "window_never_opens"


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", "Europe"])
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(UnknownTimeZone) as caught:
        Window(closed="09:00-10:00", zone=zone)
    assert caught.value.code == "unknown_time_zone"


def test_closed_and_open_at_once_is_refused() -> None:
    with pytest.raises(InvalidWindow, match="not both"):
        Window(closed="09:00-10:00", open="11:00-12:00")


ZONES = st.sampled_from(["UTC", "Europe/Lisbon", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"])
MOMENTS = st.integers(instant("2024-01-01"), instant("2027-01-01"))


@given(at=MOMENTS, zone=ZONES, start=st.integers(0, 23), length=st.integers(1, 23), minute=st.integers(0, 59))
def test_a_window_opens_never_early_and_for_good(at: int, zone: str, start: int, length: int, minute: int) -> None:
    end = (start + length) % 24
    window = Window(closed=f"{start:02}:{minute:02}-{end:02}:{minute:02}", zone=zone)
    opens = window.opens_at(at)
    assert at <= opens <= at + 25 * 3_600_000
    assert window.opens_at(opens) == opens


@given(at=MOMENTS, start=st.integers(0, 22), length=st.integers(1, 4))
def test_a_window_opens_at_the_first_open_minute(at: int, start: int, length: int) -> None:
    window = Window(closed=f"{start:02}:00-{(start + length) % 24:02}:00")
    closed_hours = {(start + hour) % 24 for hour in range(length)}
    moment = datetime.fromtimestamp(at / 1_000, UTC)
    while moment.hour in closed_hours:
        moment = moment.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    assert window.opens_at(at) == round(moment.timestamp() * 1_000)
