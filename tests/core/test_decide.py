"""What follows an attempt."""

import math

import pytest
from msgspec.structs import replace

from reprieve import presets
from reprieve.core.backoff import Backoff, Decorrelated, Exponential, Formula, fixed
from reprieve.core.decide import MAX_LOST_SESSIONS, Conditions, decide, decide_failure
from reprieve.core.duration import MAX_DURATION_SECONDS
from reprieve.core.failure import Failure, read
from reprieve.core.gate import Gate, signal_of
from reprieve.core.job import CancelRequest, Job, Suspicion
from reprieve.core.move import Cancel, Dead, Park, Retry, Return, Snooze, Start, Succeed, evolve
from reprieve.core.outcome import (
    Crashed,
    Failed,
    Interrupted,
    Outcome,
    Snoozed,
    Stopped,
    Succeeded,
    overran,
    undecodable,
)
from reprieve.core.policy import Policy
from reprieve.core.rule import Rule
from reprieve.core.verdict import Kind, Scope, Verdict
from reprieve.core.window import Window

NOW = 1_760_000_000_000
RUNNING = Job(
    id="j",
    task="send",
    dependency="ses",
    created_at=NOW - 1_000,
    due_at=NOW - 1_000,
    state="running",
    attempt=1,
)
POLICY = Policy(max_attempts=3, backoff=fixed("10s"))
NORMAL = Conditions(now=NOW, u=0.5)
OPEN = Gate(dependency="ses")
UNWELL = Gate(dependency="ses", failing=0.5, failed_jobs=("a", "b", "c"))
LONELY = Gate(dependency="ses", failing=1.0, failed_jobs=("j", "k"))
HELD = Gate(dependency="ses", mode="held", probe_at=NOW + 5_000)
PROBING = Gate(dependency="ses", mode="probing", ramp=4)


def failed(
    kind: Kind = "transient",
    scope: Scope = "dependency",
    retry_after: float | None = None,
    message: str = "421 down",
) -> Failed:
    verdict = Verdict(kind=kind, scope=scope, code="421", retry_after=retry_after, rule="test")
    return Failed(failure=read(message), verdict=verdict)


def under(gate: Gate | None, budget_opens_at: int = 0) -> Conditions:
    return Conditions(now=NOW, u=0.5, gate=gate, budget_opens_at=budget_opens_at)


def job(**changes: object) -> Job:
    facts = {name: getattr(RUNNING, name) for name in RUNNING.__struct_fields__}
    return Job(**{**facts, **changes})


def test_a_success_succeeds() -> None:
    assert decide(RUNNING, Succeeded(), POLICY, NORMAL) == Succeed()


def test_a_failure_that_can_pass_waits_for_its_backoff_and_is_charged() -> None:
    decision = decide(RUNNING, failed(), POLICY, NORMAL)
    assert isinstance(decision, Retry)
    assert (decision.due_at, decision.delay, decision.charged) == (NOW + 10_000, 10.0, True)
    assert decision.max_attempts == 3
    assert (decision.cause.reason, decision.cause.code, decision.cause.kind) == (
        "421 down",
        "421",
        "transient",
    )
    assert decision.cause.fingerprint


def test_an_unknown_failure_is_retried_too() -> None:
    assert isinstance(decide(RUNNING, failed("unknown", "job"), POLICY, NORMAL), Retry)


def test_the_wait_follows_the_failures_that_are_charged() -> None:
    decision = decide(job(charged=1, spared=9), failed(), presets.swift, NORMAL)
    assert isinstance(decision, Retry)
    assert decision.delay == 5


def test_the_wait_is_drawn_by_chance() -> None:
    early = decide(RUNNING, failed(), presets.email, Conditions(now=NOW, u=0.0))
    late = decide(RUNNING, failed(), presets.email, Conditions(now=NOW, u=0.75))
    assert isinstance(early, Retry)
    assert isinstance(late, Retry)
    assert (early.delay, late.delay) == (0.75, 1.125)
    assert late.due_at == NOW + 1_125


