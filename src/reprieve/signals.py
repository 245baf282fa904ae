"""Signals: what a task may raise or return to decide what happens to its job.

They are not errors. `Snooze` costs no attempt, `Retry` is a failure with a wait
of its own, `Fail` ends the job for good, `Cancel` gives it up without calling it a failure.
"""

from reprieve.core.duration import Duration, seconds
from reprieve.core.text import clean


class Signal(Exception):
    """The root of the signals. Raised and returned signals mean the same."""


class Snooze(Signal):
    """Run the job again later; this was not a failure."""

    def __init__(self, delay: Duration) -> None:
        """Take any duration."""
        self.delay = seconds(delay, "snooze")
        super().__init__(f"snoozed for {self.delay:g} s")


class Retry(Signal):
    """Fail the attempt, and retry the job after the given wait or the policy's."""

    def __init__(self, reason: object = "", *, after: Duration | None = None) -> None:
        """Take the reason, as a text or an exception, and optionally the wait."""
        self.reason = _text_of(reason, "the task asked for a retry")
        self.after = None if after is None else seconds(after, "retry after")
        super().__init__(self.reason)


class Fail(Signal):
    """Fail the job for good: it is dead at once, with this reason."""

    def __init__(self, reason: object) -> None:
        """Take the reason, as a text or an exception."""
        self.reason = _text_of(reason, "the task gave no reason")
        super().__init__(self.reason)


class Cancel(Signal):
    """Cancel the job: there is nothing left to do, and that is not a failure."""

    def __init__(self, reason: object = "") -> None:
        """Take the reason, as a text or an exception."""
        self.reason = _text_of(reason, "the task cancelled its job")
        super().__init__(self.reason)


def _text_of(reason: object, otherwise: str) -> str:
    """Return a reason as text that stores, logs and terminals accept; an exception without a message gives its name."""
    return clean(str(reason)) or (type(reason).__name__ if isinstance(reason, BaseException) else otherwise)
