"""What a task may raise or return."""

import pytest

from reprieve.errors import InvalidDuration
from reprieve.signals import Cancel, Fail, Retry, Signal, Snooze


def test_signals_carry_what_they_say() -> None:
    assert Snooze("5m").delay == 300
    assert (Retry().after, Retry("busy", after=2).after, Retry("busy").reason) == (None, 2, "busy")
    assert Fail("no such order").reason == "no such order"
    assert Cancel().reason == "the task gave up"
    assert all(issubclass(kind, Signal) for kind in (Snooze, Retry, Fail, Cancel))


def test_a_wait_that_is_none_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidDuration, match="snooze"):
        Snooze("5 minuts")
    with pytest.raises(InvalidDuration, match="retry after"):
        Retry(after=-1)
