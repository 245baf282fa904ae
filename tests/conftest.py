"""What holds for every test: the hypothesis profiles, and that nothing is skipped where it counts."""

import os
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

from reprieve import Reprieve
from reprieve.testing import FakeClock

# Tests that run in the background of a shell, or under nohup, inherit these ignored, and so would all that they start.
for inherited, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(inherited) is signal.SIG_IGN:
        signal.signal(inherited, handler)

# The same commit gives the same result, and a slow machine is not a failure.
settings.register_profile("ci", derandomize=True, deadline=None)
# Searches further than `make test` does.
settings.register_profile(
    "faults",
    max_examples=2_000,
    stateful_step_count=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# A mutant only has to be found, not minimised.
settings.register_profile("mutants", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("faults" if os.environ.get("REPRIEVE_FAULTS") else "ci")


@pytest.fixture
def clock() -> FakeClock:
    """Return a clock that stands still until it is moved."""
    return FakeClock()


@pytest.fixture
def app(clock: FakeClock) -> Iterator[Reprieve]:
    """Return an app with a store in memory and that clock."""
    with Reprieve("sqlite://:memory:", clock=clock) as app:
        yield app


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Return the URL of a PostgreSQL server, started for the first test that needs one."""
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
    """Return the URL of a Redis server, started for the first test that needs one."""
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
