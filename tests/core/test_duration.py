"""Lengths of time as people write them."""

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.duration import MAX_DURATION_SECONDS, clamp, milliseconds, seconds, spell
from reprieve.errors import InvalidDuration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("300ms", 0.3),
        ("5s", 5),
        ("5m", 300),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        (" 2d ", 172_800),
        ("1w", 604_800),
        ("1.5h", 5_400),
        ("0s", 0),
    ],
)
def test_texts_are_read(text: str, expected: float) -> None:
    assert seconds(text) == pytest.approx(expected)


def test_numbers_and_timedeltas_are_seconds() -> None:
    assert seconds(2) == 2.0
    assert seconds(0.5) == 0.5
    assert seconds(timedelta(minutes=2)) == 120.0
    assert seconds(MAX_DURATION_SECONDS) == MAX_DURATION_SECONDS


@pytest.mark.parametrize(
    "nonsense",
    [
        "5 minuts",
        "",
        "m",
        "5",
        "-5s",
        "5s!",
        "s5",
        "1e3s",
        -1,
        math.nan,
        math.inf,
        True,
        timedelta(seconds=-1),
        None,
        [5],
        10**400,
    ],
)
def test_nonsense_is_refused_with_a_way_out(nonsense: Any) -> None:  # noqa: ANN401 - the point
    with pytest.raises(InvalidDuration, match="got ") as caught:
        seconds(nonsense, "delay")
    assert caught.value.code == "invalid_duration"
    assert str(caught.value).startswith("delay ")


def test_more_than_ten_years_is_a_mistake() -> None:
    with pytest.raises(InvalidDuration):
        seconds(MAX_DURATION_SECONDS + 1)


@given(st.floats(allow_nan=True, allow_infinity=True), st.floats(min_value=0, max_value=MAX_DURATION_SECONDS))
def test_a_clamped_number_is_a_length(value: float, longest: float) -> None:
    assert 0 <= clamp(value, longest) <= longest


def test_clamp_keeps_what_is_within_reach() -> None:
    assert clamp(5.0, 10.0) == 5.0
    assert clamp(11.0, 10.0) == 10.0
    assert clamp(-3.0) == 0.0
    assert clamp(math.nan) == 0.0


def test_milliseconds_are_never_early() -> None:
    assert milliseconds(1.0) == 1_000
    assert milliseconds(0.0001) == 1
    assert milliseconds(1.0011) == 1_002
    # 1.1 · 1000 is 1100.0000000000002 in floating point, which is noise and no microsecond.
    assert milliseconds(1.1) == 1_100


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (0.5, "0.5s"),
        (2, "2s"),
        (59.9, "59.9s"),
        (60, "1m"),
        (90, "1m30s"),
        (5_400, "1h30m"),
        (86_400, "1d"),
        (90_061, "1d1h"),
    ],
)
def test_a_length_is_spelled_as_people_would(length: float, text: str) -> None:
    assert spell(length) == text
