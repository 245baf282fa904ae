"""What happens to a job when an attempt ends: a pure and total function.

After a failed attempt there are exactly three decisions: retry at a time, park until the dependency is back, or dead
with a reason. Everything that the decision depends on is an argument.
"""

from typing import TypeAlias, assert_never

from msgspec.structs import replace

from reprieve.core.backoff import STANDARD, require_wait
from reprieve.core.cause import cause_of
from reprieve.core.duration import clamp, milliseconds
from reprieve.core.gate import MAX_PROBE_SECONDS, Gate
from reprieve.core.job import Cause, Death, Job, Suspicion
from reprieve.core.move import Cancel, Dead, Park, Retry, Return, Snooze, Succeed
from reprieve.core.outcome import Crashed, Failed, Interrupted, Outcome, Snoozed, Stopped, Succeeded
from reprieve.core.policy import Policy
from reprieve.core.policy_error import OnError, ignore
from reprieve.core.record import Record

FailureDecision: TypeAlias = Retry | Park | Dead
"""What can follow a failed attempt."""

Decision: TypeAlias = FailureDecision | Succeed | Snooze | Return | Cancel
"""What can follow any attempt."""

MIN_RETRY_SECONDS = 0.001
"""The least time between a charged failure and its retry. The limit on attempts ends such a loop."""

MIN_SNOOZE_SECONDS = 0.1
"""The shortest snooze: nothing limits how often a task may snooze."""

MIN_SPARED_SECONDS = 1.0
"""The least time between a spared failure and its retry: other jobs go first, and there is no busy loop."""

AFTER_PROBE_SECONDS = 0.25
"""How long after the next probe a parked job is due: enough for a worker to claim another job as the probe, and no
more, since it delays the last job of an outage."""

OUTAGE_WAIT_SHARE, MIN_OUTAGE_WAIT_SECONDS = 0.1, 1.0
"""A job whose dependency is unavailable waits for this share of its own outage so far, but at least this long."""

MAX_OUTAGE_WAIT_SECONDS, MAX_LONG_OUTAGE_WAIT_SECONDS = 30.0, 300.0
"""The longest such wait: before and after the outage has lasted `LONG_OUTAGE_SECONDS`."""

LONG_OUTAGE_SECONDS = 3_600.0

MAX_LOST_SESSIONS = 10
"""Sessions that may be lost in a row with a job in them. Deploys, full memory and reclaimed machines take a few."""


class Conditions(Record):
    """The conditions at the time of the decision."""

    now: int
    u: float
    """A random number in [0, 1)."""
    gate: Gate | None = None
    """The gate of the job's dependency; None when the job has none: then every failure is its own."""
    budget_opens_at: int = 0
    """When the retry budget has room; not later than `now` if it has room already."""
    on_error: OnError = ignore
    """Called when the backoff raises and the standard backoff is used instead."""


def decide(job: Job, outcome: Outcome, policy: Policy, conditions: Conditions) -> Decision:
    """Return what follows an attempt. A success stands even if the job has a cancel request."""
    match outcome:
        case Succeeded():
            return Succeed()
        case Stopped(reason=reason):
            return Cancel(reason=reason)
        case _ if job.cancel_request is not None:
            return Cancel(by=job.cancel_request.by, reason=job.cancel_request.reason)
        case Interrupted(started=started):
            return Return(started=started)
        case Snoozed(delay=delay):
            return _snooze(job, delay, conditions.now)
        case Crashed(started=started):
            return _after_crash(job, policy, alone=outcome.alone) if started else Return(started=False)
        case Failed():
            return decide_failure(job, outcome, policy, conditions)
        case _:
            assert_never(outcome)


