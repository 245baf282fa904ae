"""Ten thousand jobs and a dependency that is down for a minute."""

import pytest

from reprieve import presets
from reprieve.core.policy import Policy
from reprieve.insight.outage import Scenario, simulate

MINUTE = Scenario()


@pytest.mark.parametrize(
    ("policy", "calls"), [(presets.swift, 4), (presets.smtp, 5), (presets.email, 5), (presets.bull, 5)]
)
def test_without_park_a_policy_that_waits_less_than_the_outage_loses_the_backlog(policy: Policy, calls: int) -> None:
    report = simulate(policy, MINUTE, park=False)
    assert (report.dead, report.succeeded) == (10_000, 0)
    assert report.calls == calls * 10_000
    assert report.ended_after < 0


@pytest.mark.parametrize("policy", [presets.swift, presets.smtp, presets.email, presets.standard])
def test_with_park_nothing_is_lost_and_hardly_a_call_wasted(policy: Policy) -> None:
    report = simulate(policy, MINUTE, park=True)
    assert (report.dead, report.succeeded) == (0, 10_000)
    assert report.calls <= 11_000
    # 10,000 calls of 0.1 s in 50 slots take 20 s; a probe waits for at most a tenth of the outage.
    assert 20 <= report.ended_after <= 27
    assert sum(report.calls_by_second.values()) == report.calls


def test_parked_jobs_are_silent_during_the_outage() -> None:
    report = simulate(presets.email, MINUTE, park=True)
    during = [report.calls_by_second.get(second, 0) for second in range(2, 60)]
    assert max(during) <= 1


def test_the_same_seed_plays_the_same_outage() -> None:
    small = Scenario(jobs=500, seed=7)
    assert simulate(presets.standard, small, park=False) == simulate(presets.standard, small, park=False)
    assert simulate(presets.standard, small, park=False) != simulate(
        presets.standard, Scenario(jobs=500, seed=8), park=False
    )


def test_without_an_outage_there_is_one_call_a_job() -> None:
    for park in (True, False):
        report = simulate(presets.email, Scenario(jobs=100, down_for=0), park=park)
        assert (report.calls, report.succeeded, report.ended_after) == (100, 100, 0.2)
