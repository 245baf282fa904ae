"""Some of the flows on Redis: kills and zombies look the same there."""

import pytest

from tests.flows.fleet import SERVER
from tests.flows.test_kills import (
    test_a_job_of_a_killed_child_runs_again_within_a_second,
    test_jobs_of_a_killed_worker_run_elsewhere_when_its_lease_is_over,
)
from tests.flows.test_zombies import test_neither_a_late_success_nor_a_late_failure_counts

__all__ = [
    "test_a_job_of_a_killed_child_runs_again_within_a_second",
    "test_jobs_of_a_killed_worker_run_elsewhere_when_its_lease_is_over",
    "test_neither_a_late_success_nor_a_late_failure_counts",
]


@pytest.fixture(autouse=True)
def on_redis(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVER, redis_url)