def decide_failure(job: Job, failed: Failed, policy: Policy, conditions: Conditions) -> FailureDecision:
    """Return what follows a failed attempt: retry, park or dead."""
    verdict, gate = failed.verdict, conditions.gate
    rule = policy.rule_for(failed.failure)
    max_attempts = (rule and rule.max_attempts) or policy.max_attempts
    if max_attempts != job.max_attempts:
        job = replace(job, max_attempts=max_attempts)
    if not verdict.is_retryable:
        return Dead(death=_death_of(failed), cause=_cause(failed), charged=True, max_attempts=job.max_attempts)
    if gate is None or verdict.scope != "dependency":
        return _retry(job, failed, policy, conditions)
    # A failure is charged only when the dependency is otherwise healthy and did not ask us to slow down. A failure
    # to connect is spared even for a single job, unless other jobs' calls succeeded meanwhile.
    is_outage = verdict.is_unavailable and not _has_served_others(job, verdict.code, gate)
    if gate.is_healthy and verdict.kind != "throttled" and not is_outage:
        return _retry(job, failed, policy, conditions)
    if _has_waited_enough(job, policy, conditions.now):
        return Dead(death="expired", cause=_cause(failed), spared=True, max_attempts=job.max_attempts)
    if gate.mode == "open":
        if verdict.is_unavailable:
            return _await_dependency(job, failed, policy, conditions)
        return _retry(job, failed, policy, conditions, charged=False)
    # If it were due when the gate probes, the oldest job would be the probe each time, and one bad job would keep the
    # gate held. But a gate may be released long before: no job waits longer than the longest time between probes.
    probe_at = min(gate.probe_at or 0, _later(conditions.now, MAX_PROBE_SECONDS))
    due_at = _opens_at(policy, max(_later(conditions.now, MIN_SPARED_SECONDS), _later(probe_at, AFTER_PROBE_SECONDS)))
    return Park(
        gate=gate.dependency,
        due_at=due_at,
        cause=_cause(failed),
        max_attempts=job.max_attempts,
        parked_until_at=_parked_until(job, policy, conditions.now),
    )


def _cause(failed: Failed) -> Cause:
    return cause_of(failed.failure, failed.verdict, failed.duration)


def _retry(
    job: Job, failed: Failed, policy: Policy, conditions: Conditions, *, charged: bool = True
) -> FailureDecision:
    cause, now = _cause(failed), conditions.now
    is_late = job.deadline_at is not None and now >= job.deadline_at
    if charged and not is_late and job.limit is not None and job.charged + 1 >= job.limit:
        return Dead(death="exhausted", cause=cause, charged=True, max_attempts=job.max_attempts)
    delay = _delay(job, failed, policy, conditions, charged=charged)
    due_at = _due_at(failed, policy, conditions, delay)
    if job.deadline_at is not None and due_at >= job.deadline_at:
        return Dead(death="expired", cause=cause, charged=charged, spared=not charged, max_attempts=job.max_attempts)
    parked_until_at = None if charged else _parked_until(job, policy, now)
    if conditions.budget_opens_at > now:
        return Park(
            gate="budget",
            due_at=due_at,
            cause=cause,
            waiting_for="budget",
            charged=charged,
            max_attempts=job.max_attempts,
            parked_until_at=parked_until_at,
        )
    return Retry(
        due_at=due_at,
        cause=cause,
        delay=delay,
        charged=charged,
        max_attempts=job.max_attempts,
        parked_until_at=parked_until_at,
    )


def _await_dependency(job: Job, failed: Failed, policy: Policy, conditions: Conditions) -> Park | Dead:
    """Park a job whose dependency is unavailable while its gate is open; the wait grows with its own outage."""
    cause, now = _cause(failed), conditions.now
    since_at = now if job.parked_since_at is None else min(now, job.parked_since_at)
    outage = (now - since_at) / 1_000
    at_most = MAX_OUTAGE_WAIT_SECONDS if outage < LONG_OUTAGE_SECONDS else MAX_LONG_OUTAGE_WAIT_SECONDS
    due_at = _due_at(failed, policy, conditions, min(at_most, max(MIN_OUTAGE_WAIT_SECONDS, OUTAGE_WAIT_SHARE * outage)))
    # However long the push-back is, the last attempt starts when `max_parked` is over.
    due_at = _opens_at(policy, min(due_at, _later(since_at, policy.max_parked)))
    if job.deadline_at is not None and due_at >= job.deadline_at:
        return Dead(death="expired", cause=cause, spared=True, max_attempts=job.max_attempts)
    return Park(
        gate=job.dependency,
        due_at=due_at,
        cause=cause,
        max_attempts=job.max_attempts,
        parked_until_at=_parked_until(job, policy, now),
    )


