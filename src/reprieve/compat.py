"""The functions of a retry mechanism under the names that existing systems call them by.

Each is a thin layer over `Policy`, `classify`, `presets` and `JobHandle`, which new code uses instead. The time (`now`,
in milliseconds since 1970) and the random number (`u`, in [0, 1)) of a decision may be passed in.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from reprieve import clock, rng
from reprieve.admin.retry import Retried
from reprieve.app import Reprieve
from reprieve.core import change, presets
from reprieve.core.classify import classify, judge
from reprieve.core.deadletter import validate_dlq_entry
from reprieve.core.decide import Conditions, decide
from reprieve.core.duration import milliseconds
from reprieve.core.failure import Error, read
from reprieve.core.fairness.settings import aged_priority
from reprieve.core.job import Job
from reprieve.core.outcome import Failed
from reprieve.core.policy import Override, Policy, require_policy, resolve
from reprieve.core.values import whole
from reprieve.errors import ValidationError

__all__ = [
    "Override",
    "RetryPolicy",
    "aretry_failed_job",
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
    """Return whether another attempt can help, by SMTP or SES code, HTTP status, message or exception."""
    return classify(error).is_retryable


def calculate_round_robin_priority(rounds_without_processing: int) -> int:
    """Return the priority of a tenant that has waited for so many rounds: 5, minus 1 for each round, at least 1."""
    rounds = whole(rounds_without_processing, "rounds_without_processing", ValidationError)
    return aged_priority(rounds)


def should_retry(job: Job, policy: Policy = presets.patient) -> bool:
    """Return whether a job is tried again: it has not ended, has attempts left, and its last error can pass."""
    if job.state not in ("waiting", "running"):
        return False
    in_force = replace(job, max_attempts=resolve(policy, job.override).max_attempts)
    return in_force.has_attempts_left and (job.cause is None or job.cause.kind not in ("permanent", "poison"))


def calculate_next_retry(job: Job, policy: Policy = presets.patient, u: float | None = None) -> datetime:
    """Return when a job is tried again: the time of its scheduled retry, or its last failure plus the policy's wait."""
    if job.state == "waiting" and job.waiting_for == "retry":
        return _moment(job.due_at)
    failed_at = clock.now() if job.failed_at is None else job.failed_at
    wait = resolve(policy, job.override).delay(max(1, job.charged), u, job.delay or None)
    return _moment(failed_at + milliseconds(wait))


def handle_failed_job(
    job: Job, error: Error, policy: Policy = presets.patient, now: int | None = None, u: float | None = None
) -> Job:
    """Return a running job as this error leaves it: waiting for its retry, parked, dead, or cancelled if requested.

    The error is an exception, an SMTP or SES code, an HTTP status or a message. Nothing is stored: a worker does that
    for the jobs that it runs.
    """
    in_force = resolve(policy, job.override)
    moment = clock.now() if now is None else now
    failure = read(error, dependency=job.dependency, now=moment)
    failed = Failed(failure=failure, verdict=judge(failure, in_force.rules))
    conditions = Conditions(now=moment, u=rng.draw() if u is None else u)
    if job.deadline_at is None:
        job = replace(job, deadline_at=in_force.deadline_of(job.created_at))
    return change.settle(job, decide(job, failed, in_force, conditions), moment).job


async def aretry_failed_job(
    app: Reprieve, job_id: str, reason: str, *, force_retry: bool = False, by: str = "administrator"
) -> Retried:
    """Retry a job at the request of an administrator, with a justification.

    `force_retry` grants one more attempt to a job that has used up its own. Raises `JobNotFound`, `InvalidRetryState`,
    `MaxRetriesExceeded`, or `ConcurrentModification` while the job runs.
    """
    return await app.job(job_id).aretry(by=by, reason=reason, force=force_retry)


def retry_failed_job(
    app: Reprieve, job_id: str, reason: str, *, force_retry: bool = False, by: str = "administrator"
) -> Retried:
    """Retry a job at the request of an administrator, from code without a loop; see `aretry_failed_job`."""
    return app.job(job_id).retry(by=by, reason=reason, force=force_retry)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A policy as an object with three methods: whether to retry, after how long, and how often."""

    policy: Policy = presets.render

    def __post_init__(self) -> None:
        """Refuse what is not a policy."""
        require_policy(self.policy, "policy")

    def should_retry(self, error: Error) -> bool:
        """Return whether this error can pass."""
        return classify(error, rules=self.policy.rules).is_retryable

    def calculate_delay(self, attempt_number: int) -> timedelta:
        """Return the wait after that many failures, before jitter."""
        return timedelta(seconds=self.policy.delay(attempt_number))

    def get_max_retries(self) -> int | None:
        """Return how many attempts may follow the first; None when only the deadline limits them."""
        return None if self.policy.max_attempts is None else self.policy.max_attempts - 1


def _moment(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1_000, UTC)
