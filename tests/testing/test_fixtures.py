"""The fixtures, used as an application would."""

import os
from collections.abc import Callable

from reprieve import Reprieve
from reprieve.clock import SystemClock
from reprieve.testing import FakeClock, assert_enqueued, drain, enqueued, inline

pytest_plugins = ["reprieve.testing.fixtures"]

clock = SystemClock()
app = Reprieve("sqlite:////nowhere/that/exists/jobs.db", clock=clock)


@app.task
def work() -> None:
    pass


def test_an_app_works_in_memory_and_on_the_tests_clock(
    reprieve_app: Callable[[Reprieve], Reprieve], reprieve_clock: FakeClock
) -> None:
    assert reprieve_app(app) is app
    start = reprieve_clock.now()
    work.using(delay="1h").enqueue()
    assert drain(app).succeeded == 1
    assert reprieve_clock.now() - start == 3_600_000


def test_a_job_in_a_transaction_is_there_at_once_as_if_it_were_committed(
    reprieve_app: Callable[[Reprieve], Reprieve],
) -> None:
    reprieve_app(app)
    session = object()  # of any database: the store of the test has nothing to do with it
    handle = work.using(connection=session).enqueue()
    assert handle.is_new
    assert_enqueued(app, work, times=1)
    assert drain(app).succeeded == 1
    with inline(app):
        (first, second) = app.enqueue_many([work.using(connection=session).call(), work.call()])
    assert [job.fetch().state for job in (first, second)] == ["succeeded", "succeeded"]


def test_nothing_is_left_of_another_test(reprieve_app: Callable[[Reprieve], Reprieve]) -> None:
    assert enqueued(reprieve_app(app)) == []


def test_afterwards_the_app_is_as_it_was() -> None:
    assert app.settings.url == "sqlite:////nowhere/that/exists/jobs.db"
    assert app.clock is clock
    assert not os.path.exists("/nowhere")  # noqa: PTH110 - a name, not a file
