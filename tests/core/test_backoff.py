"""Waits and their spread."""

import math
import random
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.backoff import (
    Backoff,
    Bounded,
    Capped,
    Decorrelated,
    Equal,
    Exponential,
    Formula,
    Full,
    Jitter,
    Linear,
    NoJitter,
    PlusMinus,
    Steps,
    fast_then_slow,
    fixed,
)
from reprieve.core.duration import MAX_DURATION_SECONDS
from reprieve.errors import InvalidBackoff, InvalidDuration

ALMOST_ONE = math.nextafter(1, 0)


def delays(backoff: Backoff, count: int) -> list[float]:
    return [backoff.delay(failures) for failures in range(1, count + 1)]


def test_exponential_multiplies_until_the_cap() -> None:
    assert delays(Exponential("1s", factor=5, cap="30s"), 5) == [1, 5, 25, 30, 30]
    assert delays(Exponential(3), 4) == [3, 6, 12, 24]


def test_linear_adds_until_the_cap() -> None:
    assert delays(Linear("10s"), 3) == [10, 20, 30]
    assert delays(Linear("10s", step="5s", cap="18s"), 4) == [10, 15, 18, 18]


def test_steps_repeat_their_last_wait() -> None:
    assert delays(Steps("5s", "5m", "2h"), 5) == [5, 300, 7_200, 7_200, 7_200]
    assert delays(fixed("7s"), 3) == [7, 7, 7]


def test_fast_then_slow_changes_after_so_many_failures() -> None:
    assert delays(fast_then_slow("1s", 2, "1h"), 4) == [1, 1, 3_600, 3_600]


def test_any_function_is_a_backoff() -> None:
    assert delays(Formula(lambda failures: failures**2, cap=10), 4) == [1, 4, 9, 10]


@pytest.mark.parametrize(("answer", "expected"), [(-5.0, 0.0), (Decimal(5), 5.0), (math.inf, MAX_DURATION_SECONDS)])
def test_what_a_foreign_function_answers_is_clamped(answer: float, expected: float) -> None:
    assert Formula(lambda _: answer).delay(1) == expected


def test_a_wait_that_overflows_is_the_cap() -> None:
    assert Exponential("1s", cap="1h").delay(100_000) == 3_600
    assert Exponential("1s").delay(100_000) == MAX_DURATION_SECONDS
    assert Exponential("1s", cap="1h", jitter=PlusMinus(0.5, cap_last=True)).delay(100_000, 0.0) == 3_600


SPREADS: list[tuple[Jitter, float, float, float, float]] = [
    (NoJitter(), 10, 60, 10, 10),
    (NoJitter(), 90, 60, 60, 60),
    (PlusMinus(0.25), 10, 60, 7.5, 12.5),
    (PlusMinus(0.25), 90, 60, 45, 75),
    (PlusMinus(0.25, cap_last=True), 10, 60, 7.5, 12.5),
    (PlusMinus(0.25, cap_last=True), 70, 60, 52.5, 60),
    (PlusMinus(0.25, cap_last=True), 90, 60, 60, 60),
    (Full(), 10, 60, 0, 10),
    (Full(), 90, 60, 0, 60),
    (Full("1s"), 10, 60, 1, 10),
    (Full("20s"), 10, 60, 10, 10),
    (Equal(), 10, 60, 5, 10),
    (Equal(), 90, 60, 30, 60),
    (Bounded(0.1), 10, 60, 9, 11),
    (Bounded(0.1), 54, 60, 48.6, 59.4),
    (Bounded(0.1), 58, 60, 48, 60),
    (Bounded(0.1), 90, 60, 48, 60),
]


@pytest.mark.parametrize(("jitter", "raw", "cap", "low", "high"), SPREADS)
def test_each_jitter_spreads_over_its_whole_range(
    jitter: Jitter, raw: float, cap: float, low: float, high: float
) -> None:
    assert jitter.spread(raw, cap, 0.0) == pytest.approx(low)
    assert jitter.spread(raw, cap, ALMOST_ONE) == pytest.approx(high)


