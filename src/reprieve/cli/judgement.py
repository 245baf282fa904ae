"""A judgement: the verdict on the text of an error, and what a policy would decide."""

from typing import Literal, assert_never

from reprieve.cli.schedule import MAX_U
from reprieve.core.classify import judge
from reprieve.core.decide import Conditions, FailureDecision, decide_failure
from reprieve.core.failure import read
from reprieve.core.gate import Gate
from reprieve.core.job import Death, Job
from reprieve.core.move import Dead, Park, Retry
from reprieve.core.outcome import Failed
from reprieve.core.policy import Policy
from reprieve.core.record import Record
from reprieve.core.verdict import Kind, Scope


class Judgement(Record, omit_defaults=False):
    """The verdict, and what would follow the first failure of a job. Waits are in seconds."""

    text: str
    kind: Kind
    scope: Scope
    code: str
    retry_after: float | None
    rule: str
    is_unavailable: bool
    is_retryable: bool
    policy: str
    decision: Literal["retry", "park", "dead"]
    earliest: float | None = None
    latest: float | None = None
    is_charged: bool = False
    max_attempts: int | None = None
    death: Death | None = None
    when_down: Literal["retry", "park", "dead"] | None = None
    """What would follow while the dependency is down; None without a dependency."""


def judge_text(text: str, name: str, policy: Policy, dependency: str, now: int) -> Judgement:
    """Return the judgement of an error by the code that runs in production; `name` is that of the policy."""
    failure = read(text, dependency=dependency, now=now)
    verdict = judge(failure, policy.rules)
    failed = Failed(failure=failure, verdict=verdict)
    gate = Gate(dependency=dependency) if dependency else None
    down = Gate(dependency=dependency, mode="held", since_at=now) if dependency else None
    soonest = _decide(failed, policy, Conditions(now=now, u=0.0, gate=gate))
    latest = _decide(failed, policy, Conditions(now=now, u=MAX_U, gate=gate))
    return Judgement(
        text=failure.message,
        kind=verdict.kind,
        scope=verdict.scope,
        code=verdict.code,
        retry_after=verdict.retry_after,
        rule=verdict.rule,
        is_unavailable=verdict.is_unavailable,
        is_retryable=verdict.is_retryable,
        policy=name,
        decision=_word(soonest),
        earliest=_wait(soonest, now),
        latest=_wait(latest, now),
        is_charged=soonest.charged,
        max_attempts=soonest.max_attempts,
        death=soonest.death if isinstance(soonest, Dead) else None,
        when_down=_word(_decide(failed, policy, Conditions(now=now, u=0.0, gate=down))) if down else None,
    )


def _decide(failed: Failed, policy: Policy, conditions: Conditions) -> FailureDecision:
    now = conditions.now
    job = Job(id="", task="", created_at=now, due_at=now, deadline_at=policy.deadline_of(now))
    return decide_failure(job, failed, policy, conditions)


def _word(decision: FailureDecision) -> Literal["retry", "park", "dead"]:
    match decision:
        case Retry():
            return "retry"
        case Park():
            return "park"
        case Dead():
            return "dead"
        case _:
            assert_never(decision)


def _wait(decision: FailureDecision, now: int) -> float | None:
    return None if isinstance(decision, Dead) else (decision.due_at - now) / 1_000
