"""What a task may raise, or return, to say what should happen to its job.

These are not errors: a worker takes them for what they say. `Snooze` costs no attempt, `Retry` is a failure with a wait
of its own, `Fail` ends the job for good, `Cancel` gives it up without calling it a failure.
"""

from reprieve.core.duration import Duration, seconds
from reprieve.core.failure import clean


class Signal(Exception):
    """What the signals have in common: raised or returned, they say the same."""


class Snooze(Signal):
    """Call me again later; this was no failure."""

    def __init__(self, delay: Duration) -> None:
        """Take any duration."""
        self.delay = seconds(delay, "snooze")
        super().__init__(f"snoozed for {self.delay:g} s")


class Retry(Signal):
    """This attempt failed; try again, after a wait of my choice or after the policy's."""

    def __init__(self, reason: object = "", *, after: Duration | None = None) -> None:
        """Take why, as a text or as anything that has one, and optionally when."""
        self.reason = _text_of(reason, "the task asked for a retry")
        self.after = None if after is None else seconds(after, "retry after")
        super().__init__(self.reason)


class Fail(Signal):
    """No attempt can succeed: straight to the dead letters, with this reason."""

    def __init__(self, reason: object) -> None:
        """Take why, as a text or as anything that has one: somebody will want to know."""
        self.reason = _text_of(reason, "the task gave no reason")
        super().__init__(self.reason)


class Cancel(Signal):
    """There is nothing left to do: give the job up, which is no failure."""

    def __init__(self, reason: object = "") -> None:
        """Take why, as a text or as anything that has one."""
        self.reason = _text_of(reason, "the task gave up")
        super().__init__(self.reason)


def _text_of(reason: object, otherwise: str) -> str:
    """Make a reason a text that every store, log and screen can take; an exception without a text is its name."""
    return clean(str(reason)) or (type(reason).__name__ if isinstance(reason, BaseException) else otherwise)
