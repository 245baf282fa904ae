"""The functions of a retry mechanism under the names that existing systems call them by."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from reprieve import JobHandle, Policy, Reprieve, clock, compat, presets
from reprieve.backoff import fixed
from reprieve.compat import (
    Override,
    RetryPolicy,
    aretry_failed_job,
    calculate_backoff_delay,
    calculate_next_retry,
    calculate_round_robin_priority,
    handle_failed_job,
    is_retryable_error,
    retry_failed_job,
    should_retry,
    validate_dlq_entry,
)
from reprieve.core import change
from reprieve.core.job import CancelRequest, Cause, Job
from reprieve.errors import InsufficientCredits, JobNotFound, MaxRetriesExceeded, ValidationError
from reprieve.testing import FakeClock, drain

NOW = 1_760_000_000_000
OPTIONS = Override.from_json({"max_attempts": 5, "retry_delay": 60_000, "max_retry_delay": 3_600_000})
WAITING = Job(id="job_123", task="send", created_at=NOW, due_at=NOW, override=OPTIONS, max_attempts=5)


def running(job: Job = WAITING) -> Job:
    return change.lease(job, "w", NOW).job


def test_the_public_names_are_all_there() -> None:
    assert all(hasattr(compat, name) for name in compat.__all__)


def test_the_backoff_of_the_mail_gateway_in_milliseconds() -> None:
    assert [calculate_backoff_delay(attempt, 0.5) for attempt in range(1, 8)] == [
        1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000,
    ]  # fmt: skip
    drawn = Counter(calculate_backoff_delay(3) for _ in range(200))
    assert min(drawn) >= 3_000
    assert max(drawn) <= 5_000
    assert len(drawn) > 20


@pytest.mark.parametrize("code", [421, 450, "451", "452", "Throttling", "ServiceUnavailable", TimeoutError("late")])
def test_errors_that_can_pass(code: int | str | Exception) -> None:
    assert is_retryable_error(code)


@pytest.mark.parametrize("code", [500, "550", "554", "MessageRejected", "MailFromDomainNotVerified", ValueError("x")])
def test_errors_that_cannot_pass(code: int | str | Exception) -> None:
    assert not is_retryable_error(code)


def test_round_robin_priority() -> None:
    assert [calculate_round_robin_priority(rounds) for rounds in (0, 3, 9)] == [5, 2, 1]


def test_a_job_is_retried_while_it_has_attempts_and_its_error_can_pass() -> None:
    passing = Cause(reason="down", kind="transient")
    assert should_retry(WAITING)
    assert should_retry(replace(WAITING, charged=4, cause=passing))
    assert not should_retry(replace(WAITING, charged=5, cause=passing))
    assert should_retry(replace(WAITING, charged=5, granted=1, cause=passing))
    assert not should_retry(replace(WAITING, charged=1, cause=Cause(reason="invalid", kind="permanent")))
    assert should_retry(replace(WAITING, charged=99, override=None), presets.mta)
    assert not should_retry(replace(WAITING, charged=3, override=None))
    assert not should_retry(replace(WAITING, state="succeeded"))


def test_a_deadline_ends_the_retries_of_a_preset() -> None:
    job, now, calls = replace(WAITING, override=None), NOW, 0
    while job.state == "waiting":
        job = handle_failed_job(change.lease(job, "w", now).job, "421 down", presets.mta, now=now)
        now, calls = job.due_at, calls + 1
    assert (job.death, calls < 70) == ("expired", True)


def test_a_cancel_request_is_not_lost_in_a_failure() -> None:
    asked = replace(running(), cancel_request=CancelRequest(by="ana", reason="sent twice"))
    assert handle_failed_job(asked, "421 down").state == "cancelled"


def test_a_scheduled_retry_says_its_own_time() -> None:
    pushed = handle_failed_job(running(), "421 retry in 2 hours", now=NOW, u=0.5)
    assert calculate_next_retry(pushed) == datetime.fromtimestamp(NOW / 1_000 + 7_200, UTC)


def test_the_next_retry_follows_the_jobs_own_options() -> None:
    moments = [calculate_next_retry(replace(WAITING, charged=charged, failed_at=NOW)) for charged in (1, 2, 3, 4)]
    start = datetime.fromtimestamp(NOW / 1_000, UTC)
    assert [(moment - start).total_seconds() for moment in moments] == [60, 120, 240, 480]


def test_a_job_that_has_not_failed_counts_from_now() -> None:
    before = datetime.fromtimestamp(clock.now() / 1_000, UTC)
    assert timedelta(seconds=50) < calculate_next_retry(WAITING) - before < timedelta(seconds=70)


def test_a_failed_job_is_rescheduled_until_its_limit() -> None:
    job, waits = WAITING, []
    for _ in range(4):
        job = handle_failed_job(running(job), "421 down", now=NOW, u=0.5)
        waits.append((job.due_at - NOW) / 1_000)
        assert (job.state, job.waiting_for) == ("waiting", "retry")
    assert waits == [60, 120, 240, 480]
    last = handle_failed_job(running(job), "421 down")
    assert (last.state, last.death, last.charged) == ("dead", "exhausted", 5)


def test_a_validation_error_does_not_trigger_a_retry() -> None:
    ended = handle_failed_job(running(), ValueError("no such address"))
    assert (ended.state, ended.death, ended.charged) == ("dead", "permanent", 1)


@pytest.fixture
def app() -> Iterator[Reprieve]:
    with Reprieve("sqlite://:memory:", clock=FakeClock()) as app:
        yield app


@pytest.fixture
def dead(app: Reprieve) -> JobHandle[None]:
    """A job that has used up its two attempts."""

    @app.task(policy=Policy(max_attempts=2, backoff=fixed("1s")))
    def send() -> None:
        raise ConnectionRefusedError

    handle = send.enqueue()
    drain(app)
    assert handle.fetch().death == "exhausted"
    return handle


def test_an_administrator_retries_a_job_by_its_id_and_may_go_over_the_limit(
    app: Reprieve, dead: JobHandle[None]
) -> None:
    with pytest.raises(MaxRetriesExceeded):
        retry_failed_job(app, dead.id, "Serviço externo indisponível")
    with pytest.raises(ValidationError):
        retry_failed_job(app, dead.id, " ", force_retry=True)
    answer = retry_failed_job(app, dead.id, "Serviço externo indisponível", force_retry=True)
    assert (answer.job_id, answer.queue_position) == (dead.id, 1)
    job = dead.fetch()
    assert (job.state, job.limit, job.is_manual) == ("waiting", 3, True)


async def test_the_retry_has_an_async_form(app: Reprieve, dead: JobHandle[None]) -> None:
    await aretry_failed_job(app, dead.id, "the service is back", force_retry=True, by="ana")
    assert (await dead.afetch()).state == "waiting"


def test_a_retry_of_an_unknown_id_is_refused(app: Reprieve) -> None:
    with pytest.raises(JobNotFound):
        retry_failed_job(app, "0192f0c8-7a10-7000-8000-2f6e11c40ae1", "why not")
    with pytest.raises(JobNotFound) as unknown:
        retry_failed_job(app, "123e4567-e89b-12d3-a456-426614174000", "why not")
    assert unknown.value.code == "job_not_found"


def test_the_options_of_a_job_are_accepted_as_json_in_milliseconds() -> None:
    options = {"id": "job_123", "max_attempts": 5, "retry_delay": 60_000, "max_retry_delay": 3_600_000}
    job = Job(id="job_123", task="send", state="running", attempt=1, created_at=0, due_at=0)
    waits = []
    for _ in range(4):
        job = handle_failed_job(job, "421", options, now=0, u=0.5)
        waits.append(calculate_next_retry(job, options).timestamp())
        assert should_retry(job, options)
        job = replace(job, state="running")
    assert waits == [60, 120, 240, 480]
    assert handle_failed_job(job, "421", options, now=0).death == "exhausted"


class MailError(Exception):
    def __init__(self, code: object) -> None:
        self.code = code


@pytest.mark.parametrize("code", [421, 450, 451, 452, "Throttling", "ServiceUnavailable"])
def test_the_code_of_a_mail_error_can_pass(code: object) -> None:
    assert is_retryable_error(MailError(code))


@pytest.mark.parametrize("code", [500, 550, 554, "550", "MessageRejected", "MailFromDomainNotVerified"])
def test_the_code_of_a_mail_error_is_permanent(code: object) -> None:
    assert not is_retryable_error(MailError(code))


def test_a_retry_policy_tells_whether_when_and_how_often() -> None:
    policy = RetryPolicy()
    assert [policy.calculate_delay(number).total_seconds() for number in (1, 2, 3)] == [5, 25, 125]
    assert policy.get_max_retries() == 3
    assert RetryPolicy(presets.mta).get_max_retries() is None
    assert policy.should_retry(TimeoutError("late"))
    assert policy.should_retry(ConnectionRefusedError("no"))
    assert policy.should_retry(OSError("i/o"))
    assert not policy.should_retry(ValueError("argument"))
    assert not policy.should_retry(PermissionError("security"))
    assert not policy.should_retry(InsufficientCredits(required=1, available=0))


def test_insufficient_credits_say_both_sides() -> None:
    error = InsufficientCredits(required=2, available=1)
    assert (error.code, error.required, error.available) == ("insufficient_credits", 2, 1)


def test_a_dead_letter_without_a_reason_is_refused() -> None:
    with pytest.raises(ValidationError):
        validate_dlq_entry({"jobId": "x"})
