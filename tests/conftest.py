"""What holds for every test: the hypothesis profiles, and that nothing is skipped where it counts."""

import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

# The same commit gives the same answer, and a slow machine is no failure.
settings.register_profile("ci", derandomize=True, deadline=None)
# Looks further than any single run of the tests may.
settings.register_profile(
    "faults",
    max_examples=2_000,
    stateful_step_count=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# A mutant only has to be noticed, not explained.
settings.register_profile("mutants", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("faults" if os.environ.get("REPRIEVE_FAULTS") else "ci")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Return the URL of a PostgreSQL server, started for whoever needs one first."""
    from tests.servers import postgres  # noqa: PLC0415 - only where it is needed

    with postgres.running() as url:
        yield url


@pytest.fixture(scope="session")
def pgbouncer_url(postgres_url: str) -> Iterator[str]:
    """Return the URL of a pooler in front of that server."""
    from tests.servers import pgbouncer  # noqa: PLC0415 - only where it is needed

    with pgbouncer.running(postgres_url) as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """Return the URL of a Redis server, started for whoever needs one first."""
    from tests.servers import redis  # noqa: PLC0415 - only where it is needed

    with redis.running() as url:
        yield url


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Fail what was skipped or expected to fail: in CI a test that did not run proves nothing."""
    if os.environ.get("CI") and (report.skipped or hasattr(report, "wasxfail")):
        report.outcome = "failed"
        report.longrepr = f"skipped or expected to fail, which CI does not accept: {report.longrepr}"
        vars(report).pop("wasxfail", None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report
