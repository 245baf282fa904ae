"""The clock of a server is compared with ours at the moment at which it is read, however long an answer takes."""

from collections.abc import Iterator

from reprieve.stores.diagnostics import CLOCK_SAMPLES, local_clock, measure_skew


def test_the_quickest_answer_counts_and_its_middle_is_compared() -> None:
    delays: Iterator[int] = iter([900, 40, 2, 300, 70][:CLOCK_SAMPLES])
    time = [1_000.0]

    def ask() -> float:
        delay = next(delays)
        time[0] += delay / 2
        server = time[0] - 250
        time[0] += delay / 2
        return server

    assert measure_skew(ask, lambda: time[0]) == 250


def test_a_slow_answer_of_one_side_is_no_skew_if_a_quick_one_follows() -> None:
    delays = iter([800, 0, 0, 0, 0])
    time = [1_000.0]

    def ask() -> float:
        time[0] += next(delays)
        return time[0]

    assert measure_skew(ask, lambda: time[0]) == 0


def test_a_clock_goes_on_from_the_moment_that_it_is_given() -> None:
    clock = local_clock(5_000)
    assert 5_000 <= clock() < 60_000
