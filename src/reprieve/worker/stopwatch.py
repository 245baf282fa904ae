"""The stopwatch: how long jobs take here, and so how many may be fetched before there is a slot for them."""

AHEAD = 0.1
"""Seconds of work that are fetched ahead."""

MOST = 250
"""Jobs that are fetched ahead at the most."""

_WEIGHT = 1 / 16


class Stopwatch:
    """Believes in slow jobs at once and in fast ones little by little: what is fetched behind a slow job waits."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._expected: float | None = None

    def note(self, seconds: float) -> None:
        """Take the length of one attempt."""
        if self._expected is None or seconds > self._expected:
            self._expected = seconds
        else:
            self._expected += (seconds - self._expected) * _WEIGHT

    def ahead(self, slots: int) -> int:
        """Return how many jobs may be fetched ahead; none while nobody knows how long they take."""
        if self._expected is None:
            return 0
        return min(MOST, int(slots * AHEAD / max(self._expected, 1e-6)))