def test_every_jitter_is_uniform() -> None:
    assert PlusMinus(0.25).spread(8, 60, 0.25) == 7.0
    assert PlusMinus(0.25).spread(8, 60, 0.75) == 9.0
    assert PlusMinus(0.25, cap_last=True).spread(8, 60, 0.75) == 9.0
    assert Full("2s").spread(10, 60, 0.25) == 4.0
    assert Equal().spread(8, 60, 0.25) == 5.0
    assert Bounded(0.5).spread(8, 60, 0.75) == 10.0
    assert Bounded(0.5).spread(58, 60, 0.75) == 45.0


def test_a_number_as_jitter_is_plus_minus_before_the_cap() -> None:
    assert Exponential("1s", jitter=0.25).jitter == PlusMinus(0.25)
    assert Exponential("1s").jitter == NoJitter()
    assert Linear("1s", jitter=1).jitter == PlusMinus(1)


def test_decorrelated_continues_from_the_wait_before() -> None:
    backoff = Decorrelated("1s", cap="1m")
    assert backoff.delay(4, 0.0, previous=10) == 1
    assert backoff.delay(4, 0.5, previous=10) == 1 + 29 / 2
    assert backoff.delay(4, ALMOST_ONE, previous=10) == pytest.approx(30)
    assert backoff.delay(4, ALMOST_ONE, previous=50) == 60


def test_decorrelated_without_a_wait_before_uses_the_unjittered_one() -> None:
    backoff = Decorrelated("1s", factor=3)
    assert delays(backoff, 3) == [1, 3, 9]
    assert Decorrelated("1s", factor=3, cap=5).delay(3) == 5
    assert backoff.delay(3, ALMOST_ONE) == pytest.approx(9)
    assert backoff.delay(2, 0.5, previous=0.1) == 2


def test_decorrelated_spreads_the_first_wave_already() -> None:
    assert Decorrelated("1s").delay(1, 0.0) == 1
    assert Decorrelated("1s").delay(1, ALMOST_ONE) == pytest.approx(3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Exponential("1s", factor=0.9),
        lambda: Exponential("1s", factor=math.nan),
        lambda: Exponential("1s", factor=math.inf),
        lambda: PlusMinus(1.1),
        lambda: PlusMinus(-0.1),
        lambda: PlusMinus(math.nan),
        lambda: Bounded(0.51),
        Steps,
        lambda: fast_then_slow("1s", 0, "1m"),
        lambda: fixed("1s").delay(0),
        lambda: fixed("1s").delay(1, 1.0),
        lambda: fixed("1s").delay(1, -0.1),
        lambda: fixed("1s").delay(1, math.nan),
        lambda: Decorrelated("1s").delay(0),
    ],
)
def test_contradictory_numbers_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidBackoff) as caught:
        make()
    assert caught.value.code == "invalid_backoff"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Exponential("5 minuts"),
        lambda: Exponential(-1),
        lambda: Exponential("1s", cap=math.nan),
        lambda: Linear("1s", step=-1),
        lambda: Steps("1s", "soon"),
        lambda: Full(-1),
    ],
)
def test_waits_that_are_no_durations_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidDuration):
        make()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Exponential("1s", factor=0.5), "factor must be a number from 1 to 1e+06, got 0.5"),
        (lambda: PlusMinus(2), "jitter fraction must be a number from 0 to 1, got 2"),
        (lambda: Bounded(-1), "jitter fraction must be a number from 0 to 0.5, got -1"),
        (Steps, 'Steps must have one wait or more, for example Steps("5s", "5m", "2h"), got none'),
        (lambda: fast_then_slow("1s", 0, "1m"), "times must be a whole number from 1 to 10000, got 0"),
        (lambda: fixed("1s").delay(0), "failures must be a whole number of 1 or more, got 0"),
        (lambda: Decorrelated("1s").delay(1, 2.0), "u must be in [0, 1), got 2.0"),
    ],
)
def test_a_refusal_says_what_is_wrong(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidBackoff) as caught:
        make()
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Exponential(-1), "base"),
        (lambda: Exponential(1, cap=-1), "cap"),
        (lambda: Decorrelated(-1), "base"),
        (lambda: Linear(-1), "base"),
        (lambda: Linear(1, step=-1), "step"),
        (lambda: Steps(-1), "step"),
        (lambda: Full(-1), "jitter floor"),
    ],
)
def test_a_wait_that_is_none_is_named(make: Callable[[], object], word: str) -> None:
    with pytest.raises(InvalidDuration, match=f"^{word} must be a duration .* got -1"):
        make()