def test_a_backoff_that_continues_gets_the_wait_before() -> None:
    policy = Policy(backoff=Decorrelated("1s"))
    decision = decide(job(charged=1, delay=10.0), failed(), policy, NORMAL)
    assert isinstance(decision, Retry)
    assert decision.delay == 1 + 29 / 2
    first = decide(RUNNING, failed(), policy, NORMAL)
    assert isinstance(first, Retry)
    assert first.delay == 2


def test_the_last_attempt_that_fails_is_the_end() -> None:
    assert isinstance(decide(job(charged=1), failed(), POLICY, NORMAL), Retry)
    decision = decide(job(charged=2), failed(), POLICY, NORMAL)
    assert isinstance(decision, Dead)
    assert (decision.death, decision.charged, decision.spared, decision.crashed) == ("exhausted", True, False, False)
    assert decision.max_attempts == 3
    assert decision.cause.reason == "421 down"


def test_what_people_granted_moves_the_limit() -> None:
    assert isinstance(decide(job(charged=2, granted=1), failed(), POLICY, NORMAL), Retry)
    assert isinstance(decide(job(charged=3, granted=1), failed(), POLICY, NORMAL), Dead)


def test_without_a_limit_only_the_deadline_ends_a_job() -> None:
    assert isinstance(decide(job(charged=10_000), failed(), presets.mta, NORMAL), Retry)


@pytest.mark.parametrize(("kind", "death"), [("permanent", "permanent"), ("poison", "poison")])
def test_a_failure_that_cannot_pass_is_dead_at_once(kind: Kind, death: str) -> None:
    decision = decide(RUNNING, failed(kind, "job"), POLICY, under(HELD))
    assert isinstance(decision, Dead)
    assert (decision.death, decision.charged) == (death, True)


def test_what_cannot_be_decoded_is_dead_at_once() -> None:
    decision = decide(RUNNING, undecodable("task 'send' is not registered here"), POLICY, NORMAL)
    assert isinstance(decision, Dead)
    assert (decision.death, decision.cause.code) == ("undecodable", "undecodable")
    assert decision.cause.reason == "task 'send' is not registered here"
    assert decision.cause.kind == "permanent"


def test_an_attempt_that_ran_too_long_fails_and_may_pass() -> None:
    decision = decide(RUNNING, overran(RUNNING, 30, NOW), POLICY, under(OPEN))
    assert isinstance(decision, Retry)
    assert (decision.cause.reason, decision.cause.code) == ("timed out after 30 s", "timeout")
    assert decision.charged
    assert isinstance(decide(RUNNING, overran(RUNNING, 30, NOW), POLICY, under(HELD)), Park)


@pytest.mark.parametrize("max_attempts", [1, 5])
def test_an_attempt_that_is_stopped_at_its_deadline_expires(max_attempts: int) -> None:
    late = job(deadline_at=NOW)
    outcome = overran(late, 30, NOW)
    decision = decide(late, outcome, Policy(max_attempts=max_attempts), under(OPEN))
    assert isinstance(decision, Dead)
    assert (decision.death, decision.charged) == ("expired", True)
    assert (decision.cause.reason, decision.cause.code) == ("its deadline passed while it ran", "expired")
    # The dependency is not to blame, and has not responded either.
    assert signal_of("j", outcome, NOW) is None
    assert overran(job(deadline_at=NOW + 1), 30, NOW).verdict.code == "timeout"


def test_a_push_back_lengthens_the_wait_and_never_shortens_it() -> None:
    longer = decide(RUNNING, failed(retry_after=60), POLICY, NORMAL)
    shorter = decide(RUNNING, failed(retry_after=2), POLICY, NORMAL)
    assert isinstance(longer, Retry)
    assert isinstance(shorter, Retry)
    assert (longer.due_at, shorter.due_at) == (NOW + 60_000, NOW + 10_000)
    # What the backoff chose is remembered, not what the other side asked for: the next wait follows from it.
    assert (longer.delay, shorter.delay) == (10, 10)


def test_the_task_itself_may_choose_the_wait() -> None:
    asked = Failed(failure=read("x"), verdict=Verdict(kind="transient"), retry_in=3)
    decision = decide(RUNNING, asked, POLICY, NORMAL)
    assert isinstance(decision, Retry)
    assert (decision.delay, decision.due_at, decision.charged) == (3, NOW + 3_000, True)


