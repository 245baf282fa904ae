"""How many retries a job has had."""

import pytest
from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.decide import Conditions, decide
from reprieve.core.failure import read
from reprieve.core.job import Job
from reprieve.core.outcome import Failed, Outcome, Snoozed, Succeeded
from reprieve.core.policy import Policy
from reprieve.core.verdict import Verdict

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
def test_one_retry_follows_each_charged_failure_but_the_last(outcomes: list[Outcome], retries: int) -> None:
    assert after(*outcomes).retries == retries


def test_retries_are_never_above_the_limit() -> None:
    retrying = after(FAILED, FAILED)
    assert replace(retrying, spared=40).retries == 2
    assert replace(retrying, max_attempts=1).retries == 0
    assert replace(retrying, max_attempts=None).retries == 2
