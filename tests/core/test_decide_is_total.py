"""Properties of the decision over every job, failure and policy that can be thought of."""

from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from reprieve.core.backoff import (
    STANDARD,
    Backoff,
    Bounded,
    Decorrelated,
    Equal,
    Exponential,
    Formula,
    Full,
    Linear,
    PlusMinus,
    Steps,
)
from reprieve.core.decide import Conditions, decide, decide_failure
from reprieve.core.duration import MAX_DURATION_SECONDS
from reprieve.core.failure import Failure
from reprieve.core.gate import Gate, Mode
from reprieve.core.job import CancelRequest, Cause, Job, Suspicion
from reprieve.core.move import Cancel, Dead, Park, Retry, Return, Snooze, Start, Succeed, evolve
from reprieve.core.outcome import Crashed, Failed, Interrupted, Outcome, Snoozed, Stopped, Succeeded
from reprieve.core.policy import Policy
from reprieve.core.rule import Rule
from reprieve.core.verdict import Kind, Scope, Verdict
from reprieve.core.window import Window

NOW = 1_760_000_000_000
WAITS = st.floats(0, 1e6)
JITTERS = st.sampled_from([0.0, 0.25, PlusMinus(1.0, cap_last=True), Full(), Full("1s"), Equal(), Bounded(0.5)])
BACKOFFS: st.SearchStrategy[Backoff] = st.one_of(
    st.builds(Exponential, WAITS, factor=st.floats(1, 10), cap=st.none() | WAITS, jitter=JITTERS),
    st.builds(Linear, WAITS, step=st.none() | WAITS, cap=st.none() | WAITS, jitter=JITTERS),
    st.builds(Decorrelated, WAITS, cap=st.none() | WAITS),
    st.lists(WAITS, min_size=1, max_size=5).map(lambda waits: Steps(*waits)),
    st.floats(allow_nan=True, allow_infinity=True).map(lambda answer: Formula(lambda _: answer)),
)
WINDOWS = st.sampled_from(
    [None, Window(closed="mon-fri 09:00-17:00"), Window(open="sun 03:00-04:00", zone="Asia/Tokyo")]
)
RULES = st.sampled_from(
    [
        (),
        (Rule(code="421", max_attempts=2),),
        (Rule(message="x", backoff=Steps("1m")), Rule(code="4*", max_attempts=50)),
    ]
)
POLICIES = st.builds(
    Policy,
    max_attempts=st.integers(1, 20),
    backoff=BACKOFFS | st.just(Formula(lambda failures: 1 / (failures - 1))),
    rules=RULES,
    window=WINDOWS,
    max_crashes=st.integers(1, 5),
    max_parked=WAITS,
)
JOBS = st.builds(
    Job,
    id=st.just("j"),
    task=st.just("send"),
    dependency=st.sampled_from(["", "ses"]),
    state=st.just("running"),
    created_at=st.just(NOW),
    due_at=st.just(NOW),
    attempt=st.integers(1, 100),
    charged=st.integers(0, 25),
    spared=st.integers(0, 1_000),
    crashes=st.integers(0, 6),
    suspicion=st.none() | st.builds(Suspicion, sessions=st.integers(0, 12), processes=st.integers(0, 6)),
    granted=st.integers(0, 5),
    delay=WAITS,
    deadline_at=st.none() | st.integers(NOW - 10**6, NOW + 10**9),
    parked_since_at=st.none() | st.integers(NOW - 10**9, NOW),
    leased_at=st.none() | st.integers(NOW - 10**5, NOW),
    failed_at=st.none() | st.integers(NOW - 10**9, NOW),
    cause=st.none() | st.builds(Cause, reason=st.just("x"), code=st.sampled_from(["", "421"])),
    is_manual=st.booleans(),
    cancel_request=st.none() | st.builds(CancelRequest, by=st.just("ana"), reason=st.just("sent twice")),
)
VERDICTS = st.builds(
    Verdict,
    kind=st.sampled_from(get_args(Kind)),
    scope=st.sampled_from(get_args(Scope)),
    code=st.sampled_from(["", "421", "550"]),
    retry_after=st.none() | st.floats(allow_nan=False, allow_infinity=True),
    is_unavailable=st.booleans(),
)
FAILURES = st.builds(
    Failed, failure=st.builds(Failure, message=st.text(), code=st.sampled_from(["", "421"])), verdict=VERDICTS
)
OUTCOMES: st.SearchStrategy[Outcome] = st.one_of(
    FAILURES,
    st.builds(Succeeded),
    st.builds(Snoozed, delay=st.floats(allow_nan=True, allow_infinity=True)),
    st.builds(Stopped),
    st.builds(Interrupted),
    st.builds(Crashed, started=st.booleans(), alone=st.booleans()),
)
GATES = st.none() | st.builds(
    Gate,
    dependency=st.just("ses"),
    mode=st.sampled_from(get_args(Mode)),
    failing=st.floats(0, 1),
    failed_jobs=st.sampled_from([(), ("a", "b", "c")]),
    last_success_at=st.none() | st.integers(NOW - 10**9, NOW),
)
CONDITIONS = st.builds(
    Conditions,
    now=st.just(NOW),
    u=st.floats(0, 1, exclude_max=True),
    gate=GATES,
    budget_opens_at=st.sampled_from([0, NOW, NOW + 1, NOW + 10**7]),
)