@pytest.mark.parametrize("wait", [0.0, -5.0, math.nan])
def test_no_retry_follows_at_once(wait: float) -> None:
    asked = Failed(failure=read("x"), verdict=Verdict(kind="transient", retry_after=-5.0), retry_in=wait)
    decision = decide(RUNNING, asked, POLICY, NORMAL)
    assert isinstance(decision, Retry)
    assert decision.due_at == NOW + 1


def test_a_held_gate_parks_without_spending_an_attempt() -> None:
    for gate in (HELD, PROBING):
        decision = decide(job(charged=2), failed(), POLICY, under(gate))
        assert isinstance(decision, Park)
        assert (decision.gate, decision.waiting_for) == ("ses", "gate")
        assert decision.cause.reason == "421 down"


@pytest.mark.parametrize(
    ("probe_at", "due_at"),
    [
        (None, NOW + 1_000),
        (NOW - 5_000, NOW + 1_000),
        (NOW + 700, NOW + 1_000),
        (NOW + 5_000, NOW + 5_250),
        (NOW + 30_000, NOW + 30_250),
        (NOW + 3_600_000, NOW + 30_250),
    ],
)
def test_a_parked_job_lets_another_be_the_next_probe_but_stays_aside_no_longer(
    probe_at: int | None, due_at: int
) -> None:
    decision = decide(RUNNING, failed(), POLICY, under(replace(HELD, probe_at=probe_at)))
    assert isinstance(decision, Park)
    assert decision.due_at == due_at


def test_a_failure_of_the_job_itself_is_charged_whatever_the_gate() -> None:
    decision = decide(job(charged=2), failed(scope="job"), POLICY, under(HELD))
    assert isinstance(decision, Dead)
    assert decision.death == "exhausted"


def test_a_failure_is_charged_only_when_the_dependency_is_otherwise_well() -> None:
    well = decide(RUNNING, failed(), POLICY, under(OPEN))
    unwell = decide(job(charged=2), failed(), POLICY, under(UNWELL))
    assert isinstance(well, Retry)
    assert well.charged
    assert isinstance(unwell, Retry)
    assert not unwell.charged
    lonely = decide(RUNNING, failed(), POLICY, under(LONELY))
    assert isinstance(lonely, Retry)
    assert lonely.charged


def test_spared_failures_lengthen_the_wait() -> None:
    decision = decide(job(charged=1, spared=1), failed(), presets.swift, under(UNWELL))
    assert isinstance(decision, Retry)
    assert decision.delay == 25


def test_a_throttled_call_is_not_charged_where_there_is_a_gate() -> None:
    gated = decide(job(charged=2), failed("throttled"), POLICY, under(OPEN))
    ungated = decide(job(charged=2), failed("throttled"), POLICY, under(None))
    assert isinstance(gated, Retry)
    assert not gated.charged
    assert isinstance(ungated, Dead)


def test_a_job_parked_for_too_long_expires() -> None:
    policy = Policy(max_parked="1h")
    parked = job(parked_since_at=NOW - 3_600_000)
    for gate in (HELD, UNWELL):
        decision = decide(parked, failed(), policy, under(gate))
        assert isinstance(decision, Dead)
        assert (decision.death, decision.charged, decision.spared) == ("expired", False, True)
        assert decision.max_attempts == 10
    assert isinstance(decide(job(parked_since_at=NOW - 3_599_999), failed(), policy, under(HELD)), Park)


def test_no_job_is_parked_past_its_deadline() -> None:
    assert isinstance(decide(job(deadline_at=NOW + 1), failed(), POLICY, under(HELD)), Park)
    decision = decide(job(deadline_at=NOW), failed(), POLICY, under(HELD))
    assert isinstance(decision, Dead)
    assert decision.death == "expired"


