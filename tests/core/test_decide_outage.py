"""What follows when a dependency is unavailable: one job is enough to say so, unless others were served meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from reprieve import presets
from reprieve.core.backoff import fixed
from reprieve.core.decide import Conditions, decide, decide_failure
from reprieve.core.failure import read
from reprieve.core.gate import Gate
from reprieve.core.job import Cause, Job
from reprieve.core.move import Dead, ManualRetry, Park, Retry, Start, evolve
from reprieve.core.outcome import Failed
from reprieve.core.policy import Policy
from reprieve.core.verdict import Verdict
from reprieve.core.window import Window

NOW = 1_760_000_000_000
SECOND, HOUR = 1_000, 3_600_000
LEASED = NOW - 20
RUNNING = Job(
    id="j",
    task="send",
    dependency="mail",
    created_at=NOW - SECOND,
    due_at=NOW - SECOND,
    state="running",
    attempt=1,
    leased_at=LEASED,
)
POLICY = Policy(max_attempts=3, backoff=fixed("10s"))
OPEN = Gate(dependency="mail")
UNWELL = Gate(dependency="mail", failing=0.9, failed_jobs=("a", "b", "c"))
REFUSED = Failed(
    failure=read("[Errno 111] Connection refused"),
    verdict=Verdict(kind="transient", scope="dependency", code="refused", is_unavailable=True),
)
TIMED_OUT = Failed(
    failure=read("timed out"), verdict=Verdict(kind="transient", scope="dependency", code="TimeoutError")
)


def under(gate: Gate | None = OPEN, budget_opens_at: int = 0) -> Conditions:
    return Conditions(now=NOW, u=0.5, gate=gate, budget_opens_at=budget_opens_at)


def answered(at: int) -> Conditions:
    """Return conditions in which a call that began at this moment succeeded."""
    return under(replace(OPEN, last_success_at=at))


def parked(*, outage: int) -> Job:
    return replace(RUNNING, parked_since_at=NOW - outage, spared=4)


def test_one_job_alone_is_spared_and_waits_for_its_dependency() -> None:
    decision = decide(RUNNING, REFUSED, POLICY, under())
    assert isinstance(decision, Park)
    assert (decision.gate, decision.waiting_for, decision.charged) == ("mail", "gate", False)
    assert (decision.due_at, decision.max_attempts) == (NOW + SECOND, 3)
    assert decision.cause.reason == "[Errno 111] Connection refused"
    after = evolve(RUNNING, decision, NOW)
    assert (after.charged, after.spared, after.parked_on, after.parked_since_at) == (0, 1, "mail", NOW)


def test_one_job_alone_is_charged_for_what_may_be_its_own() -> None:
    decision = decide(RUNNING, TIMED_OUT, POLICY, under())
    assert isinstance(decision, Retry)
    assert decision.charged


def test_a_task_without_a_dependency_is_charged() -> None:
    decision = decide(RUNNING, REFUSED, POLICY, under(None))
    assert isinstance(decision, Retry)
    assert decision.charged


@pytest.mark.parametrize(
    ("outage", "wait"),
    [
        (0, 1_000),
        (9_999, 1_000),
        (20_000, 2_000),
        (60_000, 6_000),
        (300_000, 30_000),
        (HOUR - 1, 30_000),
        (HOUR, 300_000),
        (20 * HOUR, 300_000),
        (-5_000, 1_000),
    ],
)
@pytest.mark.parametrize("gate", [OPEN, UNWELL])
def test_the_wait_is_a_tenth_of_the_jobs_own_outage(outage: int, wait: int, gate: Gate) -> None:
    decision = decide(parked(outage=outage), REFUSED, POLICY, under(gate))
    assert isinstance(decision, Park)
    assert decision.due_at == NOW + wait


def test_what_is_spared_for_other_reasons_waits_for_its_backoff() -> None:
    decision = decide(parked(outage=60_000), TIMED_OUT, POLICY, under(UNWELL))
    assert isinstance(decision, Retry)
    assert (decision.charged, decision.delay) == (False, 10.0)


def test_a_push_back_lengthens_the_wait() -> None:
    busy = Failed(failure=REFUSED.failure, verdict=replace(REFUSED.verdict, retry_after=45.0))
    decision = decide(RUNNING, busy, POLICY, under())
    assert isinstance(decision, Park)
    assert decision.due_at == NOW + 45_000


def test_the_wait_does_not_end_in_a_closed_window_nor_before_the_budget_has_room() -> None:
    policy = Policy(window=Window(closed="08:00-17:00"))
    decision = decide(RUNNING, REFUSED, policy, under())
    assert isinstance(decision, Park)
    assert decision.due_at == NOW + (8 * 3_600 + 6 * 60 + 40) * SECOND
    short = decide(RUNNING, REFUSED, POLICY, under(budget_opens_at=NOW + 60_000))
    assert isinstance(short, Park)
    assert (short.due_at, short.gate) == (NOW + 60_000, "mail")


def test_the_wait_ends_with_max_parked_and_with_the_deadline() -> None:
    policy = Policy(max_parked="1h")
    late = decide(parked(outage=HOUR), REFUSED, policy, under())
    assert isinstance(late, Dead)
    assert (late.death, late.charged, late.spared) == ("expired", False, True)
    assert isinstance(decide(parked(outage=HOUR - 1), REFUSED, policy, under()), Park)
    too_late = decide(replace(RUNNING, deadline_at=NOW + SECOND), REFUSED, POLICY, under())
    assert isinstance(too_late, Dead)
    assert (too_late.death, too_late.charged, too_late.spared, too_late.max_attempts) == ("expired", False, True, 3)
    assert isinstance(decide(replace(RUNNING, deadline_at=NOW + SECOND + 1), REFUSED, POLICY, under()), Park)


# others were served


def is_charged(job: Job, conditions: Conditions) -> bool:
    return decide_failure(job, REFUSED, POLICY, conditions).charged


def test_a_job_is_charged_when_another_was_served_since_its_own_outage_began() -> None:
    job = parked(outage=10_000)
    assert not is_charged(job, under())
    assert not is_charged(job, answered(NOW - 10_001))
    assert not is_charged(job, answered(NOW - 10_000))
    assert is_charged(job, answered(NOW - 9_999))


def test_a_first_failure_is_charged_only_when_another_call_began_later_and_succeeded() -> None:
    assert not is_charged(RUNNING, answered(LEASED))
    assert is_charged(RUNNING, answered(LEASED + 1))
    assert is_charged(replace(RUNNING, leased_at=None), answered(1))


def test_a_job_that_was_charged_for_the_same_is_charged_again_while_others_are_served() -> None:
    before = replace(RUNNING, charged=1, failed_at=NOW - 10_000, cause=Cause(reason="refused", code="refused"))
    assert is_charged(before, answered(NOW - 9_000))
    assert not is_charged(before, answered(NOW - 11_000))
    # Another error, or a retry that a person asked for, is a new beginning.
    other = replace(before, cause=Cause(reason="busy", code="450"))
    assert not is_charged(other, answered(NOW - 9_000))
    assert not is_charged(replace(before, cause=None), answered(NOW - 9_000))
    assert not is_charged(replace(before, is_manual=True), answered(NOW - 9_000))


def test_a_dead_host_beside_healthy_ones_is_dead_after_its_attempts_and_one_failure_that_was_spared() -> None:
    job, now, calls = replace(RUNNING, state="waiting"), NOW, 0
    while job.state == "waiting":
        job = evolve(job, Start(session="w"), now)
        gate = replace(OPEN, last_success_at=now - 1)  # others are served all the time, but not in this very moment
        conditions = Conditions(now=now + 20, u=0.5, gate=gate)
        job = evolve(job, decide(job, REFUSED, POLICY, conditions), now + 20)
        calls, now = calls + 1, job.due_at
    assert (job.death, job.charged, job.spared, calls) == ("exhausted", 3, 1, 4)


def test_a_person_who_retries_a_job_in_an_outage_loses_it_no_attempt() -> None:
    dead = replace(RUNNING, state="dead", charged=3, failed_at=NOW - HOUR, cause=Cause(reason="x", code="refused"))
    again = evolve(dead, ManualRetry(by="ana", reason="they are back", due_at=NOW, granted=1), NOW)
    running = evolve(again, Start(session="w"), NOW)
    decision = decide(
        running, REFUSED, POLICY, Conditions(now=NOW + 5, u=0.5, gate=replace(OPEN, last_success_at=NOW - 5))
    )
    assert isinstance(decision, Park)


# properties


@given(st.integers(0, 30 * 24 * 3_600_000), st.none() | st.integers(0, 30 * 24 * 3_600_000))
def test_the_wait_is_at_least_a_second_and_at_most_five_minutes(outage: int, ago: int | None) -> None:
    gate = replace(OPEN, last_success_at=None if ago is None else NOW - ago)
    decision = decide_failure(parked(outage=outage), REFUSED, presets.mta, under(gate))
    if isinstance(decision, Park):
        assert SECOND <= decision.due_at - NOW <= 300 * SECOND
        assert decision.due_at - NOW <= max(SECOND, outage / 10 + 1)
        assert ago is None or ago >= outage
    else:
        assert decision.charged or outage >= 5 * 24 * HOUR


@given(st.integers(1, 6 * 3_600), st.integers(0, 200))
def test_every_outage_of_one_job_is_survived_and_it_is_back_within_a_tenth_of_it(outage: int, call: int) -> None:
    job, now, back_at = replace(RUNNING, state="waiting"), NOW, NOW + outage * SECOND
    while now < back_at:
        job = evolve(job, Start(session="w"), now)
        decision = decide(job, REFUSED, POLICY, Conditions(now=now + call, u=0.5, gate=OPEN))
        assert isinstance(decision, Park)
        job, now = evolve(job, decision, now + call), decision.due_at
    late, at_most = now - back_at, 30 if outage < 3_600 else 300
    assert late <= max(SECOND, min(at_most * SECOND, outage * SECOND // 10 + 1)) + call
    assert job.charged == 0
