"""What the page about workers says in numbers and names, beside what the code does."""

import re
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from reprieve.config import Settings
from reprieve.core import change
from reprieve.core.duration import seconds
from reprieve.core.job import Cause, Job
from reprieve.core.move import Cancel, Dead, Park, Retry, Return, Succeed
from reprieve.core.policy import Policy
from reprieve.worker import job_logging, prefetch, recovery, sessions

PAGE = (Path(__file__).parents[2] / "docs/operate/worker.md").read_text("utf-8")
DEFAULTS = Settings()
CAUSE = Cause(reason="421 down", code="421", kind="transient")
RUNNING = change.lease(Job(id="j", task="send", tenant="acme", created_at=0, due_at=0, max_attempts=3), "w", 1).job


@pytest.mark.parametrize("setting", ["slots", "lease", "heartbeat", "grace", "stuck_after", "succeeded_kept"])
def test_every_default_is_that_of_the_settings(setting: str) -> None:
    found = re.search(rf"`REPRIEVE_{setting.upper()}` \| (\S+) \|", PAGE)
    assert found is not None
    default = getattr(DEFAULTS, setting)
    assert (int(found[1]) if isinstance(default, int) else seconds(found[1])) == default


def test_every_number_is_that_of_the_code() -> None:
    for text, number in (
        ("after the lease (15 s)", DEFAULTS.lease == 15),
        ("within the grace (30 s)", DEFAULTS.grace == 30),
        ("waits for six seconds", DEFAULTS.heartbeat + recovery.RECOVERY_INTERVAL_SECONDS == 6),
        ("within five seconds is killed", sessions.KILL_AFTER_SECONDS == 5),
        ("takes its process down three times", Policy().max_crashes == 3),
        ("a tenth of a second of work ahead", prefetch.PREFETCH_SECONDS == 0.1),
        ("most 250 jobs", prefetch.MAX_PREFETCHED_JOBS == 250),
        ("cannot start within a second goes back", prefetch.MAX_WAIT_SECONDS == 1),
    ):
        assert text in PAGE
        assert number, text


def test_every_line_about_a_job_carries_what_the_page_says() -> None:
    with capture_logs() as lines:
        for move in (
            Retry(due_at=2, cause=CAUSE, delay=1.0),
            Park(gate="ses", due_at=2, cause=CAUSE),
            Dead(death="permanent", cause=CAUSE),
            Cancel(by="ana", reason="sent twice"),
        ):
            job_logging.log_settled(change.make(RUNNING, move, 1))
        job_logging.log_recovered(change.make(RUNNING, Return(crashed=True), 1))
        job_logging.log_refused(change.make(RUNNING, Succeed(), 1), "refused")
    named, facts = PAGE.partition("`retry scheduled`")[2].partition(".")[0].split(" each carry ")
    assert {line["event"] for line in lines} == {"retry scheduled", *re.findall("`([^`]+)`", named)}
    for line in lines:
        assert set(re.findall("`([^`]+)`", facts)) <= line.keys(), line["event"]
    (parked,) = (line for line in lines if line["event"] == "job parked")
    assert set(re.findall("`([^`]+)`", PAGE.partition("A job that is parked")[2].partition(";")[0])) <= parked.keys()
    assert (parked["nextRetryDelay"], parked["noAnswerFor"]) == (1, 0.0)
    assert parked["noAnswerSince"] == "1970-01-01T00:00:00.001+00:00"
    (cancelled,) = (line for line in lines if line["event"] == "job cancelled")
    assert (cancelled["by"], cancelled["reason"]) == ("ana", "sent twice")