def test_a_retry_that_would_start_at_its_deadline_or_later_expires() -> None:
    assert isinstance(decide(job(deadline_at=NOW + 10_001), failed(), POLICY, NORMAL), Retry)
    decision = decide(job(deadline_at=NOW + 10_000), failed(), POLICY, NORMAL)
    assert isinstance(decision, Dead)
    assert (decision.death, decision.charged) == ("expired", True)


def test_a_retry_in_a_closed_window_moves_to_its_end() -> None:
    policy = Policy(backoff=fixed("1s"), window=Window(closed="08:00-17:00"))
    decision = decide(RUNNING, failed(), policy, NORMAL)
    assert isinstance(decision, Retry)
    assert decision.due_at == NOW + (8 * 3_600 + 6 * 60 + 40) * 1_000
    assert decision.delay == 1
    expiring = decide(job(deadline_at=NOW + 3_600_000), failed(), policy, NORMAL)
    assert isinstance(expiring, Dead)


def test_an_empty_budget_parks_until_it_has_room() -> None:
    decision = decide(RUNNING, failed(), POLICY, under(None, NOW + 60_000))
    assert isinstance(decision, Park)
    assert (decision.gate, decision.waiting_for, decision.due_at) == ("budget", "budget", NOW + 60_000)
    assert (decision.cause.code, decision.max_attempts) == ("421", 3)


def test_an_empty_budget_makes_a_job_wait_and_its_own_failures_still_count() -> None:
    own = decide(job(charged=1), failed(scope="job"), POLICY, under(UNWELL, NOW + 60_000))
    theirs = decide(job(charged=1), failed(), POLICY, under(UNWELL, NOW + 60_000))
    assert isinstance(own, Park)
    assert isinstance(theirs, Park)
    assert (own.charged, theirs.charged) == (True, False)
    last = decide(job(charged=2), failed(scope="job"), POLICY, under(None, NOW + 60_000))
    assert isinstance(last, Dead)


def test_no_wait_ends_in_a_closed_window() -> None:
    policy = Policy(max_attempts=3, window=Window(closed="08:00-17:00"))
    evening = NOW + (8 * 3_600 + 6 * 60 + 40) * 1_000
    parked = decide(RUNNING, failed(), policy, under(HELD))
    short_of_budget = decide(RUNNING, failed(), policy, under(None, NOW + 60_000))
    assert isinstance(parked, Park)
    assert isinstance(short_of_budget, Park)
    assert (parked.due_at, short_of_budget.due_at) == (evening, evening)


def test_a_spared_retry_is_never_a_hot_loop_and_ends() -> None:
    policy = Policy(max_attempts=3, backoff=fixed(0), max_parked="1h")
    running, now, calls = RUNNING, NOW, 0
    while running.state == "running":
        conditions = Conditions(now=now, u=0.5, gate=UNWELL)
        waiting = evolve(running, decide(running, failed("throttled"), policy, conditions), now)
        assert waiting.state == "dead" or waiting.due_at >= now + 1_000
        calls, now = calls + 1, waiting.due_at
        running = waiting if waiting.state == "dead" else evolve(waiting, Start(session="w"), now)
    assert (running.death, running.charged) == ("expired", 0)
    assert calls <= 3_602


def _raise(_: int) -> float:
    raise ZeroDivisionError


class WildJitter:
    def spread(self, raw: float, cap: float, u: float) -> float:
        return math.inf


@pytest.mark.parametrize(
    "backoff", [Formula(_raise), Formula(lambda k: 2.0 ** (k * 2_000)), Exponential("1s", jitter=WildJitter())]
)
def test_a_backoff_that_fails_does_not_stop_the_job(backoff: Backoff) -> None:
    decision = decide(RUNNING, failed(), Policy(backoff=backoff), NORMAL)
    assert isinstance(decision, Retry)
    assert decision.delay in (1.5, MAX_DURATION_SECONDS)


def test_a_budget_that_opens_sooner_does_not_shorten_the_wait() -> None:
    decision = decide(RUNNING, failed(), POLICY, under(None, NOW + 1))
    assert isinstance(decision, Park)
    assert decision.due_at == NOW + 10_000
    assert isinstance(decide(RUNNING, failed(), POLICY, under(None, NOW)), Retry)


