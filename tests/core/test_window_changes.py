"""Windows where the clock of a zone is set: the first open instant, and never a closed one."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.window import Window

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
FROM, UNTIL = (round(datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1_000) for year in (2020, 2030))
SAMPLE = [
    *("Europe/Berlin", "America/Denver", "Europe/Lisbon", "Australia/Lord_Howe", "Africa/Casablanca"),
    *("America/Sao_Paulo", "Pacific/Apia", "Asia/Tehran", "Pacific/Chatham", "America/Nuuk", "Africa/Cairo", "UTC"),
]


def local(at: int, zone: str) -> datetime:
    return datetime.fromtimestamp(at / 1_000, ZoneInfo(zone))


def instant(text: str, zone: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1_000)


def changes(zone: str) -> Iterator[int]:
    """Yield when the clock of a zone is set, to the minute, in ten years."""
    for day in range(FROM, UNTIL, DAY):
        if local(day, zone).utcoffset() == local(day + DAY, zone).utcoffset():
            continue
        low, high = day, day + DAY
        while high - low > MINUTE:
            middle = (low + high) // 2 // MINUTE * MINUTE
            low, high = (
                (middle, high) if local(middle, zone).utcoffset() == local(low, zone).utcoffset() else (low, middle)
            )
        yield high


def is_closed(window: Window, at: int) -> bool:
    """Whether the clock on the wall is in a closed span, by its definition."""
    now = local(at, window.zone)
    minute = now.weekday() * 1_440 + now.hour * 60 + now.minute
    return any(start <= minute < end or start <= minute + 10_080 < end for start, end in window.closed)


def first_open(window: Window, at: int) -> int:
    """Return the first open instant, minute by minute."""
    while is_closed(window, at):
        at = (at // MINUTE + 1) * MINUTE
    return at


def spans(rng: random.Random) -> str:
    start, length = rng.randrange(1_440), rng.randrange(1, 240)
    end = (start + length) % 1_440
    return f"{start // 60:02}:{start % 60:02}-{end // 60:02}:{end % 60:02}"


def test_a_span_that_the_clock_skips_into_is_not_opened_in() -> None:
    window = Window(closed=["00:00-02:30", "03:00-04:00"], zone="Europe/Berlin")
    assert window.opens_at(instant("2025-03-30 01:30", "Europe/Berlin")) == instant("2025-03-30 04:00", "Europe/Berlin")


def test_an_open_span_that_the_clock_skips_opens_the_next_day() -> None:
    window = Window(open="02:00-03:00", zone="America/Denver")
    opens = window.opens_at(instant("2025-03-09 01:30", "America/Denver"))
    assert opens == instant("2025-03-10 02:00", "America/Denver")


def test_an_hour_that_comes_again_may_open_again() -> None:
    window = Window(closed="02:30-04:00", zone="Europe/Berlin")
    at = instant("2025-10-26 02:40", "Europe/Berlin")
    assert window.opens_at(at) == at + 20 * MINUTE


@given(
    zone=st.sampled_from(SAMPLE), seed=st.integers(0, 10**6), which=st.integers(0, 99), before=st.integers(0, 6 * HOUR)
)
def test_a_window_opens_at_the_first_open_instant_around_changes(zone: str, seed: int, which: int, before: int) -> None:
    known = CHANGES[zone]
    at = (known[which % len(known)] if known else FROM + which * DAY) - before
    rng = random.Random(seed)
    texts = [spans(rng) for _ in range(rng.randrange(1, 4))]
    window = Window(open=texts, zone=zone) if seed % 3 == 0 else Window(closed=texts, zone=zone)
    assert window.opens_at(at) == first_open(window, at)


CHANGES = {zone: list(changes(zone)) for zone in SAMPLE}


@pytest.mark.faults
@pytest.mark.parametrize("zone", sorted(available_timezones()))
def test_no_window_opens_at_a_closed_instant_in_any_zone(zone: str) -> None:
    rng = random.Random(zone)
    for change in changes(zone):
        for _ in range(3):
            at = change - rng.randrange(4 * HOUR)
            window = Window(closed=[spans(rng), spans(rng)], zone=zone)
            assert window.opens_at(at) == first_open(window, at)
