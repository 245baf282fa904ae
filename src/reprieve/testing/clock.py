"""A clock that stands still until it is told to move."""

from datetime import UTC, datetime

from reprieve.core.duration import Duration, milliseconds, seconds
from reprieve.errors import ValidationError

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
"""When tests begin unless they say otherwise."""


class FakeClock:
    """A clock for tests: hand it to an app, and time passes only when you say so."""

    is_stale = False
    is_recent = True

    def __init__(self, at: datetime | int = NOON) -> None:
        """Stand at a moment: a datetime with a time zone, or milliseconds since 1970."""
        self._now = _instant(at)

    def __repr__(self) -> str:
        """Show the moment."""
        return f"FakeClock({self.moment.isoformat()})"

    async def tune(self, *, waits: bool = False) -> None:
        """Do nothing: a fake clock follows no server."""

    def now(self) -> int:
        """Return the time in milliseconds since 1970."""
        return self._now

    def next(self) -> int:
        """Return the same: this clock knows no parts of a millisecond."""
        return self._now

    @property
    def moment(self) -> datetime:
        """The time as a datetime, in UTC."""
        return datetime.fromtimestamp(self._now / 1_000, UTC)

    def advance(self, by: Duration) -> None:
        """Let so much time pass."""
        self._now += milliseconds(seconds(by, "advance"))

    def set(self, at: datetime | int) -> None:
        """Go to a moment, which may lie in the past: clocks do that."""
        self._now = _instant(at)


def _instant(at: datetime | int) -> int:
    if isinstance(at, int):
        return at
    if at.tzinfo is None:
        message = f"{at!r} is no moment; give a datetime with a time zone"
        raise ValidationError(message)
    return milliseconds(at.timestamp())