def test_a_budget_that_opens_after_the_deadline_is_too_late() -> None:
    decision = decide(job(deadline_at=NOW + 60_000), failed(), POLICY, under(None, NOW + 60_000))
    assert isinstance(decision, Dead)
    assert isinstance(decide(job(deadline_at=NOW + 60_001), failed(), POLICY, under(None, NOW + 60_000)), Park)


def test_a_rule_may_change_the_wait_and_the_limit() -> None:
    policy = Policy(
        max_attempts=3,
        backoff=fixed("10s"),
        rules=[Rule(message="slow", backoff=fixed("7m")), Rule(message="stubborn", max_attempts=2)],
    )
    slow = decide(RUNNING, failed(message="slow"), policy, NORMAL)
    assert isinstance(slow, Retry)
    assert (slow.delay, slow.max_attempts) == (420, 3)
    wrapped = Failed(failure=Failure(message="x", cause=read("slow")), verdict=Verdict(kind="transient"))
    caused = decide(RUNNING, wrapped, policy, NORMAL)
    assert isinstance(caused, Retry)
    assert caused.delay == 420
    stubborn = decide(RUNNING, failed(message="stubborn"), policy, NORMAL)
    assert isinstance(stubborn, Retry)
    assert (stubborn.delay, stubborn.max_attempts) == (10, 2)
    ended = decide(job(charged=1), failed(message="stubborn"), policy, NORMAL)
    assert isinstance(ended, Dead)
    assert ended.max_attempts == 2
    assert isinstance(decide(job(charged=1), failed(message="slow"), policy, NORMAL), Retry)


def test_a_snooze_waits_and_costs_nothing() -> None:
    assert decide(RUNNING, Snoozed(delay=90), POLICY, NORMAL) == Snooze(due_at=NOW + 90_000)


@pytest.mark.parametrize("delay", [0.0, -1.0, math.nan])
def test_a_snooze_is_never_a_hot_loop(delay: float) -> None:
    assert decide(RUNNING, Snoozed(delay=delay), POLICY, NORMAL) == Snooze(due_at=NOW + 100)


def test_a_snooze_past_the_deadline_expires() -> None:
    decision = decide(job(deadline_at=NOW + 90_000), Snoozed(delay=90), POLICY, NORMAL)
    assert isinstance(decision, Dead)
    assert (decision.death, decision.cause.reason, decision.cause.code) == (
        "expired",
        "snoozed past its deadline",
        "expired",
    )
    assert not decision.charged
    assert isinstance(decide(job(deadline_at=NOW + 90_001), Snoozed(delay=90), POLICY, NORMAL), Snooze)


def test_an_interrupted_job_goes_back_uncharged() -> None:
    assert decide(RUNNING, Interrupted(), POLICY, NORMAL) == Return(crashed=False)
    assert decide(RUNNING, Interrupted(started=False), POLICY, NORMAL) == Return(started=False)


def test_a_job_that_only_lay_in_a_dead_worker_is_no_suspect() -> None:
    assert decide(job(crashes=2), Crashed(started=False), POLICY, NORMAL) == Return(started=False)


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (Suspicion(processes=2), "its process died 3 times while running it"),
        # The loss that made it a suspect counts once, however many sessions were lost.
        (Suspicion(processes=1, sessions=1), "its process died 3 times while running it"),
        (Suspicion(processes=1, sessions=8), "its process died 3 times while running it"),
    ],
)
def test_a_job_that_takes_its_own_process_down_too_often_is_poison(before: Suspicion, reason: str) -> None:
    fewer = replace(before, processes=before.processes - 1)
    once_more = Return(crashed=True, alone=True)
    assert decide(job(suspicion=fewer), Crashed(alone=True), POLICY, NORMAL) == once_more
    decision = decide(job(suspicion=before), Crashed(alone=True), POLICY, NORMAL)
    assert isinstance(decision, Dead)
    assert (decision.death, decision.crashed, decision.alone, decision.charged) == ("poison", True, True, False)
    assert (decision.cause.reason, decision.cause.code, decision.cause.kind) == (reason, "poison", "poison")