def limit_of(job: Job, failed: Failed, policy: Policy) -> int:
    rule = policy.rule_for(failed.failure)
    attempts = rule.max_attempts if rule and rule.max_attempts else policy.max_attempts
    assert attempts is not None
    return attempts + job.granted


@settings(max_examples=500)
@given(JOBS, OUTCOMES, POLICIES, CONDITIONS)
def test_every_outcome_has_an_answer_that_the_job_can_take(
    job: Job, outcome: Outcome, policy: Policy, conditions: Conditions
) -> None:
    decision = decide(job, outcome, policy, conditions)
    assert isinstance(decision, Retry | Park | Dead | Succeed | Snooze | Return | Cancel)
    after = evolve(job, decision, NOW)
    assert after.state != "running"
    assert after.state != "waiting" or after.due_at >= NOW


@settings(max_examples=500)
@given(JOBS, FAILURES, POLICIES, CONDITIONS)
def test_a_failed_attempt_ends_in_retry_park_or_dead(
    job: Job, failed: Failed, policy: Policy, conditions: Conditions
) -> None:
    decision = decide_failure(job, failed, policy, conditions)
    after = evolve(job, decision, NOW)
    match decision:
        case Retry():
            assert failed.verdict.is_retryable
            assert decision.due_at > NOW
            assert job.deadline_at is None or decision.due_at < job.deadline_at
            assert policy.window is None or policy.window.opens_at(decision.due_at) == decision.due_at
            assert after.charged - job.charged == int(decision.charged)
            if decision.charged:
                assert after.charged < limit_of(job, failed, policy)
        case Park():
            assert failed.verdict.is_retryable
            assert decision.due_at > NOW
            assert policy.window is None or policy.window.opens_at(decision.due_at) == decision.due_at
            assert after.charged - job.charged == int(decision.charged)
            assert not decision.charged or decision.waiting_for == "budget"
        case Dead(death="exhausted"):
            assert failed.verdict.is_retryable
            assert job.charged + 1 >= limit_of(job, failed, policy)
        case Dead(death="expired"):
            assert failed.verdict.is_retryable
            assert job.deadline_at is not None or job.parked_since_at is not None
        case Dead(death=death):
            assert not failed.verdict.is_retryable
            assert death == ("poison" if failed.verdict.kind == "poison" else "permanent")
    assert decision.cause.reason


