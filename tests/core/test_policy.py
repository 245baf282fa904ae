"""Policies, and which of several is in force."""

import math
from collections.abc import Callable
from typing import cast

import pytest

from reprieve import presets, rules
from reprieve.core.backoff import STANDARD, Exponential, Formula, fixed
from reprieve.core.classify import TABLES
from reprieve.core.failure import read
from reprieve.core.policy import Override, Policy, amend, resolve
from reprieve.core.rule import Rule
from reprieve.core.window import Window
from reprieve.errors import InvalidDuration, InvalidPolicy


def delays(policy: Policy, count: int) -> list[float]:
    return [policy.delay(failures) for failures in range(1, count + 1)]


def test_a_policy_reads_as_people_write_it() -> None:
    policy = Policy(
        max_attempts=5,
        backoff=Exponential("1s", cap="60s", jitter=0.25),
        rules=[rules.smtp, rules.ses],
        deadline="24h",
        max_parked="2d",
        window=Window(closed="mon-fri 09:00-17:00"),
    )
    assert (policy.max_attempts, policy.deadline, policy.max_parked) == (5, 86_400, 172_800)
    assert policy.rules == (rules.smtp, rules.ses)
    assert policy.delay(1) == 1
    assert policy.delay(1, 0.0) == 0.75


def test_the_defaults() -> None:
    policy = Policy()
    assert (policy.max_attempts, policy.backoff, policy.rules) == (10, STANDARD, TABLES)
    assert (policy.window, policy.deadline, policy.max_crashes, policy.max_parked) == (None, None, 3, 432_000)


def test_retries_come_on_top_of_the_first_execution() -> None:
    assert Policy(retries=3).max_attempts == 4
    assert Policy(retries=0).max_attempts == 1


def test_a_plain_function_is_a_backoff() -> None:
    policy = Policy(backoff=lambda failures: failures * 10.0)
    assert isinstance(policy.backoff, Formula)
    assert delays(policy, 3) == [10, 20, 30]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Policy(max_attempts=0),
        lambda: Policy(retries=-1),
        lambda: Policy(max_attempts=5, retries=1),
        lambda: Override.from_json({"maxAttempts": 5}),
        lambda: Policy(max_attempts=None),
        lambda: Policy(max_crashes=0),
        lambda: Override(max_attempts=0),
        lambda: Override.from_json({"max_attempts": "five"}),
        lambda: Override.from_json({"max_attempts": True}),
        lambda: Override.from_json({"retry_delay": "60000"}),
        lambda: Override.from_json({"retry_delay": True}),
        lambda: Policy(max_attempts=cast("int", 5.0)),
        lambda: Policy(max_attempts=True),
        lambda: Policy(retries=cast("int", "3")),
        lambda: Policy(max_crashes=cast("int", None)),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        make()
    assert caught.value.code == "invalid_policy"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Policy(deadline="5 minuts"),
        lambda: Policy(max_parked=-1),
        lambda: Override(retry_delay=-1),
        lambda: Override(max_retry_delay=math.nan),
        lambda: Override.from_json({"retry_delay": -5}),
        lambda: Override.from_json({"max_retry_delay": math.inf}),
    ],
)
def test_waits_that_are_no_durations_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidDuration):
        make()


def test_the_options_of_a_job_give_exactly_their_waits() -> None:
    options = {"max_attempts": 5, "retry_delay": 60_000, "max_retry_delay": 3_600_000}
    policy = resolve(presets.standard, Override.from_json(options))
    assert policy.max_attempts == 5
    assert delays(policy, 4) == [60, 120, 240, 480]
    assert [policy.delay(failures, 0.99) for failures in (1, 2, 3, 4)] == [60, 120, 240, 480]
    assert policy.delay(7) == 3_600


def test_a_job_that_names_only_its_wait_is_capped_at_a_day() -> None:
    assert resolve(presets.standard, Override(retry_delay=300)).delay(20) == 86_400


def test_a_job_that_names_only_its_longest_wait_keeps_the_shape() -> None:
    policy = resolve(presets.swift, Override(max_retry_delay=10))
    assert delays(policy, 4) == [1, 5, 10, 10]
    assert policy.backoff.raw(3) == 25
    assert resolve(presets.email, Override(max_retry_delay=1.1)).delay(1, 0.999) == 1.1
    assert resolve(presets.email, Override(max_retry_delay=1.1)).delay(1, 0.0) == 0.75


def test_the_stronger_goes_over_the_weaker() -> None:
    task = Policy(max_attempts=7, backoff=fixed("9s"), deadline="1h")
    tenant = Override(max_attempts=2)
    job = Override(retry_delay=3)
    resolved = resolve(presets.standard, task, tenant, job)
    assert (resolved.max_attempts, resolved.delay(2), resolved.deadline) == (2, 6, 3_600)
    assert resolve(presets.standard, task, None, None) is task
    assert resolve(presets.standard, None) is presets.standard
    assert resolve(presets.standard, task, tenant, Override(max_attempts=4)).max_attempts == 4


def test_the_options_of_a_job_go_over_the_rules_of_its_policy() -> None:
    slow = Rule(code="421", backoff=fixed("5m"), max_attempts=9)
    both = Policy(rules=[slow, rules.smtp])
    failure = read("421")
    assert resolve(both, Override(max_attempts=2, retry_delay=60)).rule_for(failure) is None
    assert resolve(both, Override(max_attempts=2)).rule_for(failure) == Rule(code="421", backoff=fixed("5m"))
    assert resolve(both, Override(max_retry_delay=60)).rule_for(failure) == Rule(code="421", max_attempts=9)
    classifying = Policy(rules=[Rule(code="421", kind="transient", max_attempts=9)])
    assert resolve(classifying, Override(max_attempts=2)).rules == (Rule(code="421", kind="transient"),)


def test_a_deadline_counts_from_the_creation_of_the_job() -> None:
    assert presets.mta.deadline_of(1_000) == 1_000 + 432_000_000
    assert presets.swift.deadline_of(1_000) is None


def test_an_amended_policy_is_checked_like_a_new_one() -> None:
    assert amend(presets.email, max_attempts=9).max_attempts == 9
    assert amend(presets.email, max_attempts=9).deadline == presets.email.deadline
    with pytest.raises(InvalidPolicy):
        amend(presets.email, max_attempts=0)