def test_a_job_whose_sessions_are_lost_is_poison_only_after_very_many() -> None:
    for lost in range(MAX_LOST_SESSIONS - 1):
        suspect = job(suspicion=Suspicion(sessions=lost, processes=2), crashes=99)
        assert decide(suspect, Crashed(), POLICY, NORMAL) == Return(crashed=True)
    decision = decide(job(suspicion=Suspicion(sessions=MAX_LOST_SESSIONS - 1)), Crashed(), POLICY, NORMAL)
    assert isinstance(decision, Dead)
    assert (decision.death, decision.alone) == ("poison", False)
    assert decision.cause.reason == "10 workers in a row died while running it"


def test_earlier_crashes_of_a_job_that_was_cleared_do_not_count() -> None:
    assert decide(job(crashes=99), Crashed(alone=True), POLICY, NORMAL) == Return(crashed=True, alone=True)


def test_a_task_that_stops_itself_is_cancelled() -> None:
    assert decide(RUNNING, Stopped(reason="order was withdrawn"), POLICY, NORMAL) == Cancel(
        reason="order was withdrawn"
    )


@pytest.mark.parametrize("outcome", [failed(), Snoozed(delay=1), Interrupted(), Crashed(), Crashed(started=False)])
def test_a_cancel_request_wins_over_everything_but_success(outcome: Outcome) -> None:
    wanted = job(cancel_request=CancelRequest(by="ana", reason="sent twice"))
    assert decide(wanted, outcome, POLICY, NORMAL) == Cancel(by="ana", reason="sent twice")
    assert decide(wanted, Succeeded(), POLICY, NORMAL) == Succeed()


def test_a_failure_always_has_a_reason() -> None:
    silent = Failed(failure=Failure(message=""), verdict=Verdict(kind="permanent"))
    decision = decide_failure(RUNNING, silent, POLICY, NORMAL)
    assert isinstance(decision, Dead)
    assert decision.cause.reason == "unknown error"
    typed = Failed(failure=Failure(message="", types=("a.KeyError",)), verdict=Verdict(kind="permanent"))
    assert decide_failure(RUNNING, typed, POLICY, NORMAL).cause.reason == "KeyError"
    keyed = Failed(failure=Failure(message="'answer'", types=("KeyError",)), verdict=Verdict(kind="permanent"))
    assert decide_failure(RUNNING, keyed, POLICY, NORMAL).cause.reason == "KeyError: 'answer'"


def test_failures_that_differ_only_in_what_varies_have_one_fingerprint() -> None:
    one = decide_failure(RUNNING, failed(message="421 4.3.2 mx1 down (id 12345)"), POLICY, NORMAL)
    two = decide_failure(RUNNING, failed(message="421 4.3.2 mx1 down (id 99)"), POLICY, NORMAL)
    other = decide_failure(RUNNING, failed(message="450 mailbox busy"), POLICY, NORMAL)
    assert one.cause.fingerprint == two.cause.fingerprint != other.cause.fingerprint


def test_a_backoff_that_raises_is_replaced_and_the_caller_is_told() -> None:
    told: list[tuple[str, type]] = []
    conditions = Conditions(now=NOW, u=0.5, on_error=lambda part, error: told.append((part, type(error))))
    policy = Policy(max_attempts=3, backoff=Formula(_raise))
    assert isinstance(decide(RUNNING, failed(), policy, conditions), Retry)
    assert told == [("backoff", ZeroDivisionError)]


def test_a_spared_job_knows_until_when_it_may_wait_for_its_dependency() -> None:
    policy = Policy(max_parked="1h")
    for gate in (HELD, UNWELL):
        first = decide(job(), failed(), policy, under(gate))
        again = decide(job(parked_since_at=NOW - 60_000), failed(), policy, under(gate))
        assert isinstance(first, Park | Retry)
        assert isinstance(again, Park | Retry)
        assert (first.parked_until_at, again.parked_until_at) == (NOW + 3_600_000, NOW + 3_540_000)
    charged = decide(job(), failed(), policy, under(OPEN))
    assert isinstance(charged, Retry)
    assert charged.parked_until_at is None
