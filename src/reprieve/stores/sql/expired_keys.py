"""The sweep of expired keys: each prune reads on where the last one ended.

A key whose job is kept stays, however long ago it expired, and dead jobs may be kept for ever. So all expired keys are
read once an hour, not in every prune. A free key is not in the way meanwhile: an enqueue takes it over.
"""

from typing import Final, NamedTuple

SWEEP_INTERVAL_MS: Final = 3_600_000
"""Milliseconds between the beginnings of two sweeps."""


class KeyPosition(NamedTuple):
    """A key among all in the order in which they expire."""

    expires_at: int = 0
    key: bytes = b""


class KeySweep:
    """How far the expired keys were read."""

    def __init__(self) -> None:
        """Begin with the first key."""
        self._began_at: int | None = None
        self._reached = self._pending = KeyPosition()

    def position(self, now: int) -> KeyPosition:
        """Return after which key to read on; a new sweep begins when the last one is an hour old."""
        if self._began_at is None or abs(now - self._began_at) >= SWEEP_INTERVAL_MS:
            self._began_at, self._reached = now, KeyPosition()
        self._pending = self._reached
        return self._reached

    def advance(self, position: KeyPosition) -> None:
        """Note the last key that a transaction has read."""
        self._pending = position

    def confirm(self) -> None:
        """Note that the transaction was committed; without this, its keys are read again."""
        self._reached = max(self._reached, self._pending)
