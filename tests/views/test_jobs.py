"""A job as JSON, with the names of other systems."""

from reprieve.core.job import Cause, Job
from reprieve.views.jobs import view


def test_the_retry_count_counts_retries_and_not_failures() -> None:
    job = Job(
        id="j",
        task="send",
        created_at=0,
        due_at=9,
        max_attempts=3,
        state="dead",
        death="exhausted",
        charged=3,
        spared=7,
        failed_at=8,
        finished_at=8,
        cause=Cause(reason="no"),
    )
    facts = view(job, "dead")
    assert (facts["retryCount"], facts["maxRetries"], facts["isRetryable"]) == (2, 2, False)
