"""Gates: when a dependency counts as down, how it is probed, and how traffic returns."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.classify import TABLES, judge
from reprieve.core.failure import Error, Failure, read
from reprieve.core.gate import Calls, Gate, Hold, PushBack, Release, Signal, Tick, Well, signal_of, step
from reprieve.core.outcome import Crashed, Failed, Interrupted, Outcome, Snoozed, Stopped, Succeeded, undecodable
from reprieve.core.verdict import Kind, Scope, Verdict

NOW = 1_760_000_000_000
OPEN = Gate(dependency="ses")
MANY = ("a", "b", "c")
"""Enough different jobs."""
FAIL, OK = Calls(fails=1, failed=MANY), Calls(oks=1)


def feed(gate: Gate, *signals: Signal, start: int = NOW, every: int = 10) -> Gate:
    for number, signal in enumerate(signals):
        gate = step(gate, signal, start + number * every)
    return gate


def held(since: int = NOW, probe_at: int | None = NOW + 1_000) -> Gate:
    return Gate(dependency="ses", mode="held", since_at=since, down_at=since, probe_at=probe_at)


def probing(ramp: int = 1, down_at: int = NOW - 10_000) -> Gate:
    return Gate(dependency="ses", mode="probing", since_at=NOW, down_at=down_at, ramp=ramp)


def test_thirty_failures_in_a_row_hold_the_gate() -> None:
    gate = feed(OPEN, *[FAIL] * 28)
    assert gate.mode == "open"
    gate = feed(gate, FAIL, start=NOW + 280)
    assert (gate.mode, gate.since_at, gate.down_at) == ("held", NOW + 280, NOW)
    assert gate.probe_at == NOW + 280 + 1_000
    assert (gate.oks, gate.fails, gate.evidence) == (0, 0, 0.0)


def test_a_full_outage_at_a_hundred_calls_a_second_is_held_within_a_second() -> None:
    gate, moment = OPEN, NOW
    while gate.mode == "open":
        moment += 10
        gate = step(gate, Calls(fails=1, under_way=5, failed=MANY), moment)
    assert moment - NOW <= 1_000


@pytest.mark.parametrize("seed", range(3))
def test_random_errors_of_sixty_percent_are_no_outage(seed: int) -> None:
    rng, gate, holds = random.Random(seed), OPEN, 0
    for call in range(100_000):
        gate = step(gate, FAIL if rng.random() < 0.6 else OK, NOW + call * 10)
        if gate.mode != "open":
            holds, gate = holds + 1, OPEN
    assert holds <= 1


def test_an_outage_with_stray_successes_is_still_an_outage() -> None:
    rng, gate, calls = random.Random(1), OPEN, 0
    while gate.mode == "open":
        calls += 1
        gate = step(gate, FAIL if rng.random() < 0.95 else OK, NOW + calls * 10)
    assert calls <= 200


def test_a_healthy_past_does_not_hide_an_outage() -> None:
    gate = feed(OPEN, *[OK] * 10_000, *[FAIL] * 28)
    assert gate.mode == "open"
    assert step(gate, FAIL, NOW + 10**6).mode == "held"


def test_a_batch_of_failures_counts_like_failures_one_by_one() -> None:
    assert step(OPEN, Calls(fails=28, failed=MANY), NOW).mode == "open"
    assert step(OPEN, Calls(fails=29, failed=MANY), NOW).mode == "held"


def test_calls_still_under_way_may_yet_succeed() -> None:
    assert step(OPEN, Calls(fails=40, under_way=10, failed=MANY), NOW).mode == "held"
    assert step(OPEN, Calls(fails=40, under_way=11, failed=MANY), NOW).mode == "open"


def test_fewer_than_twenty_calls_conclude_nothing() -> None:
    convinced = Gate(dependency="ses", evidence=20.0, fails=18)
    assert step(convinced, FAIL, NOW).mode == "open"
    assert step(convinced, Calls(fails=2, failed=MANY), NOW).mode == "held"


def test_failures_below_the_share_conclude_nothing() -> None:
    assert step(Gate(dependency="ses", evidence=20.0, fails=79, oks=20), FAIL, NOW).mode == "held"
    assert step(Gate(dependency="ses", evidence=20.0, fails=78, oks=21), FAIL, NOW).mode == "open"


def test_a_success_outweighs_several_failures_and_evidence_never_falls_below_nothing() -> None:
    gate = feed(OPEN, FAIL, FAIL, FAIL)
    assert gate.evidence == pytest.approx(3 * 0.37949, abs=1e-4)
    assert (gate.fails, gate.down_at) == (3, NOW)
    assert gate.probe_at is None
    cleared = step(gate, OK, NOW)
    assert (cleared.evidence, cleared.oks, cleared.fails, cleared.down_at) == (0.0, 0, 0, None)
    partly = feed(OPEN, *[FAIL] * 10, OK)
    assert partly.evidence == pytest.approx(10 * 0.37949 - 1.94591, abs=1e-4)
    assert (partly.oks, partly.fails, partly.down_at) == (1, 10, NOW)


def test_the_share_of_failures_follows_the_newest_calls() -> None:
    assert step(OPEN, FAIL, NOW).failing == pytest.approx(0.1)
    assert step(OPEN, Calls(fails=2), NOW).failing == pytest.approx(0.19)
    assert step(Gate(dependency="ses", failing=0.5), OK, NOW).failing == pytest.approx(0.45)
    assert step(Gate(dependency="ses", failing=0.5), Calls(), NOW).failing == 0.5
    assert step(OPEN, Calls(oks=1, fails=1), NOW).failing == pytest.approx(0.095)


def test_a_gate_is_healthy_while_it_is_open_and_most_calls_get_through() -> None:
    assert OPEN.is_healthy
    assert Gate(dependency="ses", failing=0.499).is_healthy
    assert not Gate(dependency="ses", failing=0.5, failed_jobs=("a", "b", "c")).is_healthy
    assert Gate(dependency="ses", failing=1.0, failed_jobs=("a", "b")).is_healthy
    assert not held().is_healthy
    assert not probing().is_healthy


def test_one_job_alone_does_not_make_a_dependency_unwell() -> None:
    bad = Calls(fails=1, failed=("bad",))
    gate = feed(OPEN, *[bad] * 20)
    assert (gate.mode, gate.failed_jobs, gate.is_healthy) == ("open", ("bad",), True)
    lonely = feed(gate, *[bad] * 1_000)
    assert (lonely.mode, lonely.is_healthy) == ("open", True)
    # However often one job failed, it takes no longer to forget than an outage does.
    assert feed(lonely, *[OK] * 6).evidence == 0.0
    gate = feed(gate, Calls(fails=2, failed=("x", "y")))
    assert (gate.failed_jobs, gate.is_healthy) == (("x", "y", "bad"), False)
    assert feed(gate, Calls(fails=1, failed=("z",))).failed_jobs == ("z", "x", "y")
    assert feed(gate, *[OK] * 10).failed_jobs == ()


def failed(kind: Kind, scope: Scope, retry_after: float | None = None) -> Failed:
    return Failed(failure=Failure(message="no"), verdict=Verdict(kind=kind, scope=scope, retry_after=retry_after))


def test_what_a_call_tells_its_gate() -> None:
    assert signal_of("j", Succeeded(), NOW) == Calls(oks=1)
    assert signal_of("j", failed("transient", "dependency", 5), NOW) == Calls(fails=1, failed=("j",))
    assert signal_of("j", failed("throttled", "dependency"), NOW) == Calls(fails=1, failed=("j",))
    assert signal_of("j", failed("throttled", "dependency", 5), NOW) == PushBack(until_at=NOW + 5_000)


NEUTRAL = Calls(neutral=1)


@pytest.mark.parametrize(
    "outcome",
    [
        Snoozed(delay=5.0),
        Stopped(),
        failed("transient", "job"),
        failed("permanent", "job"),
        failed("throttled", "tenant", 5),
    ],
)
def test_a_call_that_ends_for_the_jobs_own_reasons_climbs_the_ramp(outcome: Outcome) -> None:
    signal = signal_of("j", outcome, NOW)
    assert signal == NEUTRAL
    gate = probing()
    for _ in range(127):
        assert gate.mode == "probing"
        gate = step(gate, signal, NOW)
    assert gate.mode == "open"


def test_neutral_calls_are_no_evidence_while_the_gate_is_open() -> None:
    gate = feed(OPEN, *[FAIL] * 10)
    assert feed(gate, *[NEUTRAL] * 100) == gate
    assert feed(OPEN, *[FAIL, NEUTRAL] * 29).mode == "held"


@pytest.mark.parametrize(
    "outcome",
    [
        Interrupted(),
        Crashed(),
        undecodable("no task is named x"),
        # The task handled the refused connection itself, and asked for a retry.
        Failed(failure=read(ConnectionRefusedError()), verdict=Verdict(kind="transient", rule="the task")),
        Failed(failure=read("connect timeout"), verdict=Verdict(kind="transient", rule="the task")),
    ],
)
def test_an_attempt_without_a_response_tells_its_gate_nothing(outcome: Outcome) -> None:
    assert signal_of("j", outcome, NOW) is None


class Unavailable(Exception):
    status_code = 503

    def __init__(self, retry_after: str) -> None:
        super().__init__("Service Unavailable")
        self.headers = {"Retry-After": retry_after}


def failed_by(error: Error) -> Failed:
    failure = read(error, now=NOW)
    return Failed(failure=failure, verdict=judge(failure, TABLES))


@pytest.mark.parametrize("error", [Unavailable("60"), "503 Service Unavailable, retry after 60 s"])
def test_an_unavailable_service_that_names_a_time_holds_its_gate_like_a_throttled_one(error: Error) -> None:
    assert signal_of("j", failed_by(error), NOW) == PushBack(until_at=NOW + 60_000)


@pytest.mark.parametrize(
    "error", ["503 Service Unavailable", "connection refused, retry after 60 s", "451 4.3.0 try again in 60 s"]
)
def test_one_failure_without_a_push_back_holds_nothing(error: Error) -> None:
    assert signal_of("j", failed_by(error), NOW) == Calls(fails=1, failed=("j",))


def test_an_open_gate_permits_everything_and_a_held_one_nothing() -> None:
    assert OPEN.permits(1_000) is None
    assert held().permits(0) == 0
    assert probing(4).permits(1) == 3
    assert probing(4).permits(9) == 0


@pytest.mark.parametrize(("outage", "pause"), [(0, 1_000), (5_000, 1_000), (60_000, 6_000), (10**7, 30_000)])
def test_a_probe_waits_for_a_tenth_of_the_outage(outage: int, pause: int) -> None:
    gate = step(probing(down_at=NOW - outage), FAIL, NOW)
    assert (gate.mode, gate.probe_at) == ("held", NOW + pause)


def test_time_opens_a_held_gate_for_one_probe() -> None:
    gate = held()
    assert step(gate, Tick(), NOW + 999) == gate
    probe = step(gate, Tick(), NOW + 1_000)
    assert (probe.mode, probe.ramp, probe.since_at, probe.probe_at) == ("probing", 1, NOW + 1_000, None)
    assert probe.down_at == gate.down_at


def test_results_while_held_change_nothing() -> None:
    assert step(held(), Calls(oks=50, fails=50), NOW) == held()


def test_the_ramp_doubles_until_the_gate_is_open() -> None:
    gate, ramps = probing(), []
    while gate.mode == "probing":
        ramps.append(gate.ramp)
        gate = step(gate, Calls(oks=gate.ramp), NOW + 5)
    assert ramps == [1, 2, 4, 8, 16, 32, 64]
    assert gate == Gate(dependency="ses", since_at=NOW + 5)


def test_a_step_of_the_ramp_waits_for_all_its_calls() -> None:
    gate = feed(probing(4), OK, OK, FAIL)
    assert (gate.mode, gate.ramp, gate.oks, gate.fails) == ("probing", 4, 2, 1)
    gate = step(gate, FAIL, NOW)
    assert (gate.mode, gate.ramp, gate.oks, gate.fails) == ("probing", 8, 0, 0)


def test_a_step_whose_calls_mostly_fail_holds_the_gate_again() -> None:
    assert step(probing(1), FAIL, NOW).mode == "held"
    assert feed(probing(2), FAIL, OK).mode == "probing"
    assert feed(probing(2), FAIL, FAIL).mode == "held"
    assert step(probing(64), Calls(fails=51), NOW).mode == "probing"
    assert step(probing(64), Calls(fails=52), NOW).mode == "held"
    assert step(probing(1), Calls(oks=50, fails=1), NOW).mode == "probing"


def test_held_again_the_outage_goes_on_since_its_beginning() -> None:
    gate = step(probing(down_at=NOW - 60_000), FAIL, NOW)
    assert (gate.down_at, gate.since_at, gate.ramp) == (NOW - 60_000, NOW, 0)


def test_a_health_check_brings_the_probe_forward() -> None:
    assert step(held(), Well(), NOW + 1).mode == "probing"
    assert step(OPEN, Well(), NOW) == OPEN
    assert step(probing(8), Well(), NOW) == probing(8)


def test_a_person_holds_a_gate_until_it_is_released() -> None:
    gate = step(OPEN, Hold(), NOW)
    assert (gate.mode, gate.probe_at, gate.since_at, gate.down_at) == ("held", None, NOW, NOW)
    assert step(gate, Tick(), NOW + 10**9) == gate
    assert step(gate, Well(), NOW + 10**9) == gate
    assert step(gate, Release(), NOW + 5).mode == "probing"


def test_a_person_may_hold_a_gate_until_a_moment() -> None:
    gate = step(OPEN, Hold(until_at=NOW + 60_000), NOW)
    assert step(gate, Tick(), NOW + 59_999).mode == "held"
    assert step(gate, Tick(), NOW + 60_000).mode == "probing"


def test_holding_what_is_held_keeps_its_beginning() -> None:
    gate = step(held(since=NOW - 5_000), Hold(), NOW)
    assert (gate.since_at, gate.down_at, gate.probe_at) == (NOW - 5_000, NOW - 5_000, None)


def test_releasing_brings_traffic_back_up_the_ramp() -> None:
    gate = step(held(), Release(), NOW)
    assert (gate.mode, gate.ramp, gate.since_at) == ("probing", 1, NOW)
    assert step(OPEN, Release(), NOW) == OPEN


def test_a_push_back_holds_the_gate_until_its_moment() -> None:
    gate = step(OPEN, PushBack(until_at=NOW + 30_000), NOW)
    assert (gate.mode, gate.probe_at) == ("held", NOW + 30_000)
    longer = step(gate, PushBack(until_at=NOW + 40_000), NOW + 1)
    assert longer.probe_at == NOW + 40_000
    assert step(longer, PushBack(until_at=NOW + 35_000), NOW + 2) == longer
    assert step(OPEN, PushBack(until_at=NOW), NOW) == OPEN


def test_a_push_back_does_not_shorten_what_a_person_holds() -> None:
    gate = step(OPEN, Hold(), NOW)
    assert step(gate, PushBack(until_at=NOW + 1), NOW) == gate


SIGNALS: st.SearchStrategy[Signal] = st.one_of(
    st.builds(
        Calls,
        oks=st.integers(0, 100),
        fails=st.integers(0, 100),
        under_way=st.integers(0, 100),
        failed=st.lists(st.sampled_from("abcd"), max_size=4).map(tuple),
        last_success_at=st.none() | st.integers(NOW, NOW + 10**6),
    ),
    st.just(Tick()),
    st.just(Well()),
    st.builds(PushBack, until_at=st.integers(NOW, NOW + 10**6)),
    st.builds(Hold, until_at=st.none() | st.integers(NOW, NOW + 10**6)),
    st.just(Release()),
)


@given(st.lists(st.tuples(SIGNALS, st.integers(0, 60_000)), max_size=50))
def test_whatever_happens_a_gate_is_in_one_of_its_three_ways(history: list[tuple[Signal, int]]) -> None:
    gate, now = OPEN, NOW
    for signal, pause in history:
        now += pause
        gate = step(gate, signal, now)
        match gate.mode:
            case "open":
                assert (gate.ramp, gate.probe_at) == (0, None)
            case "held":
                assert gate.down_at is not None
                assert gate.ramp == 0
                assert isinstance(signal, Hold | PushBack) or gate.probe_at is None or gate.probe_at > now
            case "probing":
                assert gate.ramp in (1, 2, 4, 8, 16, 32, 64)
                assert gate.probe_at is None
        assert 0 <= gate.failing <= 1
        assert gate.evidence >= 0
