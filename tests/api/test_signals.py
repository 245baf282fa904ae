"""What a task may raise or return."""

import pytest

from reprieve import Reprieve
from reprieve.errors import InvalidDuration
from reprieve.signals import Cancel, Fail, Retry, Signal, Snooze, signal_in
from reprieve.testing import FakeClock, drain


def test_signals_carry_what_they_say() -> None:
    assert Snooze("5m").delay == 300
    assert (Retry().after, Retry("busy", after=2).after, Retry("busy").reason) == (None, 2, "busy")
    assert Fail("no such order").reason == "no such order"
    assert Cancel().reason == "the task cancelled its job"
    assert all(issubclass(kind, Signal) for kind in (Snooze, Retry, Fail, Cancel))


@pytest.mark.parametrize("kind", [Cancel, Fail, Retry])
def test_every_reason_becomes_clean_text(kind: type[Cancel | Fail | Retry]) -> None:
    assert kind(ValueError("boom")).reason == "boom"
    assert kind(ValueError()).reason == "ValueError"
    assert kind("caf\udce9\x00 is\nclosed").reason == "caf is closed"
    assert str(kind(404)) == "404"
    assert kind(" ").reason.startswith("the task ")


@pytest.mark.parametrize(
    ("signal", "state", "reason"),
    [
        (Fail(ValueError("boom")), "dead", "boom"),
        (Fail("caf\udce9"), "dead", "caf"),
        (Cancel(ValueError("boom")), "cancelled", ""),
        (Cancel("caf\udce9"), "cancelled", ""),
    ],
)
def test_a_job_ends_with_whatever_reason_its_task_gives(signal: Signal, state: str, reason: str) -> None:
    with Reprieve("sqlite://:memory:", clock=FakeClock()) as app:

        @app.task
        def end() -> None:
            raise signal

        job_id = end.enqueue().id
        assert drain(app).ran == 1
        job = app.job(job_id).fetch()
    assert (job.state, job.cause.reason if job.cause else "") == (state, reason)


def test_a_wait_that_is_none_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidDuration, match="snooze"):
        Snooze("5 minuts")
    with pytest.raises(InvalidDuration, match="retry after"):
        Retry(after=-1)


def test_the_first_signal_of_a_group_counts_beside_errors() -> None:
    first, second = Snooze("5m"), Fail("no")
    assert signal_in(ExceptionGroup("all", [ValueError("x"), ExceptionGroup("some", [first]), second])) is first
    assert signal_in(second) is second
    assert signal_in(ExceptionGroup("errors", [ValueError("x")])) is None
    assert signal_in(ValueError("x")) is None
