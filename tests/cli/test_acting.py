"""`reprieve jobs retry` and `reprieve jobs cancel`: every job that is named is acted on, and gets its line."""

import json

import pytest

from reprieve import Policy, Reprieve
from reprieve.testing import drain
from tests.cli.shell import answer, complaint, reprieve

STORE = ("--store", "sqlite:///jobs.db")
WHY = ("--reason", "fixed", "--by", "ana")
UNKNOWN = "0192f0c8-7a10-7000-8000-2f6e11c40ae1"


@pytest.fixture
def jobs() -> dict[str, str]:
    """Return jobs: one with no attempt left, one that died with attempts left, one that waits for its first."""
    with Reprieve(STORE[1]) as app:

        @app.task(name="exhausted", policy=Policy(max_attempts=1))
        def exhausted() -> None:
            raise TimeoutError

        @app.task(name="permanent", policy=Policy(max_attempts=5))
        def permanent() -> None:
            raise ValueError

        found = {"exhausted": exhausted.enqueue().id, "permanent": permanent.enqueue().id}
        drain(app)
        return {**found, "waiting": permanent.enqueue().id}


def status_of(job: str) -> str:
    return str(answer("jobs", "show", job, *STORE)["status"])


def test_a_job_that_cannot_be_retried_keeps_no_other_from_being_retried(jobs: dict[str, str]) -> None:
    names = [jobs["exhausted"], jobs["permanent"], jobs["waiting"]]
    done = reprieve("jobs", "retry", *names, *WHY, *STORE, status=4)
    assert done.stdout.splitlines() == [f"{jobs['permanent']} the job is queued to be retried, position 1 in its lane"]
    refused, unfailed, total = done.stderr.splitlines()
    assert refused.startswith(f"error: job {jobs['exhausted']} has used its only attempt; ")
    assert refused.endswith("; to grant one more, add --force (in Python force=True)")
    assert unfailed.startswith(f"error: job {jobs['waiting']} is ready and has not failed; retry it when it is dead")
    assert total == "1 of 3 jobs retried; 2 left unchanged"
    assert [status_of(job) for job in names] == ["dead", "ready", "ready"]


def test_force_grants_another_attempt_to_every_job(jobs: dict[str, str]) -> None:
    done = reprieve("jobs", "retry", jobs["exhausted"], jobs["permanent"], "--force", *WHY, *STORE)
    assert [line.split()[0] for line in done.stdout.splitlines()] == [jobs["exhausted"], jobs["permanent"]]
    assert done.stderr == ""


def test_scripts_get_a_result_or_an_error_for_each_job(jobs: dict[str, str]) -> None:
    names = [UNKNOWN, jobs["exhausted"], jobs["permanent"]]
    missing, refused, retried = answer("jobs", "retry", *names, *WHY, *STORE, status=4)
    assert (missing["jobId"], missing["error"]["code"]) == (UNKNOWN, "job_not_found")
    assert (refused["jobId"], refused["error"]["code"]) == (jobs["exhausted"], "max_retries_exceeded")
    assert "add --force" in refused["error"]["message"]
    assert (retried["jobId"], retried["message"]) == (jobs["permanent"], "the job is queued to be retried")
    assert "error" not in retried


def test_an_id_that_names_no_job_gets_its_line_and_the_others_are_cancelled(jobs: dict[str, str]) -> None:
    done = reprieve("jobs", "cancel", "ffff0000", "no-id", jobs["waiting"], *WHY, *STORE, status=3)
    assert done.stdout == f"{jobs['waiting']} cancelled\n"
    missing, invalid, total = done.stderr.splitlines()
    assert missing.startswith("error: no job has an id that begins or ends with ffff0000")
    assert invalid.startswith("error: 'no-id' is not a job id")
    assert total == "1 of 3 jobs cancelled; 2 left unchanged"


def test_one_job_that_has_ended_is_a_conflict_for_cancel_as_for_retry(jobs: dict[str, str]) -> None:
    reprieve("jobs", "cancel", jobs["waiting"], *WHY, *STORE)
    assert complaint("jobs", "cancel", jobs["waiting"], *WHY, *STORE, status=4) == (
        f"error: job {jobs['waiting']} is cancelled; only a job that waits or runs can be cancelled"
    )
    result = reprieve("jobs", "cancel", jobs["permanent"], *WHY, *STORE, "--json", status=4)
    ((refused,), empty) = json.loads(result.stdout), result.stderr
    assert (refused["error"]["code"], empty) == ("invalid_state", "")


def test_a_store_that_is_not_there_is_one_error_of_the_command() -> None:
    line = complaint("jobs", "retry", UNKNOWN, "abcd", *WHY, *STORE, status=3)
    assert "jobs.db does not exist" in line
