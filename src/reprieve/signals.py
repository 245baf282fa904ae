"""What a task may raise, or return, to say what should happen to its job.

These are not errors: a worker takes them for what they say. `Snooze` costs no attempt, `Retry` is a failure with a wait
of its own, `Fail` ends the job for good, `Cancel` gives it up without calling it a failure.
"""

from reprieve.core.duration import Duration, seconds


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

    def __init__(self, reason: str = "the task asked for a retry", *, after: Duration | None = None) -> None:
        """Take why, and optionally when."""
        self.reason = reason
        self.after = None if after is None else seconds(after, "retry after")
        super().__init__(reason)


class Fail(Signal):
    """No attempt can succeed: straight to the dead letters, with this reason."""

    def __init__(self, reason: str) -> None:
        """Take why: somebody will want to know."""
        self.reason = reason
        super().__init__(reason)


class Cancel(Signal):
    """There is nothing left to do: give the job up, which is no failure."""

    def __init__(self, reason: str = "the task gave up") -> None:
        """Take why."""
        self.reason = reason
        super().__init__(reason)
