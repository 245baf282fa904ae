"""What happens to a job when an attempt ends: a pure and total function.

After a failed attempt there are exactly three answers: retry at a time, park until the dependency is back, or dead
with a reason. Everything that the answer depends on is an argument.
"""

from typing import TypeAlias, assert_never

from reprieve.core.duration import clamp, milliseconds
from reprieve.core.fingerprint import fingerprint
from reprieve.core.gate import Gate
from reprieve.core.job import Cause, Death, Job
from reprieve.core.move import Cancel, Dead, Park, Retry, Return, Snooze, Succeed
from reprieve.core.outcome import Crashed, Failed, Interrupted, Outcome, Snoozed, Stopped, Succeeded
from reprieve.core.policy import Policy
from reprieve.core.record import Record

Sentence: TypeAlias = Retry | Park | Dead
"""What can follow a failed attempt."""

Decision: TypeAlias = Sentence | Succeed | Snooze | Return | Cancel
"""What can follow any attempt."""

SOONEST = 0.001
"""Seconds between a failure and its retry at the least. The limit on attempts ends such a loop."""

SHORTEST_SNOOZE = 0.1
"""Seconds of a snooze at the least: nothing limits how often a task may snooze."""

STEP_ASIDE = 1.0
"""Seconds for which a parked job lets others go first, so that the next probe is another job."""


class Conditions(Record):
    """The world at the moment of the decision."""

    now: int
    u: float
    """Chance, in [0, 1)."""
    gate: Gate | None = None
    """The job's dependency; None when the job has none: then nobody else is to blame."""
    budget_opens_at: int = 0
    """When the retry budget has room; not later than now when it has some."""


def decide(job: Job, outcome: Outcome, policy: Policy, conditions: Conditions) -> Decision:
    """Decide what follows an attempt. A success stands even when somebody wanted the job cancelled."""
    match outcome:
        case Succeeded():
            return Succeed()
        case Stopped(reason=reason):
            return Cancel(reason=reason)
        case _ if job.cancel_requested:
            return Cancel(reason="cancelled while it ran")
        case Interrupted():
            return Return()
        case Snoozed(delay=delay):
            return _snooze(job, delay, conditions.now)
        case Crashed(started=started):
            return _after_crash(job, policy) if started else Return()
        case Failed():
            return decide_failure(job, outcome, policy, conditions)
        case _:
            assert_never(outcome)


def decide_failure(job: Job, failed: Failed, policy: Policy, conditions: Conditions) -> Sentence:
    """Decide what follows a failed attempt: retry, park or dead."""
    verdict, gate, now = failed.verdict, conditions.gate, conditions.now
    if not verdict.is_retryable:
        return Dead(death=_death_of(failed), cause=cause_of(failed), charged=True)
    if gate is None or verdict.scope != "dependency":
        return _retry(job, failed, policy, conditions)
    if _has_waited_enough(job, policy, now):
        return Dead(death="expired", cause=cause_of(failed))
    if gate.mode != "open":
        return Park(gate=gate.dependency, due_at=_later(now, STEP_ASIDE), cause=cause_of(failed))
    # A failure is charged only when the dependency is otherwise well and did not ask us to slow down.
    is_theirs = verdict.kind == "throttled" or not gate.is_healthy
    return _retry(job, failed, policy, conditions, charged=not is_theirs)


def cause_of(failed: Failed) -> Cause:
    """Answer what the job will remember of a failure."""
    failure, verdict = failed.failure, failed.verdict
    reason = failure.message or failure.type or "unknown error"
    mark = fingerprint(reason, type=failure.type, code=failure.code)
    return Cause(reason=reason, code=verdict.code, kind=verdict.kind, fingerprint=mark.id)


def _retry(job: Job, failed: Failed, policy: Policy, conditions: Conditions, *, charged: bool = True) -> Sentence:
    cause, now = cause_of(failed), conditions.now
    rule = policy.rule_for(failed.failure)
    attempts = (rule and rule.max_attempts) or policy.max_attempts
    if charged and attempts is not None and job.charged + 1 >= attempts + job.granted:
        return Dead(death="exhausted", cause=cause, charged=True)
    # Spared failures lengthen the wait as well: a dependency in trouble must not be asked every second.
    failures = job.charged + 1 if charged else job.charged + job.spared + 1
    backoff = (rule and rule.backoff) or policy.backoff
    delay = _delay(failed, backoff.delay(failures, conditions.u, job.delay or None))
    due_at = _later(now, delay)
    if policy.window is not None:
        due_at = policy.window.opens_at(due_at)
    if job.deadline_at is not None and max(due_at, conditions.budget_opens_at) >= job.deadline_at:
        return Dead(death="expired", cause=cause, charged=charged)
    if conditions.budget_opens_at > now:
        return Park(gate="budget", due_at=max(due_at, conditions.budget_opens_at), cause=cause, waiting_for="budget")
    return Retry(due_at=due_at, cause=cause, delay=delay, charged=charged, max_attempts=policy.max_attempts)


def _delay(failed: Failed, backoff_delay: float) -> float:
    wanted = backoff_delay if failed.retry_in is None else clamp(failed.retry_in)
    # The other side's push-back lengthens a wait and never shortens it.
    return max(SOONEST, wanted, clamp(failed.verdict.retry_after or 0.0))


def _snooze(job: Job, delay: float, now: int) -> Snooze | Dead:
    due_at = _later(now, max(SHORTEST_SNOOZE, clamp(delay)))
    if job.deadline_at is not None and due_at >= job.deadline_at:
        return Dead(death="expired", cause=Cause(reason="snoozed past its deadline", code="expired"))
    return Snooze(due_at=due_at)


def _after_crash(job: Job, policy: Policy) -> Return | Dead:
    crashes = job.crashes + 1
    if crashes < policy.max_crashes:
        return Return(crashed=True)
    cause = Cause(reason=f"took its worker down {crashes} times", code="poison", kind="poison")
    return Dead(death="poison", cause=cause, crashed=True)


def _has_waited_enough(job: Job, policy: Policy, now: int) -> bool:
    parked_too_long = job.parked_since_at is not None and now >= _later(job.parked_since_at, policy.max_parked)
    return parked_too_long or (job.deadline_at is not None and now >= job.deadline_at)


def _death_of(failed: Failed) -> Death:
    if failed.verdict.kind == "poison":
        return "poison"
    return "undecodable" if failed.verdict.rule == "undecodable" else "permanent"


def _later(now: int, delay: float) -> int:
    return now + milliseconds(delay)
