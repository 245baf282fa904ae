"""The retry mechanism and use case under the names that existing systems know them by.

Thin words over the core: each is one line of policy that could also be written with `Policy`, `classify` and
`presets`. Time and chance may be given; left out, the machine is asked for them.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from reprieve import clock, rng
from reprieve.core import change, presets
from reprieve.core.change import Change, Request
from reprieve.core.classify import classify, judge
from reprieve.core.deadletter import validate_dlq_entry
from reprieve.core.decide import Conditions, decide
from reprieve.core.duration import milliseconds
from reprieve.core.failure import Error, read
from reprieve.core.fairness import aged_priority
from reprieve.core.job import Job
from reprieve.core.outcome import Failed
from reprieve.core.policy import Policy, resolve
from reprieve.core.status import STUCK_AFTER_SECONDS

__all__ = [
    "RetryPolicy",
    "calculate_backoff_delay",
    "calculate_next_retry",
    "calculate_round_robin_priority",
    "handle_failed_job",
    "is_retryable_error",
    "retry_failed_job",
    "should_retry",
    "validate_dlq_entry",
]


def calculate_backoff_delay(attempt: int, u: float | None = None) -> int:
    """Return the wait in milliseconds after the attempt-th failure of an e-mail: 1 s doubling to 60 s, ± 25 %."""
    return round(presets.email.delay(attempt, rng.draw() if u is None else u) * 1_000)


def is_retryable_error(error: Error) -> bool:
    """Whether another attempt can help, by SMTP or SES code, HTTP status, message or exception."""
    return classify(error).is_retryable


def calculate_round_robin_priority(rounds_without_processing: int) -> int:
    """Return the priority of a tenant that was passed over for so many rounds: 5, less one a round, down to 1."""
    return aged_priority(rounds_without_processing)


def should_retry(job: Job, policy: Policy = presets.patient) -> bool:
    """Whether a job that failed may be tried again: it has not ended, its error can pass, and it has attempts left."""
    if job.state not in ("waiting", "running"):
        return False
    in_force = replace(job, max_attempts=resolve(policy, job.override).max_attempts)
    return in_force.has_attempts_left and (job.cause is None or job.cause.kind not in ("permanent", "poison"))


def calculate_next_retry(job: Job, policy: Policy = presets.patient, u: float | None = None) -> datetime:
    """Return when a job that failed is tried again: when it is due, or when its last failure and its wait say."""
    if job.state == "waiting" and job.waiting_for == "retry":
        return _moment(job.due_at)
    failed_at = clock.now() if job.failed_at is None else job.failed_at
    wait = resolve(policy, job.override).delay(max(1, job.charged), u, job.delay or None)
    return _moment(failed_at + milliseconds(wait))


def handle_failed_job(
    job: Job, error: Error, policy: Policy = presets.patient, now: int | None = None, u: float | None = None
) -> Change:
    """Record the failure of a running job and say what follows: a retry at its time, or its death."""
    in_force = resolve(policy, job.override)
    moment = clock.now() if now is None else now
    failure = read(error, dependency=job.dependency, now=moment)
    failed = Failed(failure=failure, verdict=judge(failure, in_force.rules))
    conditions = Conditions(now=moment, u=rng.draw() if u is None else u)
    if job.deadline_at is None:
        job = replace(job, deadline_at=in_force.deadline_of(job.created_at))
    return change.settle(job, decide(job, failed, in_force, conditions), moment)


def retry_failed_job(
    job: Job, reason: str, *, force_retry: bool = False, by: str = "administrator", now: int | None = None
) -> Change:
    """Let an administrator retry a job, with a justification; `force_retry` goes over the limit by one attempt."""
    request = Request(by=by, reason=reason, force=force_retry)
    return change.retry(job, request, clock.now() if now is None else now, STUCK_AFTER_SECONDS)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A policy behind three questions: should it, how long, how often."""

    policy: Policy = presets.render

    def should_retry(self, error: Error) -> bool:
        """Whether this error can pass."""
        return classify(error, rules=self.policy.rules).is_retryable

    def calculate_delay(self, attempt_number: int) -> timedelta:
        """Return the wait after that many failures, before jitter."""
        return timedelta(seconds=self.policy.delay(attempt_number))

    def get_max_retries(self) -> int | None:
        """Return how many executions may follow the first; None when only the deadline limits them."""
        return None if self.policy.max_attempts is None else self.policy.max_attempts - 1


def _moment(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1_000, UTC)
