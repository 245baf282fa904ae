"""A job as JSON, with the names of other systems."""

import pytest
from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.decide import Conditions, decide
from reprieve.core.failure import read
from reprieve.core.job import Job
from reprieve.core.outcome import Failed, Outcome, Snoozed, Succeeded
from reprieve.core.policy import Policy
from reprieve.core.verdict import Verdict
from reprieve.views.jobs import view

NOW = 1_760_000_000_000
POLICY = Policy(max_attempts=3)
FAILED = Failed(failure=read("no"), verdict=Verdict(kind="transient"))
HOPELESS = Failed(failure=read("no"), verdict=Verdict(kind="permanent"))


def after(*outcomes: Outcome) -> Job:
    job = Job(id="j", task="send", created_at=NOW, due_at=NOW, max_attempts=3)
    for outcome in outcomes:
        running = change.lease(job, "one", NOW).job
        job = change.settle(running, decide(running, outcome, POLICY, Conditions(now=NOW + 1, u=0.5)), NOW + 1).job
    return job


@pytest.mark.parametrize(
    ("outcomes", "retries"),
    [
        ([], 0),
        ([FAILED], 1),
        ([Snoozed(delay=1.0), FAILED], 1),
        ([FAILED, FAILED], 2),
        ([FAILED, FAILED, FAILED], 2),
        ([FAILED, Succeeded()], 1),
        ([HOPELESS], 0),
        ([FAILED, HOPELESS], 1),
    ],
)
def test_the_retry_count_is_that_of_the_retries(outcomes: list[Outcome], retries: int) -> None:
    facts = view(after(*outcomes), "ready")
    assert (facts["retryCount"], facts["maxRetries"]) == (retries, 2)


def test_the_retry_count_is_never_above_the_limit() -> None:
    spared = replace(after(FAILED, FAILED), spared=40)
    assert view(spared, "retrying")["retryCount"] == 2
    lowered = replace(after(FAILED, FAILED), max_attempts=1)
    assert view(lowered, "retrying")["retryCount"] == 0
    endless = replace(after(FAILED, FAILED), max_attempts=None)
    assert (view(endless, "retrying")["retryCount"], view(endless, "retrying")["maxRetries"]) == (2, None)