@settings(max_examples=500)
@given(JOBS, FAILURES, POLICIES, CONDITIONS)
def test_a_push_back_is_never_shortened(job: Job, failed: Failed, policy: Policy, conditions: Conditions) -> None:
    decision = decide_failure(job, failed, policy, conditions)
    wanted = failed.verdict.retry_after
    if isinstance(decision, Retry) and wanted is not None and 0 <= wanted < 1e8:
        assert decision.due_at - NOW >= wanted * 1_000 - 1e-6


@settings(max_examples=500)
@given(JOBS, POLICIES, st.floats(0, 1, exclude_max=True))
def test_the_wait_lies_within_what_the_backoff_allows(job: Job, policy: Policy, u: float) -> None:
    failed = Failed(failure=Failure(message="y"), verdict=Verdict(kind="transient"))
    open_policy = _without_window(policy)
    decision = decide_failure(replace(job, deadline_at=None), failed, open_policy, Conditions(now=NOW, u=u))
    if isinstance(decision, Retry):
        try:
            expected = policy.backoff.delay(job.charged + 1, u, job.delay or None)
        except ZeroDivisionError:
            expected = STANDARD.delay(job.charged + 1, u)
        assert decision.delay == max(0.001, min(expected, MAX_DURATION_SECONDS))
        assert -1e-6 <= decision.due_at - NOW - decision.delay * 1_000 <= 1


@settings(max_examples=200)
@given(POLICIES, st.floats(0, 1, exclude_max=True), st.booleans(), st.sampled_from(get_args(Scope)))
def test_every_job_that_always_fails_comes_to_an_end(policy: Policy, u: float, is_unwell: bool, scope: Scope) -> None:
    policy = Policy(max_attempts=policy.max_attempts, backoff=policy.backoff, window=policy.window, max_parked="30m")
    gate = Gate(dependency="ses", failing=0.9, failed_jobs=("a", "b", "c") if is_unwell else ())
    failed = Failed(failure=Failure(message="down"), verdict=Verdict(kind="throttled", scope=scope))
    job, now = Job(id="j", task="send", dependency="ses", created_at=NOW, due_at=NOW), NOW
    for _ in range(1_900):
        running = evolve(job, Start(session="w"), now)
        job = evolve(running, decide(running, failed, policy, Conditions(now=now, u=u, gate=gate)), now)
        if job.state == "dead":
            break
        now = job.due_at
    assert job.death in ("exhausted", "expired")


@settings(max_examples=300)
@given(JOBS, POLICIES, CONDITIONS, st.lists(FAILURES, min_size=30, max_size=30))
def test_no_history_charges_more_than_the_limit(
    job: Job, policy: Policy, conditions: Conditions, failures: list[Failed]
) -> None:
    policy = _replace_rules(policy)
    job = replace(job, charged=0, deadline_at=None, cancel_request=None)
    for failed in failures:
        job = evolve(job, decide_failure(job, failed, policy, conditions), NOW)
        assert policy.max_attempts is not None
        assert job.charged <= policy.max_attempts + job.granted
        if job.state == "dead":
            break
        job = replace(job, state="running")


@given(
    JOBS,
    POLICIES,
    CONDITIONS,
    st.sampled_from([Snoozed(delay=1), Interrupted(), Crashed(), Crashed(started=False)]),
)
def test_what_is_no_failure_never_moves_the_limit(
    job: Job, policy: Policy, conditions: Conditions, outcome: Outcome
) -> None:
    after = evolve(job, decide(job, outcome, policy, conditions), NOW)
    assert (after.charged, after.granted, after.attempt) == (job.charged, job.granted, job.attempt)


def _without_window(policy: Policy) -> Policy:
    return Policy(max_attempts=policy.max_attempts, backoff=policy.backoff, max_parked=policy.max_parked)


def _replace_rules(policy: Policy) -> Policy:
    return Policy(max_attempts=policy.max_attempts, backoff=policy.backoff, max_parked="10d")