def test_every_backoff_keeps_its_cap_and_jitter() -> None:
    half = PlusMinus(0.5)
    backoffs = [
        Exponential(8, cap=6, jitter=half),
        Linear(8, cap=6, jitter=half),
        Steps(8, cap=6, jitter=half),
        Formula(lambda _: 8, cap=6, jitter=half),
        Capped(fixed(6, jitter=half), 9),
    ]
    assert [backoff.delay(1, 0.0) for backoff in backoffs] == [3] * 5
    assert [backoff.jitter for backoff in backoffs] == [half] * 5
    assert fast_then_slow(6, 1, 8, jitter=half).delay(1, 0.0) == 3
    assert Capped(fixed(8), 6).delay(1) == Capped(fixed(8), 6).cap == 6
    assert Capped(fixed(8), 6).raw(1) == 8
    assert (Full().floor, Linear(1).jitter, Formula(lambda _: 1).jitter) == (0.0, NoJitter(), NoJitter())
    assert Decorrelated(1, cap=2).cap == 2


def test_the_edges_of_what_is_allowed() -> None:
    assert PlusMinus(1).spread(10, 60, 0.0) == 0
    assert PlusMinus(0).spread(10, 60, 0.0) == 10
    assert Bounded(0.5).spread(60, 60, 0.0) == 0
    assert Exponential("1s", factor=1).delay(9) == 1
    assert fast_then_slow("1s", 1, "9s").delay(2) == 9


JITTERS = st.sampled_from([0.0, 0.25, Full(), Full("1s"), Equal(), Bounded(0.1), PlusMinus(0.5, cap_last=True)])


@given(
    base=st.floats(0, 1e6),
    factor=st.floats(1, 100),
    cap=st.floats(0, 1e7),
    jitter=JITTERS,
    failures=st.integers(1, 10**6),
    u=st.floats(0, 1, exclude_max=True),
)
def test_every_wait_is_a_finite_length_near_its_cap(
    base: float, factor: float, cap: float, jitter: Jitter | float, failures: int, u: float
) -> None:
    backoff = Exponential(base, factor=factor, cap=cap, jitter=jitter)
    assert 0 <= backoff.delay(failures) <= cap
    assert 0 <= backoff.delay(failures, u) <= cap * 1.25 * (1 + 1e-9)


def test_equal_backoffs_are_equal_values() -> None:
    assert Exponential("1s", cap="1m") == Exponential(1, cap=60)
    assert hash(Steps("1s")) == hash(fixed(1))


def test_a_hundred_thousand_draws_stay_within_the_range_and_fill_it() -> None:
    rng = random.Random(7)
    drawn = [Exponential("8s", jitter=0.25).delay(1, rng.random()) for _ in range(100_000)]
    assert min(drawn) >= 6
    assert max(drawn) <= 10
    assert sum(drawn) / len(drawn) == pytest.approx(8, rel=0.005)


@pytest.mark.parametrize("failures", [10**7, 2**31 - 1])
def test_a_wait_after_any_number_of_failures_is_computed_at_once(failures: int) -> None:
    # With a factor that is a whole number, this took seconds for 10**7.
    assert Exponential("1s", factor=2, cap="1h").delay(failures) == 3_600
    assert Exponential("1s", factor=1).delay(10**7) == 1
    assert Decorrelated("1s", factor=3, cap="1h").delay(failures, 0.5) == 3_600
    assert Linear("1s", cap="1h").delay(failures) == 3_600
    assert Steps("1s", "5s").delay(failures) == 5