def _due_at(failed: Failed, policy: Policy, conditions: Conditions, delay: float) -> int:
    """Return when a job is due after `delay`: not in a closed window, nor before its budget has room."""
    # A push-back lengthens a wait and never shortens it.
    due_at = _opens_at(policy, _later(conditions.now, max(delay, clamp(failed.verdict.retry_after or 0.0))))
    if conditions.budget_opens_at > conditions.now:
        due_at = _opens_at(policy, max(due_at, conditions.budget_opens_at))
    return due_at


def _delay(job: Job, failed: Failed, policy: Policy, conditions: Conditions, *, charged: bool) -> float:
    if failed.retry_in is not None:
        return max(MIN_RETRY_SECONDS, clamp(failed.retry_in))
    rule = policy.rule_for(failed.failure)
    backoff = (rule and rule.backoff) or policy.backoff
    # Spared failures lengthen the wait as well: a failing dependency must not be called every second.
    failures = job.charged + 1 if charged else job.charged + job.spared + 1
    u = conditions.u
    try:
        wait = clamp(require_wait(backoff.delay(failures, u, job.delay or None)))
    except Exception as error:  # noqa: BLE001 - a backoff or jitter may be application code, and the job must go on
        conditions.on_error("backoff", error)
        wait = STANDARD.delay(failures, u)
    return max(MIN_RETRY_SECONDS if charged else MIN_SPARED_SECONDS, wait)


def _snooze(job: Job, delay: float, now: int) -> Snooze | Dead:
    due_at = _later(now, max(MIN_SNOOZE_SECONDS, clamp(delay)))
    if job.deadline_at is not None and due_at >= job.deadline_at:
        return Dead(death="expired", cause=Cause(reason="snoozed past its deadline", code="expired", rule="deadline"))
    return Snooze(due_at=due_at)


def _after_crash(job: Job, policy: Policy, *, alone: bool) -> Return | Dead:
    """Return a job, or end it as poison: after `max_crashes`, of which one may be the loss of a whole session.

    A job whose sessions are lost is not known to be the cause. It runs alone from then on, and only very many losses
    in a row end it: it may be one that kills the worker of its own process.
    """
    before = job.suspicion or Suspicion()
    if alone:
        crashes = before.processes + 1 + min(1, before.sessions)
        reason = f"its process died {crashes} times while running it"
        is_poison = crashes >= policy.max_crashes
    else:
        reason = f"{before.sessions + 1} workers in a row died while running it"
        is_poison = before.sessions + 1 >= MAX_LOST_SESSIONS
    if not is_poison:
        return Return(crashed=True, alone=alone)
    cause = Cause(reason=reason, code="poison", kind="poison", rule="crashes")
    return Dead(death="poison", cause=cause, crashed=True, alone=alone)


def _parked_until(job: Job, policy: Policy, now: int) -> int:
    """Return when a job that does not get through to its dependency has waited for it long enough."""
    return _later(now if job.parked_since_at is None else job.parked_since_at, policy.max_parked)


def _has_waited_enough(job: Job, policy: Policy, now: int) -> bool:
    parked_too_long = job.parked_since_at is not None and now >= _parked_until(job, policy, now)
    return parked_too_long or (job.deadline_at is not None and now >= job.deadline_at)


def _has_served_others(job: Job, code: str, gate: Gate) -> bool:
    """Whether a call of another job succeeded since this job began to fail: then the failure may be its own.

    The job began to fail with its first spared failure, or with its last failure if that was charged for the same
    error. Otherwise it began with this attempt: earlier results are no evidence about the dependency now.
    """
    if job.parked_since_at is not None:
        since_at = job.parked_since_at
    elif job.failed_at is not None and not job.is_manual and job.cause is not None and job.cause.code == code:
        since_at = job.failed_at
    else:
        since_at = job.leased_at or 0
    return gate.last_success_at is not None and gate.last_success_at > since_at


def _death_of(failed: Failed) -> Death:
    if failed.verdict.kind == "poison":
        return "poison"
    return "undecodable" if failed.is_undecodable else "permanent"


def _opens_at(policy: Policy, at: int) -> int:
    return at if policy.window is None else policy.window.opens_at(at)


def _later(now: int, delay: float) -> int:
    return now + milliseconds(delay)
