"""Every number of every preset."""

import random

import pytest

from reprieve import presets
from reprieve.core.backoff import Bounded, Full
from reprieve.core.policy import Policy
from reprieve.errors import UnknownPreset

SCHEDULES: list[tuple[str, int | None, dict[int, int]]] = [
    ("swift", 4, {1: 1_000, 2: 5_000, 3: 25_000, 4: 30_000, 5: 30_000}),
    ("patient", 3, {1: 300_000, 2: 600_000, 3: 1_200_000, 9: 76_800_000, 10: 86_400_000, 11: 86_400_000}),
    ("smtp", 5, {1: 1_000, 2: 2_000, 3: 4_000, 4: 8_000, 5: 16_000, 9: 256_000, 10: 300_000, 11: 300_000}),
    ("smtp_dev", 3, {1: 500, 2: 1_000, 3: 2_000, 4: 4_000, 5: 8_000, 6: 16_000, 7: 30_000, 8: 30_000}),
    ("email", 5, {1: 1_000, 2: 2_000, 3: 4_000, 4: 8_000, 5: 16_000, 6: 32_000, 7: 60_000, 8: 60_000}),
    ("render", 4, {1: 5_000, 2: 25_000, 3: 125_000, 4: 625_000, 5: 3_125_000}),
    (
        "screenshot",
        6,
        {1: 5_000, 2: 25_000, 3: 125_000, 4: 625_000, 5: 3_125_000, 6: 3_600_000, 7: 3_600_000},
    ),
    ("pdf", 3, {1: 5_000, 2: 5_000, 3: 5_000}),
    ("bull", 5, {1: 1_000, 2: 3_000, 3: 7_000, 4: 15_000}),
    (
        "standard",
        10,
        {1: 2_000, 2: 6_000, 3: 18_000, 4: 54_000, 5: 162_000, 6: 486_000, 7: 900_000, 9: 900_000},
    ),
    ("mta", None, {1: 300_000, 2: 1_500_000, 3: 7_200_000, 4: 7_200_000, 60: 7_200_000}),
    (
        "webhook",
        8,
        {1: 5_000, 2: 300_000, 3: 1_800_000, 4: 7_200_000, 5: 18_000_000, 6: 36_000_000, 7: 36_000_000},
    ),
]


def test_every_preset_is_listed_here() -> None:
    assert [name for name, _, _ in SCHEDULES] == list(presets.ALL)


@pytest.mark.parametrize(("name", "max_attempts", "schedule"), SCHEDULES)
def test_schedule(name: str, max_attempts: int | None, schedule: dict[int, int]) -> None:
    preset: Policy = getattr(presets, name)
    assert preset is presets.ALL[name]
    assert preset.max_attempts == max_attempts
    for failures, milliseconds in schedule.items():
        assert preset.delay(failures) * 1_000 == pytest.approx(milliseconds), failures


BOUNDS: list[tuple[Policy, int, int, int]] = [
    (presets.email, 1, 750, 1_250),
    (presets.email, 2, 1_500, 2_500),
    (presets.email, 3, 3_000, 5_000),
    (presets.email, 4, 6_000, 10_000),
    (presets.email, 5, 12_000, 20_000),
    (presets.email, 6, 24_000, 40_000),
    (presets.email, 7, 45_000, 75_000),
    (presets.email, 8, 45_000, 75_000),
    (presets.smtp, 1, 750, 1_250),
    (presets.smtp, 2, 1_500, 2_500),
    (presets.smtp, 3, 3_000, 5_000),
    (presets.smtp, 4, 6_000, 10_000),
    (presets.smtp, 5, 12_000, 20_000),
    (presets.smtp, 6, 24_000, 40_000),
    (presets.smtp, 7, 48_000, 80_000),
    (presets.smtp, 8, 96_000, 160_000),
    (presets.smtp, 9, 192_000, 300_000),
    (presets.smtp, 10, 300_000, 300_000),
    (presets.smtp, 11, 300_000, 300_000),
    (presets.standard, 1, 1_000, 2_000),
    (presets.standard, 3, 1_000, 18_000),
    (presets.standard, 9, 1_000, 900_000),
    (presets.mta, 1, 270_000, 330_000),
    (presets.webhook, 7, 32_400_000, 39_600_000),
]


@pytest.mark.parametrize(("preset", "failures", "low", "high"), BOUNDS)
def test_a_hundred_thousand_draws_stay_within_the_bounds_and_reach_them(
    preset: Policy, failures: int, low: int, high: int
) -> None:
    rng = random.Random(failures)
    drawn = [preset.delay(failures, rng.random()) * 1_000 for _ in range(100_000)]
    assert low <= min(drawn) <= low + (high - low) * 0.01
    assert high - (high - low) * 0.01 <= max(drawn) <= high


def test_bulls_formula_survives_any_number_of_failures() -> None:
    assert presets.bull.delay(100_000) == presets.bull.delay(64) > 0


def test_mta_gives_up_after_five_days_and_email_after_one() -> None:
    assert presets.mta.deadline == 5 * 86_400
    assert presets.email.deadline == 86_400


def test_standard_is_the_default_policy() -> None:
    assert presets.standard == Policy()
    assert presets.standard.backoff.jitter == Full("1s")
    assert presets.webhook.backoff.jitter == Bounded(0.1)


def test_development_resolves_smtp_to_its_quicker_twin() -> None:
    assert presets.named("smtp") is presets.smtp
    assert presets.named("smtp", "development") is presets.smtp_dev
    assert presets.named("email", "development") is presets.email


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownPreset, match="swift, patient") as caught:
        presets.named("speedy")
    assert caught.value.code == "unknown_preset"
    with pytest.raises(UnknownPreset, match="production, development"):
        presets.named("smtp", "developement")  # type: ignore[arg-type]  # which is the point
